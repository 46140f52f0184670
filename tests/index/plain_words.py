"""Plain words for the comparison of an index with a dict."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex._storage import rewrite
from lsqindex._subsets.cells import structure as cells
from lsqindex._subsets.multi_index import structure
from lsqindex._write import add as loader
from lsqindex._write import retraining, training

DIM = 3
Vectors = NDArray[np.float32]


def grid(n: int, seed: int) -> Vectors:
    """Vectors of small whole numbers, none of them zero."""
    vectors = np.random.default_rng(seed).integers(-4, 5, (n, DIM)).astype(np.float32)
    vectors[~vectors.any(axis=1), 0] = 1
    return vectors


def some_payloads(n: int, seed: int) -> list[Any] | None:
    """Payloads of several kinds and sizes, none among them; or none at all."""
    if seed % 3 == 0:
        return None
    kinds: list[Any] = [None, {}, {"a": 1}, {"a": "x"}, {"b": {"c": 2}}, {"a": [1, 5], "b": 3}, {"text": "é" * 300}]
    numbers = np.random.default_rng(seed).integers(0, 12, n).tolist()
    many = [{"a": at % 40, "b": {"c": number}} for at, number in enumerate(numbers)]
    return [kinds[number] if number < len(kinds) else many[at] for at, number in enumerate(numbers)]


FILTERS: list[Any] = [
    {"a": 1},
    {"a": {"$gte": 20}, "b.c": {"$lt": 9}},
    {"$or": [{"a": "x"}, {"text": {"$exists": True}}]},
    {"b.c": {"$nin": [2, 8]}},
    {},
]


def can_have(encoder: str, subset: Any) -> bool:
    """Whether codes of an encoder can have these tables: vectors as they are have none, others than bits no number."""
    return subset is None or (encoder != "flat" and (encoder != "pq" or not isinstance(subset, MultiIndex)))


def plain(ids: Any) -> list[Any]:
    return cast(list[Any], ids.tolist()) if isinstance(ids, np.ndarray) else list(ids)


def codes(index: Index, vectors: Vectors) -> NDArray[np.uint8]:
    """The codes of vectors as the index makes them: of length 1 for cosine."""
    if index.metric == "cosine":
        vectors = (vectors / np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))[:, None]).astype(np.float32)
    return index.encoder.encode(vectors)


def distances(queries: Vectors, vectors: Vectors, metric: str) -> Any:
    """Brute force, in float64; sums of these vectors are exact in any order."""
    left, right = queries.astype(np.float64), vectors.astype(np.float64)
    products = left @ right.T
    squares, own = np.square(right).sum(axis=1), np.square(left).sum(axis=1)[:, None]
    if metric == "l2":
        return (own - 2 * products + squares).astype(np.float32)
    if metric == "ip":
        return (-products).astype(np.float32)
    return (1 - products / np.sqrt(squares * own)).astype(np.float32)


def assert_found(found: Any, names: list[Any], near: NDArray[np.float32], k: int) -> None:
    """``names`` are sorted, so a stable sort by distance breaks ties by id."""
    for ids, got, row in zip(found.ids.tolist(), found.distances, near, strict=True):
        order = np.argsort(row, kind="stable")[:k]
        missing = k - len(order)
        nothing = [None] if names and isinstance(names[0], str) else [-1]
        if not names:
            assert set(ids) <= {None, -1}
        else:
            assert ids == [names[i] for i in order.tolist()] + nothing * missing
        assert np.array_equal(got, np.concatenate([row[order], np.full(missing, np.inf, np.float32)]))


@contextlib.contextmanager
def small_transactions(on: bool) -> Iterator[None]:
    """Large adds, trainings and copies in many transactions, as with millions of vectors."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (loader, training, retraining, rewrite, structure, cells) if on else ():
            patch.setattr(module, "COMMIT_BYTES", 1 << 15)
        yield
