"""A large index over clustered vectors, for the progressive scan: an encoder with a head, and more than 32,768 rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, Matches, make_encoder
from lsqindex._compiled import encoding as _kernels
from lsqindex._query.sources.scan import margin
from lsqindex.encoders import Encoder

Metric = Literal["l2", "cosine", "ip"]
Vectors = NDArray[np.float32]
METRICS: tuple[Metric, ...] = ("l2", "cosine", "ip")
DIM, N = 64, 40_000


def clustered(n: int, seed: int, dim: int = DIM) -> Vectors:
    """Vectors around three hundred centres; what a dimension holds falls with its number."""
    sizes = np.arange(1, dim + 1) ** -0.5
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(77).standard_normal((300, dim))
    near = centres[rng.integers(0, len(centres), n)] + 0.5 * rng.standard_normal((n, dim))
    return (near * sizes).astype(np.float32)


def unit(vectors: Vectors) -> Vectors:
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    out: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return out


def prepared(vectors: Vectors, metric: Metric) -> Vectors:
    """As an encoder sees them."""
    return unit(vectors) if metric == "cosine" else vectors


@cache
def data() -> Vectors:
    return clustered(N, 0)


@cache
def trained(metric: Metric) -> Encoder:
    """An encoder with a head: without one nothing here would be progressive."""
    encoder = make_encoder("lsq", bits=256, iterations=3).fit(prepared(data()[:8000], metric))
    layout = encoder.layout
    assert 0 < layout.head < layout.code_size
    assert all(margin(layout, layout.head, k, N) is not None for k in (1, 10, 100))
    assert margin(layout, layout.head, 1000, N) is None
    return encoder


@cache
def filled(metric: Metric) -> Index:
    """All of ``data`` under its row numbers; no test changes it."""
    index = Index(DIM, metric=metric, encoder=trained(metric), keep_vectors=None, subset=None)
    index.add(data())
    return index


def queries_like(kind: str, n: int) -> Vectors:
    rng = np.random.default_rng(5)
    if kind == "the data":
        return clustered(n, 6)
    if kind == "stored ones":
        return data()[rng.integers(0, N, n)]
    if kind == "zeros":
        return np.zeros((n, DIM), np.float32)
    away = {"random directions": 1.0, "far away": 1e2, "very far away": 1e4, "near nothing": 1e-2}[kind]
    return (away * rng.standard_normal((n, DIM))).astype(np.float32)


def exact(queries: Any, vectors: Any, metric: str) -> NDArray[np.float64]:
    """All distances in float64, shape (nq, n); a vector of zeros has a cosine of 0."""
    left, right = np.asarray(queries, np.float64), np.asarray(vectors, np.float64)
    products: NDArray[np.float64] = left @ right.T
    own, squares = np.square(left).sum(axis=1)[:, None], np.square(right).sum(axis=1)
    if metric == "l2":
        away: NDArray[np.float64] = np.maximum(own - 2 * products + squares, 0)
        return away
    if metric == "ip":
        return -products
    norms = np.sqrt(own * squares)
    cosines: NDArray[np.float64] = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return 1 - cosines


def shared(found: Matches, other: Any) -> NDArray[np.float64]:
    """For each query the share of ids that two answers have in common."""
    names = other.ids if isinstance(other, Matches) else other
    return np.array([len(set(a) & set(b)) / len(b) for a, b in zip(found.ids.tolist(), names.tolist(), strict=True)])


def assert_equal(found: Matches, other: Matches) -> None:
    """The same ids, and distances of the same bits."""
    assert found.ids.tolist() == other.ids.tolist()
    assert found.distances.view(np.uint32).tolist() == other.distances.view(np.uint32).tolist()


def assert_ordered(found: Matches) -> None:
    """By distance and then by id, none twice."""
    for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True):
        pairs = list(zip(distances, ids, strict=True))
        assert pairs == sorted(pairs)
        assert len(set(ids)) == len(ids)


def assert_taken_from(found: Matches, all_of_them: Matches) -> None:
    """Distances of what was found have the bits that the whole scan gives the same id."""
    for ids, distances, names, known in zip(*found, *all_of_them, strict=True):
        of = dict(zip(names.tolist(), known.view(np.uint32).tolist(), strict=True))
        assert [of[name] for name in ids.tolist()] == distances.view(np.uint32).tolist()


def on_every_level(act: Callable[[], Matches]) -> list[Matches]:
    before = _kernels.simd_level()
    try:
        found = []
        for level in _kernels.simd_levels():
            _kernels.use_simd(level)
            found.append(act())
        return found
    finally:
        _kernels.use_simd(before)


SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 40, "iterations": 2}),
    "lsq of 3 levels": ("lsq", {"bits": 48, "levels": 3, "iterations": 2}),
    "lsq of 4 levels": ("lsq", {"bits": 50, "levels": 4, "iterations": 2}),
    "lsq of 16 levels": ("lsq", {"bits": 72, "levels": 16, "iterations": 2}),
    "lsq as published": ("lsq", {"bits": 36, "levels": 4, "refine": 0, "iterations": 3}),
    "lsq without a scalar": ("lsq", {"bits": 40, "scalar": None, "iterations": 2}),
    "itq": ("itq", {"bits": 13, "iterations": 3}),
    "okmeans": ("okmeans", {"bits": 14, "iterations": 3}),
    "lsh": ("lsh", {"bits": 37}),
    "pq by nibbles": ("pq", {"bits": 20, "field_bits": 4}),
    "pq by bytes": ("pq", {"bits": 24, "field_bits": 8}),
    "pq of 3 bits": ("pq", {"bits": 15, "field_bits": 3}),
    "ckmeans": ("ckmeans", {"bits": 20, "field_bits": 4, "rotations": 2}),
    "kmeans": ("kmeans", {"bits": 6}),
}
SMALL_DIM, SMALL_N = 16, 700


@cache
def small(name: str, metric: Metric) -> tuple[Index, Encoder, Vectors]:
    kind, parameters = SMALL[name]
    vectors = clustered(SMALL_N, 14, SMALL_DIM)
    encoder = make_encoder(kind, **parameters).fit(prepared(vectors, metric))
    index = Index(SMALL_DIM, metric=metric, encoder=encoder, keep_vectors=None, subset=None)
    index.add(vectors)
    return index, encoder, vectors
