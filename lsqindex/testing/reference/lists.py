"""Posting lists and scores: cython_src/lists.h, probes.h, scores.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...encoders.layout import Layout

#: What the costliest value of a query's probe tables costs; upper bits of a bucket that have a start each.
COST, DIRECTORY_BITS = 1 << 20, 14


def list_payload(buckets: NDArray[np.int64], rows: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """The lists of one table: ``rows``, rising, less the block's first, and the bucket each is in.

    >>> list_payload(np.array([1, 0, 1]), np.array([0, 1, 2]), 1).view(np.uint16)
    array([0, 1, 3, 1, 0, 2], dtype=uint16)
    """
    upper = min(bits, DIRECTORY_BITS)
    order = np.argsort(buckets, kind="stable")
    bins = buckets[order] >> (bits - upper)
    starts = np.searchsorted(bins, np.arange((1 << upper) + 1)).astype("<u2")
    parts = [starts.view(np.uint8), rows[order].astype("<u2").view(np.uint8)]
    if bits > upper:
        parts.append((buckets[order] & ((1 << (bits - upper)) - 1)).astype(np.uint8))
    return np.concatenate(parts)


def costs(layout: Layout, values: NDArray[np.float32]) -> NDArray[np.int64]:
    """What each value of each field costs more than its field's nearest, in whole numbers, for one query."""
    out = np.zeros(len(values), np.int64)
    fields = [slice(*layout.starts[f : f + 2]) for f in range(layout.scalars, len(layout.bits))]
    wide = values.astype(np.float64)
    largest = max(wide[field].max() - wide[field].min() for field in fields)
    for field in fields:
        own = wide[field] - wide[field].min()
        # Only the first nearest value costs nothing.
        out[field] = np.maximum(np.floor(own * (COST / largest if largest > 0 else 0) + 0.5), 1)
        out[field.start + int(np.argmin(own))] = 0
    return out


def probes(
    layout: Layout, table_fields: NDArray[np.int64], values: NDArray[np.float32], wanted: int
) -> list[tuple[int, int, int]]:
    """(cost, table, bucket) of the ``wanted`` cheapest buckets of all tables together, in order, for one query.

    Table t has the fields from ``table_fields[t]`` up to the next table's: several of two values, or one.
    """
    own, found = costs(layout, values), []
    for t, (first, end) in enumerate(zip(table_fields[:-1].tolist(), table_fields[1:].tolist(), strict=True)):
        sums = np.zeros(1, np.int64)
        for f in range(first, end):
            # The later field has the higher bits.
            sums = (own[layout.starts[f] : layout.starts[f + 1], None] + sums).ravel()
        found += [(cost, t, bucket) for bucket, cost in enumerate(sums.tolist())]
    return sorted(found)[:wanted]


def scores(buckets: NDArray[np.int64], probes: list[tuple[int, int, int]], *, weigh: bool) -> NDArray[np.int64]:
    """The score of every row, whose ``buckets`` (n, tables) are: the sum of what its hits count."""
    tables = buckets.shape[1]
    most = 255 // tables if weigh and tables <= 127 else 1
    limit = max((cost for cost, _, _ in probes), default=0)
    out = np.zeros(len(buckets), np.int64)
    for cost, table, bucket in probes:
        out[buckets[:, table] == bucket] += most - (most // 2 * cost // limit if limit else 0)
    return out


def best_rows(scores: NDArray[np.int64], wanted: int) -> NDArray[np.intp]:
    """The rows of the ``wanted`` best scores, ties included, and none without a score.

    >>> best_rows(np.array([0, 3, 1, 3, 2]), 1)
    array([1, 3])
    """
    least = np.sort(scores)[::-1][min(wanted, len(scores)) - 1] if len(scores) else 0
    return np.flatnonzero((scores >= least) & (scores > 0))
