"""The row scalar for inner products: the code holds a row's direction, the scalar its length.

A row x = ‖x‖·u is coded as û, the code of its unit vector, so long and short rows are coded equally well.
The inner product ‖x‖·(q·u) is a product, and a distance has to be a sum of look-ups. But a search
only has to tell on which side of the *frontier* τ, the k-th largest inner product of the query, a row lies, and

    ‖x‖·(q·u) > τ     is the same as     q·u − τ/‖x‖ > 0

whose two terms depend on the direction and on the length alone. The estimate of q·u is corrected as in
``lsq_scalar``: with e = u − û, the queries that matter for x have q·e = (q·u)/c · ε(x) on average, where ε(x) is
what the neighbours of u have in the training sample, and c is their mean cosine. On the frontier q·u = τ/‖x‖, so

    q·u − τ/‖x‖  ≈  q·û − (τ/ℓ)·t,        t = (1 − ε(x)/c)·ℓ/‖x‖

with ℓ the typical length of rows on the frontier. t is stored, in uniform steps. The estimate of the inner product,

    τ + ℓ·(q·û) − τ·t

is right on the frontier and for rows of length ℓ. Elsewhere it is on the right side of τ, but too near to τ for longer
rows and too far from τ for shorter ones.

The frontier of a query is estimated as that of a normal distribution, τ(q) = q·mean(x) + z·ℓ‖Vq‖, because ‖Vq‖² is the
variance of q·û if the bits are independent. z is learned from training vectors that play queries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._compiled.encoding import Linear
from .._inputs.vectors import Vectors
from ..errors import StateError
from ..metrics import METRICS
from .base import State, StateReader
from .layout import Tables
from .linalg import Float32, Float64, Packed, gram, mean_of, product, ridge, settled, squares
from .linear_tables import theta_of
from .lsq_scalar import DEEPEST, NEIGHBOURS, RowScalar, neighbour_pairs
from .lsq_training import water_level

#: Training vectors that play queries when the frontier is learned, and the rows these are compared with.
QUERIES, AMONG = 400, 40_000
#: A row of length ‖x‖ can only reach the frontier if τ/‖x‖ ≤ 1. Steps are spent on lengths up to this limit, which
#: leaves room for queries whose frontier is lower than usual.
SHORTEST = 1.5
#: The mean cosine of neighbours is taken to be at least this.
LEAST_COSINE = 0.1


def split_lengths(vectors: Vectors) -> tuple[Float32, Vectors]:
    """Lengths, and vectors of length 1; a vector of length 0 stays as it is.

    >>> split_lengths(np.array([[3, 4], [0, 0]], np.float32))
    (array([5., 0.], dtype=float32), array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32))
    """
    wide = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    known = np.minimum(wide, np.finfo(np.float32).max).astype(np.float32)
    return known, (vectors / np.where(wide > 0, wide, 1)[:, None]).astype(np.float32)


class LengthScalar(RowScalar):
    """The stored number t of each row. All vectors here are unit vectors; their lengths come beside them."""

    def __init__(self, bits: int) -> None:
        super().__init__("learned", bits)

    # -- training -----------------------------------------------------------------------------

    def learn_frontier(self, unit: Vectors, lengths: Float32, mean: Float32, rng: np.random.Generator) -> None:
        """Learn the frontiers of training vectors that play queries, and ℓ; ``mean`` is that of unit vectors."""
        n = min(len(unit), AMONG)
        self._asked = np.sort(rng.choice(n, size=min(QUERIES, n), replace=False))
        self.unit_mean, self.mean = mean, mean_of(unit * lengths[:, None])
        count = min(NEIGHBOURS, n - 1)
        found = product(unit[self._asked], unit[:n]) * lengths[:n]
        found[np.arange(len(self._asked)), self._asked] = -np.inf
        best = np.argpartition(-found, count - 1, axis=1)[:, :count]
        self._frontiers = np.take_along_axis(found, best, axis=1).min(axis=1).astype(np.float64)
        typical, longest = float(np.median(lengths[best])), float(lengths.max())
        known = settled(np.array([typical or longest or 1.0, longest or 1.0]))
        self.length, self._longest = np.maximum(known, np.float32(2.0**-119))  # which settled() may have made 0
        usual = max(float(np.median(self._frontiers)), 0.0) / float(self.length)
        shares = _shares(self.length, lengths)
        far = min(float(shares.max()), SHORTEST / usual) if usual > 0 else float(np.quantile(shares, 0.99))
        self._far = settled(np.array([far]))[0]
        #: How far the term of the length spreads over the rows that matter, as an inner product of unit vectors.
        self._spread = usual * max(0.0, float(self._far - shares.min()))

    def learn_neighbours(
        self, centred: Vectors, projected: Vectors, axes: Float32, rng: np.random.Generator
    ) -> Float64:
        """Learn ρ and a of ``RowScalar``, and the mean cosine of neighbours."""
        query, row = neighbour_pairs(centred, projected, axes, rng)
        whole = axes.astype(np.float64) @ self.unit_mean
        both = query.mean(axis=0, dtype=np.float64) + row.mean(axis=0, dtype=np.float64)
        cosine = float((query * row).mean(axis=0, dtype=np.float64).sum() + both @ whole)
        cosine += float(np.square(self.unit_mean, dtype=np.float64).sum())
        self.cosine = settled(np.array([max(cosine, LEAST_COSINE)]))[0]
        self._mean_shift = settled(whole[: projected.shape[1]])
        return self._regress(query, row, projected.shape[1])

    def choose_bits(
        self, centred: Vectors, projected: Vectors, variances: Float64, around: Float64, bits: int, width: int
    ) -> int:
        """How many of ``bits`` t is worth; the two errors are those of q·û and of τ·t/ℓ. See ``RowScalar``."""
        level = water_level(variances, bits)
        left = np.minimum(variances, level)
        d = projected.shape[1]
        expected = np.square(self._shift.astype(np.float64)) + np.square(self._rho.astype(np.float64)) * variances[:d]
        # As in ``RowScalar`` the step of the correction counts twice. That of the length need not: most of its range
        # is for rows that are hardly ever found.
        span = self._spread + 2 * 7.0 * np.sqrt(float(expected @ left[:d]))
        directions = max(1, int((variances > level).sum()))
        choices = np.arange(2, min(10, max(2, bits // 2), bits - width) + 1)
        error = float(around @ left) * 2.0 ** (2 * choices / directions) + np.square(span / 2.0**choices) / 12
        return int(choices[np.argmin(error)])

    def fit_lengths(
        self, unit: Vectors, centred: Vectors, projected: Vectors, lengths: Float32, values: Vectors, rows: Float32
    ) -> None:
        """Learn what the bits tell of t, the range of the rest, how to tell a length from t, and z."""
        coded = product(values, rows.T)
        self._least = np.float32(-np.inf)
        part = self._part(centred, projected, coded).astype(np.float64)
        middle, near = np.quantile(part, [0.5, 0.1])
        self._least = settled(np.array([max(0.0, middle - DEEPEST * (middle - near))]))[0]
        t = self._exact_lengths(centred, projected, coded, lengths)
        mean = settled(np.array([t.mean(dtype=np.float64)]))[0]
        right = gram(values, (t - mean)[:, None])
        self._weights = ridge(gram(values, values), right, 1e-3 * len(values))[:, 0]
        rest = (t - mean - product(values, self._weights[None])[:, 0]).astype(np.float64)
        low, high = float(rest.min()), float(rest.max())
        self._low, self._step = settled(np.array([low + mean, (high - low) / ((1 << self.bits) - 1)]))
        self._below = np.float32(0)
        self._line = _line(t.astype(np.float64), np.minimum(_shares(self.length, lengths), self._far))
        short = lengths[t >= self._far - self._step]
        self._short = settled(np.array([short.mean(dtype=np.float64) if len(short) else float(self._longest)]))[0]
        asked = unit[self._asked]
        deviation = np.sqrt(squares(product(projected[self._asked] + self._mean_shift, rows)).astype(np.float64))
        deviation *= float(self.length)
        above = self._frontiers - asked.astype(np.float64) @ self.mean
        usable = deviation > 0
        z = float(np.median(above[usable] / deviation[usable])) if usable.any() else 0.0
        self.z = settled(np.array([z]))[0]

    # -- rows ---------------------------------------------------------------------------------

    def _part(self, centred: Vectors, projected: Vectors, coded: Vectors) -> Vectors:
        """1 − ε/c: the part of its inner product with a row that a query on the frontier has with the code.

        Codes that do not reach their rows would have nearly none of it, and be near to all queries: there is a limit.
        """
        error = self._expected(squares(centred), projected, coded)
        error += product(centred, self.unit_mean[None])[:, 0] - product(coded, self._mean_shift[None])[:, 0]
        part: Vectors = np.maximum(1 - error / self.cosine, self._least)
        return part

    def _exact_lengths(self, centred: Vectors, projected: Vectors, coded: Vectors, lengths: Float32) -> Vectors:
        """t before it is stored."""
        t: Vectors = np.minimum(self._part(centred, projected, coded) * _shares(self.length, lengths), self._far)
        return t

    def encode_lengths(
        self, centred: Vectors, projected: Vectors, lengths: Float32, values: Vectors, columns: Packed
    ) -> NDArray[np.uint16]:
        """The stored step of each row; ``columns`` are those of V."""
        coded = product(values, columns)
        t = self._exact_lengths(centred, projected, coded, lengths)
        return self._steps(t - product(values, self._weights[None])[:, 0])

    def decode_lengths(self, steps: NDArray[np.uint16], values: Vectors) -> Float32:
        """The lengths of rows, as far as t tells them."""
        told, known = self.tables()
        t = product(values, told[None])[:, 0] + known[steps]
        share = self._line[0] + self._line[1] * t
        lengths: Float32 = np.minimum(self.length / np.maximum(share, np.float32(1e-6)), self._longest)
        # Beyond the last step t tells only that a row is short.
        return np.where(t < self._far - self._step, lengths, np.minimum(lengths, self._short))

    # -- state --------------------------------------------------------------------------------

    def state(self) -> State:
        """The learned arrays."""
        known = (self.length, self._longest, self._short, self.cosine, self._least, self._far, self.z, *self._line)
        return {
            **super().state(),
            "length_mean": self.mean,
            "length_shift": self._mean_shift,
            "length_known": np.array(known, np.float32),
        }

    def restore(self, state: StateReader, d: int, m: int) -> None:
        """The inverse of :meth:`state`; ``of`` has to be called, too."""
        super().restore(state, d, m)
        self._mean_shift = state.array("length_shift", (d,))
        known = state.array("length_known", (9,))
        self.length, self._longest, self._short, self.cosine, self._least, self._far, self.z = known[:7]
        self._line = known[7:]
        if not (self.length > 0 and self._longest > 0 and self.cosine > 0):
            raise StateError(f"stored 'length_known' is impossible: {known.tolist()}; the data is damaged")

    def restore_means(self, state: StateReader, unit_mean: Float32) -> None:
        """Set the mean of rows, and that of unit vectors."""
        self.mean, self.unit_mean = state.array("length_mean", unit_mean.shape), unit_mean


class LengthTables:
    """Tables of codes with a :class:`LengthScalar`, for ip and cosine."""

    def __init__(self, scalar: LengthScalar, rows: Float32, levels: int) -> None:
        self.rows, self._scalar, self._theta = np.ascontiguousarray(rows), scalar, theta_of(levels)
        # What the frontier is multiplied with, for all levels of all fields.
        told, steps = scalar.tables()
        self._known = np.concatenate([steps, np.multiply.outer(told, self._theta).ravel()])
        self._linear: dict[str, Linear] = {}

    def linear(self, metric: str) -> Linear:
        """What makes the tables for a metric, made when it is first asked for."""
        made = self._linear.get(metric)
        if made is None:
            made = self._linear[metric] = self._make(unit=METRICS[metric].unit)
        return made

    def _make(self, *, unit: bool) -> Linear:
        scalar, m = self._scalar, len(self.rows)
        means = (scalar.unit_mean,) if unit else (scalar.unit_mean, scalar.mean)
        matrix = np.concatenate([self.rows, *(mean[None] for mean in means)])
        length, cosine = float(scalar.length), float(scalar.cosine)
        if unit:
            # Rows have length 1, so t = (1 − ε/c)·ℓ, and the estimate is q·û + ε for queries of length 1.
            known, frontier = 1 - cosine, cosine / length
            return Linear(matrix, m, self._theta, self._known, unit=True, constant=known, frontier=frontier)
        return Linear(matrix, m, self._theta, self._known, length=length, spread=float(scalar.z) * length)

    def of(self, queries: Vectors, metric: str) -> Tables:
        """The tables of ``queries``; for cosine these need not be normalized."""
        return Tables(*self.linear(metric).of(queries))


def _shares(typical: np.float32, lengths: Float32) -> Float32:
    """ℓ/‖x‖; a large number where the length is 0."""
    shares: Float32 = typical / np.maximum(lengths, typical * np.float32(1e-12))
    return shares


def _line(t: Float64, shares: Float64) -> Float32:
    """The line by which t tells ℓ/‖x‖ best; a constant where it tells nothing."""
    middle, mean = t.mean(), float(shares.mean(dtype=np.float64))
    variance = float(np.square(t - middle).mean())
    slope = float(((t - middle) * (shares - mean)).mean()) / variance if variance > 0 else 0.0
    return settled(np.array([mean - slope * middle, slope]))
