"""Iterative Quantization: principal axes, rotated so that the signs lose least (Gong & Lazebnik)."""

from __future__ import annotations

import numpy as np

from ..vectors import Vectors
from .base import Config, Progress, check_int
from .binary import BinaryEncoder
from .linalg import gram, mean_of, nearest_orthogonal, principal_axes, random_rotation
from .registry import register_encoder


@register_encoder("itq")
class ITQ(BinaryEncoder):
    """Iterative Quantization: LSQ with two levels where V and W are one rotation (section 2.2.1).

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> ITQ(bits=12).fit(vectors).encode(vectors[:3]).shape
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
        # Fewer directions than bits: the other bits are rotations of the same directions.
        axes = np.concatenate([axes, np.zeros((max(0, self.bits - len(axes)), axes.shape[1]), np.float32)])[: self.bits]
        projected = centred @ axes.T
        rotation = random_rotation(self.bits, rng)
        self.history_ = []
        for step in range(self.iterations):
            rotated = projected @ rotation.T
            signs = np.where(rotated >= 0, np.float32(1), np.float32(-1))
            # With one common size s for all bits, ‖X − s·BR‖² is least at s = mean |rotated|.
            size = float(np.abs(rotated).mean(dtype=np.float64))
            self.history_.append(max(0.0, 1 - size * size * self.bits * len(sample) / energy) if energy else 0.0)
            progress(step + 1, self.iterations, self.history_[-1])
            rotation = nearest_orthogonal(gram(signs, projected))
        rotated = projected @ rotation.T
        sizes = np.abs(rotated).mean(axis=0, dtype=np.float64).astype(np.float32)
        self._set(mean, rotation @ axes, sizes)
