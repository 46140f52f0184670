"""The data sets: base vectors, queries, vectors to learn from, and the exact neighbours.

Files are looked for in the directory that the environment variable ``LSQINDEX_DATA`` names. A path is a data set, too:
see :mod:`bench.material.data_files`.
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

from ..framework.errors import UserError
from . import data_files
from .data_files import Vectors as Vectors
from .nearest import nearest

SEED = 0
QUERIES = 1_000
#: The first thousand were in view while encoders were made; LSQINDEX_QUERIES=held-out takes the second.
HELD_OUT = os.environ.get("LSQINDEX_QUERIES") == "held-out"
_QUERY_ROWS = slice(QUERIES, 2 * QUERIES) if HELD_OUT else slice(QUERIES)
LEARN = 40_000
TRUE_NEIGHBOURS = 100
#: Vectors made from others come in blocks of so many.
MIXED_ROWS = 10_000
_MILLION = 1_000_000
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
    #: The base rows that are learned from; None: ``learn`` is apart from the base.
    learned: NDArray[np.int64] | None = None
    #: The class of each vector to learn from, where classes are known.
    learn_labels: NDArray[np.uint8] | None = None

    @property
    def unseen(self) -> NDArray[np.int64]:
        """The base rows that are not learned from."""
        rows = np.arange(len(self.base))
        return rows if self.learned is None else np.delete(rows, self.learned)

    @cached_property
    def truth(self) -> NDArray[np.int64]:
        """The 100 nearest base rows of each query, by exact distance, shape (queries, 100)."""
        return nearest(self._exact(), len(self.queries), TRUE_NEIGHBOURS)

    def _exact(self) -> Iterator[NDArray[np.float64]]:
        # Squared L2 less the query's own norm; on normalized vectors its order is that of cosine.
        queries = self.queries.astype(np.float64)
        for first in range(0, len(self.base), _BLOCK):
            block = self.base[first : first + _BLOCK].astype(np.float64)
            own = 0 if self.metric == "ip" else np.einsum("ij,ij->i", block, block)
            yield own - 2 * queries @ block.T

    def with_lengths(self, sigma: float, rows: int) -> Dataset:
        """The first ``rows`` of the base, their lengths lognormal, for inner products; they are learned from, too."""
        base = normalized(self.base[:rows])
        lengths = np.exp(sigma * np.random.default_rng(SEED).standard_normal((len(base), 1)))
        base = (base * lengths).astype(np.float32)
        return Dataset(f"{self.name}, sigma {sigma:g}", "ip", base, self.queries, base, learned=np.arange(len(base)))


@lru_cache(maxsize=1)
def load(name: str, seed: int = SEED, learn: int = LEARN) -> Dataset:
    """The data set of that name or path; the last one stays in memory.

    ``seed`` draws the vectors to learn from, ``learn`` at most; of CIFAR-10 the whole split, in the paper's sizes.
    """
    return _source(name).load(seed, learn)


def short_name(name: str) -> str:
    """What a data set is called in results: its name, or that of its file without folder and ending.

    >>> short_name("digits"), short_name("some/where/glove-25-angular.hdf5")
    ('digits', 'glove-25-angular')
    """
    return name if name in _SOURCES else Path(name).stem


def require(names: Iterable[str]) -> None:
    """UserError unless all these data sets can be loaded: better now than after an hour."""
    complaints = [f"{name}: {text}" for name in sorted(set(names)) if (text := _source(name).lacks())]
    if complaints:
        raise UserError(
            "data are missing (or use --quick, which needs scikit-learn only):\n  " + "\n  ".join(complaints)
        )


@dataclass(frozen=True)
class _Source:
    """Where a data set comes from: files of the data directory, or a package."""

    load: Callable[[int, int], Dataset]
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


def _source(name: str) -> _Source:
    if name in _SOURCES:
        return _SOURCES[name]
    path = Path(name)
    if not path.is_file():
        raise UserError(f"{name}: neither a file nor one of {', '.join(_SOURCES)}")
    return _Source(lambda seed, learn: _of_file(path.stem, path, seed, learn))


def _of_file(name: str, path: Path, seed: int, learn: int) -> Dataset:
    found = data_files.read(path)
    if found.metric == "cosine":
        found = found.changed(normalized)
    if found.learn is None:
        return _learning_from_base(name, found.metric, found.base, found.queries, None, seed, learn)
    return Dataset(name, found.metric, found.base, found.queries, found.learn[_sample(len(found.learn), seed, learn)])


def _fashion_mnist(seed: int, learn: int) -> Dataset:
    base, test = (_idx_images(file) for file in _FASHION_FILES)
    with gzip.open(_path(_FASHION_LABELS)) as stream:
        labels = np.frombuffer(stream.read(), np.uint8, offset=8)
    return _learning_from_base("fashion-mnist", "l2", base, test[_QUERY_ROWS], labels, seed, learn)


def _idx_images(file: str) -> Vectors:
    with gzip.open(_path(file)) as stream:
        content = stream.read()
    count, height, width = np.frombuffer(content, ">u4", count=3, offset=4)
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, height * width).astype(np.float32)


def _minilm_wordnet(seed: int, learn: int) -> Dataset:
    vectors = normalized(np.load(_path(_MINILM_FILE)).astype(np.float32))
    base, rest = vectors[:-2000], vectors[-2000:]
    return _learning_from_base("minilm-wordnet", "cosine", base, rest[_QUERY_ROWS], None, seed, learn)


def _minilm_wordnet_1m(seed: int, learn: int) -> Dataset:
    """A million made from MiniLM-WordNet's; its queries are that one's own."""
    source = _minilm_wordnet(seed, learn)
    base = np.concatenate([mixture(source.base, 0, block) for block in range(_MILLION // MIXED_ROWS)])
    return _learning_from_base("minilm-wordnet-1m", "cosine", base, source.queries, None, seed, learn)


def _cifar_10(seed: int, learn: int) -> Dataset:
    """The paper's protocol: 20,000 to learn from, 500 queries, the rest is base; centred, unit length."""
    del learn
    records = np.concatenate([np.fromfile(_path(file), np.uint8).reshape(-1, 3073) for file in _CIFAR_FILES])
    parts = np.split(np.random.default_rng(seed).permutation(len(records)), [20_000, 20_500])
    learned, queries, base = (records[part, 1:].astype(np.float32) for part in parts)
    mean = learned.mean(axis=0, dtype=np.float64).astype(np.float32)
    learned, queries, base = (normalized(vectors - mean) for vectors in (learned, queries, base))
    labels = records[:, 0]
    return Dataset("cifar-10", "l2", base, queries, learned, labels[parts[2]], learn_labels=labels[parts[0]])


