"""What the scan's benchmark searches: vectors, their exact neighbours, and indexes filled with them.

Everything is a function of the seed and is made once: what this library made is kept under its fingerprint, what
does not depend on it (exact neighbours, indexes of FAISS) under the data's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex.encoders import Encoder, from_bytes, make_encoder, to_bytes
from lsqindex.encoders.base import Codes, Metric

from .. import data
from ..data import HELD_OUT, LEARN, SEED, TRUE_NEIGHBOURS, Vectors, normalized
from ..faiss_systems import FaissIndex
from ..nearest import nearest
from ..storage.stored import fingerprint, remove

_BLOCK = 10_000


@dataclass(frozen=True)
class Collection:
    """Unit vectors to search in: those of a data set, or ``mixed`` so many made from them.

    A mixed vector is w·a + (1 − w)·b, normalized: a and b random vectors of the data set, w random in [0, 1).
    """

    source: str
    mixed: int = 0

    @property
    def name(self) -> str:
        return f"{self.source}, mixed" if self.mixed else self.source

    @cached_property
    def _base(self) -> Vectors:
        return normalized(data.load(self.source).base)

    @cached_property
    def size(self) -> int:
        return self.mixed or len(self._base)

    @property
    def dim(self) -> int:
        return int(self._base.shape[1])

    @cached_property
    def queries(self) -> Vectors:
        """The data set's own, whatever is searched."""
        return normalized(data.load(self.source).queries)

    @cached_property
    def learn(self) -> Vectors:
        """Vectors to train on, from the same source as those that are searched."""
        if not self.mixed:
            return normalized(data.load(self.source).learn)
        size = min(LEARN, self.mixed)
        return np.concatenate([self._mixture(1, i) for i in range(-(-size // _BLOCK))])[:size]

    def blocks(self, rows: int) -> Iterator[Vectors]:
        """The first ``rows`` vectors, block after block; those of a smaller number begin those of a larger."""
        for first in range(0, rows, _BLOCK):
            size = min(_BLOCK, rows - first)
            yield self._mixture(0, first // _BLOCK)[:size] if self.mixed else self._base[first : first + size]

    def _mixture(self, stream: int, block: int) -> Vectors:
        rng = np.random.default_rng([SEED, stream, block])
        left, right = (self._base[rng.integers(0, len(self._base), _BLOCK)] for _ in range(2))
        weights = rng.random((_BLOCK, 1), np.float32)
        return normalized(weights * left + (1 - weights) * right)


@dataclass(frozen=True)
class Kind:
    """How an index is made."""

    encoder: Literal["lsq", "itq"]
    metric: Metric = "cosine"
    keep_vectors: Literal["float16"] | None = None


LSQ = Kind("lsq")
KEPT = Kind("lsq", keep_vectors="float16")
#: The symmetric distance of binary codes is their Hamming distance, and under l2 nothing else.
HAMMING = Kind("itq", "l2")


class Shelf:
    """Filled indexes and exact neighbours, each made once and kept in a directory."""

    def __init__(self, directory: Path, bits: int) -> None:
        self._common, self.made_here, self._bits = directory, directory / fingerprint(), bits
        self.made_here.mkdir(parents=True, exist_ok=True)

    def index(self, collection: Collection, kind: Kind, rows: int | None = None) -> Index:
        """The index of the first ``rows`` vectors (all where not given), opened read-only."""
        count = collection.size if rows is None else rows
        path = self.made_here / f"{_file(collection)}-{kind.encoder}-{kind.keep_vectors or 'codes'}-{count}.lsq"
        if not path.exists():
            self._fill(path, collection, kind, count)
        return Index.open(path, read_only=True)

    def codes(self, collection: Collection, kind: Kind) -> Codes:
        """The codes of all vectors, row after row."""
        path = self.made_here / f"{_file(collection)}-{kind.encoder}.npy"
        if not path.exists():
            encoder = self.encoder(collection, kind)
            _save(path, np.concatenate([encoder.encode(block) for block in collection.blocks(collection.size)]))
        found: Codes = np.load(path)
        return found

    def encoder(self, collection: Collection, kind: Kind) -> Encoder:
        """Trained once for each collection."""
        path = self.made_here / f"{_file(collection)}-{kind.encoder}.encoder"
        if not path.exists():
            print(f"training {kind.encoder}, {self._bits} bits, on {collection.name} …", flush=True)
            passing = path.with_suffix(".making")
            passing.write_bytes(to_bytes(make_encoder(kind.encoder, bits=self._bits).fit(collection.learn)))
            passing.rename(path)
        return from_bytes(path.read_bytes())

    def faiss(self, collection: Collection, system: str) -> FaissIndex:
        """FAISS's index of all vectors, trained on the same ones as ours."""
        path = self._common / f"{_file(collection)}-{collection.size}-{system}.faiss"
        index = FaissIndex(system, collection.dim)
        if path.exists():
            index.load(path)
            return index
        print(f"filling FAISS {system} with {collection.size:,} vectors, {collection.name} …", flush=True)
        index.train(collection.learn)
        for block in collection.blocks(collection.size):
            index.add(block)
        passing = path.with_suffix(".making")
        index.save(passing)
        passing.rename(path)
        return index

    def truth(self, collection: Collection) -> NDArray[np.int64]:
        """The nearest vectors of each query, by exact distance."""
        held_out = "-held-out" if HELD_OUT else ""
        path = self._common / f"{_file(collection)}-{collection.size}{held_out}-truth.npy"
        if not path.exists():
            print(f"exact neighbours among {collection.size:,} vectors, {collection.name} …", flush=True)
            queries = collection.queries.astype(np.float64)
            # Of unit vectors the nearest have the largest inner product.
            distances = (-(queries @ block.T.astype(np.float64)) for block in collection.blocks(collection.size))
            _save(path, nearest(distances, len(queries), TRUE_NEIGHBOURS))
        found: NDArray[np.int64] = np.load(path)
        return found

    def _fill(self, path: Path, collection: Collection, kind: Kind, rows: int) -> None:
        encoder = self.encoder(collection, kind)
        kept = f", {kind.keep_vectors} kept" if kind.keep_vectors else ""
        print(f"filling an index with {rows:,} vectors, {collection.name}, {kind.encoder}{kept} …", flush=True)
        passing = path.with_suffix(".making")
        remove(passing)
        made = Index.create(
            passing, collection.dim, metric=kind.metric, encoder=encoder, keep_vectors=kind.keep_vectors
        )
        with made as index:
            for block in collection.blocks(rows):
                index.add(block)
        passing.rename(path)
        remove(passing)


def _file(collection: Collection) -> str:
    return collection.name.replace(", ", "-")


def _save(path: Path, array: NDArray[Any]) -> None:
    """Whole, or not at all."""
    passing = path.with_suffix(".making.npy")
    np.save(passing, array)
    passing.rename(path)
