"""What the benchmarks of searching search: vectors, their exact neighbours, and indexes filled with them.

Everything is a function of the seed and is made once: what this library made is kept under its fingerprint, what does
not depend on it (exact neighbours, indexes of FAISS) under the data's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex.encoders import Encoder, from_bytes, make_encoder, to_bytes
from lsqindex.encoders.base import Codes, Metric

from . import data
from .data import HELD_OUT, LEARN, MIXED_ROWS, SEED, TRUE_NEIGHBOURS, Vectors, mixture, normalized
from .faiss_systems import FaissIndex
from .filled import fingerprint, remove
from .nearest import nearest


@dataclass(frozen=True)
class Collection:
    """Vectors to search in: those of a data set, or ``mixed`` so many made from them.

    A mixed vector is w·a + (1 − w)·b: a and b random vectors of the data set, w random in [0, 1). With ``unit`` all
    vectors are normalized; without, a and b are of one class.
    """

    source: str
    mixed: int = 0
    unit: bool = True

    @property
    def name(self) -> str:
        return f"{self.source}, mixed" if self.mixed else self.source

    @property
    def file(self) -> str:
        """The beginning of the names of its files."""
        return f"{self.source}-mixed" if self.mixed else self.source

    @cached_property
    def size(self) -> int:
        return self.mixed or len(self._base)

    @property
    def dim(self) -> int:
        return int(self._base.shape[1])

    @cached_property
    def queries(self) -> Vectors:
        """The data set's own, whatever is searched."""
        return self._as_searched(data.load(self.source).queries)

    @cached_property
    def learn(self) -> Vectors:
        """Vectors to train on, from the same source as those that are searched."""
        if not self.mixed:
            return self._as_searched(data.load(self.source).learn)
        size = min(LEARN, self.mixed)
        return np.concatenate([self._mixture(1, i) for i in range(-(-size // MIXED_ROWS))])[:size]

    def blocks(self, rows: int | None = None) -> Iterator[Vectors]:
        """The first ``rows`` vectors, or all, block after block; those of a smaller number begin those of a larger."""
        count = self.size if rows is None else rows
        for first in range(0, count, MIXED_ROWS):
            size = min(MIXED_ROWS, count - first)
            yield self._mixture(0, first // MIXED_ROWS)[:size] if self.mixed else self._base[first : first + size]

    def _as_searched(self, vectors: Vectors) -> Vectors:
        return normalized(vectors) if self.unit else vectors

    @cached_property
    def _base(self) -> Vectors:
        return self._as_searched(data.load(self.source).base)

    @cached_property
    def _classes(self) -> list[NDArray[np.intp]]:
        labels = data.load(self.source).labels
        assert labels is not None, "mixtures are made of vectors of one class"
        return [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def _mixture(self, stream: int, block: int) -> Vectors:
        if self.unit:
            return mixture(self._base, stream, block)
        rng = np.random.default_rng([SEED, stream, block])
        chosen = rng.integers(0, len(self._classes), MIXED_ROWS)
        sizes = np.array([len(own) for own in self._classes])
        pairs = (rng.random((2, MIXED_ROWS)) * sizes[chosen]).astype(np.intp)
        firsts = np.cumsum(sizes) - sizes
        left, right = self._base[np.concatenate(self._classes)[firsts[chosen] + pairs]]
        weights = rng.random((MIXED_ROWS, 1), np.float32)
        return np.asarray(weights * left + (1 - weights) * right, np.float32)


@dataclass(frozen=True)
class Kind:
    """How an index is made: its encoder, by name and parameters, and what else it stores."""

    encoder: str
    bits: int
    parameters: tuple[tuple[str, int], ...] = ()
    metric: Metric = "l2"
    keep_vectors: Literal["float16"] | None = None
    subset: MultiIndex | None = None

    def __str__(self) -> str:
        return self.encoder + "".join(f", {name}={value}" for name, value in self.parameters)

    @property
    def file(self) -> str:
        """The part of a file's name that tells its codes."""
        return f"{self.encoder}{self.bits}" + "".join(f"-{name}{value}" for name, value in self.parameters)


class Shelf:
    """Filled indexes and exact neighbours, each made once and kept in a directory."""

    def __init__(self, directory: Path) -> None:
        self._common, self.made_here = directory, directory / fingerprint()
        self.made_here.mkdir(parents=True, exist_ok=True)

    def index(self, collection: Collection, kind: Kind, rows: int | None = None) -> Index:
        """The index of the first ``rows`` vectors (all where not given), opened read-only."""
        count = collection.size if rows is None else rows
        lists = f"-tables{kind.subset.bits or ''}" if kind.subset else ""
        name = f"{collection.file}-{kind.file}-{kind.metric}-{kind.keep_vectors or 'codes'}{lists}-{count}.lsq"
        path = self.made_here / name
        if not path.exists():
            self._fill(path, collection, kind, count)
        return Index.open(path, read_only=True)

    def encoder(self, collection: Collection, kind: Kind) -> Encoder:
        """Trained once for each collection."""
        path = self.made_here / f"{collection.file}-{collection.size}-{kind.file}.encoder"
        if not path.exists():
            print(f"training {kind}, {kind.bits} bits, on {collection.name} …", flush=True)
            made = make_encoder(kind.encoder, bits=kind.bits, **dict(kind.parameters)).fit(collection.learn)
            passing = path.with_suffix(".making")
            passing.write_bytes(to_bytes(made))
            passing.rename(path)
        return from_bytes(path.read_bytes())

    def codes(self, collection: Collection, kind: Kind) -> Codes:
        """The codes of all vectors, row after row."""
        path = self.made_here / f"{collection.file}-{collection.size}-{kind.file}.npy"
        if not path.exists():
            encoder = self.encoder(collection, kind)
            _save(path, np.concatenate([encoder.encode(block) for block in collection.blocks()]))
        found: Codes = np.load(path)
        return found

    def faiss(self, collection: Collection, system: str) -> FaissIndex:
        """FAISS's index of all vectors, trained on the same ones as ours."""
        path = self._common / f"{collection.file}-{collection.size}-{system}.faiss"
        index = FaissIndex(system, collection.dim)
        if path.exists():
            index.load(path)
            return index
        print(f"filling FAISS {system} with {collection.size:,} vectors, {collection.name} …", flush=True)
        index.train(collection.learn)
        for block in collection.blocks():
            index.add(block)
        passing = path.with_suffix(".making")
        index.save(passing)
        passing.rename(path)
        return index

    def truth(self, collection: Collection) -> NDArray[np.int64]:
        """The nearest vectors of each query, by exact distance."""
        held_out = "-held-out" if HELD_OUT else ""
        path = self._common / f"{collection.file}-{collection.size}{held_out}-truth.npy"
        if not path.exists():
            print(f"exact neighbours among {collection.size:,} vectors, {collection.name} …", flush=True)
            queries = collection.queries.astype(np.float64)
            blocks = (block.astype(np.float64) for block in collection.blocks())
            # The squared length of the query is left out: it is the same for all. Of unit vectors all lengths are 1.
            distances = (
                -(queries @ block.T) if collection.unit else np.einsum("ij,ij->i", block, block) - 2 * queries @ block.T
                for block in blocks
            )
            _save(path, nearest(distances, len(queries), TRUE_NEIGHBOURS))
        found: NDArray[np.int64] = np.load(path)
        return found

    def _fill(self, path: Path, collection: Collection, kind: Kind, rows: int) -> None:
        encoder = self.encoder(collection, kind)
        more = [f"{kind.keep_vectors} kept"] if kind.keep_vectors else []
        more += ["multi-index"] if kind.subset else []
        told = ", ".join([collection.name, str(kind), *more])
        print(f"filling an index with {rows:,} vectors, {told} …", flush=True)
        passing = path.with_suffix(".making")
        remove(passing)
        options: dict[str, Any] = {"keep_vectors": kind.keep_vectors, "subset": kind.subset}
        with Index.create(passing, collection.dim, metric=kind.metric, encoder=encoder, **options) as index:
            for block in collection.blocks(rows):
                index.add(block)
            if kind.subset:
                index.merge()
        passing.rename(path)
        remove(passing)


def _save(path: Path, array: NDArray[Any]) -> None:
    """Whole, or not at all."""
    passing = path.with_suffix(".making.npy")
    np.save(passing, array)
    passing.rename(path)
