"""A search among codes, for one query: cython_src/search.h, answer.h."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...encoders.layout import Layout, Tables
from .cells import QUANTUM, WIDE_QUANTUM, finest_step, wide_columns
from .exact import exact_distances, expected_misses
from .tables import field_distances, nibble_tables, nibbles


@dataclass
class Codes:
    """Rows, their ids and kept vectors; and which may be found."""

    codes: NDArray[np.uint8]
    layout: Layout
    #: Columns of a code that come first.
    head: int
    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]
    may: NDArray[np.bool_]


def search(
    rows: Codes,
    query: NDArray[np.float32],
    metric: str,
    tables: Tables,
    k: int,
    wides: list[int],
    missed: float,
    *,
    by_nibbles: bool,
) -> tuple[NDArray[np.intp], NDArray[np.float32], int]:
    """(rows, distances, rows compared): candidates by their codes, compared exactly.

    The next larger number of candidates is taken while more than ``missed`` neighbours are expected to be missing.
    """
    allowed, compared = np.flatnonzero(rows.may), 0
    if by_nibbles:
        estimates = sums(rows.codes[allowed], nibble_tables(rows.layout, tables)[0][0], rows.head)
    else:
        estimates = field_distances(rows.codes[allowed], rows.layout, tables)[0].astype(np.float64)
    for depth, wide in enumerate(wides):
        # Of equal estimates those of the smallest ids; sums are then in the order of rows.
        best = np.lexsort((rows.ids[allowed], estimates))[:wide]
        if by_nibbles:
            best = np.sort(best)
            best = best[np.argsort(estimates[best], kind="stable")]
        chosen, own = allowed[best], estimates[best].astype(np.float32)
        exact = exact_distances(rows.vectors[chosen], metric, query)
        compared += len(chosen)
        order = np.lexsort((rows.ids[chosen], exact))[:k]
        deeper = depth + 1 < len(wides) and len(chosen) == wide and wide > 2
        if not deeper or expected_misses(own, exact, float(exact[order[-1]]), len(allowed)) <= missed:
            break
    return chosen[order], exact[order], compared


def sums(codes: NDArray[np.uint8], exact: NDArray[np.float32], head: int) -> NDArray[np.float64]:
    """Sums of look-ups in whole steps, rounded down."""
    low = exact.min(axis=1).astype(np.float64)
    ranges = exact.max(axis=1).astype(np.float64) - low
    wide = wide_columns(ranges, head)
    top = np.where(np.arange(len(low)) < 2 * wide, WIDE_QUANTUM, QUANTUM)[:, None]
    steps = np.minimum((exact - low[:, None]) / finest_step(ranges, wide), top).astype(np.int64)
    at = nibbles(codes)
    total: NDArray[np.float64] = steps[np.arange(at.shape[1]), at].sum(axis=1).astype(np.float64)
    return total
