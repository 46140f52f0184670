"""The nearest centres of vectors, and the second cell of a row: cython_src/assign.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .encoders import product

#: Sums are kept in so many parts.
LANES = 16


def nearest_centres(
    vectors: NDArray[np.float32], centres: NDArray[np.float32], k: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """(labels, squares), each (n, k): the nearest by products, then in the order of their squared distances.

    >>> nearest_centres(np.array([[1.0]], np.float32), np.array([[5], [0], [1]], np.float32), 2)
    (array([[2, 1]]), array([[0., 1.]], dtype=float32))
    """
    wide = centres.astype(np.float64)
    halves = (np.cumsum(wide * wide, axis=1)[:, -1] / 2).astype(np.float32)
    labels = np.argsort(halves - product(vectors, centres), axis=1, kind="stable")[:, :k]
    apart = np.repeat(vectors, labels.shape[1], axis=0) - centres[labels.ravel()]
    squares = sums_in_lanes(apart * apart).reshape(labels.shape)
    order = np.argsort(squares, axis=1, kind="stable")
    return np.take_along_axis(labels, order, axis=1), np.take_along_axis(squares, order, axis=1)


def second_cells(
    vectors: NDArray[np.float32],
    centres: NDArray[np.float32],
    labels: NDArray[np.intp],
    squares: NDArray[np.float32],
) -> NDArray[np.intp]:
    """Which of its nearest centres is the second cell of each vector: the one that costs least.

    >>> points = np.array([[5, 0], [-1, 0], [0, 1.1]], np.float32)
    >>> vector = np.zeros((1, 2), np.float32)
    >>> int(second_cells(vector, points, *nearest_centres(vector, points, 3))[0])
    1
    """
    own = vectors[:, None] - centres[labels]
    along = sums_in_lanes((own[:, :1] * own).reshape(-1, vectors.shape[1])).reshape(labels.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = squares + np.where(squares[:, :1] > 0, along * along / squares[:, :1], np.float32(0))
    best: NDArray[np.intp] = 1 + np.argmin(costs[:, 1:], axis=1)
    return best


def sums_in_lanes(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of each row in float32: sixteen sums side by side, then one after another."""
    padded = np.zeros((len(terms), -(-terms.shape[1] // LANES), LANES), np.float32)
    padded.reshape(len(terms), -1)[:, : terms.shape[1]] = terms
    sums: NDArray[np.float32] = np.cumsum(np.cumsum(padded, axis=1)[:, -1], axis=1)[:, -1]
    return sums
