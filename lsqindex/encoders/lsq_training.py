"""Training LSQ: the alternation as published, and the one that searches for codes.

Both work on projected vectors Y (principal axes, n × d) and find V, m × d, with Y ≈ θ(codes) @ V.

Published (section 2.2.1): V = (HHᵀ+λI)⁻¹HXᵀ, W = V†. It is **not** monotone: the paper's proof
replaces ‖B−AY‖ by ‖A†B−Y‖, which is another problem. So the best pair seen is kept, and rounds
stop when there has been no progress. The paper does not say how to start; a random rotation of the
principal axes, each axis scaled so that about two standard deviations fill [−1, 1], is the best
start known to us (a plain PCA start loses much: W = V† whitens, and weak axes then count as much as
strong ones).

By search: for given V the code that matters is argmin ‖y − Vᵀθ‖², found by ``lsq_codes``; the V step
is the same least squares. The start decides how good it gets; see ``first_rows``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._inputs.vectors import BLOCK_ROWS
from .base import Fields, Progress
from .linalg import Float32, Float64, gram, product, random_rotation, ridge, settled
from .lsq_codes import PublishedCoder, coded_values, make_coder


@dataclass(frozen=True)
class Budget:
    """What training may use: code dimensions, levels, λ, effort per vector, rounds."""

    m: int
    levels: int
    lam: float
    refine: int
    iterations: int


#: Rounds without progress after which the published alternation stops.
PATIENCE = 5
#: A direction whose ideal rate is above this gets bits of its own before the rest is mixed.
PEEL_RATE = 2.5
#: Effort per vector in training, at most; codes made later may take more.
TRAINING_REFINE = 64
#: Early rounds see one vector in so many, where these are at least so many for each code dimension: while V still
#: changes much, few vectors tell how.
EARLY_STEP, EARLY_ROWS = 4, 32
#: Variance that one bit leaves of a Gaussian: 1 − 2/π.
ONE_BIT_LEAVES = 1 - 2 / np.pi


def train_published(
    projected: Float32,
    variances: Float64,
    budget: Budget,
    left_out: float,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[Float32, Float32, list[float]]:
    """LSQ as the paper writes it: V, Wᵀ and the relative error after each round."""
    energy = _energy(projected) + left_out
    start = _rotated_start(variances, budget.m, budget.levels, rng)
    rounds = budget.iterations
    best, history, since = (np.inf, start, start), [], 0
    for step in range(rounds):
        codes = PublishedCoder(start, budget.levels)(projected)
        rows, error = _fit_rows(projected, codes, budget)
        history.append(_relative(error + left_out, energy))
        progress(step + 1, rounds, history[-1])
        if history[-1] < best[0]:
            best, since = (history[-1], rows, start), 0
        elif (since := since + 1) >= PATIENCE:
            if step + 1 < rounds:
                progress(rounds, rounds, history[-1])
            break
        start = settled(np.linalg.pinv(rows.astype(np.float64)).T)
    return best[1], best[2], history


def train_by_search(
    projected: Float32,
    variances: Float64,
    budget: Budget,
    left_out: float,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[Float32, float, list[float]]:
    """Alternate a search for codes with least squares for V: V, the noise per bit, and the errors.

    The best V seen is kept: each code is searched for anew, so an error may also rise a little.
    """
    energy = _energy(projected) + left_out
    rows = first_rows(variances, budget.m, budget.levels, rng)
    noise = float(variances.sum()) / 4 / budget.m
    best, history = (np.inf, rows, noise), []
    early = _early_rounds(len(projected), budget)
    for step in range(budget.iterations):
        some = np.ascontiguousarray(projected[::EARLY_STEP]) if step < early else projected
        coder = make_coder(_by_length(rows), budget.levels, noise, min(budget.refine, TRAINING_REFINE))
        codes = np.empty((len(some), budget.m), np.uint16)
        for first in range(0, len(some), BLOCK_ROWS):
            codes[first : first + BLOCK_ROWS] = coder(some[first : first + BLOCK_ROWS])
        rows, error = _fit_rows(some, codes, budget)
        noise = float(settled(np.array([error / len(some) / budget.m]))[0])
        history.append(_relative(error * len(projected) / len(some) + left_out, energy))
        progress(step + 1, budget.iterations, history[-1])
        if step >= early and history[-1] < best[0]:
            best = (history[-1], rows, noise)
    return _by_length(best[1]), best[2], history


def _early_rounds(n: int, budget: Budget) -> int:
    """How many rounds see a part of the sample only: none where the part would be too small to learn from."""
    return budget.iterations * 3 // 4 if n >= EARLY_STEP * EARLY_ROWS * budget.m else 0


def first_rows(variances: Float64, m: int, levels: int, rng: np.random.Generator) -> Float32:
    """The first V. For n > 2: the scaled random rotation. For bits: peel, then mix.

    A direction of variance v deserves ½·log2(v/θ) bits, θ the water level of the budget. While one
    deserves more than PEEL_RATE, it gets a bit of its own, which leaves ONE_BIT_LEAVES of its
    variance. What is left is nearly level: a random rotation spreads it evenly over the other bits.
    Bits of similar weight (within a factor of two) are mixed among themselves too. Axis-aligned
    starts stay axis-aligned, fully random ones are too hard to search; this one is neither.
    """
    d = len(variances)
    if levels > 2:
        spread = _rotated_start(variances, m, levels, rng)
        return settled(np.linalg.pinv(spread.astype(np.float64)).T)
    left = np.maximum(variances, 0.0).astype(np.float64)
    peeled: list[Float64] = []
    while len(peeled) < m - 1 and left.max() > 0:
        strongest = int(np.argmax(left))
        if 0.5 * np.log2(left[strongest] / water_level(left, m - len(peeled))) <= PEEL_RATE:
            break
        row = np.zeros(d)
        row[strongest] = np.sqrt(left[strongest] * (1 - ONE_BIT_LEAVES))
        peeled.append(row)
        left[strongest] *= ONE_BIT_LEAVES
    rest = m - len(peeled)
    kept = np.argsort(-left, kind="stable")[: min(rest, d)]
    size = np.sqrt(left[kept].mean() * (1 - ONE_BIT_LEAVES))
    mixed = np.zeros((rest, d))
    mixed[:, kept] = random_rotation(rest, rng)[:, : len(kept)] * size
    return settled(np.concatenate([_mix_alike(np.array(peeled).reshape(-1, d), rng), mixed]))


def water_level(variances: Float64, bits: float) -> float:
    """Reverse water-filling: the θ at which Σ ½·log2(v/θ) over all v > θ is ``bits``.

    >>> round(water_level(np.array([4.0, 1.0]), 2.0), 6)
    0.5
    """
    falling = np.sort(variances[variances > 0])[::-1]
    if not len(falling):
        return 1.0
    # With k directions above the level, log2 θ = (Σ log2 v − 2·bits) / k: the right k is the last
    # whose smallest variance is above the level.
    logs = np.log2(falling)
    levels = (np.cumsum(logs) - 2 * bits) / np.arange(1, len(logs) + 1)
    return float(2.0 ** levels[np.flatnonzero(logs >= levels)[-1]])


def _mix_alike(rows: Float64, rng: np.random.Generator) -> Float64:
    """Rotate rows of different axes whose lengths are within a factor of two among themselves.

    Rows of one axis stay apart: together they are its binary expansion.
    """
    lengths = np.sqrt(np.square(rows).sum(axis=1))
    order = np.argsort(-lengths, kind="stable")
    rows, lengths, axes = rows[order], lengths[order], np.argmax(rows[order], axis=1)
    first = 0
    while first < len(rows):
        last = first + 1
        while last < len(rows) and lengths[last] > lengths[first] / 2 and axes[last] not in axes[first:last]:
            last += 1
        rows[first:last] = product(random_rotation(last - first, rng), rows[first:last].T)
        first = last
    return rows


def _rotated_start(variances: Float64, m: int, levels: int, rng: np.random.Generator) -> Float32:
    """Wᵀ: principal axes, randomly rotated, about two standard deviations filling [−1, 1]."""
    d = len(variances)
    if m <= d:
        mixed = random_rotation(m, rng).astype(np.float64) @ np.eye(m, d)
    else:
        mixed = random_rotation(m, rng)[:, :d].astype(np.float64)
    deviation = np.sqrt(np.square(mixed) @ np.maximum(variances, 0.0))
    reach = np.where(deviation > 0, deviation, 1.0) * (2.0 + 0.1 * np.log2(levels))
    return settled(mixed / reach[:, None])


def _fit_rows(projected: Float32, codes: Fields, budget: Budget) -> tuple[Float32, float]:
    """V = (HHᵀ + λI)⁻¹HYᵀ and ‖Y − VᵀH‖², in blocks."""
    m, d = codes.shape[1], projected.shape[1]
    normal, right = np.zeros((m, m)), np.zeros((m, d))
    for first in range(0, len(codes), BLOCK_ROWS):
        values = coded_values(codes[first : first + BLOCK_ROWS], budget.levels)
        normal += gram(values, values)
        right += gram(values, projected[first : first + BLOCK_ROWS])
    rows = ridge(normal, right, budget.lam)
    wide = rows.astype(np.float64)
    error = _energy(projected) - 2 * float((wide * right).sum()) + float((wide * (normal @ wide)).sum())
    return rows, max(error, 0.0)


def _by_length(rows: Float32) -> Float32:
    """Rows by falling length: the order of the bits in a code."""
    return rows[np.argsort(-np.square(rows).sum(axis=1), kind="stable")]


def _relative(error: float, energy: float) -> float:
    return min(1.0, error / energy) if energy else 0.0


def _energy(vectors: Float32) -> float:
    blocks = range(0, len(vectors), BLOCK_ROWS)
    return float(sum(np.square(vectors[i : i + BLOCK_ROWS], dtype=np.float64).sum() for i in blocks))
