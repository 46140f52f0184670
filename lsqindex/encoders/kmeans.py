"""k-means: one codebook, the code is the number of the nearest centre (sections 1 and 2 of the paper)."""

from __future__ import annotations

import numpy as np

from .._inputs.vectors import Vectors
from .base import Config, Fields, Progress, check_int
from .clustering import Codebooks, kmeans
from .pq import PQ
from .registry import register_encoder


@register_encoder("kmeans")
class KMeans(PQ):
    """One codebook of 2 ** bits centres: ``pq`` with a single part.

    As a feature vector the code is one-hot: 2 ** bits numbers, a single 1.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((300, 3))
    >>> encoder = KMeans(bits=4).fit(vectors)
    >>> encoder.encode(vectors).max() < 16, encoder.embed(vectors[:2]).sum(axis=1)
    (np.True_, array([1., 1.], dtype=float32))
    """

    def __init__(self, bits: int = 8, *, iterations: int = 25, seed: int = 0) -> None:
        bits = check_int("bits", bits, 1, 12)
        super().__init__(bits, field_bits=bits, iterations=iterations, seed=seed)

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {"bits": self.bits, "iterations": self.iterations, "seed": self.seed}

    def _min_vectors(self) -> tuple[int, str]:
        return 1 << self.bits, "pass more vectors or use fewer bits"

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        self._codebooks = Codebooks(sample.shape[1], 1, 1 << self.bits)
        self._codebooks.books[0] = kmeans(sample, 1 << self.bits, self.iterations, rng)
        progress(1, 1, float("nan"))

    @property
    def embed_dim(self) -> int:
        """One number per centre."""
        return 1 << self.bits

    def _embed(self, fields: Fields) -> Vectors:
        return np.eye(1 << self.bits, dtype=np.float32)[fields[:, 0]]
