"""Distance estimation (section 3.1 of the paper): the distance of each query to every row, off its code.

Fields that lie within one byte are looked up together: a table of 256 sums per byte of the code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import reference
from ..encoders.layout import Layout, Tables


def byte_tables(layout: Layout, tables: Tables) -> NDArray[np.float32] | None:
    """Tables per byte, shape (nq, code_size, 256); None where a field lies across two bytes."""
    ends = np.cumsum(layout.bits)
    begins = ends - layout.bits
    if (begins // 8 != (ends - 1) // 8).any():
        return None
    out = np.zeros((len(tables.values), layout.code_size, 256), np.float32)
    byte = np.arange(256)
    for field, (begin, bits) in enumerate(zip(begins.tolist(), layout.bits, strict=True)):
        number = np.minimum(byte >> begin % 8 & (1 << bits) - 1, layout.levels[field] - 1)
        out[:, begin // 8] += tables.values[:, layout.starts[field] + number]
    return out


def distances(
    codes: NDArray[np.uint8], layout: Layout, tables: Tables, by_byte: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """The distance of every query to every code (n, code_size), shape (nq, n)."""
    if by_byte is None:
        return reference.distances(codes, layout, tables)
    columns = np.ascontiguousarray(codes.T)
    out = np.empty((len(by_byte), len(codes)), np.float32)
    for query, table in enumerate(by_byte):
        total = np.full(len(codes), tables.bias[query], np.float32)
        for j, column in enumerate(columns):
            total += table[j][column]
        out[query] = total
    return out
