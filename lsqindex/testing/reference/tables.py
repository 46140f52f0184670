"""Look-up tables of queries and distances of codes: cython_src/tables.h, nibbles.h, distances.h."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...encoders.layout import Layout, Tables
from .encoders import product, unpack


def linear_tables(
    queries: NDArray[np.float32],
    matrix: NDArray[np.float32],
    m: int,
    theta: NDArray[np.float32],
    known: NDArray[np.float32],
    *,
    centre: NDArray[np.float32] | None = None,
    unit: bool = False,
    constant: float = 0,
    frontier: float = 1,
    length: float = 1,
    spread: float = 0,
) -> Tables:
    """The look-up tables of a linear code; see cython_src/tables.h."""
    values, bias, steps = np.empty((len(queries), len(known)), np.float32), [], len(known) - m * len(theta)
    for query, own in zip(queries, values, strict=True):
        apart = query if centre is None else query - centre
        x = product((apart if centre is None else 2 * apart)[None], matrix)[0]
        at = np.float32(frontier)
        if len(matrix) > m + 1:
            at = np.float32(float(x[m + 1]) + float(np.float32(spread)) * math.sqrt(_sum_of_squares(x[:m])))
        size = _sum_of_squares(query) if unit else 1.0
        x = x * np.float32(length) / np.float32(math.sqrt(size) if size > 0 else 1)
        if centre is not None:
            bias.append(np.float32(_sum_of_squares(apart)) + np.float32(constant))
        else:
            bias.append((np.float32(constant) if len(matrix) == m + 1 else -at) - x[m])
        own[:] = at * known
        own[steps:] -= np.multiply.outer(x[:m], theta).ravel()
    return Tables(values, np.array(bias, np.float32))


def _sum_of_squares(numbers: NDArray[np.float32]) -> float:
    """In double, one after another: NumPy's sums have another order."""
    total = 0.0
    for number in numbers.astype(np.float64).tolist():
        total += number * number
    return total


def distances(codes: NDArray[np.uint8], layout: Layout, tables: Tables) -> NDArray[np.float32]:
    """The distance of every query to every row, shape (nq, n): a sum of look-ups in float32.

    >>> layout = Layout.uniform(levels=2, m=2)
    >>> tables = Tables(np.array([[0, 1, 0, 10]], np.float32), np.array([5], np.float32))
    >>> distances(layout.pack(np.array([[1, 0], [1, 1]], np.uint16)), layout, tables)
    array([[ 6., 16.]], dtype=float32)
    """
    if layout.floats:
        raise ValueError("a layout of floats has no tables: compare decoded vectors")
    at = layout.unpack(codes).astype(np.int64) + layout.starts[:-1]
    out = np.empty((len(tables.values), len(codes)), np.float32)
    for query, values in enumerate(tables.values):
        out[query] = values[at].sum(axis=1, dtype=np.float32) + tables.bias[query]
    return out


def nibble_tables(layout: Layout, tables: Tables) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Look-ups by nibble, float32 (nq, nibbles, 16), and what no row changes, from those by field.

    A field inside a nibble gives its own look-ups. One that lies across is affine in its bits (``layout.linear``):
    each bit gives its weight, and the first look-up goes to the bias.

    >>> layout = Layout.uniform(levels=2, m=2)
    >>> tables = Tables(np.array([[0, 1, 0, 10]], np.float32), np.array([5], np.float32))
    >>> exact, bias = nibble_tables(layout, tables)
    >>> exact.shape, exact[0, 0, :5], bias
    ((1, 2, 16), array([ 0.,  1., 10., 11.,  0.], dtype=float32), array([5.], dtype=float32))
    """
    exact = np.zeros((len(tables.values), 2 * layout.code_size, 16), np.float32)
    bias = tables.bias.astype(np.float32)
    numbers = np.arange(16)
    begin = 0
    for j, (width, levels) in enumerate(zip(layout.bits, layout.levels, strict=True)):
        table = tables.values[:, layout.starts[j] : layout.starts[j + 1]]
        if begin // 4 == (begin + width - 1) // 4:
            own = numbers >> begin % 4 & (1 << width) - 1
            exact[:, begin // 4] += table[:, np.minimum(own, levels - 1)]
        else:
            bias += table[:, 0]
            for k in range(width):
                at, bit = divmod(begin + k, 4)
                exact[:, at, numbers >> bit & 1 == 1] += (table[:, 1 << k] - table[:, 0])[:, None]
        begin += width
    return exact, bias


def nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The nibbles of codes, the lower one of a byte first.

    >>> nibbles(np.array([[0x21, 0x43]], np.uint8))
    array([[1, 2, 3, 4]], dtype=uint8)
    """
    return np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), 2 * codes.shape[1])


def nibble_distances(
    codes: NDArray[np.uint8], exact: NDArray[np.float32], bias: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The distance of every query to every row, shape (nq, n), by look-ups of :func:`nibble_tables`.

    Nibble i goes to sum i modulo 4; the four come together at the end. All in float32.
    """
    at = nibbles(codes)
    sums = np.zeros((4, len(exact), len(codes)), np.float32)
    for i in range(at.shape[1]):
        sums[i % 4] += exact[:, i, at[:, i]]
    out: NDArray[np.float32] = bias[:, None] + ((sums[0] + sums[1]) + (sums[2] + sums[3]))
    return out


def field_distances(codes: NDArray[np.uint8], layout: Layout, tables: Tables) -> NDArray[np.float32]:
    """The same by look-ups of fields, one after another; a number beyond its levels counts as the last one."""
    fields = np.minimum(unpack(codes, np.array(layout.bits, np.uint8)), np.array(layout.levels) - 1)
    out = np.repeat(tables.bias.astype(np.float32)[:, None], len(codes), axis=1)
    for j in range(fields.shape[1]):
        out += tables.values[:, layout.starts[j] + fields[:, j]]
    return out
