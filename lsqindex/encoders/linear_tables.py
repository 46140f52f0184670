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

from typing import NamedTuple

import numpy as np

from .._compiled import encoding as _kernels
from .._inputs.vectors import Vectors
from ..metrics import METRICS, Metric
from .layout import Tables
from .linalg import Float32, lengths

#: Queries taken at a time: what is computed on the way stays in the cache.
_ROWS = 512


class _Known(NamedTuple):
    """What does not depend on the query, for one metric."""

    weights: Float32
    steps: Float32
    bias: float


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
        self._mean, self._levels = mean, levels
        # The mean is the last row: one product gives the bias too.
        all_rows = np.concatenate([rows, mean[None]])
        self._all_columns, self._columns = all_rows.T, all_rows[:-1].T
        self._theta = (-1.0 + 2.0 * np.arange(levels) / (levels - 1)).astype(np.float32)
        half, length = np.float32(0.5), float(np.square(mean, dtype=np.float64).sum())
        plain = _Known(told, steps, float(np.float32(constant)))
        of_units = _Known(half * told + rows @ mean, half * steps, float(np.float32((1.0 + length + constant) / 2)))
        nothing_known = _Known(np.zeros_like(told), np.zeros_like(steps), 0.0)
        self._known = {
            name: of_units if metric.unit else plain if metric.base == "l2" else nothing_known
            for name, metric in METRICS.items()
        }

    @property
    def rows(self) -> Float32:
        """The rows as given."""
        return self._columns.T

    def of(self, queries: Vectors, metric: str) -> Tables:
        """The tables of ``queries``; for cosine these need not be normalized."""
        asked, known, n = METRICS[metric], self._known[metric], len(queries)
        width = len(known.steps) + self._levels * self._columns.shape[1]
        values, bias = np.empty((n, width), np.float32), np.empty(n, np.float32)
        if n <= _ROWS:
            self._write(queries, asked, known, values, bias)
            return Tables(values, bias)
        for first in range(0, n, _ROWS):
            some = slice(first, first + _ROWS)
            self._write(queries[some], asked, known, values[some], bias[some])
        return Tables(values, bias)

    def _write(self, queries: Vectors, metric: Metric, known: _Known, values: Float32, bias: Float32) -> None:
        centre = metric.base == "l2" and not metric.unit
        if centre:
            centred = queries - self._mean
            np.add(np.einsum("ij,ij->i", centred, centred), np.float32(known.bias), out=bias)
            centred += centred
            inner = centred @ self._columns
        else:
            inner = queries @ self._all_columns
        if self._levels == 2:
            whole = queries if metric.unit else None
            _kernels.bit_tables(inner, whole, known.weights, known.steps, known.bias, values, bias)
            return
        if metric.unit:
            inner /= lengths(queries)
        if not centre:
            np.subtract(np.float32(known.bias), inner[:, -1], out=bias)
        scalar, m = len(known.steps), len(known.weights)
        values[:, :scalar] = known.steps
        weights = known.weights - inner[:, :m]
        np.multiply(weights[:, :, None], self._theta, out=values[:, scalar:].reshape(*weights.shape, self._levels))
