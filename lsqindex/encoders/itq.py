"""Iterative Quantization: principal axes, rotated so that the signs lose least (Gong & Lazebnik)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._inputs.vectors import Vectors
from .binary import RotationEncoder
from .linalg import Float32, gram, nearest_orthogonal, product, random_rotation
from .registry import register_encoder


@register_encoder("itq")
class ITQ(RotationEncoder):
    """Iterative Quantization: LSQ with two levels where V and W are one rotation (section 2.2.1).

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> ITQ(bits=12).fit(vectors).encode(vectors[:3]).shape
    (3, 2)
    """

    def _learn_rotation(
        self, centred: Vectors, axes: Float32, rng: np.random.Generator, report: Callable[[float], None]
    ) -> Float32:
        projected = product(centred, axes)
        rotation = random_rotation(self.bits, rng)
        for _ in range(self.iterations):
            rotated = product(projected, rotation)
            # One size for all bits: ‖X − s·BR‖² is least at s = mean |rotated|.
            report(self.bits * float(np.abs(rotated).mean(dtype=np.float64)) ** 2)
            rotation = nearest_orthogonal(gram(np.where(rotated >= 0, np.float32(1), np.float32(-1)), projected))
        return product(rotation, axes.T)
