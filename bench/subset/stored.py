"""What the multi-index's benchmark searches: vectors, their exact neighbours, and indexes filled with them.

Everything is a function of the seed and is made once: what this library made is kept under its fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex.encoders import Encoder, from_bytes, make_encoder, to_bytes

from .. import data
from ..data import HELD_OUT, LEARN, SEED, TRUE_NEIGHBOURS, Vectors
from ..nearest import nearest
from ..storage.stored import fingerprint, remove

_BLOCK = 10_000


@dataclass(frozen=True)
class Collection:
    """Vectors to search in: those of a data set, or ``mixed`` so many made from them.

    A mixed vector is w·a + (1 − w)·b: a and b random vectors of one class, w random in [0, 1).
    """

    source: str
    mixed: int = 0

    @property
    def name(self) -> str:
        return f"{self.source}, mixed" if self.mixed else self.source

    @property
    def size(self) -> int:
        return self.mixed or len(data.load(self.source).base)

    @property
    def dim(self) -> int:
        return int(data.load(self.source).base.shape[1])

    @property
    def queries(self) -> Vectors:
        """The data set's own, whatever is searched."""
        return data.load(self.source).queries

    @property
    def learn(self) -> Vectors:
        """Vectors to train on, from the same source as those that are searched."""
        if not self.mixed:
            return data.load(self.source).learn
        size = min(LEARN, self.mixed)
        return np.concatenate([self._mixture(1, i) for i in range(-(-size // _BLOCK))])[:size]

    def blocks(self) -> Iterator[Vectors]:
        """All vectors, block after block; those of a smaller number begin those of a larger."""
        for first in range(0, self.size, _BLOCK):
            size = min(_BLOCK, self.size - first)
            base = data.load(self.source).base
            yield self._mixture(0, first // _BLOCK)[:size] if self.mixed else base[first : first + size]

    @cached_property
    def _classes(self) -> list[NDArray[np.intp]]:
        labels = data.load(self.source).labels
        assert labels is not None, "mixtures are made of vectors of one class"
        return [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def _mixture(self, stream: int, block: int) -> Vectors:
        rng = np.random.default_rng([SEED, stream, block])
        base, classes = data.load(self.source).base, self._classes
        chosen = rng.integers(0, len(classes), _BLOCK)
        sizes = np.array([len(own) for own in classes])
        pairs = (rng.random((2, _BLOCK)) * sizes[chosen]).astype(np.intp)
        firsts = np.cumsum(sizes) - sizes
        left, right = base[np.concatenate(classes)[firsts[chosen] + pairs]]
        weights = rng.random((_BLOCK, 1), np.float32)
        return np.asarray(weights * left + (1 - weights) * right, np.float32)


@dataclass(frozen=True)
class Kind:
    """An encoder, by name and parameters."""

    encoder: str
    bits: int
    parameters: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        more = "".join(f", {name}={value}" for name, value in self.parameters)
        return f"{self.encoder}{more}"


class Shelf:
    """Filled indexes and exact neighbours, each made once and kept in a directory."""

    def __init__(self, directory: Path) -> None:
        self._common, self.made_here = directory, directory / fingerprint()
        self.made_here.mkdir(parents=True, exist_ok=True)

    def index(self, collection: Collection, kind: Kind, bits: int | None = None, *, subset: bool = True) -> Index:
        """The index of a collection with its vectors kept as float16, opened read-only; ``bits`` a table."""
        tables = (f"-{bits}" if bits else "") if subset else "-none"
        path = self.made_here / f"{_file(collection, kind)}{tables}.lsq"
        if not path.exists():
            self._fill(path, collection, kind, MultiIndex(bits) if subset else None)
        return Index.open(path, read_only=True)

    def encoder(self, collection: Collection, kind: Kind) -> Encoder:
        """Trained once for each collection."""
        path = self.made_here / f"{_file(collection, kind)}.encoder"
        if not path.exists():
            print(f"training {kind}, {kind.bits} bits, on {collection.name} …", flush=True)
            made = make_encoder(kind.encoder, bits=kind.bits, **dict(kind.parameters)).fit(collection.learn)
            path.write_bytes(to_bytes(made))
        return from_bytes(path.read_bytes())

    def codes(self, collection: Collection, kind: Kind) -> NDArray[np.uint8]:
        """The codes of all vectors, row after row."""
        encoder = self.encoder(collection, kind)
        return np.concatenate([encoder.encode(block) for block in collection.blocks()])

    def truth(self, collection: Collection) -> NDArray[np.int64]:
        """The nearest vectors of each query, by exact distance."""
        held_out = "-held-out" if HELD_OUT else ""
        path = self._common / f"{collection.name.replace(', ', '-')}-{collection.size}{held_out}-truth.npy"
        if not path.exists():
            print(f"exact neighbours among {collection.size:,} vectors, {collection.name} …", flush=True)
            queries = collection.queries.astype(np.float64)
            blocks = (block.astype(np.float64) for block in collection.blocks())
            distances = (np.einsum("ij,ij->i", block, block) - 2 * queries @ block.T for block in blocks)
            np.save(path, nearest(distances, len(queries), TRUE_NEIGHBOURS))
        found: NDArray[np.int64] = np.load(path)
        return found

    def _fill(self, path: Path, collection: Collection, kind: Kind, subset: MultiIndex | None) -> None:
        encoder = self.encoder(collection, kind)
        print(f"filling an index with {collection.size:,} vectors, {collection.name}, {kind}, {subset} …", flush=True)
        passing = path.with_suffix(".making")
        remove(passing)
        made = Index.create(passing, collection.dim, encoder=encoder, keep_vectors="float16", subset=subset)
        with made as index:
            for block in collection.blocks():
                index.add(block)
            index.merge()
        passing.rename(path)
        remove(passing)


def _file(collection: Collection, kind: Kind) -> str:
    more = "".join(f"-{name}{value}" for name, value in kind.parameters)
    return f"{collection.name.replace(', ', '-')}-{collection.size}-{kind.encoder}{kind.bits}{more}"
