"""Hosts with one of their backends: what they are asked to do, all through their own calls."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lsqindex import Index

from ..material.data import Vectors

K = 10
OURS = "lsqindex"


class Store(Protocol):
    """A host with one backend; the id of a vector is its place among all that were added."""

    def index(self, vectors: Vectors) -> None:
        """Begin with these vectors."""

    def add(self, vectors: Vectors) -> None:
        """Add these."""

    def save(self) -> None:
        """The host's own call that makes everything durable."""

    def in_file(self) -> int:
        """How many vectors a copy of the backend's file has now: those that would outlive the process."""

    def search(self, query: Vectors) -> list[int]:
        """Ids of the nearest of one query, shape (dim,)."""

    def search_all(self, queries: Vectors) -> list[list[int]]:
        """Ids of the nearest of all queries, in one call."""


class Txtai:
    """``txtai.Embeddings`` over given vectors, without a model and without content."""

    def __init__(self, system: str, settings: Mapping[str, Any], folder: Path) -> None:
        from txtai import Embeddings

        backend = "lsqindex.hosts.txtai.LsqANN" if system == OURS else system
        own = {backend: {"threads": 1, **settings}} if system == OURS else {}
        self._embeddings = Embeddings(method="external", backend=backend, **own)
        self._folder = folder
        self._next = 0

    def index(self, vectors: Vectors) -> None:
        self._embeddings.index(self._documents(vectors))

    def add(self, vectors: Vectors) -> None:
        self._embeddings.upsert(self._documents(vectors))

    def save(self) -> None:
        self._embeddings.save(str(self._folder))

    def in_file(self) -> int:
        from txtai.ann import ANNFactory

        copy = self._folder / "copy"
        shutil.copy(self._folder / "embeddings", copy)
        ann = ANNFactory.create(dict(self._embeddings.config))
        ann.load(str(copy))
        count = int(ann.count())
        ann.close()
        return count

    def search(self, query: Vectors) -> list[int]:
        return [name for name, _ in self._embeddings.search(query, K)]

    def search_all(self, queries: Vectors) -> list[list[int]]:
        return [[name for name, _ in found] for found in self._embeddings.batchsearch(list(queries), K)]

    def _documents(self, vectors: Vectors) -> Iterator[tuple[int, Vectors, None]]:
        for vector in vectors:
            yield self._next, vector, None
            self._next += 1


class LangChain:
    """LangChain's own store, or ours, over given vectors, with their numbers as texts. Neither has a call that saves.

    Vectors are float32 arrays: the default store makes one array of all of them for every query, which takes longer
    where they are lists of numbers, as models give them.
    """

    def __init__(self, system: str, settings: Mapping[str, Any], folder: Path) -> None:
        from langchain_core.vectorstores import InMemoryVectorStore

        from lsqindex.hosts.langchain import LsqVectorStore

        self._given = Given()
        self._file = folder / "langchain.lsq" if system == OURS else None
        self._store: Any = InMemoryVectorStore(self._given)
        if self._file is not None:
            self._store = LsqVectorStore(self._given, self._file, **settings)
        self._asked = {"threads": 1} if system == OURS else {}
        self._next = 0

    def index(self, vectors: Vectors) -> None:
        self.add(vectors)

    def add(self, vectors: Vectors) -> None:
        names = [str(number) for number in range(self._next, self._next + len(vectors))]
        self._given.vectors = vectors
        self._store.add_texts(names, ids=names)
        self._next += len(vectors)

    def save(self) -> None:
        pass

    def in_file(self) -> int:
        if self._file is None:
            return 0
        copy = self._file.with_suffix(".copy")
        shutil.copy(self._file, copy)
        with Index.open(copy, read_only=True) as index:
            return len(index)

    def search(self, query: Vectors) -> list[int]:
        return [int(found.id) for found in self._store.similarity_search_by_vector(query, K, **self._asked)]

    def search_all(self, queries: Vectors) -> list[list[int]]:
        return [self.search(query) for query in queries]


class LangChainFaiss:
    """The FAISS store of langchain-community as it comes: all vectors in memory, compared one by one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store: Any = None
        self._next = 0

    def index(self, vectors: Vectors) -> None:
        from langchain_community.vectorstores import FAISS

        names = self._names(vectors)
        self._store = FAISS.from_embeddings(zip(names, vectors, strict=True), Given(), ids=names)

    def add(self, vectors: Vectors) -> None:
        names = self._names(vectors)
        self._store.add_embeddings(zip(names, vectors, strict=True), ids=names)

    def save(self) -> None:
        self._store.save_local(str(self._folder))

    def in_file(self) -> int:
        import faiss

        return int(faiss.read_index(str(self._folder / "index.faiss")).ntotal)

    def search(self, query: Vectors) -> list[int]:
        return [int(found.id) for found in self._store.similarity_search_by_vector(query, K)]

    def search_all(self, queries: Vectors) -> list[list[int]]:
        return [self.search(query) for query in queries]

    def _names(self, vectors: Vectors) -> list[str]:
        first, self._next = self._next, self._next + len(vectors)
        return [str(number) for number in range(first, self._next)]


def langchain_community(system: str, settings: Mapping[str, Any], folder: Path) -> Store:
    """LangChain with our store, or with its FAISS."""
    return LangChain(system, settings, folder) if system == OURS else LangChainFaiss(folder)


class Given:
    """In the place of a model: texts are embedded as the vectors that were given last."""

    vectors: Vectors

    def embed_documents(self, texts: list[str]) -> list[Vectors]:
        return list(self.vectors)


@dataclass(frozen=True)
class Host:
    """A host, the name of its default backend, its calls, and how queries can be asked."""

    make: Callable[[str, Mapping[str, Any], Path], Store]
    default: str
    calls: tuple[str, ...]
    modes: tuple[str, ...]
    #: The default is slow: this is how many times fewer queries are asked in a turn.
    fewer: int = 1


HOSTS = {
    "txtai": Host(Txtai, "faiss", ("index, save", "add", "add, save"), ("single", "batch")),
    "langchain-core": Host(LangChain, "InMemoryVectorStore", ("index, save", "add"), ("single",), fewer=20),
    "langchain-community": Host(
        langchain_community, "FAISS", ("index, save", "add", "add, save"), ("single",), fewer=4
    ),
}
