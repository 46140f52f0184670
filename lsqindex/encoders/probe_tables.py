"""Probe tables of codes that a linear map tells: field j is that whose θ is nearest to t_j = estimate_j·(q − mean).

What a value costs is how far it is from the query, in units of the original space, less what the nearest costs:

    values   | zeros: row scalars | size_0 · ((t_0 − θ)² − (t_0 − nearest θ)²) for each θ | the same of t_1 | …

    l2       t = estimate·(q − mean)
    cosine   the same of q/‖q‖
    ip       t = estimate·q: what adds most to the inner product is no nearer to the mean than to zero

For two levels the costs are ∓2·size·t, which differ by as much (and one product gives them all): the bit of least
margin is the cheapest to flip.
"""

from __future__ import annotations

import numpy as np

from .._inputs.vectors import Vectors
from ..metrics import METRICS
from .layout import Tables
from .linalg import Float32, lengths
from .linear_tables import theta_of

#: Queries taken at a time where there are more than two levels: what is computed on the way stays in the cache.
_ROWS = 32


class ProbeTables:
    """Makes the probe tables of such a code, for any metric.

    >>> probes = ProbeTables(np.zeros(2, np.float32), np.eye(2, dtype=np.float32), np.ones(2, np.float32), levels=3)
    >>> probes.of(np.array([[-0.25, -3.0]], np.float32), "l2").values
    array([[ 0.5,  0. ,  1.5,  0. ,  5. , 12. ]], dtype=float32)
    """

    def __init__(
        self, mean: Float32, estimate: Float32, sizes: Float32, levels: int, *, scalar_levels: int = 0
    ) -> None:
        self._mean, self._levels, self._sizes = mean, levels, sizes
        self._columns = np.ascontiguousarray(2 * sizes[:, None] * estimate if levels == 2 else estimate).T
        self._theta = theta_of(levels)
        self._scalar_levels = scalar_levels

    def of(self, queries: Vectors, metric: str) -> Tables:
        """The tables of ``queries``; for cosine these need not be normalized."""
        n, scalar = len(queries), self._scalar_levels
        values = np.empty((n, scalar + self._levels * len(self._sizes)), np.float32)
        bias = np.zeros(n, np.float32)
        asked = METRICS[metric]
        values[:, :scalar] = 0
        if asked.unit:
            queries = queries / lengths(queries)
        told = (queries if asked.base == "ip" else queries - self._mean) @ self._columns
        if self._levels == 2:
            values[:, scalar::2], values[:, scalar + 1 :: 2] = told, -told
            return Tables(values, bias)
        costs = values[:, scalar:].reshape(n, len(self._sizes), self._levels)
        for first in range(0, n, _ROWS):
            self._write(told[first : first + _ROWS], costs[first : first + _ROWS])
        return Tables(values, bias)

    def _write(self, told: Float32, costs: Float32) -> None:
        """With a = θ − nearest θ and b = nearest θ − t, the difference of squares is a·(a + 2b): no digits are lost."""
        steps = np.rint((told + 1) * np.float32((self._levels - 1) / 2))
        nearest = self._theta[np.clip(steps, 0, self._levels - 1).astype(np.intp)]
        np.subtract(self._theta, nearest[:, :, None], out=costs)
        costs *= costs + (2 * (nearest - told))[:, :, None]
        costs *= self._sizes[:, None]
