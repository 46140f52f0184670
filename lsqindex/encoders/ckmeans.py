"""Cartesian k-means (also known as OPQ): a rotation, then a product quantizer, learned together."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..vectors import BLOCK_ROWS, Vectors
from .base import Config, Fields, Progress, State, StateReader, check_int
from .clustering import Codebooks, kmeans, moved_centres, nearest_centres
from .layout import Tables
from .linalg import Float32, Float64, gram, mean_of, nearest_orthogonal, principal_axes, product
from .pq import PQ
from .registry import register_encoder


@register_encoder("ckmeans")
class CKMeans(PQ):
    """Cartesian k-means (Norouzi & Fleet; Ge et al. call it OPQ).

    Parameters are those of ``pq``, and ``rotations``: rounds of the alternation between codebooks
    and rotation. It starts from principal axes dealt to the parts so that each gets an equal share
    of the variance (in logarithm).

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((1000, 10))
    >>> CKMeans(bits=16, field_bits=4, rotations=5).fit(vectors).encode(vectors[:3]).shape
    (3, 2)
    """

    #: Relative reconstruction error on the training sample after each round.
    history_: list[float]

    def __init__(
        self, bits: int = 256, *, field_bits: int = 8, rotations: int = 50, iterations: int = 10, seed: int = 0
    ) -> None:
        super().__init__(bits, field_bits=field_bits, iterations=iterations, seed=seed)
        self.rotations = check_int("rotations", rotations, 1, 10_000)

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {**super().config, "rotations": self.rotations}

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        dim, levels = sample.shape[1], 1 << self.field_bits
        self._mean = mean_of(sample)
        centred = sample - self._mean
        energy = float(np.square(centred, dtype=np.float64).sum())
        variances, axes = principal_axes(centred)
        books = self._codebooks = Codebooks(dim, self.m, levels)
        self._rotation = _dealt_axes(variances, axes, [part.stop - part.start for part in books.parts])
        self.history_ = []
        rotated = centred @ self._rotation.T
        for j, part in enumerate(books.parts):
            books.books[j] = kmeans(np.ascontiguousarray(rotated[:, part]), levels, 2, rng)
        for step in range(self.rotations):
            # One step of Lloyd in every part, then the rotation that fits the centres best.
            coded = np.empty_like(rotated)
            for j, part in enumerate(books.parts):
                vectors = np.ascontiguousarray(rotated[:, part])
                labels, _ = nearest_centres(vectors, books.books[j])
                books.books[j] = moved_centres(vectors, labels, books.books[j], rng)
                coded[:, part] = books.books[j][labels]
            self._rotation = nearest_orthogonal(gram(coded, centred))
            rotated = centred @ self._rotation.T
            error = sum(
                float(np.square(rotated[i : i + BLOCK_ROWS] - coded[i : i + BLOCK_ROWS], dtype=np.float64).sum())
                for i in range(0, len(coded), BLOCK_ROWS)
            )
            self.history_.append(error / energy if energy else 0.0)
            progress(step + 1, self.rotations, self.history_[-1])
        for j, part in enumerate(books.parts):
            vectors = np.ascontiguousarray(rotated[:, part])
            for _ in range(self.iterations):
                labels, _ = nearest_centres(vectors, books.books[j])
                books.books[j] = moved_centres(vectors, labels, books.books[j], rng)

    def _state(self) -> State:
        return {**super()._state(), "mean": self._mean, "rotation": self._rotation}

    def _restore(self, state: StateReader) -> None:
        super()._restore(state)
        dim = self.dim or 0
        self._mean = state.array("mean", (dim,))
        self._rotation = state.array("rotation", (dim, dim))
        self.history_ = []

    def _encode(self, block: Vectors) -> Fields:
        return self._codebooks.encode(product(block - self._mean, self._rotation))

    def _decode(self, fields: Fields) -> Vectors:
        return self._mean + product(self._codebooks.decode(fields), self._rotation.T)

    def _tables(self, queries: Vectors, metric: Literal["l2", "ip"], symmetric: bool) -> Tables:
        if symmetric:
            queries = self._decode(self._encode(queries))
        if metric == "l2":
            return self._codebooks.tables((queries - self._mean) @ self._rotation.T, metric)
        tables = self._codebooks.tables(queries @ self._rotation.T, metric)
        return Tables(tables.values, -(queries @ self._mean).astype(np.float32))


def _dealt_axes(variances: Float64, axes: Float32, sizes: list[int]) -> Float32:
    """Principal axes as the rows of a rotation: each goes to the open part of least log-variance so far."""
    dim = axes.shape[1]
    full = np.linalg.qr(np.concatenate([axes, np.eye(dim)]).T.astype(np.float64))[0].T[:dim]
    full[: len(axes)] = axes
    floor = 1e-12 * max(float(variances[0]), 1e-30)
    logs = np.log(np.maximum(np.concatenate([variances, np.zeros(dim - len(variances))]), floor))
    logs -= logs.min()
    members: list[list[int]] = [[] for _ in sizes]
    held = np.zeros(len(sizes))
    for axis in range(dim):
        open_parts = [j for j, size in enumerate(sizes) if len(members[j]) < size]
        part = min(open_parts, key=lambda j: held[j])
        members[part].append(axis)
        held[part] += logs[axis]
    return np.ascontiguousarray(full[[axis for part in members for axis in part]], np.float32)
