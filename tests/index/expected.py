"""What an index must answer, by brute force in NumPy."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, Matches
from lsqindex.testing import reference

METRICS = ("l2", "cosine", "ip")
DIM = 6
#: Never trains by itself.
UNTRAINED = 10**9
#: Every built-in encoder, with parameters that fit ``DIM`` dimensions and some hundred vectors.
ENCODERS: dict[str, dict[str, Any]] = {
    "lsq": {"bits": 24, "iterations": 2},
    "itq": {"bits": 6, "iterations": 3},
    "ckmeans": {"bits": 12, "field_bits": 4, "rotations": 2},
    "okmeans": {"bits": 5, "iterations": 3},
    "pq": {"bits": 12, "field_bits": 4},
    "kmeans": {"bits": 5},
    "lsh": {"bits": 21},
    "flat": {},
}
Vectors = NDArray[np.float32]


def random(n: int, seed: int = 0, dim: int = DIM) -> Vectors:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def names_of(numbers: Any, kind: str) -> Any:
    """Ids of a kind; strings sort otherwise than their numbers."""
    values = np.asarray(numbers, np.int64)
    return values if kind == "int" else [f"id {number}" for number in values.tolist()]


def plain(ids: Any) -> list[Any]:
    return cast(list[Any], ids.tolist()) if isinstance(ids, np.ndarray) else list(ids)


def exact(queries: Any, vectors: Any, metric: str) -> Any:
    """All distances in float64, shape (nq, n)."""
    left, right = np.atleast_2d(np.asarray(queries, np.float64)), np.asarray(vectors, np.float64)
    if metric == "l2":
        return np.square(left[:, None] - right).sum(axis=2)
    products = left @ right.T
    if metric == "ip":
        return -products
    return 1 - products / np.sqrt(np.square(left).sum(axis=1)[:, None] * np.square(right).sum(axis=1))


def assert_found(found: Matches, queries: Any, vectors: Any, ids: Any, metric: str, k: int, rtol: float = 1e-5) -> None:
    """The right ids in the right order, ties by id, the rest padded."""
    names = plain(ids)
    rows32 = np.asarray(vectors, np.float32)
    # By the kernel's twin: what is equal in real numbers may differ in the last bit, and so come in another order.
    near = [
        reference.exact_distances(rows32, metric, query) for query in np.atleast_2d(np.asarray(queries, np.float32))
    ]
    assert np.allclose(near, exact(queries, vectors, metric), rtol=1e-4, atol=1e-5)
    nothing = [None] if found.ids.dtype == object else [-1]
    shape = (k,) if np.ndim(queries) == 1 else (len(queries), k)
    assert found.ids.shape == found.distances.shape == shape
    assert found.distances.dtype == np.float32
    rows = zip(np.atleast_2d(found.ids).tolist(), np.atleast_2d(found.distances), near, strict=True)
    for got, distances, row in rows:
        order = sorted(range(len(names)), key=lambda i: (row[i], names[i]))[:k]
        assert got == [names[i] for i in order] + nothing * (k - len(order))
        wanted = np.full(k, np.inf)
        wanted[: len(order)] = row[order]
        np.testing.assert_allclose(distances, wanted, rtol=rtol, atol=1e-6)


def assert_holds(index: Index, ids: Any, vectors: Any) -> None:
    """Exactly these vectors, by every way to see them, for an index that can tell them exactly."""
    assert index.check() == []
    assert len(index) == len(vectors)
    assert plain(index.ids()) == sorted(plain(ids))
    assert np.array_equal(index.get(ids), np.asarray(vectors, np.float32).reshape(-1, index.dim))
    assert all(name in index for name in plain(ids)[:10])
    if len(vectors):
        some = np.asarray(vectors, np.float32)[[0, -1]] + np.float32(0.01)
        assert_found(index.search(some, 7, rerank=len(vectors)), some, vectors, ids, index.metric, 7, rtol=1e-4)


def codes_of(index: Index, vectors: Vectors) -> NDArray[np.uint8]:
    """Codes made anew, as the index makes them."""
    if index.metric == "cosine":
        vectors = (vectors / np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))[:, None]).astype(np.float32)
    return index.encoder.encode(vectors)


def assert_codes(index: Index, ids: Any, vectors: Vectors) -> None:
    """The stored codes are those of these vectors: by reconstruction, and by distances off the codes."""
    assert index.check() == []
    assert plain(index.ids()) == sorted(plain(ids))
    encoder, codes = index.encoder, codes_of(index, vectors)
    if index.stats()["keep_vectors"] is None:
        assert np.array_equal(index.get(ids), encoder.decode(codes))
    queries = random(3, 99, index.dim)
    near = np.sort(reference.distances(codes, encoder.layout, encoder.tables(queries, index.metric)), axis=1)
    k = min(20, len(codes))
    np.testing.assert_allclose(index.search(queries, k, rerank=0).distances, near[:, :k], rtol=1e-4, atol=1e-4)
