"""Haystack: an index as a document store; its retriever is in ``haystack_retriever.py``.

write_documents     ─▶ one transaction: embeddings, ids, and payloads, which are the documents as they were written
embedding_retrieval ─▶ ids, distances, payloads ─▶ documents with scores

A document without an embedding lies under zeros, which no search returns and no training sees. How many dimensions
embeddings have is known when the first one comes: until then the file has one dimension, and is replaced then. Other
stores of the same file notice, and go on with the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..encoders.base import Metric
from ..errors import (
    DuplicateIdError,
    IndexExistsError,
    IndexMissingError,
    LsqIndexError,
    ParameterError,
    ReplacedError,
    TooFewVectorsError,
    UnknownIdError,
)
from ..errors import FilterError as LsqFilterError
from ..index import Index
from ..metrics import METRICS
from .files import absolute

try:
    from haystack import default_from_dict, default_to_dict
    from haystack.dataclasses import Document
    from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError

    from .haystack_documents import (
        absent,
        dim_of,
        document_of,
        meta_name,
        payload_of,
        unique,
        values_of,
        vectors_of,
        with_meta,
    )
    from .haystack_filters import EMBEDDED, Filter, indexed_names, on_payloads
except ImportError as error:
    raise ImportError("lsqindex.hosts.haystack needs Haystack: pip install 'lsqindex[haystack]'") from error

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_HAS_EMBEDDING: Filter = {EMBEDDED: {"$exists": True}}

#: How often to begin anew where another index was put into the place of the file.
_TRIES = 20

#: Embeddings that the default encoder is trained with, as many as an index waits for.
_TRAIN_SIZE = 10_000

#: More than any index holds: it is trained from here, when there are embeddings enough.
_NEVER = 1 << 40


class LsqDocumentStore:
    """Documents, with and without embeddings, in the file ``path``.

    The file is made by the first write, and is opened where it is there already. ``embedding_dim`` is, by default,
    that of the first embedding. Embeddings are compared by ``metric``: "cosine", "ip" or "l2". ``fields`` are names of
    metadata that filters ask for often. The index trains itself when there are ``train_size`` embeddings (10,000).
    ``rerank`` is that of :meth:`lsqindex.Index.search`. ``options`` are those of :meth:`lsqindex.Index.create`, such as
    ``bits=256``; a file that exists keeps those it was made with.

    Each method has a twin for coroutines, ``…_async``.

    >>> import os, tempfile
    >>> from haystack import Document
    >>> store = LsqDocumentStore(os.path.join(tempfile.mkdtemp(), "news.lsq"))
    >>> store.write_documents([
    ...     Document(id="ice", content="ice on the lake", embedding=[1.0, 0.0], meta={"year": 1999}),
    ...     Document(id="train", content="a late train", embedding=[0.0, 1.0], meta={"year": 2020}),
    ... ])
    2
    >>> [document.id for document in store.embedding_retrieval([0.1, 0.9], top_k=1)]
    ['train']
    >>> store.filter_documents({"field": "meta.year", "operator": "<", "value": 2000})[0].content
    'ice on the lake'
    """

    # Where users import it from, and what saved pipelines name: Haystack loads what is below haystack_integrations.
    __module__ = "haystack_integrations.document_stores.lsqindex"

    def __init__(
        self,
        path: str | Path,
        *,
        embedding_dim: int | None = None,
        metric: Metric = "cosine",
        fields: Iterable[str] = (),
        train_size: int | None = None,
        rerank: int | None = None,
        **options: Any,
    ) -> None:
        if isinstance(fields, str):
            raise ParameterError(f"fields={fields!r}: a sequence of names is needed")
        self.path, self.embedding_dim, self.metric = str(path), embedding_dim, metric
        self.fields, self.train_size, self.rerank, self.options = list(fields), train_size, rerank, options
        self._file = absolute(path)
        self._index: Index | None = None
        self._opening = threading.RLock()
        self._last = 0

    def to_dict(self) -> dict[str, Any]:
        """What it was made with; the documents stay in the file."""
        saved: dict[str, Any] = default_to_dict(
            self,
            path=self.path,
            embedding_dim=self.embedding_dim,
            metric=self.metric,
            fields=self.fields,
            train_size=self.train_size,
            rerank=self.rerank,
            **self.options,
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The store that :meth:`to_dict` told of."""
        store: Self = default_from_dict(cls, data)
        return store

    # -- changing -----------------------------------------------------------------------------

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Store documents, as a whole or not at all; how many were written. When it returns they are on the disk.

        A document whose id is there already is replaced (OVERWRITE), left as it is (SKIP), or a DuplicateDocumentError
        (FAIL, and NONE).
        """
        if not isinstance(documents, Iterable) or isinstance(documents, str):
            raise ValueError(f"documents: a list of documents is needed, got {type(documents).__name__}")
        given = list(documents)
        odd = next((one for one in given if not isinstance(one, Document)), None)
        if odd is not None:
            raise ValueError(f"documents: a list of documents is needed, got {odd!r} in it")
        if policy == DuplicatePolicy.OVERWRITE:
            self._write(list({document.id: document for document in given}.values()), upsert=True)
            return len(given)
        if policy == DuplicatePolicy.SKIP:
            return self._write(given, skip=True)
        return self._write(given)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete what there is of these ids."""
        self._ask(lambda index: index.delete(document_ids), 0)

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """Delete everything. ``recreate_index`` makes the file anew, untrained, for embeddings of any dimensions."""
        if recreate_index:
            self._ask(lambda index: index.replace(lambda old: Index(**self._making(self.embedding_dim))), None)
        else:
            self.delete_by_filter({})

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete what a filter lets through; how many there were."""
        allowed = on_payloads(filters)
        return self._ask(lambda index: index.delete(allowed), 0)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Put ``meta`` into the metadata of what a filter lets through; how many there were."""
        allowed = on_payloads(filters)

        def update(index: Index) -> int:
            with index.batch() as batch:
                found = _payloads(index, allowed)
                changed = [with_meta(payload, {**payload["meta"], **meta}) for _, payload in found]
                batch.set_payloads([name for name, _ in found], changed)
                return len(found)

        return self._ask(update, 0)

    def _write(self, documents: list[Document], *, upsert: bool = False, skip: bool = False) -> int:
        dim = dim_of(documents)

        def write(index: Index) -> int:
            if dim is not None and dim != index.dim:
                self._set_dim(index, dim)
            with index.batch() if skip else contextlib.nullcontext(index) as target:
                new = absent(documents, index.ids([document.id for document in documents])) if skip else documents
                payloads = [payload_of(document, order) for document, order in zip(new, self._orders(), strict=False)]
                target.add(vectors_of(new, index.dim), [document.id for document in new], payloads, upsert=upsert)
            self._train_if_due(index)
            return len(new)

        return self._run(write)

    def _orders(self) -> Iterator[int]:
        """Numbers that grow with the time; many of one moment in their order."""
        while True:
            self._last = max(self._last + 1, time.time_ns())
            yield self._last

    def _train_if_due(self, index: Index) -> None:
        """Train when there are embeddings enough: the index itself would count, and learn from, zeros."""
        size = self.train_size or _TRAIN_SIZE
        if len(index) < size or index.is_trained:
            return
        ids = index.ids(_HAS_EMBEDDING)
        if len(ids) >= size:
            # What was written is durable. If the encoder needs more, or another store changes it, the next write tries.
            with contextlib.suppress(TooFewVectorsError, UnknownIdError, ReplacedError):
                index.train(index.get(ids))

    # -- asking -------------------------------------------------------------------------------

    def count_documents(self) -> int:
        """How many documents there are."""
        return self._ask(len, 0)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """The documents that a filter lets through, or all, in the order in which they were written."""
        found = sorted(self._payloads(filters), key=lambda one: one[1]["order"])
        return [document_of(name, payload) for name, payload in found]

    def embedding_retrieval(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        return_embedding: bool = True,
    ) -> list[Document]:
        """The ``top_k`` nearest of the documents with embeddings, with scores: the higher, the nearer.

        The score is the cosine, the inner product, or the negative squared distance.
        """
        allowed = {"$and": [_HAS_EMBEDDING, on_payloads(filters)]}

        def retrieve(index: Index) -> list[Document]:
            if len(query_embedding) != index.dim and not index.ids(_HAS_EMBEDDING):
                return []  # no dimensions are known yet
            found = index.search(query_embedding, top_k, rerank=self.rerank, filter=allowed, with_payloads=True)
            assert found.payloads is not None
            scores = METRICS[index.metric].similarities(found.distances)
            hits = zip(found.ids.tolist(), found.payloads, scores.tolist(), strict=True)
            return [document_of(*hit, embedding=return_embedding) for hit in hits if hit[0] is not None]

        return self._ask(retrieve, [])

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """How many documents a filter lets through."""
        allowed = on_payloads(filters)
        return self._ask(lambda index: len(index.ids(allowed)), 0)

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """How many different values fields of metadata have in what a filter lets through."""
        payloads = [payload for _, payload in self._payloads(filters)]
        return {meta_name(field): len(unique(values_of(payloads, field))) for field in metadata_fields}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The fields of metadata, and their types: "boolean", "int", "float" or "keyword"."""
        return {
            name: {"type": {bool: "boolean", int: "int", float: "float"}.get(type(value), "keyword")}
            for _, payload in self._payloads(None)
            for name, value in payload["meta"].items()
            if value is not None
        }

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """The least and the largest value, ``{"min": …, "max": …}``; None where there is none, or no order."""
        payloads = [payload for _, payload in self._payloads(None)]
        values = [value for value in values_of(payloads, metadata_field) if isinstance(value, int | float | str)]
        try:
            return {"min": min(values, default=None), "max": max(values, default=None)}
        except TypeError:
            return {"min": None, "max": None}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """``size`` of the different values of a field, from number ``from_`` on, and how many there are in all.

        Only values with ``search_term`` in them, whatever its case, of documents that ``filters`` let through.
        """
        values = unique(values_of([payload for _, payload in self._payloads(filters)], metadata_field))
        wanted = [value for value in values if (search_term or "").lower() in str(value).lower()]
        wanted.sort(key=lambda value: (str(value), type(value).__name__))
        return wanted[from_ : from_ + size], len(wanted)

    def _payloads(self, filters: dict[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
        """Ids and payloads of what a filter lets through."""
        allowed = on_payloads(filters)
        return self._ask(lambda index: _payloads(index, allowed), [])

    # -- the same, awaited --------------------------------------------------------------------

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """As :meth:`write_documents`."""
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """As :meth:`delete_documents`."""
        await asyncio.to_thread(self.delete_documents, document_ids)

    async def delete_all_documents_async(self, recreate_index: bool = False) -> None:
        """As :meth:`delete_all_documents`."""
        await asyncio.to_thread(self.delete_all_documents, recreate_index)

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        """As :meth:`delete_by_filter`."""
        return await asyncio.to_thread(self.delete_by_filter, filters)

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """As :meth:`update_by_filter`."""
        return await asyncio.to_thread(self.update_by_filter, filters, meta)

    async def count_documents_async(self) -> int:
        """As :meth:`count_documents`."""
        return await asyncio.to_thread(self.count_documents)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """As :meth:`filter_documents`."""
        return await asyncio.to_thread(self.filter_documents, filters)

    async def embedding_retrieval_async(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        return_embedding: bool = True,
    ) -> list[Document]:
        """As :meth:`embedding_retrieval`."""
        return await asyncio.to_thread(self.embedding_retrieval, query_embedding, filters, top_k, return_embedding)

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        """As :meth:`count_documents_by_filter`."""
        return await asyncio.to_thread(self.count_documents_by_filter, filters)

    async def count_unique_metadata_by_filter_async(
        self, filters: dict[str, Any], metadata_fields: list[str]
    ) -> dict[str, int]:
        """As :meth:`count_unique_metadata_by_filter`."""
        return await asyncio.to_thread(self.count_unique_metadata_by_filter, filters, metadata_fields)

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """As :meth:`get_metadata_fields_info`."""
        return await asyncio.to_thread(self.get_metadata_fields_info)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """As :meth:`get_metadata_field_min_max`."""
        return await asyncio.to_thread(self.get_metadata_field_min_max, metadata_field)

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """As :meth:`get_metadata_field_unique_values`."""
        ask = self.get_metadata_field_unique_values
        return await asyncio.to_thread(ask, metadata_field, search_term, from_, size, filters)

    # -- the file -----------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """The index behind, with statistics, training and all else."""
        return self._run(lambda index: index)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._opening:
            if self._index is not None:
                self._index.close()
            self._index = None

    def _ask(self, action: Callable[[Index], T], nothing: T) -> T:
        """Do something with the index; ``nothing`` where nobody has made the file yet."""
        try:
            return self._run(action, make=False)
        except _NoFileError:
            return nothing

    def _run(self, action: Callable[[Index], T], *, make: bool = True) -> T:
        """Do something with the index, with the new one where another was put into its place; errors are Haystack's."""
        try:
            for _ in range(_TRIES):
                index = self._open(make)
                try:
                    return action(index)
                except (ReplacedError, IndexMissingError):
                    self._forget(index)
            raise DocumentStoreError(f"{self.path}: other processes replaced the file repeatedly; try again")
        except DuplicateIdError as error:
            said = str(error).partition(";")[0]
            remedy = "DuplicatePolicy.OVERWRITE replaces documents, SKIP leaves them as they are"
            raise DuplicateDocumentError(f"{said}; {remedy}") from error
        except LsqFilterError as error:
            raise FilterError(str(error)) from error
        except LsqIndexError as error:
            raise DocumentStoreError(str(error)) from error

    def _open(self, make: bool) -> Index:
        with self._opening:
            if self._index is None:
                try:
                    self._index = self._open_file()
                except IndexMissingError:
                    if not make:
                        raise _NoFileError from None
                    try:
                        self._index = Index.create(self._file, **self._making(self.embedding_dim))
                    except IndexExistsError:
                        self._index = self._open_file()  # another was faster
            return self._index

    def _forget(self, index: Index) -> None:
        """Open the file anew for what comes next. (Others may be using this one: whoever is last closes it.)"""
        with self._opening:
            if self._index is index:
                self._index = None

    def _open_file(self) -> Index:
        index = Index.open(self._file)
        complaint = ""
        if EMBEDDED not in index.stats()["fields"]:
            complaint = "is an index, and not one of documents"
        elif index.metric != self.metric:
            complaint = f"its metric is {index.metric!r}, and metric={self.metric!r} was asked for"
        if complaint:
            index.close()
            raise ParameterError(f"{self.path}: {complaint}; give another path")
        return index

    def _making(self, dim: int | None) -> dict[str, Any]:
        """What an index of documents is made with; as long as dimensions are unknown, the simplest of one dimension."""
        names = [name for field in self.fields for name in indexed_names(field)]
        options = {"encoder": "flat"} if dim is None else dict(self.options)
        given = {"dim": dim or 1, "metric": self.metric, "ids": "str", "fields": [EMBEDDED, *names]}
        return {**options, **given, "train_size": _NEVER}

    def _set_dim(self, index: Index, dim: int) -> None:
        """Make place for embeddings of other dimensions than the index has: possible as long as it has none."""

        def anew(old: Index) -> Index:
            needed = old.dim if old.ids(_HAS_EMBEDDING) else self.embedding_dim or dim
            if dim != needed:
                raise DocumentStoreError(
                    f"embedding: {dim} numbers, and {needed} are needed, as all documents must be embedded by one "
                    "model; delete_all_documents(recreate_index=True) starts again"
                )
            found = _payloads(old, None)
            new = Index(**self._making(dim))
            new.add(np.zeros((len(found), dim)), [name for name, _ in found], [payload for _, payload in found])
            return new

        index.replace(anew)


class _NoFileError(Exception):
    """Nobody has written a document yet."""


def _payloads(index: Index, allowed: Filter | None) -> list[tuple[str, dict[str, Any]]]:
    """Ids and payloads of what a filter lets through; asked again, where another has deleted one meanwhile."""
    while True:
        ids = index.ids(allowed)
        with contextlib.suppress(UnknownIdError):
            return list(zip(ids, index.payloads(ids), strict=True))