def _digits(seed: int, learn: int) -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    vectors = digits.data.astype(np.float32)
    labels = digits.target[:-200].astype(np.uint8)
    return _learning_from_base("digits", "l2", vectors[:-200], vectors[-200:], labels, seed, learn)


def _learning_from_base(
    name: str,
    metric: Metric,
    base: Vectors,
    queries: Vectors,
    labels: NDArray[np.uint8] | None,
    seed: int,
    learn: int,
) -> Dataset:
    """A data set without vectors of its own to learn from: a sample of the base."""
    rows = _sample(len(base), seed, learn)
    return Dataset(name, metric, base, queries, base[rows], labels, rows, None if labels is None else labels[rows])


def _sample(count: int, seed: int, size: int) -> NDArray[np.int64]:
    """``size`` rows of ``count``, or all of them."""
    if size >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, size, replace=False))


def mixture(base: Vectors, stream: int, block: int) -> Vectors:
    """A block of unit vectors w·a + (1 − w)·b, of two random vectors and a random weight w in [0, 1) each."""
    rng = np.random.default_rng([SEED, stream, block])
    left, right = (base[rng.integers(0, len(base), MIXED_ROWS)] for _ in range(2))
    weights = rng.random((MIXED_ROWS, 1), np.float32)
    return normalized(np.asarray(weights * left + (1 - weights) * right, np.float32))


def normalized(vectors: Vectors) -> Vectors:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    return (vectors / np.where(lengths > 0, lengths, 1).astype(np.float32)).astype(np.float32, copy=False)


_FASHION_FILES = ("fashion-mnist/train-images-idx3-ubyte.gz", "fashion-mnist/t10k-images-idx3-ubyte.gz")
_FASHION_LABELS = "fashion-mnist/train-labels-idx1-ubyte.gz"
_MINILM_FILE = "minilm-wordnet.f16.npy"
_CIFAR_FILES = tuple(f"cifar-10-batches-bin/{n}.bin" for n in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"])
_GIST_FILES = tuple(f"gist/gist_{part}.fvecs" for part in ("base", "query", "learn"))
_IMAGENET_FILES = tuple(f"imagenet/imagenet_{part}.npy" for part in ("base", "query", "learn"))


def _in_files(name: str, file: str) -> Callable[[int, int], Dataset]:
    return lambda seed, learn: _of_file(name, _path(file), seed, learn)


_SOURCES = {
    "fashion-mnist": _Source(
        _fashion_mnist, (*_FASHION_FILES, _FASHION_LABELS), origin="Fashion-MNIST, gzipped IDX files"
    ),
    "minilm-wordnet": _Source(
        _minilm_wordnet, (_MINILM_FILE,), origin="MiniLM embeddings of WordNet glosses, float16, 117,033 x 384"
    ),
    "minilm-wordnet-1m": _Source(
        _minilm_wordnet_1m, (_MINILM_FILE,), origin="made from MiniLM embeddings of WordNet glosses"
    ),
    "cifar-10": _Source(_cifar_10, _CIFAR_FILES, origin="CIFAR-10, binary version"),
    "gist1m": _Source(_in_files("gist1m", "gist/gist_base.fvecs"), _GIST_FILES, origin="GIST1M, the publisher's files"),
    "imagenet": _Source(
        _in_files("imagenet", "imagenet/imagenet_base.npy"),
        _IMAGENET_FILES,
        origin="features of ILSVRC2012, float arrays",
    ),
    "digits": _Source(_digits, package="sklearn", origin="scikit-learn"),
}
