"""Making codes: cython_src/pack.h, flips.h, feedback.h, descend.h, product.h, bits.h."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bits flipped last that a flip search leaves alone.
TENURE = 5


def pack(fields: NDArray[np.uint16], widths: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Field numbers (n, m) as codes (n, size): field after field, lowest bit first."""
    columns = [fields[:, j] >> k & 1 for j, width in enumerate(widths) for k in range(width)]
    bits = np.array(columns, np.uint8).T.reshape(len(fields), int(widths.sum()))
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little").reshape(len(fields), size))


def unpack(codes: NDArray[np.uint8], widths: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """The field numbers (n, m) of codes."""
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.uint16)
    fields = np.zeros((len(codes), len(widths)), np.uint16)
    at = 0
    for j, width in enumerate(widths):
        for k in range(width):
            fields[:, j] |= bits[:, at + k] << k
        at += int(width)
    return fields


def flips(
    bits: NDArray[np.uint8],
    r: NDArray[np.int32],
    g2: NDArray[np.int32],
    diagonal: NDArray[np.int32],
    steps: int,
) -> None:
    """Improve binary codes in place by a tabu search over bit flips; see cython_src/flips.h."""
    m, stride = bits.shape[1], g2.shape[1]
    low = (1 << max(1, (stride - 1).bit_length())) - 1
    index = np.arange(m)
    G2 = g2[:m, :m].astype(np.int64)
    for row in range(len(bits)):
        h = bits[row].astype(np.int64) * 2 - 1
        gain = h * r[row] + diagonal
        best, error, best_error = h.copy(), 0, 0
        recent: list[int] = []
        for _ in range(steps):
            key = (gain & ~low) | index
            key[recent] = np.iinfo(np.int32).max
            j = int(np.argmin(key))
            if key[j] == np.iinfo(np.int32).max:
                break
            if gain[j] >= 0 and error < best_error:
                best_error, best = error, h.copy()
            recent = [*recent, j][-TENURE:]
            change = int(gain[j])
            error += change
            gain = gain + G2[j] * h * h[j]
            gain[j] = -change
            h[j] = -h[j]
        found = h if error < best_error else best
        bits[row] = (found + 1) // 2


def feedback(c: NDArray[np.float32], columns: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The first guess of binary codes by decision feedback; ``c`` becomes c − Lh; see cython_src/feedback.h."""
    bits = np.empty(c.shape, np.uint8)
    for j, column in enumerate(columns):
        bits[:, j] = c[:, j] >= 0
        h = np.where(bits[:, j], np.float32(1), np.float32(-1))
        c[:, j:] -= h[:, None] * column[j:]
    return bits


def descend(
    levels: NDArray[np.uint16], r: NDArray[np.float32], g: NDArray[np.float32], count: int, sweeps: int
) -> None:
    """Improve n-ary codes in place by cyclic coordinate descent; see cython_src/descend.h."""
    one = np.float32
    step, per_step, top = one(2) / one(count - 1), one(count - 1) / one(2), one(count - 1)
    for row in range(len(levels)):
        for _ in range(sweeps):
            moves = 0
            for j in range(levels.shape[1]):
                if not g[j, j] > 0:
                    continue
                now = one(levels[row, j])
                wish = np.floor(now + r[row, j] / g[j, j] * per_step + one(0.5))
                wish = min(max(wish, one(0)), top)
                if wish == now:
                    continue
                r[row] -= (wish - now) * step * g[j]
                levels[row, j] = int(wish)
                moves += 1
            if not moves:
                break


def product(rows: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """``rows @ matrixᵀ``, every number the sum of its products in their order; see cython_src/product.h."""
    out = np.zeros((len(rows), len(matrix)), np.float32)
    for at in range(rows.shape[1]):
        out += rows[:, at, None] * matrix[:, at]
    return out


def bits(
    vectors: NDArray[np.float32], search: tuple[Any, ...], scalar: tuple[Any, ...] | None = None
) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Vectors to bits and row scalars, and which are too long for these; see cython_src/bits.h."""
    one = np.float32
    mean, axes, targets, columns, noise, scale, twice, diagonal, steps = search
    centred = vectors - mean
    projected = product(centred, axes)
    left = product(projected, targets)
    found = feedback(left, columns)
    residual = (product(left, columns) + one(noise) * (2 * found.astype(np.float32) - 1)) * one(scale)
    fixed = np.clip(np.rint(residual), one(-(1 << 29)), one(1 << 29)).astype(np.int32)
    flips(found, fixed, twice, diagonal, steps)
    if scalar is None:
        return found.astype(np.uint16), np.zeros(len(vectors), np.uint8)
    levels, matrix, rho, shift, rest, below, lowest, step = scalar
    below, lowest, step, top = one(below), one(lowest), one(step), one(levels - 1)
    both = product(2 * found.astype(np.float32) - 1, matrix)
    coded, told = both[:, :-1], both[:, -1]
    size = inner(coded, coded)
    exact, least = size, size - below
    if rho is not None:
        whole = inner(centred, centred)
        outside = np.maximum(whole - inner(projected, projected), one(0))
        exact = whole - 2 * (inner(shift + rho * projected, projected - coded) + one(rest) * outside)
    longer = (least > told + lowest + step * top + step / 2).astype(np.uint8)
    numbers = np.zeros(len(vectors), np.uint16)
    if step > 0:
        numbers = np.clip(np.rint((np.maximum(exact, least) - told - lowest) / step), 0, top).astype(np.uint16)
    return np.concatenate([numbers[:, None], found], axis=1), longer


def inner(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner product of each row, in eight sums that are then added pair by pair; see cython_src/bits.h."""
    products = left * right
    sums = np.zeros((len(left), 8), np.float32)
    for first in range(0, products.shape[1], 8):
        part = products[:, first : first + 8]
        sums[:, : part.shape[1]] += part
    for half in (4, 2, 1):
        sums[:, :half] += sums[:, half : 2 * half]
    return sums[:, 0].copy()
