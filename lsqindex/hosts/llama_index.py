"""LlamaIndex: an index as a vector store, with its nodes in the same file.

    add         node ─▶ its embedding, and a payload: all of the node, metadata apart, so that filters find it
    query       embedding, filters ─▶ a search ─▶ payloads ─▶ nodes
    persist     a store in memory is the file from then on; of a file: a copy elsewhere

How many dimensions embeddings have is known with the first node. The index is made then.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import IndexExistsError, IndexMissingError, NotAnIndexError, ParameterError, UnknownIdError
from ..index import Index
from ..metrics import METRICS

try:
    import fsspec
    from fsspec.implementations.local import LocalFileSystem
    from llama_index.core.base.embeddings.base import SimilarityMode, similarity
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.constants import DATA_KEY, TYPE_KEY
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode
    from llama_index.core.storage.docstore.utils import json_to_doc
    from llama_index.core.vector_stores.simple import DEFAULT_VECTOR_STORE, NAMESPACE_SEP
    from llama_index.core.vector_stores.types import (
        DEFAULT_PERSIST_DIR,
        DEFAULT_PERSIST_FNAME,
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
except ImportError as error:
    raise ImportError("lsqindex.hosts.llama_index needs LlamaIndex: pip install 'lsqindex[llama-index]'") from error

from .files import in_own_folder, making, save_over, searching, value_at
from .llama_filters import EVERYTHING, Filter, field_name, translate

if TYPE_CHECKING:
    from typing_extensions import Self

#: Nodes from which MMR chooses, at least, and for each node that it is asked for.
_POOL, _POOL_FACTOR = 100, 4

#: Indexed in every store: nodes are deleted by it.
_REF = field_name("ref_doc_id")

#: Payloads that are read at a time.
_BLOCK = 4096

#: A similarity, of a metric, as LlamaIndex has it: the higher, the nearer.
_MODES = {"cosine": SimilarityMode.DEFAULT, "ip": SimilarityMode.DOT_PRODUCT, "l2": SimilarityMode.EUCLIDEAN}

#: Held while an index is opened or made, so that threads make one.
_OPENING = threading.Lock()


class LsqVectorStore(BasePydanticVectorStore):
    """A vector store in the file ``path``, which may exist, or in memory.

    ``settings`` are those of :meth:`Index.create` except ``dim`` and ``ids`` (``metric`` is "cosine" by default;
    ``fields`` are names of metadata), and those of :meth:`Index.search` except ``k`` and ``filter``. For a file that
    exists only those of a search count.

    >>> from llama_index.core.schema import TextNode
    >>> from llama_index.core.vector_stores import VectorStoreQuery
    >>> store = LsqVectorStore()
    >>> store.add([TextNode(id_="a", text="ice", embedding=[1, 0]), TextNode(id_="b", text="fire", embedding=[0, 1])])
    ['a', 'b']
    >>> found = store.query(VectorStoreQuery(query_embedding=[0, 2], similarity_top_k=1))
    >>> found.nodes[0].text, found.similarities
    ('fire', [1.0])
    """

    stores_text: bool = True
    path: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)

    _index: Index | None = PrivateAttr(default=None)

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        given = {name: settings.pop(name) for name in ("stores_text", "is_embedding_query") if name in settings}
        asked = {**settings.pop("settings", {}), **settings}
        super().__init__(path=None if path is None else os.fspath(path), settings=asked, **given)
        self._find()

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows the class."""
        return "LsqVectorStore"

    @property
    def client(self) -> Index | None:
        """The index; None until there is a node."""
        return self._find()

    # -- nodes ----------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Store nodes, which must have embeddings, in the place of those that have their ids; their ids."""
        last = {node.node_id: node for node in nodes}
        if last:
            vectors = [node.get_embedding() for node in last.values()]
            self._make(len(vectors[0])).add(vectors, list(last), list(map(_payload, last.values())), upsert=True)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        if (index := self._find()) is not None:
            index.delete({_REF: ref_doc_id})

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes that are named, or that match, or both where both are given; without either none."""
        index = self._find()
        if index is not None and not (node_ids is None and filters is None):
            index.delete(_filter(index, node_ids, None, filters))

    def clear(self) -> None:
        """Delete all nodes. What the index is, with its dimensions and its encoder, stays."""
        if (index := self._find()) is not None:
            index.delete({})

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Nodes that are named, in that order, or that match, or both where both are given; without either all."""
        index = self._find()
        if index is None:
            return []
        found = index.ids(_filter(index, node_ids, None, filters))
        if node_ids is not None:
            there = set(found)
            found = [name for name in node_ids if name in there]
        stored = _stored(index, found)
        return [_node(stored[name]) for name in found if name in stored]

    # -- queries --------------------------------------------------------------------------------

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nearest nodes, in mode DEFAULT or MMR; of ``query.node_ids`` and ``query.doc_ids``, if there are any.

        ``kwargs`` may have settings of a search; for MMR ``mmr_threshold``, and ``mmr_prefetch_k``: from so many of the
        nearest it chooses (by default four times ``similarity_top_k``, and at least 100).
        """
        mmr = query.mode == VectorStoreQueryMode.MMR
        if not mmr and query.mode != VectorStoreQueryMode.DEFAULT:
            raise ParameterError(f"mode={query.mode}: this store has 'default' and 'mmr'")
        if query.query_embedding is None:
            raise ParameterError("query_embedding: is needed; this store searches by vectors")
        index = self._find()
        top = 0 if index is None else min(query.similarity_top_k, len(index))
        if index is None or not top:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        pool = kwargs.get("mmr_prefetch_k") or max(_POOL, _POOL_FACTOR * top)
        matches = index.search(
            query.query_embedding,
            min(max(pool, top), len(index)) if mmr else top,
            filter=_filter(index, query.node_ids or None, query.doc_ids or None, query.filters),
            with_payloads=True,
            **searching({**self.settings, **kwargs}),
        )
        payloads = dict(zip(matches.ids.tolist(), matches.payloads or [], strict=True))
        payloads.pop(None, None)
        names = list(payloads)
        if mmr and names:
            threshold = kwargs.get("mmr_threshold", query.mmr_threshold)
            try:
                names, scores = _diverse(index, query.query_embedding, names, top, threshold)
            except UnknownIdError:
                return self.query(query, **kwargs)  # one of them was deleted meanwhile
        else:
            scores = _similarities(index, matches.distances[: len(names)])
        return VectorStoreQueryResult(nodes=[_node(payloads[name]) for name in names], similarities=scores, ids=names)

    # -- the same, awaited: LlamaIndex's own would block the loop ---------------------------------

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As :meth:`add`."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """As :meth:`delete`."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """As :meth:`delete_nodes`."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        """As :meth:`clear`."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """As :meth:`get_nodes`."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As :meth:`query`."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    # -- files ----------------------------------------------------------------------------------

    def persist(
        self,
        persist_path: str = f"{DEFAULT_PERSIST_DIR}/{DEFAULT_PERSIST_FNAME}",
        fs: fsspec.AbstractFileSystem | None = None,
    ) -> None:
        """Everything is in the file ``persist_path`` when this returns; whatever was there is replaced.

        A store in memory is that file from then on. A store that has a file keeps it, and this is a copy. A file of
        another file system is always a copy.
        """
        index = self._find()
        if not _is_local(fs):
            _upload(index, fs, persist_path)
            return
        _save(index, Path(persist_path))
        if self.path is None:
            with _OPENING:
                if index is not None and Path(index.path or "") != Path(persist_path):
                    self._index = None  # a passing copy, which whoever uses it last closes
                self.path = os.fspath(persist_path)

    @classmethod
    def from_persist_path(cls, persist_path: str, fs: fsspec.AbstractFileSystem | None = None, **settings: Any) -> Self:
        """The store in the file ``persist_path``. Changes are in it when they return.

        Of another file system it is a copy: :meth:`persist` brings changes back.
        """
        if not (fs or LocalFileSystem()).exists(persist_path):
            raise IndexMissingError(f"{persist_path}: there is no store; LsqVectorStore(path) makes one")
        if _is_local(fs):
            return cls(persist_path, **settings)
        store = cls(**settings)
        store._index = _download(fs, persist_path)
        return store

    @classmethod
    def from_persist_dir(
        cls,
        persist_dir: str = DEFAULT_PERSIST_DIR,
        namespace: str = DEFAULT_VECTOR_STORE,
        fs: fsspec.AbstractFileSystem | None = None,
        **settings: Any,
    ) -> Self:
        """The store that ``StorageContext.persist(persist_dir)`` wrote."""
        name = f"{namespace}{NAMESPACE_SEP}{DEFAULT_PERSIST_FNAME}"
        path = str(Path(persist_dir, name)) if fs is None else f"{persist_dir.rstrip('/')}/{name}"
        return cls.from_persist_path(path, fs=fs, **settings)

    @classmethod
    def from_namespaced_persist_dir(
        cls, persist_dir: str = DEFAULT_PERSIST_DIR, fs: fsspec.AbstractFileSystem | None = None, **settings: Any
    ) -> dict[str, Self]:
        """All stores of this kind that ``StorageContext.persist(persist_dir)`` wrote, by their namespaces."""
        ending = f"{NAMESPACE_SEP}{DEFAULT_PERSIST_FNAME}"
        files = (fs or LocalFileSystem()).ls(persist_dir, detail=False)
        found = {}
        for namespace in sorted(Path(file).name.removesuffix(ending) for file in files if file.endswith(ending)):
            try:
                found[namespace] = cls.from_persist_dir(persist_dir, namespace, fs, **settings)
            except NotAnIndexError:
                continue  # LlamaIndex's own: it has one for images in every context
        return found

    def close(self) -> None:
        """Close the index. What is in memory is gone; a file is opened again when it is needed."""
        if self._index is not None:
            self._index.close()
        self._index = None

    def __getstate__(self) -> dict[str, Any]:
        if self._index is not None and self.path is None:
            raise ParameterError("a store in memory cannot be pickled: persist(path) it, and pickle that")
        state: dict[str, Any] = super().__getstate__()
        return state

    # -- inside ---------------------------------------------------------------------------------

    def _find(self) -> Index | None:
        """The index, if there is one; another process may have made it."""
        if self._index is None and self.path is not None:
            with _OPENING:
                if self._index is None:
                    self._index = _open(Path(self.path))
        return self._index

    def _make(self, dim: int) -> Index:
        """The index, made if there is none."""
        if (index := self._find()) is not None:
            return index
        options = making(self.settings)
        options["fields"] = list(dict.fromkeys([_REF, *map(field_name, options.get("fields", ()))]))
        with _OPENING:
            if self._index is None:
                self._index = (
                    Index(dim, ids="str", **options) if self.path is None else _create(Path(self.path), dim, options)
                )
            return self._index


