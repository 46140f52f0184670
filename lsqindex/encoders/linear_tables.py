"""Tables of codes whose reconstruction is linear: x̂ = mean + Σ_j θ(field_j)·row_j, θ uniform in [−1, 1].

A query costs one matrix product, which gives the weight of every code dimension; the rest is known beforehand:

    values   | scalar's steps | −w_0 … +w_0 | −w_1 … +w_1 | …          one entry per level of each field

    l2       w = told − 2·rows·(q − mean)             bias = ‖q − mean‖² + constant
    cosine   half of that for u = q/‖q‖:
             w = told/2 + rows·mean − rows·u          bias = (1 + ‖mean‖² + constant)/2 − mean·u
    ip       w = −rows·q                              bias = −mean·q

``told``, ``steps`` and ``constant`` are what is known of ‖x − mean‖²: from the code's dimensions, from its row
scalar, from nothing at all. For cosine the mean is within the unit ball, so it may be taken out of the product; for l2
it may be far away, and what is left after subtracting would be noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._compiled.encoding import Linear
from .._inputs.vectors import Vectors
from ..metrics import METRICS
from .layout import Tables
from .linalg import Float32


class LinearTables:
    """Makes the tables of a linear code, for any metric.

    >>> rows = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32)
    >>> tables = LinearTables(np.zeros(2, np.float32), rows, levels=2, constant=5.0)
    >>> tables.of(np.array([[3.0, 1.0]], np.float32), "l2").values
    array([[ 12., -12.,   2.,  -2.]], dtype=float32)
    >>> tables.of(np.array([[3.0, 1.0]], np.float32), "l2").bias
    array([15.], dtype=float32)
    """

    def __init__(
        self,
        mean: Float32,
        rows: Float32,
        levels: int,
        *,
        told: Float32 | None = None,
        steps: Float32 | None = None,
        constant: float = 0.0,
    ) -> None:
        nothing = np.zeros(0, np.float32)
        steps = nothing if steps is None else steps
        told = np.zeros(len(rows), np.float32) if told is None else told
        self.rows = np.ascontiguousarray(rows)
        self._theta, half = theta_of(levels), np.float32(0.5)
        # The mean is the last row: one product gives the bias too.
        whole, length = np.concatenate([rows, mean[None]]), float(np.square(mean, dtype=np.float64).sum())
        plain = self._known(told, steps)
        of_units = self._known(half * told + rows @ mean, half * steps)
        nothing_known = self._known(np.zeros_like(told), np.zeros_like(steps))
        #: The arguments of ``Linear`` for each kind of metric.
        self._arguments: dict[str, tuple[Any, ...]] = {
            "l2": (self.rows, plain, mean, False, constant),
            "unit": (whole, of_units, None, True, (1.0 + length + constant) / 2),
            "ip": (whole, nothing_known),
        }
        self._linear: dict[str, Linear] = {}

    def _known(self, weights: Float32, steps: Float32) -> Float32:
        return np.concatenate([steps, np.multiply.outer(weights, self._theta).ravel()], dtype=np.float32)

    def linear(self, metric: str) -> Linear:
        """What makes the tables for a metric, made when it is first asked for."""
        made = self._linear.get(metric)
        if made is None:
            asked = METRICS[metric]
            matrix, *others = self._arguments["unit" if asked.unit else asked.base]
            made = self._linear[metric] = Linear(matrix, len(self.rows), self._theta, *others)
        return made

    def of(self, queries: Vectors, metric: str) -> Tables:
        """The tables of ``queries``; for cosine these need not be normalized."""
        return Tables(*self.linear(metric).of(queries))


def theta_of(levels: int) -> Float32:
    """The values of a dimension: uniform in [−1, 1]."""
    theta: Float32 = (-1.0 + 2.0 * np.arange(levels) / (levels - 1)).astype(np.float32)
    return theta
