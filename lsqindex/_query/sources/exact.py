"""Exact distances between queries and vectors, one pair at a time: a pair's distance depends on it alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._inputs.vectors import Vectors
from ...encoders.base import Metric


def distances(query: Vectors, vectors: Vectors, metric: Metric) -> Vectors:
    """The distance of one query, shape (dim,), to each of ``vectors``, shape (n, dim).

    >>> distances(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 2.0]]), "l2")
    array([0., 5.], dtype=float32)
    """
    rows = np.ascontiguousarray(vectors, np.float64)
    one = np.asarray(query, np.float64)
    if metric == "l2":
        difference = rows - one
        squares: Vectors = np.einsum("ij,ij->i", difference, difference).astype(np.float32)
        return squares
    products: NDArray[np.float64] = np.einsum("ij,j->i", rows, one)
    if metric == "ip":
        return (-products).astype(np.float32)
    # A vector of zeros has no direction: its cosine is 0.
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows) * (one @ one))
    cosines: Vectors = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return (1 - cosines).astype(np.float32)


class Rows:
    """Vectors to be searched: as float64, and their squared lengths."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = np.asarray(vectors, np.float64)
        self.squares: NDArray[np.float64] = np.einsum("ij,ij->i", self.vectors, self.vectors)


def lower_bounds(queries: Vectors, rows: Rows, metric: Metric) -> tuple[NDArray[np.float64], float]:
    """All distances at once, by one matrix product, shape (nq, n), and how far they may be off."""
    wide, squares = np.asarray(queries, np.float64), rows.squares
    own = np.einsum("ij,ij->i", wide, wide)
    products = wide @ rows.vectors.T
    scale = float(max(squares.max(initial=0), own.max(initial=0)))
    if metric == "l2":
        return own[:, None] - 2 * products + squares, 1e-12 * scale
    if metric == "ip":
        return -products, 1e-12 * scale
    norms = np.sqrt(own[:, None] * squares)
    return 1 - np.divide(products, norms, out=np.zeros_like(products), where=norms > 0), 1e-12
