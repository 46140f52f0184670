"""From projected vectors to the levels of a linear code: the paper's quantizer, and the searches.

    published  q_n rounds each number of Wᵀx to the nearest of n uniform values (equation 5)
    bits       n = 2: decision feedback, then a short tabu search over bit flips
               (cython_src/feedback.h, flips.h)
    levels     n > 2: cyclic coordinate descent (cython_src/descend.h)

Both searches minimize ‖y − Vᵀθ‖² for one row at a time, given G = VVᵀ and the residual Vy − Gθ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._compiled import encoding as _kernels
from .._inputs.vectors import Vectors
from .base import Fields
from .linalg import Float32, Packed, feedback_factors, product, ridge

#: flips.h adds in int32: a row of G may sum to this, a residual may reach twice as much.
_FIXED = float(1 << 28)


def coded_values(fields: Fields, levels: int) -> Vectors:
    """θ_n: the values in [−1, 1] that field numbers stand for.

    >>> coded_values(np.arange(3, dtype=np.uint16), 3)
    array([-1.,  0.,  1.], dtype=float32)
    """
    theta = (-1.0 + 2.0 * np.arange(levels) / (levels - 1)).astype(np.float32)
    return theta[fields]


def quantize(values: Vectors, levels: int) -> Fields:
    """q_n of the paper, as field numbers: a number on the edge between two bins goes to the upper.

    >>> quantize(np.array([-0.5, 0.0, -0.0, 0.5], np.float32), 2)
    array([0, 1, 1, 1], dtype=uint16)
    >>> quantize(np.array([-0.5, -0.51, 0.49, 0.5, 9.0], np.float32), 3)
    array([1, 0, 1, 2, 2], dtype=uint16)
    """
    if levels == 2:
        return (values >= 0).astype(np.uint16)
    # Half-way between θ(k) and θ(k+1), in the form that rounds only once.
    edges = (2.0 * np.arange(levels - 1) + 2 - levels) / (levels - 1)
    return np.searchsorted(edges, values, side="right").astype(np.uint16)


class PublishedCoder:
    """Codes as the paper makes them: q_n(Wᵀx)."""

    def __init__(self, start: Float32, levels: int) -> None:
        self._start, self._levels = Packed(start), levels

    def __call__(self, projected: Vectors) -> Fields:
        """The codes of projected vectors."""
        return quantize(product(projected, self._start), self._levels)


class BitCoder:
    """Binary codes by search: decision feedback, then ``steps`` flips for each vector."""

    def __init__(self, rows: Float32, noise: float, steps: int) -> None:
        m, stride = len(rows), -(-len(rows) // _kernels.LANES) * _kernels.LANES
        self._steps = steps
        self._targets, self._columns, self._noise = feedback_factors(rows, noise)
        self._to_targets, self._to_residual = Packed(self._targets), Packed(self._columns)
        gram = product(rows, rows)
        reach = float(np.abs(gram).sum(axis=1).max())
        # Rows too short for float32's range are all the same to the search.
        self._scale = np.float32(_FIXED / reach if reach > 1e-29 else 0.0)
        fixed = np.rint(gram.astype(np.float64) * float(self._scale)).astype(np.int32)
        self._twice = np.zeros((m + 1, stride), np.int32)
        self._twice[:m, :m] = 2 * fixed
        self._diagonal = np.ascontiguousarray(np.diag(fixed))

    def __call__(self, projected: Vectors) -> Fields:
        """The codes of projected vectors."""
        left = product(projected, self._to_targets)
        bits = _kernels.feedback(left, self._columns)
        # left is c − Lh now, so that Vy − Gh = Lᵀ(c − Lh) + noise·h.
        residual = product(left, self._to_residual)
        residual += np.float32(self._noise) * (2 * bits.astype(np.float32) - 1)
        residual *= self._scale
        np.rint(residual, out=residual)
        np.clip(residual, -2 * _FIXED, 2 * _FIXED, out=residual)
        _kernels.flips(bits, residual.astype(np.int32), self._twice, self._diagonal, self._steps)
        return bits.astype(np.uint16)

    @property
    def search(self) -> tuple[Any, ...]:
        """For the kernel that does all steps in one call: targets, columns, noise, scale, 2G, diagonal, steps."""
        return (
            self._targets, self._columns, np.float32(self._noise), self._scale, self._twice, self._diagonal, self._steps
        )  # fmt: skip


class LevelCoder:
    """n-ary codes by search: the rounded ridge guess, then ``sweeps`` of coordinate descent."""

    def __init__(self, rows: Float32, levels: int, noise: float, sweeps: int) -> None:
        wide = rows.astype(np.float64)
        self._gram, self._levels, self._sweeps = product(rows, rows), levels, sweeps
        self._start = Packed(ridge(wide @ wide.T, wide, noise))
        self._rows, self._to_explained = Packed(rows), Packed(self._gram)

    def __call__(self, projected: Vectors) -> Fields:
        """The codes of projected vectors."""
        codes = quantize(product(projected, self._start), self._levels)
        residual = product(projected, self._rows)
        residual -= product(coded_values(codes, self._levels), self._to_explained)
        _kernels.descend(codes, residual, self._gram, self._levels, self._sweeps)
        return codes


def make_coder(rows: Float32, levels: int, noise: float, refine: int) -> BitCoder | LevelCoder:
    """The searching coder of that many levels."""
    if levels == 2:
        return BitCoder(rows, noise, refine)
    return LevelCoder(rows, levels, noise, max(1, refine // 32))
