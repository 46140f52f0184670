"""The k nearest, by distance and then by id."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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


def ordered(distances: NDArray[np.float32], ids: Any, k: int) -> NDArray[np.intp]:
    """Places of the k smallest, by distance and then by id (an array, or a list of strings)."""
    if isinstance(ids, np.ndarray):
        return np.lexsort((ids, distances))[:k]
    places = sorted(range(len(ids)), key=lambda i: (distances[i], ids[i]))
    return np.array(places[:k], np.intp)
