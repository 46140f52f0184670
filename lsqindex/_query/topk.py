"""The k nearest, by distance and then by id."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._compiled import ranking


def nearest(distances: NDArray[np.floating[Any]], k: int, slack: float = 0.0) -> NDArray[np.intp]:
    """Places of all distances that may be among the k smallest: ties, and those within ``slack``, included.

    >>> nearest(np.array([3.0, 1.0, 2.0, 1.0]), 1)
    array([1, 3])
    """
    if k >= len(distances):
        return np.arange(len(distances))
    limit = np.float32(np.partition(distances, k - 1)[k - 1] + slack)
    # What float32 cannot tell apart is equal, and ordered by id.
    return np.flatnonzero(distances <= np.nextafter(limit, np.float32(np.inf)))


def order(
    counts: NDArray[np.int64], distances: NDArray[np.float32], ids: Any, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(counts, places): of the found rows of each query the k nearest, by distance and then by id.

    ``ids`` are an array, or a list of strings; ``counts`` tells how many of all are each query's.

    >>> order(np.array([3, 1]), np.array([2, 1, 2, 5], np.float32), np.array([8, 9, 7, 0]), 2)
    (array([2, 1]), array([1, 2, 3]))
    """
    if not isinstance(ids, np.ndarray):
        # As numbers in the order of the strings.
        ranks = np.empty(len(ids), np.int64)
        ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
        ids = ranks
    return ranking.order(counts, distances, ids, k)


def cut(
    counts: NDArray[np.int64], distances: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(counts, places): of the found rows of each query those no farther than the k-th nearest, as they come.

    >>> cut(np.array([3, 1]), np.array([2, 1, 2, 5], np.float32), 2)
    (array([3, 1]), array([0, 1, 2, 3]))
    """
    return ranking.cut(counts, distances, k)
