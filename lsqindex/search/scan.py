"""Distance estimation (section 3.1 of the paper): the nearest of all codes, by one look-up per field.

The kernel (``cython_src/scan.h``) reads codes where they lie. Codes whose fields fit nibbles, or whose tables are
affine in their bits (``layout.linear``), are scanned 32 rows at a time; others field after field.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .. import _scan
from ..encoders.layout import Layout, Tables

#: Queries that share each load of codes; fewer are not worth a thread.
_GROUP = 4


@dataclass(frozen=True)
class Codes:
    """Where codes lie: records of rows in blocks of 32 by column, and what may be found in them."""

    starts: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    addresses: NDArray[np.uint64]
    width: int
    head: int
    #: Addresses of the bits of deleted rows, by segments of ``segment_rows``; 0 where a segment has none.
    deleted: NDArray[np.uint64]
    segment_rows: int


@dataclass(frozen=True)
class Found:
    """For each query the rows that are not farther than its k-th nearest, in no order."""

    counts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    distances: NDArray[np.float32]

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts)

    def of(self, query: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Rows and distances of one query."""
        end = int(self._ends[query])
        here = slice(end - int(self.counts[query]), end)
        return self.rows[here], self.distances[here]


def by_nibbles(layout: Layout, *, asymmetric: bool) -> bool:
    """Whether a distance can be looked up nibble by nibble."""
    # A row scalar counts for nothing in a symmetric distance: its look-ups are zero, so affine.
    across = layout.across if not layout.linear else layout.across[layout.scalars :]
    return (layout.linear and asymmetric) or not across.any()


def nearest(codes: Codes, layout: Layout, tables: Tables, k: int, *, asymmetric: bool, threads: int = 1) -> Found:
    """The k nearest of each query, ties included."""
    nibbles = by_nibbles(layout, asymmetric=asymmetric)
    values, bias = np.ascontiguousarray(tables.values, np.float32), np.ascontiguousarray(tables.bias, np.float32)

    def scan(part: slice) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]:
        return _scan.scan(
            codes.starts,
            codes.counts,
            codes.addresses,
            codes.width,
            codes.head,
            nibbles,
            layout.starts,
            layout.bit_starts,
            layout.level_counts,
            values[part],
            bias[part],
            codes.deleted,
            codes.segment_rows,
            None,
            k,
        )

    nq = len(values)
    workers = min(threads, nq // (2 * _GROUP))
    if workers < 2:
        return Found(*scan(slice(0, nq)))
    step = -(-nq // (workers * _GROUP)) * _GROUP
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(scan, [slice(first, first + step) for first in range(0, nq, step)]))
    counts, rows, distances = zip(*parts, strict=True)
    return Found(np.concatenate(counts), np.concatenate(rows), np.concatenate(distances))
