"""Orthogonal k-means: the binary form of Cartesian k-means (Norouzi & Fleet), two centres per axis."""

from __future__ import annotations

import numpy as np

from ..vectors import Vectors
from .base import Config, Progress, check_int
from .binary import BinaryEncoder
from .linalg import Float32, gram, mean_of, nearest_orthogonal, principal_axes, random_rotation
from .registry import register_encoder


@register_encoder("okmeans")
class OKMeans(BinaryEncoder):
    """Orthogonal k-means: x ≈ mean + R·D·h with R orthogonal and a size D_j of its own for each bit.

    Unlike ITQ, R is free in the whole space, not a rotation of the first principal axes.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> OKMeans(bits=12).fit(vectors).encode(vectors[:3]).shape
    (3, 2)
    """

    #: Relative reconstruction error on the training sample after each round.
    history_: list[float]

    def __init__(self, bits: int = 256, *, iterations: int = 50, seed: int = 0) -> None:
        super().__init__(bits, seed=seed)
        self.iterations = check_int("iterations", iterations, 1, 10_000)

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {"bits": self.bits, "iterations": self.iterations, "seed": self.seed}

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        mean = mean_of(sample)
        centred = sample - mean
        energy = float(np.square(centred, dtype=np.float64).sum())
        _, axes = principal_axes(centred)
        axes = np.concatenate([axes, np.zeros((max(0, self.bits - len(axes)), axes.shape[1]), np.float32)])[: self.bits]
        rotation: Float32 = random_rotation(self.bits, rng) @ axes
        self.history_ = []
        for step in range(self.iterations):
            rotated = centred @ rotation.T
            sizes = np.abs(rotated).mean(axis=0, dtype=np.float64).astype(np.float32)
            kept = float(np.square(sizes, dtype=np.float64).sum()) * len(sample)
            self.history_.append(max(0.0, 1 - kept / energy) if energy else 0.0)
            progress(step + 1, self.iterations, self.history_[-1])
            coded = np.where(rotated >= 0, sizes, -sizes)
            rotation = nearest_orthogonal(gram(coded, centred))
        sizes = np.abs(centred @ rotation.T).mean(axis=0, dtype=np.float64).astype(np.float32)
        self._set(mean, rotation, sizes)