def _open(path: Path) -> Index | None:
    """The index in a file. Of a store that was persisted without nodes the file is empty."""
    if not _has_content(path):
        return None
    index = Index.open(path)
    stats = index.stats()
    if stats["ids"] != "str" or _REF not in stats["fields"]:
        index.close()
        raise ParameterError(f"{path}: is an index, but not one of LsqVectorStore; Index.open opens it")
    return index


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _create(path: Path, dim: int, options: dict[str, Any]) -> Index:
    if path.exists() and not _has_content(path):
        path.unlink()
    try:
        return Index.create(path, dim, ids="str", **options)
    except IndexExistsError:
        index = _open(path)  # another process was first
        if index is None:
            raise
        return index


def _save(index: Index | None, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if index is None:
        if _has_content(path):
            path.unlink()  # and not emptied: others may have it open
        path.touch()
        return
    save_over(index, path)


def _upload(index: Index | None, fs: Any, path: str) -> None:
    if index is not None and index.path is None:
        in_own_folder(partial(_saved, index))  # what is saved from memory is a file from then on
    with tempfile.TemporaryDirectory(prefix="lsqindex-") as folder:
        copy = Path(folder, "store")
        _save(index, copy)
        fs.makedirs(fs._parent(path), exist_ok=True)
        fs.put_file(str(copy), path)


def _saved(index: Index, path: Path) -> Index:
    index.save(path)
    return index


def _download(fs: Any, path: str) -> Index | None:
    """The index of a copy, which goes when the index goes."""

    def copied(here: Path) -> Index | None:
        fs.get_file(path, str(here))
        return _open(here)

    return in_own_folder(copied)


def _is_local(fs: fsspec.AbstractFileSystem | None) -> bool:
    return fs is None or isinstance(fs, LocalFileSystem)


def _payload(node: BaseNode) -> dict[str, Any]:
    """All of a node but its embedding."""
    told = node.to_dict(mode="json", exclude={"embedding"})
    return {"metadata": told.pop("metadata"), "node": told, "type": node.get_type(), "ref_doc_id": node.ref_doc_id}


def _node(payload: dict[str, Any]) -> BaseNode:
    return json_to_doc({DATA_KEY: {**payload["node"], "metadata": payload["metadata"]}, TYPE_KEY: payload["type"]})


def _filter(
    index: Index, node_ids: Iterable[str] | None, doc_ids: Iterable[str] | None, filters: MetadataFilters | None
) -> Filter | None:
    """What nodes must be like; None: anything."""
    parts: list[Filter] = []
    if node_ids is not None:
        parts.append({"$ids": list(node_ids)})
    if doc_ids is not None:
        parts.append({_REF: {"$in": list(doc_ids)}})
    if filters is not None:
        parts.append(translate(filters, partial(_decide, index), {"$and": parts} if parts else EVERYTHING))
    return {"$and": parts} if parts else None


def _decide(index: Index, within: Filter, name: str, test: Callable[[str], bool]) -> list[str]:
    ids = index.ids(within)
    chosen: list[str] = []
    for first in range(0, len(ids), _BLOCK):
        for one, payload in _stored(index, ids[first : first + _BLOCK]).items():
            text = value_at(payload, name)
            if isinstance(text, str) and test(text):
                chosen.append(one)
    return chosen


def _stored(index: Index, names: list[str]) -> dict[str, dict[str, Any]]:
    """Payloads of what there is of ``names``."""
    while True:
        try:
            return dict(zip(names, index.payloads(names), strict=True))
        except UnknownIdError:  # deleted meanwhile, by another process
            names = index.ids(names)


def _similarities(index: Index, distances: Any) -> list[float]:
    near = -np.sqrt(distances) if index.metric == "l2" else METRICS[index.metric].similarities(distances)
    similarities: list[float] = near.tolist()
    return similarities


def _diverse(
    index: Index, query: list[float], names: list[str], top: int, threshold: float | None
) -> tuple[list[str], list[float]]:
    """The nodes that maximal marginal relevance chooses, and the scores that it gives them."""
    scores, chosen = get_top_k_mmr_embeddings(
        query,
        list(index.get(names)),
        similarity_fn=partial(similarity, mode=_MODES[index.metric]),
        similarity_top_k=top,
        embedding_ids=names,
        mmr_threshold=threshold,
    )
    return chosen, [float(score) for score in scores]
