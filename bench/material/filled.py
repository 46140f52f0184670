"""Indexes filled with any number of vectors under several kinds of ids, for the benchmark of storage.

Everything is a function of the seed and of the row's number, so an index of 1,000,000 vectors begins with
the rows of one of 10,000, and a filled one can be taken from the shelf and filled further.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import lsqindex
from lsqindex import Index
from lsqindex.encoders import Encoder, from_bytes, make_encoder, to_bytes

from ..framework.errors import UserError
from . import data
from .data import SEED, Vectors

LEARN = 40_000
#: How many basis vectors there are to mix from where no data set is at hand.
_MADE_UP = 20_000


@dataclass(frozen=True)
class Kind:
    """How an index is filled: 0, 1, 2 … or random 63-bit numbers or UUIDs as ids; with vectors or without."""

    ids: Literal["rising", "random", "str"] = "rising"
    keep_vectors: Literal["float16"] | None = None

    def __str__(self) -> str:
        return f"{self.ids} ids" + (f", {self.keep_vectors} kept" if self.keep_vectors else "")

    def names(self, first: int, n: int) -> Any:
        """The ids of ``n`` rows from ``first`` on; None where the index gives them."""
        if self.ids == "rising":
            return None
        rows = np.arange(first, first + n, dtype=np.uint64)
        if self.ids == "random":
            return (_scatter(rows) >> np.uint64(1)).astype(np.int64)
        words = np.stack([_scatter(rows), _scatter(rows + np.uint64(1 << 32))], axis=1)
        digits = (line.tobytes().hex() for line in words)
        return ["-".join((d[:8], d[8:12], d[12:16], d[16:20], d[20:])) for d in digits]

    def all_names(self, rows: int) -> Any:
        """The ids of all rows."""
        return np.arange(rows) if self.ids == "rising" else self.names(0, rows)

    def row_bytes(self, code_size: int, dim: int) -> int:
        """The bytes that a row must take: its code, its id (8, or the 36 of a UUID), its kept vector."""
        return code_size + (36 if self.ids == "str" else 8) + (2 * dim if self.keep_vectors else 0)


def _scatter(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: different numbers from different ones, in no order."""
    z = (numbers + np.uint64(SEED + 1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


class Mixture:
    """Any number of unit vectors: the normalized sums of random pairs of a data set's, or of made-up ones."""

    def __init__(self, name: str, dim: int) -> None:
        self.name, self._base = name, _base(name, dim)
        self.dim = self._base.shape[1]

    def learn(self) -> Vectors:
        """Vectors to train on."""
        return self.rows(0, min(LEARN, 2 * len(self._base)), stream=1)

    def rows(self, first: int, n: int, *, stream: int = 0) -> Vectors:
        """Rows ``first`` to ``first + n``; the same ones whenever they are asked for in the same batches."""
        rng = np.random.default_rng([SEED, stream, first])
        left, right = (self._base[rng.integers(0, len(self._base), n)] for _ in range(2))
        sums = left + right
        return np.asarray(sums / np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None], np.float32)


def source_of(wanted: str) -> str:
    """``wanted`` where the data set is at hand, else "synthetic"."""
    if wanted == "synthetic":
        return wanted
    try:
        data.require([wanted])
    except UserError:
        return "synthetic"
    return wanted


def _base(name: str, dim: int) -> Vectors:
    if name != "synthetic":
        return data.load(name).base
    # Of falling weights along the axes, as embeddings have them.
    rng = np.random.default_rng(SEED)
    vectors = rng.standard_normal((_MADE_UP, dim), np.float32) / np.sqrt(1 + np.arange(dim, dtype=np.float32) / 16)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


class Shelf:
    """Filled indexes, each made once and kept in a directory; changes are made to copies."""

    def __init__(self, directory: Path, mixture: Mixture, bits: int, batch: int) -> None:
        self.directory = directory
        self.mixture, self.bits, self.batch = mixture, bits, batch
        directory.mkdir(parents=True, exist_ok=True)
        self._encoder: Encoder | None = None

    @property
    def encoder(self) -> Encoder:
        """The encoder of all indexes, trained once."""
        path = self.directory / "encoder"
        if self._encoder is None and not path.exists():
            print(f"training lsq, {self.bits} bits, on {self.mixture.name} …", flush=True)
            path.write_bytes(to_bytes(make_encoder("lsq", bits=self.bits).fit(self.mixture.learn())))
        if self._encoder is None:
            self._encoder = from_bytes(path.read_bytes())
        return self._encoder

    def path(self, kind: Kind, rows: int) -> Path:
        """A closed index of the first ``rows`` rows: not to be changed."""
        path = self._name(kind, rows)
        if not path.exists():
            passing = path.with_suffix(".making")
            done = self._longest(kind, rows, passing)
            print(f"filling an index of {rows:,} vectors, {kind}, from {done:,} on …", flush=True)
            with Index.open(passing) as index:
                for first in range(done, rows, self.batch):
                    self.add(index, kind, first, min(self.batch, rows - first))
            passing.rename(path)
        return path

    def copy(self, kind: Kind, rows: int, name: str) -> Path:
        """A copy of such an index under another name, to be changed and removed."""
        path = self.directory / f"{name}.copy"
        remove(path)
        shutil.copyfile(self.path(kind, rows), path)
        # On the disk before anything is timed.
        with Index.open(path) as index:
            index.save()
        return path

    def add(self, index: Index, kind: Kind, first: int, n: int) -> None:
        """The rows from ``first`` on, on all cores."""
        index.add(self.mixture.rows(first, n), kind.names(first, n))

    def create(self, path: Path, kind: Kind) -> Index:
        """An empty index of that kind, which needs no more training."""
        remove(path)
        return Index.create(
            path,
            self.mixture.dim,
            metric="cosine",
            encoder=self.encoder,
            keep_vectors=kind.keep_vectors,
            ids="str" if kind.ids == "str" else "int",
            subset=None,
        )

    def _longest(self, kind: Kind, rows: int, path: Path) -> int:
        """Begin ``path`` with the longest index there is that ends at a batch's end; how many rows it has."""
        known = [n for n in self._rows_known(kind) if n <= rows and n % self.batch == 0]
        if not known:
            self.create(path, kind).close()
            return 0
        remove(path)
        shutil.copyfile(self._name(kind, max(known)), path)
        return max(known)

    def _rows_known(self, kind: Kind) -> Sequence[int]:
        prefix = self._name(kind, 0).stem.rpartition("-")[0]
        return [int(path.stem.rpartition("-")[2]) for path in self.directory.glob(f"{prefix}-*.lsq")]

    def _name(self, kind: Kind, rows: int) -> Path:
        return self.directory / f"{kind.ids}-{kind.keep_vectors or 'codes'}-{rows}.lsq"


def remove(path: Path) -> None:
    """The file of an index and its lock file, if they are there."""
    for name in (path, path.with_name(path.name + "-lock")):
        name.unlink(missing_ok=True)


def fingerprint() -> str:
    """Of the library as it is: indexes made by another one are not taken from the shelf."""
    package = Path(lsqindex.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".so", ".pyd"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
