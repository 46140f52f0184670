"""Re-ranking: exact distances of the rows that a search found, from the vectors that were kept.

The kernel (``cython_src/exact.h``) reads the vectors in place. How many rows are worth comparing depends on the query
and on the code, so a search starts with a few (:func:`first_depth`), and goes on with four times as many where the
exact distances show that neighbours are likely to be missing (:func:`too_shallow`, ``cython_src/misses.h``).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._compiled import exact as _exact
from .._inputs.vectors import Vectors
from ..encoders.base import Metric
from ..errors import REMEDY, DamagedError

#: A search re-ranks four times as many rows as before while it expects to miss more than this share of the k nearest.
#: ``python -m bench defaults`` prints the recall and the depth that this gives.
MISSED_SHARE = 0.03
DEEPER = 4

#: No query re-ranks more rows than this, unless it is asked for.
DEEPEST = 1 << 16


def first_depth(k: int) -> int:
    """How many rows to re-rank at first for the ``k`` nearest.

    >>> first_depth(10)
    100
    """
    return 60 + 4 * k


def too_shallow(
    estimates: NDArray[np.float32], exact: NDArray[np.float32], kth: NDArray[np.float32], k: int, total: int
) -> NDArray[np.intp]:
    """The queries that should re-rank more of ``total`` rows than they did.

    ``estimates`` and ``exact`` are the distances, shape (nq, n), of the rows that each query re-ranked, by ascending
    estimate; ``kth`` is each query's k-th smallest exact distance.
    """
    return np.flatnonzero(_exact.expected_misses(estimates, exact, kth, total) > MISSED_SHARE * k)


class Kept(Protocol):
    """Where kept vectors lie: records of rows one after another, such as ``storage.rows.Rows``."""

    starts: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    addresses: NDArray[np.uint64]


def distances(
    vectors: Kept, kind: str, metric: Metric, queries: Vectors, found: NDArray[np.int64], rows: NDArray[np.uint32]
) -> NDArray[np.float32]:
    """The distance of each of ``rows`` from its query: the first ``found[0]`` rows are of the first query, and so on.

    ``kind`` is the layout of kept vectors (``storage.kept``). The records of ``rows`` must have been verified
    (``Rows.touch``).
    """
    wide = np.ascontiguousarray(queries, np.float32)
    try:
        return _exact.distances(
            vectors.starts,
            vectors.counts,
            vectors.addresses,
            kind,
            wide.shape[1],
            metric,
            wide,
            np.ascontiguousarray(found, np.int64),
            np.ascontiguousarray(rows, np.uint32),
        )
    except LookupError as error:
        raise DamagedError(f"vectors: {error}; {REMEDY}") from error
