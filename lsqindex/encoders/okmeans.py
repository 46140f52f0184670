"""Orthogonal k-means: the binary form of Cartesian k-means (Norouzi & Fleet), two centres per axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._inputs.vectors import Vectors
from .binary import RotationEncoder, mean_sizes
from .linalg import Float32, gram, nearest_orthogonal, product, random_rotation
from .registry import register_encoder


@register_encoder("okmeans")
class OKMeans(RotationEncoder):
    """Orthogonal k-means: x ≈ mean + R·D·h with R orthogonal and a size D_j of its own for each bit.

    Unlike ITQ, R is free in the whole space, not a rotation of the first principal axes.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> OKMeans(bits=12).fit(vectors).encode(vectors[:3]).shape
    (3, 2)
    """

    def _learn_rotation(
        self, centred: Vectors, axes: Float32, rng: np.random.Generator, report: Callable[[float], None]
    ) -> Float32:
        rotation = product(random_rotation(self.bits, rng), axes.T)
        for _ in range(self.iterations):
            rotated = product(centred, rotation)
            sizes = mean_sizes(rotated)
            report(float(np.square(sizes, dtype=np.float64).sum()))
            rotation = nearest_orthogonal(gram(np.where(rotated >= 0, sizes, -sizes), centred))
        return rotation
