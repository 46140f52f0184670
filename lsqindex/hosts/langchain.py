"""LangChain: an index as a vector store.

add_texts ─▶ embed ─▶ one transaction: vectors, ids, and payloads {"text": …, "metadata": {…}}
search    ─▶ embed ─▶ ids, distances, payloads ─▶ documents

How many dimensions an embedding has is known when the first texts are embedded: the file is made then, by whichever
process comes first. Until then the store is empty, and there is no file.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..encoders.base import Metric, check_int
from ..errors import ClosedError, FilterError, IdError, IndexExistsError, ParameterError, PayloadError, UnknownIdError
from ..index import Index
from ..metrics import METRICS
from .files import absolute

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.runnables import run_in_executor
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    raise ImportError("lsqindex.hosts.langchain needs langchain-core: pip install 'lsqindex[langchain]'") from error

if TYPE_CHECKING:
    from typing_extensions import Self

_METADATA = "metadata."


class LsqVectorStore(VectorStore):
    """Documents with their embeddings, in the file ``path`` or, without one, in memory.

    A file that is there is opened; else it is made when the first texts are added. ``metric`` is "cosine", unless the
    file has another. ``rerank`` is that of :meth:`lsqindex.Index.search`. ``fields`` are names in metadata that filters
    ask for often. ``relevance_score_fn`` turns a distance into a relevance. ``read_only`` and ``wait`` are those of
    :meth:`lsqindex.Index.open`. ``options`` are those of :meth:`lsqindex.Index.create`, such as ``bits=256``; a file
    that exists keeps those it was made with.

    A ``filter`` is a mapping over metadata, such as ``{"source": "x", "year": {"$gte": 2020}}``.

    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> store = LsqVectorStore(DeterministicFakeEmbedding(size=64))
    >>> store.add_texts(["ice on the lake", "a late train"], [{"year": 1999}, {"year": 2020}], ids=["ice", "train"])
    ['ice', 'train']
    >>> [document.id for document in store.similarity_search("a late train", k=1)]
    ['train']
    >>> store.similarity_search("a late train", filter={"year": {"$lt": 2000}})
    [Document(id='ice', metadata={'year': 1999}, page_content='ice on the lake')]
    """

    def __init__(
        self,
        embedding: Embeddings,
        path: str | Path | None = None,
        *,
        metric: Metric | None = None,
        rerank: int | None = None,
        fields: Iterable[str] = (),
        relevance_score_fn: Callable[[float], float] | None = None,
        read_only: bool = False,
        wait: bool | float = True,
        **options: Any,
    ) -> None:
        if isinstance(fields, str):
            raise ParameterError(f"fields={fields!r}: a sequence of names is needed")
        self.rerank = rerank
        self._embedding, self._relevance_score_fn = embedding, relevance_score_fn
        self._path = None if path is None else Path(absolute(path))
        self._metric, self._read_only, self._wait = metric, read_only, wait
        names = [_METADATA + name for name in fields]
        self._options = {"metric": metric or "cosine", "fields": names, **options}
        self._index: Index | None = None
        self._closed = False
        self._lock = threading.RLock()
        if read_only and self._path is not None:
            self._index = self._open_file(self._path)
        else:
            self._find()

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Self:
        """A store with these texts; ``options`` are those of the class. Texts are added to a file that is there."""
        store = cls(embedding, **options)
        store.add_texts(texts, metadatas, ids=ids, batch_size=batch_size)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Self:
        """As :meth:`from_texts`."""
        store: Self = await run_in_executor(None, cls, embedding, **options)
        await store.aadd_texts(texts, metadatas, ids=ids, batch_size=batch_size)
        return store

    @property
    def embeddings(self) -> Embeddings:
        """What embeds texts."""
        return self._embedding

    @property
    def index(self) -> Index | None:
        """The index behind, with statistics, training and all else; None as long as nothing was ever added."""
        return self._find()

    # -- changing -----------------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
    ) -> list[str]:
        """Embed texts and store them; their ids. What was stored under one of ``ids`` is replaced.

        When it returns they are on the disk: all of them or, after an error, none. With ``batch_size`` so many are
        embedded and stored at a time. An id that is None or not given is made up. Of texts under one id the last
        counts.
        """
        names, parts = _parts(texts, metadatas, ids, batch_size)
        for part in parts:
            self._add(part, self._embedding.embed_documents(part.texts))
        return names

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
    ) -> list[str]:
        """As :meth:`add_texts`."""
        names, parts = _parts(texts, metadatas, ids, batch_size)
        for part in parts:
            vectors = await self._embedding.aembed_documents(part.texts)
            await run_in_executor(None, self._add, part, vectors)
        return names

    def delete(self, ids: Sequence[str] | None = None, *, filter: Mapping[str, Any] | None = None) -> bool:
        """Delete what there is of ``ids``, or all that ``filter`` lets through; without both, everything."""
        if ids is not None and filter is not None:
            raise ParameterError("delete: ids or a filter, not both")
        index = self._find()
        if index is not None:
            index.delete((_on_metadata(filter) or {}) if ids is None else ids)
        return True

    def _add(self, part: _Part, vectors: ArrayLike) -> None:
        rows = np.asarray(vectors, np.float32)
        if rows.ndim != 2 or len(rows) != len(part.ids):
            raise ParameterError(f"embedding: {len(part.ids)} vectors are needed, got shape {rows.shape}")
        self._make(rows.shape[1]).add(rows, part.ids, part.payloads, upsert=True)

    # -- asking -------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of ``ids``, in their order; those that are not there are left out."""
        index, names = self._find(), list(ids)
        while index is not None:
            try:
                return [_document(*found) for found in zip(names, index.payloads(names), strict=True)]
            except (UnknownIdError, IdError):
                # Again if one of these is deleted meanwhile.
                there = set(index.ids(names))
                names = [name for name in names if name in there]
        return []

    def similarity_search(self, query: str, k: int = 4, **search: Any) -> list[Document]:
        """The ``k`` documents nearest to a text; ``search``: a ``filter``, options of :meth:`lsqindex.Index.search`."""
        return self.similarity_search_by_vector(self._embedding.embed_query(query), k, **search)

    async def asimilarity_search(self, query: str, k: int = 4, **search: Any) -> list[Document]:
        """As :meth:`similarity_search`."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **search)]

    def similarity_search_with_score(self, query: str, k: int = 4, **search: Any) -> list[tuple[Document, float]]:
        """The nearest documents with their distances: smaller is nearer, in every metric."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, **search)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **search: Any
    ) -> list[tuple[Document, float]]:
        """As :meth:`similarity_search_with_score`."""
        vector = await self._embedding.aembed_query(query)
        search_by_vector = self.similarity_search_with_score_by_vector
        found: list[tuple[Document, float]] = await run_in_executor(None, search_by_vector, vector, k, **search)
        return found

    def similarity_search_by_vector(self, embedding: ArrayLike, k: int = 4, **search: Any) -> list[Document]:
        """The documents nearest to a vector."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **search)]

    def similarity_search_with_score_by_vector(
        self, embedding: ArrayLike, k: int = 4, *, filter: Any = None, **search: Any
    ) -> list[tuple[Document, float]]:
        """The documents nearest to a vector, with their distances."""
        allowed, index = _on_metadata(filter), self._find()
        if index is None:
            return []
        found = index.search(embedding, k, **{"rerank": self.rerank, **search}, filter=allowed, with_payloads=True)
        assert found.payloads is not None
        hits = zip(found.ids.tolist(), found.payloads, found.distances.tolist(), strict=True)
        return [(_document(name, payload), distance) for name, payload, distance in hits if name is not None]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **search: Any
    ) -> list[Document]:
        """``k`` of the ``fetch_k`` documents nearest to a text, near to it and unlike each other.

        ``lambda_mult`` is from 0, as different as possible, to 1, as near as possible.
        """
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **search)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **search: Any
    ) -> list[Document]:
        """As :meth:`max_marginal_relevance_search`."""
        vector = await self._embedding.aembed_query(query)
        found: list[Document] = await self.amax_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **search
        )
        return found

    def max_marginal_relevance_search_by_vector(
        self, embedding: ArrayLike, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **search: Any
    ) -> list[Document]:
        """As :meth:`max_marginal_relevance_search`, of a vector."""
        while True:
            near = self.similarity_search_by_vector(embedding, max(k, fetch_k), **search)
            index = self._find()
            if index is None or not near:
                return []
            try:
                vectors = index.get([document.id for document in near])
            except UnknownIdError:
                continue  # one of them was deleted meanwhile: search again
            return [near[at] for at in _diverse(np.asarray(embedding, np.float32), vectors, k, lambda_mult)]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        index = self._find()
        metric = self._options["metric"] if index is None else index.metric
        return self._relevance_score_fn or METRICS[metric].relevance

    # -- the file -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; what is in memory is gone. Closing twice is no error."""
        with self._lock:
            self._closed = True
            if self._index is not None:
                self._index.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._path is None and self._index is not None:
            raise ParameterError("a store in memory cannot be pickled or copied; give it a path")
        return {**self.__dict__, "_index": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find(self) -> Index | None:
        """The index; None where nobody has made it yet."""
        with self._lock:
            if self._closed:
                raise ClosedError("the store is closed; LsqVectorStore(embedding, path) opens it again")
            if self._index is None and self._path is not None and self._path.exists():
                self._index = self._open_file(self._path)
            return self._index

    def _make(self, dim: int) -> Index:
        """The index, made now where there is none."""
        with self._lock:
            index = self._find()
            if index is None:
                index = self._index = self._make_new(dim)
            return index

    def _make_new(self, dim: int) -> Index:
        if self._path is None:
            return Index(dim, ids="str", **self._options)
        try:
            return Index.create(self._path, dim, ids="str", wait=self._wait, **self._options)
        except IndexExistsError:
            return self._open_file(self._path)  # another process was faster

    def _open_file(self, path: Path) -> Index:
        index = Index.open(path, read_only=self._read_only, wait=self._wait)
        complaint = ""
        stats = index.stats()
        if stats["ids"] != "str":
            complaint = "its ids are numbers, so it is no store of documents"
        elif not all(name.startswith(_METADATA) for name in stats["fields"]):
            complaint = "its documents are those of another program"
        elif self._metric not in (None, index.metric):
            complaint = f"its metric is {index.metric!r}, and metric={self._metric!r} was asked for"
        if complaint:
            index.close()
            raise ParameterError(f"{path}: {complaint}; give another path")
        return index


@dataclass(frozen=True)
class _Part:
    """Texts that are embedded and stored together."""

    texts: list[str]
    ids: list[str]
    payloads: list[dict[str, Any]]


def _parts(
    texts: Iterable[str],
    metadatas: Sequence[Mapping[str, Any] | None] | None,
    ids: Sequence[str | None] | None,
    batch_size: int | None,
) -> tuple[list[str], list[_Part]]:
    """The ids of texts, and the texts, checked before the first is embedded: that may cost money."""
    given = list(texts)
    for what, others in (("metadatas", metadatas), ("ids", ids)):
        if others and len(others) != len(given):
            raise ParameterError(f"{what}: {len(given)} are needed, one for each text, got {len(others)}")
    names = [str(uuid.uuid4()) if name is None else name for name in ids or [None] * len(given)]
    payloads = [
        {"text": text, "metadata": dict(metadata or {})}
        for text, metadata in zip(given, metadatas or [None] * len(given), strict=True)
    ]
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise IdError(f"ids: strings are needed, got {wrong[0]!r}")
    # Of those under one id only the last.
    last = list({name: at for at, name in enumerate(names)}.values())
    with Index(1, ids="str", encoder="flat") as tried:  # what cannot be stored is refused here
        tried.add(np.zeros((len(last), 1), np.float32), [names[i] for i in last], [payloads[i] for i in last])
    size = max(len(given), 1) if batch_size is None else check_int("batch_size", batch_size, 1, 1 << 40)
    cut = [last[first : first + size] for first in range(0, len(last), size)]
    parts = [_Part([given[i] for i in own], [names[i] for i in own], [payloads[i] for i in own]) for own in cut]
    return names, parts


def _document(name: str, payload: Any) -> Document:
    if not payload or "text" not in payload:
        raise PayloadError(f"{name!r}: has no text, so it was not stored as a document; delete it, or upsert it as one")
    return Document(id=name, page_content=payload["text"], metadata=payload.get("metadata") or {})


def _on_metadata(filter: Any) -> Any:
    """A filter over metadata as one over payloads.

    >>> _on_metadata({"$or": [{"year": 2020}, {"lang": {"$ne": "en"}}]})
    {'$or': [{'metadata.year': 2020}, {'metadata.lang': {'$ne': 'en'}}]}
    """
    if callable(filter):
        raise FilterError(
            "filter: a mapping over metadata is needed, such as {'year': {'$gte': 2020}}; no function is called for "
            "each document"
        )
    if not isinstance(filter, Mapping):
        return filter
    return {_payload_name(name): _operand(name, operand) for name, operand in filter.items()}


def _payload_name(name: Any) -> Any:
    return name if not isinstance(name, str) or name.startswith("$") else _METADATA + name


def _operand(name: Any, operand: Any) -> Any:
    if name == "$not":
        return _on_metadata(operand)
    if name in ("$and", "$or") and isinstance(operand, list | tuple):
        return [_on_metadata(part) for part in operand]
    return operand


def _diverse(query: NDArray[np.float32], vectors: NDArray[np.float32], k: int, lambda_mult: float) -> list[int]:
    """Maximal marginal relevance: the nearest, then again and again the one that is near, and unlike those chosen."""
    rows = _unit(vectors)
    relevance = rows @ _unit(query)
    redundance = np.zeros_like(relevance)
    scores, chosen = relevance, list[int]()
    for _ in range(min(k, len(rows))):
        best = int(np.argmax(scores))
        likeness = rows @ rows[best]
        redundance = np.maximum(redundance, likeness) if chosen else likeness
        chosen.append(best)
        scores = lambda_mult * relevance - (1 - lambda_mult) * redundance
        scores[chosen] = -np.inf
    return chosen


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit
