"""One number per row that makes the distance estimate as good as the code allows.

With x = x̂ + e the squared distance to a query is ‖q‖² − 2 q·x̂ + s, where s = ‖x‖² − 2 q·e. The
term q·e is unknown, but its expectation is not: the queries that matter for x are its neighbours,
and in the principal axis i a neighbour's coordinate is ρ_i·x_i + a_i on average, with ρ near 1 in
strong directions and near 0 in weak ones, where even neighbours are strangers. So

    s = ‖x‖² − 2 Σ_i (a_i + ρ_i·x_i)·e_i        a, ρ learned from neighbours in the training sample

β‖e‖² with one learned β is the special case of one ρ for all axes; the plain ‖x̂‖² is ``kind="norm"``.

**Rows longer than training's.** The code does not reach them, e is long, and s is right for neighbours of x
only: every other query would be estimated nearer than any row can be. So s − ‖x̂‖², the estimate for a query
just where the code is, has a lower limit, learned in training. A row whose s would have to be above the top step
for that is too long; it is coded as a shorter one of its direction (``LSQ``).

Part of s can be told from the bits themselves; being linear in them that part costs nothing at search
time. Only the rest is stored, in ``bits`` uniform steps.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import BLOCK_ROWS, Vectors
from .base import State, StateReader
from .linalg import Float32, Float64, Packed, gram, inner, product, ridge, settled, squares
from .lsq_training import water_level

#: Queries played by training vectors, their neighbours, and the rows these are looked for in.
QUERIES, NEIGHBOURS, AMONG = 1000, 10, 40_000
#: How many times as far from the median as the quantile 0.99 the top step may be: a few rows of extreme length
#: must not cost all others their precision.
FARTHEST = 4.0
#: How many times as far from the median as the quantile 0.9 an estimate below zero may be.
DEEPEST = 3.0
#: What a row that is too long, but not too long for the code to reach it, is multiplied with, at least and at most.
SHORTER = (0.5, 0.98)


class RowScalar:
    """The stored number of each row: learned on a sample, then computed with every code."""

    def __init__(self, kind: Literal["learned", "norm"], bits: int) -> None:
        self.kind, self.bits = kind, bits

    def learn_neighbours(
        self, centred: Vectors, projected: Vectors, axes: Float32, rng: np.random.Generator
    ) -> Float64:
        """Learn ρ and a; the variance of a neighbour's coordinate around them, for each of ``axes``.

        ``projected`` has the first of ``axes``; past these one ρ serves for all.
        """
        return self._regress(*neighbour_pairs(centred, projected, axes, rng), projected.shape[1])

    def _regress(self, query: Vectors, row: Vectors, d: int) -> Float64:
        row_mean, query_mean = row.mean(axis=0, dtype=np.float64), query.mean(axis=0, dtype=np.float64)
        both = (query * row).mean(axis=0, dtype=np.float64) - row_mean * query_mean
        own = np.square(row).mean(axis=0, dtype=np.float64) - np.square(row_mean)
        rho = np.clip(np.where(own > 0, both / np.where(own > 0, own, 1), 0.0), 0.0, 2.0)
        self._rho, self._shift = settled(rho[:d]), settled((query_mean - rho * row_mean)[:d])
        past = own[d:].sum()
        self._rho_rest = float(settled(np.array([(rho[d:] * own[d:]).sum() / past if past > 0 else 0.0]))[0])
        around = np.square(query).mean(axis=0, dtype=np.float64) - np.square(query_mean) - rho * both
        left: Float64 = np.maximum(around, 0.0)
        return left

    def choose_bits(
        self, centred: Vectors, projected: Vectors, variances: Float64, around: Float64, bits: int, width: int
    ) -> int:
        """How many of ``bits`` the scalar is worth: the least sum of two errors of the estimate.

        One dimension of ``width`` bits must be left.

        A bit taken from the code raises the code's error by 2^(2/k), k the directions that get bits;
        a bit given to the scalar quarters the square of its step.
        """
        level = water_level(variances, bits)
        left = np.minimum(variances, level)
        d = projected.shape[1]
        expected = np.square(self._shift.astype(np.float64)) + np.square(self._rho.astype(np.float64)) * variances[:d]
        length = squares(centred).astype(np.float64)
        told = np.square((projected * (length - length.mean())[:, None]).mean(axis=0, dtype=np.float64))
        untold = max(0.0, length.var() - float((told / np.maximum(variances[:d], 1e-30)).sum()))
        noise, spread = 4 * float(around @ left), 4 * float(expected @ left[:d]) + untold
        directions = max(1, int((variances > level).sum()))
        choices = np.arange(2, min(10, max(2, bits // 2), bits - width) + 1)
        # Seven deviations are as good as the whole range. The step counts twice: an error of the scalar is
        # the same for all queries, and one bit more than the plain sum says ranks better.
        error = noise * 2.0 ** (2 * choices / directions) + spread * np.square(2 * 7.0 / 2.0**choices) / 12
        return int(choices[np.argmin(error)])

    def fit(self, centred: Vectors, projected: Vectors, values: Vectors, rows: Float32) -> None:
        """Learn what the bits tell of s, the range of the rest, and how far below zero an estimate may be."""
        coded = product(values, rows.T)
        own = inner(coded, coded)
        exact = self._exact(centred, projected, coded, own)
        middle, far = np.quantile((own - exact).astype(np.float64), [0.5, 0.9])
        self._below = settled(np.array([middle + DEEPEST * (far - middle)]))[0]
        exact = np.maximum(exact, own - self._below)
        mean = settled(np.array([exact.mean(dtype=np.float64)]))[0]
        right = gram(values, (exact - mean)[:, None])
        self._weights = ridge(gram(values, values), right, 1e-3 * len(values))[:, 0]
        self._low, self._step = _best_range(exact - mean - product(values, self._weights[None])[:, 0], 1 << self.bits)
        self._low = np.float32(self._low + mean)

    def _exact(self, centred: Vectors, projected: Vectors, coded: Vectors, own: Vectors) -> Vectors:
        """s before it is stored; ``coded`` is the reconstruction in the principal axes, and ``own`` its squares."""
        if self.kind == "norm":
            return own
        whole: Vectors = inner(centred, centred)
        return whole - 2 * self._expected(whole, projected, coded)

    def _expected(self, whole: Vectors, projected: Vectors, coded: Vectors) -> Vectors:
        """What a neighbour's inner product with e = x − x̂ is on average; neighbours are centred, too.

        ``whole`` are the squared lengths of the centred vectors, with what the projection leaves out.
        """
        rest = np.maximum(whole - inner(projected, projected), 0)
        expected: Vectors = inner(self._shift + self._rho * projected, projected - coded)
        expected += np.float32(self._rho_rest) * rest
        return expected

    def encode(
        self, centred: Vectors, projected: Vectors, values: Vectors, columns: Packed
    ) -> tuple[NDArray[np.uint16], Vectors]:
        """The stored step of each row, and what to multiply a row with that is too long: 1 for the others.

        A query just where the code is has the lowest estimate, s − ‖x̂‖². Where the code does not reach a row, s
        would make it far less than zero, and the row the nearest of every query: so it has a limit. Too long is a
        row whose s cannot be large enough for that. ``columns`` are those of V.
        """
        coded = product(values, columns)
        told, own = product(values, self._weights[None])[:, 0], inner(coded, coded)
        least = own - self._below
        steps = self._steps(np.maximum(self._exact(centred, projected, coded, own), least) - told)
        top = told + self._low + self._step * np.float32((1 << self.bits) - 1)
        long = least > top + self._step / 2
        shrink = np.ones(len(steps), np.float32)
        if long.any():
            # As long as the code is in the row's direction, and that as long as the top step is right for.
            own = np.maximum(own[long], np.finfo(np.float32).tiny)
            reach = own / np.maximum(np.einsum("ij,ij->i", projected[long], coded[long]), own)
            fits = np.sqrt(np.maximum(top[long] + self._below, 0) / own)
            shrink[long] = reach * np.clip(fits, *SHORTER)
        return steps, shrink

    def parameters(self, rows: Float32) -> tuple[Any, ...]:
        """What the kernel needs that encodes in one call: levels, matrix from coded values, ρ, a and the numbers."""
        learned = self.kind == "learned"
        return (
            1 << self.bits,
            np.concatenate([rows.T, self._weights[None]]),
            self._rho if learned else None,
            self._shift if learned else None,
            self._rho_rest if learned else 0.0,
            self._below,
            self._low,
            self._step,
        )

    def _steps(self, rest: Vectors) -> NDArray[np.uint16]:
        if not self._step > 0:
            return np.zeros(len(rest), np.uint16)
        steps: Vectors = np.rint((rest - self._low) / self._step)
        return np.clip(steps, 0, (1 << self.bits) - 1).astype(np.uint16)

    def tables(self) -> tuple[Float32, Vectors]:
        """What to add to the weight of each code dimension, and the values of the stored steps."""
        return self._weights, self._low + self._step * np.arange(1 << self.bits, dtype=np.float32)

    def state(self) -> State:
        """The learned arrays."""
        state: State = {
            "scalar_weights": self._weights,
            "scalar_range": np.array([self._low, self._step, self._below], np.float32),
        }
        if self.kind == "learned":
            state["scalar_rho"], state["scalar_shift"] = self._rho, self._shift
            state["scalar_rho_rest"] = np.array([self._rho_rest], np.float32)
        return state

    def restore(self, state: StateReader, d: int, m: int) -> None:
        """The inverse of :meth:`state`."""
        self._weights = state.array("scalar_weights", (m,))
        self._low, self._step, self._below = state.array("scalar_range", (3,))
        if self.kind == "learned":
            self._rho, self._shift = state.array("scalar_rho", (d,)), state.array("scalar_shift", (d,))
            self._rho_rest = float(state.array("scalar_rho_rest", (1,))[0])

    @staticmethod
    def upgraded(state: State) -> State:
        """A state of version 1, as :meth:`state` would give it now: it knew no limit."""
        if "scalar_range" not in state:
            return state
        return {**state, "scalar_range": np.append(state["scalar_range"], np.finfo(np.float32).max)}


def neighbour_pairs(
    centred: Vectors, projected: Vectors, axes: Float32, rng: np.random.Generator
) -> tuple[Vectors, Vectors]:
    """Training vectors that play queries, and the nearest rows of each: pairs, in the coordinates of ``axes``."""
    among = np.arange(len(projected))
    if len(among) > AMONG:  # not the first ones: a sample is in the order in which its vectors were added
        among = np.sort(rng.choice(len(among), size=AMONG, replace=False))
    asked = np.sort(rng.choice(len(among), size=min(QUERIES, len(among)), replace=False))
    near = _neighbours(projected[among], asked)
    if not near.size:
        return np.zeros((1, len(axes)), np.float32), np.zeros((1, len(axes)), np.float32)
    query, row = (product(centred[among[at]], axes) for at in (np.repeat(asked, near.shape[1]), near.ravel()))
    return query, row


def _neighbours(vectors: Vectors, asked: NDArray[np.intp]) -> NDArray[np.intp]:
    """The nearest rows of ``vectors[asked]``, themselves left out."""
    count = min(NEIGHBOURS, len(vectors) - 1)
    out = np.empty((len(asked), count), np.intp)
    if count < 1:
        return out
    half = squares(vectors) / 2
    for first in range(0, len(asked), 128):
        some = asked[first : first + 128]
        away = half - product(vectors[some], vectors)
        away[np.arange(len(some)), some] = np.inf
        out[first : first + 128] = np.argpartition(away, count - 1, axis=1)[:, :count]
    return out


def _best_range(rest: Vectors, steps: int) -> tuple[np.float32, np.float32]:
    """Low end and step of the uniform quantizer of least squared error: few steps clip the tail below.

    Not the tail above, for a row that is clipped there is estimated too near.
    """
    sample = rest[: 16 * BLOCK_ROWS].astype(np.float64)
    if not len(sample):
        return np.float32(0), np.float32(0)
    middle, far, high = np.quantile(sample, [0.5, 0.99, 1])
    if far > middle:
        high = min(high, middle + FARTHEST * (far - middle))
    best = (np.inf, np.float32(sample.mean()), np.float32(0))
    for tail in (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2):
        low = np.quantile(sample, tail)
        step = (high - low) / (steps - 1)
        if not step > 0:
            continue
        error = float(np.square(sample - (low + step * np.clip(np.rint((sample - low) / step), 0, steps - 1))).mean())
        if error < best[0]:
            low32, step32 = settled(np.array([low, step]))
            best = (error, low32, step32)
    return best[1:]
