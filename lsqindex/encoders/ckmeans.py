"""Cartesian k-means (also known as OPQ): a rotation, then a product quantizer, learned together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import Vectors
from .._threads.cached import cached_property
from ..metrics import Base
from .base import Config, Fields, Progress, State, StateReader, check_int
from .clustering import Codebooks, kmeans, moved_centres, nearest_centres
from .layout import Tables
from .linalg import (
    Float32,
    Float64,
    Packed,
    gram,
    mean_of,
    nearest_orthogonal,
    principal_axes,
    product,
    settled,
    squares,
)
from .pq import PQ
from .registry import register_encoder

#: Axes past this share of the variance would get no centres worth the name, and the rotation costs
#: their number cubed.
KEPT_VARIANCE = 0.995


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
        levels = 1 << self.field_bits
        self._mean = mean_of(sample)
        centred = sample - self._mean
        variances, axes = principal_axes(centred)
        kept = _axes_to_keep(variances, self.m, centred.shape[1])
        axes = _completed(axes, kept)
        projected = product(centred, axes)
        energy = float(np.square(centred, dtype=np.float64).sum())
        left_out = max(0.0, energy - float(np.square(projected, dtype=np.float64).sum()))
        books = self._codebooks = Codebooks(kept, self.m, levels)
        rotation = _dealt(variances, kept, [part.stop - part.start for part in books.parts])
        self.history_ = []
        rotated = product(projected, rotation)
        for j, part in enumerate(books.parts):
            books.books[j] = kmeans(np.ascontiguousarray(rotated[:, part]), levels, 2, rng)
        for step in range(self.rotations):
            # One step of Lloyd in every part, then the rotation that fits the centres best.
            coded = np.empty_like(rotated)
            for j, part in enumerate(books.parts):
                labels = self._lloyd(rotated, j, rng)
                coded[:, part] = books.books[j][labels]
            rotation = nearest_orthogonal(gram(coded, projected))
            rotated = product(projected, rotation)
            error = left_out + float(squares(rotated - coded).sum(dtype=np.float64))
            self.history_.append(error / energy if energy else 0.0)
            progress(step + 1, self.rotations, self.history_[-1])
        for j in range(self.m):
            for _ in range(self.iterations):
                self._lloyd(rotated, j, rng)
        self._rotation = product(rotation, axes.T)

    def _lloyd(self, rotated: Vectors, j: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """One step of Lloyd's algorithm in part ``j``; the labels it moved the centres by."""
        vectors = np.ascontiguousarray(rotated[:, self._codebooks.parts[j]])
        labels, _ = nearest_centres(vectors, self._codebooks.books[j])
        self._codebooks.books[j] = moved_centres(vectors, labels, self._codebooks.books[j], rng)
        return labels

    def _state(self) -> State:
        return {**super()._state(), "mean": self._mean, "rotation": self._rotation}

    def _restore(self, state: StateReader) -> None:
        dim = self.dim or 0
        shape = state.shape("rotation")
        kept = shape[0] if len(shape) == 2 and self.m <= shape[0] <= dim else dim
        self._mean = state.array("mean", (dim,))
        self._rotation = state.array("rotation", (kept, dim))
        self._codebooks = Codebooks(kept, self.m, 1 << self.field_bits)
        self._codebooks.restore(state)
        self.history_ = []

    @cached_property
    def _rotated(self) -> Packed:
        return Packed(self._rotation)

    def _encode(self, block: Vectors) -> Fields:
        return self._codebooks.encode(product(block - self._mean, self._rotated))

    def _decode(self, fields: Fields) -> Vectors:
        return self._mean + product(self._codebooks.decode(fields), self._rotation.T)

    def _tables(self, queries: Vectors, metric: Base, symmetric: bool) -> Tables:
        if symmetric:
            queries = self._decode(self._encode(queries))
        if metric == "ip":
            tables = self._codebooks.tables(queries @ self._rotation.T, metric)
            return Tables(tables.values, -(queries @ self._mean).astype(np.float32))
        centred = queries - self._mean
        rotated = centred @ self._rotation.T
        left_out = np.maximum(squares(centred) - squares(rotated), 0).astype(np.float32)
        return Tables(self._codebooks.tables(rotated, metric).values, left_out)


def _axes_to_keep(variances: Float64, m: int, dim: int) -> int:
    """How many principal axes hold KEPT_VARIANCE, one for each part at least."""
    share = np.cumsum(variances) / max(float(variances.sum()), 1e-30)
    return min(dim, max(m, int((share < KEPT_VARIANCE).sum()) + 1))


def _completed(axes: Float32, count: int) -> Float32:
    """``count`` orthonormal rows that begin with ``axes``: data of low rank have too few of their own."""
    if len(axes) >= count:
        return np.ascontiguousarray(axes[:count])
    basis = np.linalg.qr(np.concatenate([axes, np.eye(axes.shape[1])]).T.astype(np.float64))[0].T[:count]
    return np.concatenate([axes, settled(basis[len(axes) :])])


def _dealt(variances: Float64, count: int, sizes: list[int]) -> Float32:
    """The first rotation: each axis goes to the open part of least log-variance so far."""
    floor = 1e-12 * max(float(variances[0]), 1e-30)
    logs = np.log(np.maximum(np.resize(np.append(variances, np.zeros(count)), count), floor) / floor)
    members: list[list[int]] = [[] for _ in sizes]
    held = np.zeros(len(sizes))
    for axis in range(count):
        open_parts = [j for j, size in enumerate(sizes) if len(members[j]) < size]
        part = min(open_parts, key=lambda j: held[j])
        members[part].append(axis)
        held[part] += logs[axis]
    return np.eye(count, dtype=np.float32)[[axis for part in members for axis in part]]
