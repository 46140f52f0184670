"""Dense linear algebra whose results depend on nothing but the numbers.

**Not on the batch.** BLAS may sum each row of a product in an order that depends on its position in the batch, and a
code may turn on the last bit. So whatever leads to a code is multiplied by :func:`product`, a kernel of our own with
one order: a vector has one code, alone or among a million.

**Not on the threads.** OpenBLAS may sum differently on one thread and on many, and training amplifies last bits into
other codes. So in training, too, vectors are multiplied by :func:`product` and :func:`gram`. Factorizations (eigh,
solve, svd) are done in float64 and *settled*: rounded to float32 with 16 bits of mantissa, far above the noise. (A
number within 1e-15 of a rounding edge would still differ; that is a chance of one in 10^10 per number.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._compiled.encoding import Packed as Packed
from .._compiled.encoding import product as product

#: What is kept in float32, and what is computed in float64 on the way there.
Float32 = NDArray[np.floating[Any]]
Float64 = NDArray[np.floating[Any]]

_KEPT_BITS = 16
_GRAM_ROWS = 256
#: Squares that sum to less may have lost numbers below float32's range.
_SMALL_SQUARE = np.float32(1e-30)


def settled(array: Float64) -> Float32:
    """``array`` rounded to 16 bits of mantissa, as float32.

    >>> settled(np.array([1 / 3]))[0] == settled(np.array([1 / 3 + 1e-12]))[0]
    np.True_
    """
    mantissa, exponent = np.frexp(array)
    grid = float(1 << _KEPT_BITS)
    # Below float32's smallest normal number nothing is left to tell apart.
    small = exponent < -120
    rounded = np.ldexp(np.rint(mantissa * grid) / grid, np.where(small, 0, exponent))
    return np.where(small, 0.0, rounded).astype(np.float32)


def mean_of(vectors: Float32) -> Float32:
    """The mean row."""
    return settled(vectors.mean(axis=0, dtype=np.float64))


#: a·b of each row of two matrices.
inner = partial(np.einsum, "ij,ij->i")


def squares(vectors: Float32) -> Float32:
    """‖x‖² of every row."""
    out: Float32 = inner(vectors, vectors)
    return out


def lengths(vectors: Float32) -> Float32:
    """‖x‖ of every row, shape (n, 1), to divide by: 1 where it is 0."""
    out = squares(vectors)
    small = out < _SMALL_SQUARE
    if small.any():
        wide = np.square(vectors[small], dtype=np.float64).sum(axis=1)
        out = out.astype(np.float64)
        out[small] = np.where(wide > 0, wide, 1.0)
    return np.sqrt(out).astype(np.float32, copy=False)[:, None]


def gram(left: Float32, right: Float32) -> Float64:
    """``leftᵀ @ right``: float32 products of blocks of rows, in one order, summed in float64."""
    total = np.zeros((left.shape[1], right.shape[1]))
    for first in range(0, len(left), _GRAM_ROWS):
        some = slice(first, first + _GRAM_ROWS)
        total += product(left[some].T, right[some].T)
    return total


def principal_axes(centred: Float32) -> tuple[Float64, Float32]:
    """Variances, falling, and the axes as rows; only directions in which the data vary.

    Constant data have one axis, of variance 0.
    """
    variances, axes = np.linalg.eigh(gram(centred, centred) / len(centred))
    variances, axes = variances[::-1], axes[:, ::-1].T
    rank = max(1, int((variances > variances[0] * 1e-9).sum())) if variances[0] > 0 else 1
    axes = axes[:rank]
    # The sign of an axis is free: make its largest number positive.
    peak = axes[np.arange(rank), np.argmax(np.abs(axes), axis=1)]
    axes = axes * np.where(peak < 0, -1.0, 1.0)[:, None]
    return settled(np.maximum(variances[:rank], 0.0)).astype(np.float64), settled(axes)


def ridge(normal: Float64, right: Float64, lam: float) -> Float32:
    """The solution of ``(normal + lam·I) X = right``; a singular system gets the least ridge that solves it."""
    scale = max(float(np.trace(normal)) / len(normal), 1e-30)
    for floor in (0.0, 1e-9, 1e-6, 1e-3):
        try:
            solved = np.linalg.solve(normal + (lam + floor * scale) * np.eye(len(normal)), right)
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(solved).all():
            return settled(solved)
    return np.zeros(right.shape, np.float32)


def feedback_factors(rows: Float32, noise: float) -> tuple[Float32, Float32, float]:
    """Of VVᵀ + noise·I = LᵀL, L lower triangular: L⁻ᵀV, the columns of L as rows, and the noise taken.

    What decision feedback needs; see cython_src/feedback.h.
    """
    wide = rows.astype(np.float64)
    normal = wide @ wide.T
    noise = max(noise, 1e-9 * max(float(np.trace(normal)) / len(normal), 1e-30))
    # The Cholesky factor of the matrix read backwards is L read backwards.
    columns = np.linalg.cholesky((normal + noise * np.eye(len(normal)))[::-1, ::-1])[::-1, ::-1]
    return settled(np.linalg.solve(columns, wide)), settled(columns), noise


def random_rotation(size: int, rng: np.random.Generator) -> Float32:
    """A random orthogonal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return settled(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def nearest_orthogonal(matrix: Float64) -> Float32:
    """The matrix with orthonormal columns (rows, if wide) nearest to ``matrix``: orthogonal Procrustes."""
    u, _, vt = np.linalg.svd(matrix, full_matrices=False)
    return settled(u @ vt)
