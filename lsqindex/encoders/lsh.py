"""Locality-Sensitive Hashing: signs of random projections; learns nothing but the mean and the scale."""

from __future__ import annotations

import numpy as np

from ..vectors import Vectors
from .base import Config, Progress
from .binary import BinaryEncoder, mean_sizes
from .linalg import mean_of, random_rotation
from .registry import register_encoder


@register_encoder("lsh")
class LSH(BinaryEncoder):
    """Random hyperplanes, orthogonal to each other in groups of ``dim`` (super-bit LSH).

    Any number of bits. The data give the mean, through which all hyperplanes go, and the size of a
    bit in the reconstruction.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> LSH(bits=64).fit(vectors).encode(vectors[:3]).shape
    (3, 8)
    """

    _may_exceed_dim = True

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {"bits": self.bits, "seed": self.seed}

    def _min_vectors(self) -> tuple[int, str]:
        return 1, "pass a vector"

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        dim = sample.shape[1]
        planes = np.concatenate([random_rotation(dim, rng) for _ in range(-(-self.bits // dim))])[: self.bits]
        mean = mean_of(sample)
        self._set(mean, planes, mean_sizes((sample - mean) @ planes.T))
        progress(1, 1, float("nan"))
