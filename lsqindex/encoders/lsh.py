"""Locality-Sensitive Hashing: signs of random projections; learns mean, scale and, if asked, where to project."""

from __future__ import annotations

import numpy as np

from .._inputs.vectors import Vectors
from .base import Config, Progress, check_int
from .binary import BinaryEncoder, mean_sizes
from .linalg import Float32, mean_of, principal_axes, product, random_rotation
from .registry import register_encoder


@register_encoder("lsh")
class LSH(BinaryEncoder):
    """Random hyperplanes, orthogonal to each other in groups of ``dim`` (super-bit LSH).

    Any number of bits. The data give the mean, through which all hyperplanes go, and the size of a
    bit in the reconstruction. With ``axes``, hyperplanes are orthogonal in groups of so many, and drawn in the space of
    the first ``axes`` principal axes: bits then tell more of what makes vectors neighbours, which the buckets of a
    multi-index need, and leave out what the other directions would tell.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> LSH(bits=64).fit(vectors).encode(vectors[:3]).shape
    (3, 8)
    >>> LSH(bits=64, axes=8).fit(vectors)
    LSH(bits=64, axes=8, seed=0)
    """

    _may_exceed_dim = True

    def __init__(self, bits: int = 256, *, axes: int | None = None, seed: int = 0) -> None:
        super().__init__(bits, seed=seed)
        self.axes = None if axes is None else check_int("axes", axes, 1, 1 << 16)

    @property
    def config(self) -> Config:
        """The constructor's arguments; ``axes`` only where there are some, for older files say nothing of them."""
        return {"bits": self.bits, **({} if self.axes is None else {"axes": self.axes}), "seed": self.seed}

    def _min_vectors(self) -> tuple[int, str]:
        return 1, "pass a vector"

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        mean = mean_of(sample)
        planes = self._planes(sample - mean, np.random.default_rng(self.seed))
        self._set(mean, planes, mean_sizes(product(sample - mean, planes)))
        progress(1, 1, float("nan"))

    def _planes(self, centred: Vectors, rng: np.random.Generator) -> Float32:
        group = self._group(centred.shape[1])
        planes = np.concatenate([random_rotation(group, rng) for _ in range(-(-self.bits // group))])[: self.bits]
        # Fewer vectors than dimensions have fewer axes than were asked for, too.
        return planes if self.axes is None else product(planes, _padded(principal_axes(centred)[1][:group], group).T)

    def _group(self, dim: int) -> int:
        """So many hyperplanes are orthogonal to each other."""
        return min(self.axes or dim, dim)

    @property
    def _blocks(self) -> float:
        return max(1.0, self.bits / self._group(self.dim or 1))


def _padded(axes: Float32, count: int) -> Float32:
    return np.concatenate([axes, np.zeros((count - len(axes), axes.shape[1]), np.float32)])
