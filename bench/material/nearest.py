"""The nearest rows, from distances that come block by block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def nearest(blocks: Iterable[NDArray[Any]], queries: int, k: int) -> NDArray[np.int64]:
    """The ``k`` nearest rows of each query, nearest first, ties by row number, shape (queries, k).

    ``blocks`` are distances of shape (queries, rows of the block), in the order of the rows.

    >>> nearest([np.array([[3.0, 1.0]]), np.array([[1.0, 2.0]])], 1, 3)
    array([[1, 2, 3]])
    """
    best: NDArray[Any] = np.full((queries, k), np.inf, np.float32)
    rows = np.full((queries, k), -1, np.int64)
    first = 0
    for block in blocks:
        joined = np.hstack([best, block])
        picks = np.stack([_smallest(distances, k) for distances in joined])
        earlier = np.take_along_axis(rows, np.minimum(picks, k - 1), axis=1)
        rows = np.where(picks < k, earlier, first + picks - k)
        best = np.take_along_axis(joined, picks, axis=1)
        first += block.shape[1]
    return rows


def _smallest(distances: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Where the ``k`` smallest are, in order; of equal ones the first."""
    worst = np.partition(distances, k - 1)[k - 1]
    candidates = np.flatnonzero(distances <= worst)
    return candidates[np.argsort(distances[candidates], kind="stable")[:k]]
