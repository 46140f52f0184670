"""Lloyd's k-means, and the product of several: what ``kmeans``, ``pq`` and ``ckmeans`` share.

A product quantizer cuts the dimensions into consecutive parts, one codebook each. Where the parts
do not divide evenly, the first ones are one dimension longer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._compiled import assign as _assign
from .._inputs.vectors import BLOCK_ROWS, Vectors
from .._threads.cached import cached_property
from ..errors import StateError
from .base import Fields, StateReader
from .layout import Tables
from .linalg import Float32, product, settled, squares


def nearest_centres(vectors: Vectors, centres: Float32) -> tuple[NDArray[np.intp], Vectors]:
    """The nearest centre of each vector, ties to the lower number, and ‖x−c‖² − ‖x‖²."""
    half = squares(centres) / 2
    labels = np.empty(len(vectors), np.intp)
    away = np.empty(len(vectors), np.float32)
    for first in range(0, len(vectors), BLOCK_ROWS):
        block = vectors[first : first + BLOCK_ROWS]
        scores = product(block, centres)
        np.subtract(half, scores, out=scores)
        best = scores.argmin(axis=1)
        labels[first : first + BLOCK_ROWS] = best
        away[first : first + BLOCK_ROWS] = 2 * scores[np.arange(len(block)), best]
    return labels, away


def first_centres(vectors: Vectors, k: int, rng: np.random.Generator) -> Float32:
    """``k`` rows of ``vectors``, distinct ones first."""
    chosen = rng.permutation(len(vectors))
    if len(chosen) > k:
        chosen = chosen[: 4 * k]
        kept = distinct(vectors[chosen])
        chosen = np.concatenate([chosen[kept], np.delete(chosen, kept)])
    return vectors[np.resize(chosen, k)].copy()


def distinct(vectors: Vectors) -> NDArray[np.intp]:
    """Where in ``vectors`` each different row is first, ascending."""
    # As bytes: np.unique would make a type of as many fields as numbers, and turn an interrupt into a TypeError.
    rows = np.ascontiguousarray(vectors + vectors.dtype.type(0))  # −0 becomes 0
    _, first = np.unique(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))), return_index=True)
    return np.sort(first)


def moved_centres(vectors: Vectors, labels: NDArray[Any], centres: Float32, rng: np.random.Generator) -> Float32:
    """The means of the clusters; an empty cluster takes half of a large one."""
    k = len(centres)
    counts = np.bincount(labels, minlength=k)
    sums = _assign.sums(np.ascontiguousarray(vectors, np.float32), labels.astype(np.uint32), k)
    moved = settled(sums / np.maximum(counts, 1)[:, None])
    empty = np.flatnonzero(counts == 0)
    if len(empty) and len(vectors) > k:
        # A twin beside a cluster drawn by size: they share its vectors at the next assignment.
        split = rng.choice(k, size=len(empty), p=counts / counts.sum())
        spread = 1e-3 * (np.abs(moved).mean(axis=0) + 1e-30)
        nudge = settled(spread * rng.choice([-1.0, 1.0], size=(len(empty), vectors.shape[1])))
        moved[empty] = moved[split] + nudge
    elif len(empty):
        moved[empty] = centres[empty]
    return moved


def kmeans(vectors: Vectors, k: int, iterations: int, rng: np.random.Generator) -> Float32:
    """Centres after ``iterations`` of Lloyd's algorithm from random rows.

    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]], np.float32)
    >>> np.sort(kmeans(points, 2, 10, np.random.default_rng(0)).ravel()).round(2)
    array([0.05, 5.05], dtype=float32)
    """
    centres = first_centres(vectors, k, rng)
    labels: NDArray[np.intp] | None = None
    for _ in range(iterations):
        before, (labels, _) = labels, nearest_centres(vectors, centres)
        if before is not None and np.array_equal(before, labels):
            break
        centres = moved_centres(vectors, labels, centres, rng)
    return centres


class Codebooks:
    """One codebook per part of the dimensions: encode, decode and tables of a product quantizer."""

    def __init__(self, dim: int, m: int, levels: int) -> None:
        self.levels = levels
        edges = np.cumsum([0] + [dim // m + (j < dim % m) for j in range(m)])
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self.books: list[Float32] = [np.zeros((0, part.stop - part.start), np.float32) for part in self.parts]

    def encode(self, vectors: Vectors) -> Fields:
        """The nearest centre in every part."""
        fields = np.empty((len(vectors), len(self.parts)), np.uint16)
        for j, (part, book) in enumerate(zip(self.parts, self.books, strict=True)):
            fields[:, j] = nearest_centres(np.ascontiguousarray(vectors[:, part]), book)[0]
        return fields

    def decode(self, fields: Fields) -> Vectors:
        """The centres side by side."""
        return np.concatenate([book[fields[:, j]] for j, book in enumerate(self.books)], axis=1)

    def embed(self, fields: Fields) -> Vectors:
        """Each centre as one number: its place on the first principal axis of its codebook (2.2.2)."""
        return np.stack([line[fields[:, j]] for j, line in enumerate(self.lines())], axis=1)

    def lines(self) -> list[Float32]:
        """The centres of every part, projected onto one dimension."""
        out = []
        for book in self.books:
            centred = book - book.mean(axis=0)
            axis = np.linalg.svd(centred.astype(np.float64), full_matrices=False)[2][0]
            out.append(settled(centred @ (axis * (-1.0 if axis[np.argmax(np.abs(axis))] < 0 else 1.0))))
        return out

    def tables(self, queries: Vectors, metric: str) -> Tables:
        """Distances of the queries' parts to all centres; the symmetric form passes decoded queries.

        One product for each part: (q, ‖q‖², 1)·(−2c, 1, ‖c‖²) is the squared distance of q and c.
        """
        n, m, width = len(queries), len(self.parts), self.parts[0].stop
        parts = np.zeros((m, n, width + 2), np.float32)
        self._cut(queries, parts)
        centres = self._centres
        if metric == "l2":
            parts[:, :, width] = np.einsum("mnd,mnd->mn", parts, parts)
            parts[:, :, width + 1] = 1
        else:
            parts, centres = parts[:, :, :width] * np.float32(0.5), centres[:, :width]
        values = np.empty((n, m * self.levels), np.float32)
        np.matmul(parts, centres, out=values.reshape(n, m, self.levels).transpose(1, 0, 2))
        if metric == "l2":
            np.maximum(values, 0, out=values)
        return Tables(values, np.zeros(n, np.float32))

    @cached_property
    def _centres(self) -> Float32:
        """(−2c, 1, ‖c‖²) of every centre, shape (parts, width + 2, levels); shorter parts are filled with zeros.

        Made at the first search, when centres do not move any more.
        """
        width = self.parts[0].stop
        out = np.zeros((len(self.parts), self.levels, width + 2), np.float32)
        self._cut(self.flat(), out)
        out[:, :, width + 1] = np.einsum("mkd,mkd->mk", out, out)
        out[:, :, :width] *= -2
        out[:, :, width] = 1
        return np.ascontiguousarray(out.transpose(0, 2, 1))

    def _cut(self, rows: Vectors, out: Vectors) -> None:
        """Write the parts of ``rows`` to the beginning of ``out``, shape (parts, n, width or more)."""
        n, width = len(rows), self.parts[0].stop
        long = sum(part.stop - part.start == width for part in self.parts)
        edge = long * width
        out[:long, :, :width] = rows[:, :edge].reshape(n, long, width).transpose(1, 0, 2)
        if long < len(self.parts):
            rest = rows[:, edge:].reshape(n, len(self.parts) - long, width - 1)
            out[long:, :, : width - 1] = rest.transpose(1, 0, 2)

    def flat(self) -> Float32:
        """All codebooks as one array, (levels, dim)."""
        return np.concatenate(self.books, axis=1)

    def restore(self, state: StateReader) -> None:
        """The inverse of :meth:`flat`, from a stored state."""
        books = state.array("centres", (self.levels, self.parts[-1].stop))
        if books.shape[1] == 0:
            raise StateError("stored codebooks are empty")
        self.books = [np.ascontiguousarray(books[:, part]) for part in self.parts]
