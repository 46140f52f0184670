"""The data sets: base vectors, queries, vectors to learn from, and the exact neighbours.

Files are looked for in the directory that the environment variable ``LSQINDEX_DATA`` names.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lsqindex.encoders.base import Metric

from .errors import UserError
from .nearest import nearest

Vectors = NDArray[np.float32]

SEED = 0
QUERIES = 1_000
#: The first thousand were in view while encoders were made; LSQINDEX_QUERIES=held-out takes the second.
HELD_OUT = os.environ.get("LSQINDEX_QUERIES") == "held-out"
_QUERY_ROWS = slice(QUERIES, 2 * QUERIES) if HELD_OUT else slice(QUERIES)
LEARN = 40_000
TRUE_NEIGHBOURS = 100
_BLOCK = 4096


@dataclass(frozen=True)
class Dataset:
    """Vectors of one kind; for ``cosine`` they are normalized."""

    name: str
    metric: Metric
    base: Vectors
    queries: Vectors
    learn: Vectors
    #: The class of each base vector, where classes are known.
    labels: NDArray[np.uint8] | None = None

    @cached_property
    def truth(self) -> NDArray[np.int64]:
        """The 100 nearest base rows of each query, by exact distance, shape (queries, 100)."""
        return nearest(self._exact(), len(self.queries), TRUE_NEIGHBOURS)

    def _exact(self) -> Iterator[NDArray[np.float64]]:
        # Squared L2 less the query's own norm; on normalized vectors its order is that of cosine.
        queries = self.queries.astype(np.float64)
        for first in range(0, len(self.base), _BLOCK):
            block = self.base[first : first + _BLOCK].astype(np.float64)
            yield np.einsum("ij,ij->i", block, block) - 2 * queries @ block.T


@lru_cache(maxsize=1)
def load(name: str) -> Dataset:
    """The data set of that name; the last one stays in memory."""
    return _SOURCES[name].load()


def require(names: Iterable[str]) -> None:
    """UserError unless all these data sets can be loaded: better now than after an hour."""
    complaints = [f"{name}: {text}" for name in sorted(set(names)) if (text := _SOURCES[name].lacks())]
    if complaints:
        raise UserError(
            "data are missing (or use --quick, which needs scikit-learn only):\n  " + "\n  ".join(complaints)
        )


@dataclass(frozen=True)
class _Source:
    """Where a data set comes from: files of the data directory, or a package."""

    load: Callable[[], Dataset]
    files: tuple[str, ...] = ()
    package: str = ""
    origin: str = ""

    def lacks(self) -> str:
        """What is needed and not there; empty if nothing."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"the package {self.origin} is not installed"
        if self.files and "LSQINDEX_DATA" not in os.environ:
            return f"set LSQINDEX_DATA to the directory that holds {self.files[0]} ({self.origin})"
        absent = [file for file in self.files if not _path(file).is_file()]
        return f"no {', '.join(absent)} in LSQINDEX_DATA ({self.origin})" if absent else ""


def _path(file: str) -> Path:
    return Path(os.environ["LSQINDEX_DATA"]) / file


def _fashion_mnist() -> Dataset:
    base, test = (_idx_images(file) for file in _FASHION_FILES)
    with gzip.open(_path(_FASHION_LABELS)) as stream:
        labels = np.frombuffer(stream.read(), np.uint8, offset=8)
    return Dataset("fashion-mnist", "l2", base, test[_QUERY_ROWS], _sample(base), labels)


def _idx_images(file: str) -> Vectors:
    with gzip.open(_path(file)) as stream:
        content = stream.read()
    count, height, width = np.frombuffer(content, ">u4", count=3, offset=4)
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, height * width).astype(np.float32)


def _minilm_wordnet() -> Dataset:
    vectors = normalized(np.load(_path(_MINILM_FILE)).astype(np.float32))
    base, rest = vectors[:-2000], vectors[-2000:]
    return Dataset("minilm-wordnet", "cosine", base, rest[_QUERY_ROWS], _sample(base))


def _cifar_10() -> Dataset:
    """The paper's protocol: 20,000 to learn from, 500 queries, the rest is base; centred, unit length."""
    records = np.concatenate([np.fromfile(_path(file), np.uint8).reshape(-1, 3073) for file in _CIFAR_FILES])
    order = np.random.default_rng(SEED).permutation(len(records))
    learn, queries, base = (records[part, 1:].astype(np.float32) for part in np.split(order, [20_000, 20_500]))
    mean = learn.mean(axis=0, dtype=np.float64).astype(np.float32)
    return Dataset("cifar-10", "l2", normalized(base - mean), normalized(queries - mean), normalized(learn - mean))


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    vectors = digits.data.astype(np.float32)
    base = vectors[:-200]
    return Dataset("digits", "l2", base, vectors[-200:], base, digits.target[:-200].astype(np.uint8))


def _sample(base: Vectors) -> Vectors:
    return base[np.sort(np.random.default_rng(SEED).choice(len(base), LEARN, replace=False))]


def normalized(vectors: Vectors) -> Vectors:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    return (vectors / np.where(lengths > 0, lengths, 1).astype(np.float32)).astype(np.float32, copy=False)


_FASHION_FILES = ("fashion-mnist/train-images-idx3-ubyte.gz", "fashion-mnist/t10k-images-idx3-ubyte.gz")
_FASHION_LABELS = "fashion-mnist/train-labels-idx1-ubyte.gz"
_MINILM_FILE = "minilm-wordnet.f16.npy"
_CIFAR_FILES = tuple(f"cifar-10-batches-bin/{n}.bin" for n in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"])

_SOURCES = {
    "fashion-mnist": _Source(
        _fashion_mnist, (*_FASHION_FILES, _FASHION_LABELS), origin="Fashion-MNIST, gzipped IDX files"
    ),
    "minilm-wordnet": _Source(
        _minilm_wordnet, (_MINILM_FILE,), origin="MiniLM embeddings of WordNet glosses, float16, 117,033 x 384"
    ),
    "cifar-10": _Source(_cifar_10, _CIFAR_FILES, origin="CIFAR-10, binary version"),
    "digits": _Source(_digits, package="sklearn", origin="scikit-learn"),
}
