"""Re-ranking: exact distances of the few rows that a search found, from the vectors that were kept.

The kernel (``cython_src/exact.h``) reads them where they lie.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .. import _exact
from ..encoders.base import Metric
from ..errors import DamagedError
from ..vectors import Vectors


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
        raise DamagedError(f"vectors: {error}; restore the file from a copy, or build it anew") from error
