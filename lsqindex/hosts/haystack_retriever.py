"""Haystack: the component that searches a document store by embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .haystack import LsqDocumentStore  # (and what to install, where Haystack is missing)

# isort: split
from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

if TYPE_CHECKING:
    from typing_extensions import Self


@component
class LsqEmbeddingRetriever:
    """The documents of a :class:`LsqDocumentStore` whose embeddings are nearest to a query's.

    ``filters`` and ``top_k`` hold unless a run has its own; ``filter_policy`` tells whether a run's filters replace
    these or are added to them. Documents come without their embeddings, unless ``return_embedding``.

    >>> import os, tempfile
    >>> from haystack import Document
    >>> from haystack_integrations.document_stores.lsqindex import LsqDocumentStore
    >>> store = LsqDocumentStore(os.path.join(tempfile.mkdtemp(), "news.lsq"))
    >>> store.write_documents([Document(content="a late train", embedding=[0.0, 1.0])])
    1
    >>> LsqEmbeddingRetriever(store, top_k=3).run(query_embedding=[0.0, 1.0])["documents"][0].content
    'a late train'
    """

    __module__ = "haystack_integrations.components.retrievers.lsqindex"

    def __init__(
        self,
        document_store: LsqDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        return_embedding: bool = False,
    ) -> None:
        if not isinstance(document_store, LsqDocumentStore):
            raise TypeError(f"document_store: an LsqDocumentStore is needed, got {type(document_store).__name__}")
        if top_k <= 0:
            raise ValueError(f"top_k={top_k}: must be greater than 0")
        policy = filter_policy if isinstance(filter_policy, FilterPolicy) else FilterPolicy.from_str(filter_policy)
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.filter_policy, self.return_embedding = policy, return_embedding
        component.set_output_types(self, documents=list[Document])

    def to_dict(self) -> dict[str, Any]:
        """What it was made with."""
        saved: dict[str, Any] = default_to_dict(
            self,
            document_store=self.document_store,
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
            return_embedding=self.return_embedding,
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The retriever that :meth:`to_dict` told of."""
        retriever: Self = default_from_dict(cls, data)
        return retriever

    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The nearest ``documents``, the nearest first."""
        return {"documents": self.document_store.embedding_retrieval(*self._asked(query_embedding, filters, top_k))}

    async def run_async(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """As :meth:`run`."""
        asked = self._asked(query_embedding, filters, top_k)
        return {"documents": await self.document_store.embedding_retrieval_async(*asked)}

    def _asked(self, query_embedding: list[float], filters: dict[str, Any] | None, top_k: int | None) -> Any:
        applied = apply_filter_policy(self.filter_policy, self.filters, filters)
        return query_embedding, applied, self.top_k if top_k is None else top_k, self.return_embedding
