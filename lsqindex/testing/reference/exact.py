"""Exact distances of kept vectors, and what is expected to be missed: cython_src/exact.h, misses.h."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: A sum of squares below the first may have lost numbers. A query so short is multiplied by the second, for cosine.
SMALL, LIFT = 2.0**-80, np.float32(2.0**100)


def exact_distances(vectors: NDArray[np.float32], metric: str, query: NDArray[np.float32]) -> NDArray[np.float32]:
    """The distance of each of ``vectors`` from one query; those kept in int8 or float16 as float32.

    >>> exact_distances(np.eye(2, dtype=np.float32), "cosine", np.array([0, 3], np.float32))
    array([1., 0.], dtype=float32)
    """
    wide = query.astype(np.float64)
    if metric == "l2":
        sums = lane_sums((query - vectors) ** 2)
        return np.where(sums < SMALL, _wide_sums((wide - vectors) ** 2), sums).astype(np.float32)
    own = lane_sums((query * query)[None])
    if metric == "ip":
        products = _wide_sums(wide * vectors) if own < SMALL else lane_sums(query * vectors)
        return (-products).astype(np.float32)
    if own < SMALL:
        query = query * LIFT
        wide, own = query.astype(np.float64), lane_sums((query * query)[None])
    products, squares = lane_sums(query * vectors), lane_sums(vectors * vectors)
    small = squares < SMALL
    products = np.where(small, _wide_sums(wide * vectors), products)
    squares = np.where(small, _wide_sums(vectors.astype(np.float64) ** 2), squares)
    norms = np.sqrt(squares * own)
    return (1 - np.divide(products, norms, out=np.zeros(len(norms)), where=norms > 0)).astype(np.float32)


def expected_misses(estimates: NDArray[np.float32], exact: NDArray[np.float32], kth: float, total: int) -> float:
    """How many rows that were not compared are expected to be nearer than ``kth``; see cython_src/misses.h."""
    x, y, n = estimates.astype(np.float64).tolist(), exact.astype(np.float64).tolist(), len(estimates)
    mean_x, mean_y, xx, xy, rest, misses = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for own_x, own_y in zip(x, y, strict=True):  # one after another: NumPy's sums have another order
        mean_x, mean_y = mean_x + own_x, mean_y + own_y
    mean_x, mean_y = mean_x / n, mean_y / n
    for own_x, own_y in zip(x, y, strict=True):
        xx, xy = xx + (own_x - mean_x) * (own_x - mean_x), xy + (own_x - mean_x) * (own_y - mean_y)
    slope = xy / xx if xx > 0 else 0.0
    for own_x, own_y in zip(x, y, strict=True):
        error = own_y - mean_y - slope * (own_x - mean_x)
        rest += error * error
    s = math.sqrt(rest / (n - 2))
    slope = max(0.0, slope - s / math.sqrt(xx)) if xx > 0 else 0.0
    octave, rows, left = x[-1] - x[n // 2 - 1], float(n), float(total - n)
    ahead = x[-1] + octave / 2
    while left > 0:
        z = kth - mean_y - slope * (ahead - mean_x)
        share = min(rows, left)
        misses += share * (0.5 * math.erfc(-z / (s * 1.4142135623730951)) if s > 0 else float(z > 0))
        rows, left, ahead = 2 * rows, left - share, ahead + octave
    return misses


def lane_sums(terms: NDArray[np.float32]) -> NDArray[np.float64]:
    """The sum of each row: 32 sums in float32 side by side, added in halves after 512 terms and at the end."""
    out = np.zeros(len(terms))
    for first in range(0, terms.shape[1], 512):
        lanes = np.zeros((len(terms), 32), np.float32)
        for at in range(first, min(first + 512, terms.shape[1]), 32):
            part = terms[:, at : at + 32]
            lanes[:, : part.shape[1]] += part
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        out += lanes[:, 0]
    return out


def _wide_sums(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each row in float64, term after term."""
    return 0.0 + np.cumsum(terms, axis=1)[:, -1]  # as a sum that begins with 0: never −0
