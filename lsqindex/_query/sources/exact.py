"""Vectors compared exactly, where they lie: those stored in the place of codes, or those kept beside them.

The kernel (``cython_src/exact.h``) reads each vector once for several queries and copies none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..._compiled import exact as _exact
from ..._storage.format import deleted
from ..._storage.format.records import REMEDY
from ..._storage.store import Store
from ..._threads.pool import in_parallel
from ...errors import DamagedError
from .. import tuning
from ..found import Found

if TYPE_CHECKING:
    from ..search import Search
    from ..snapshot import Snapshot


class Exact:
    """All vectors of a snapshot."""

    group = tuning.GROUP

    def __init__(
        self, snapshot: Snapshot, store: Store, *, allowed: NDArray[np.uint8] | None = None, total: int | None = None
    ) -> None:
        """``allowed`` has a bit for each row that may be found, ``total`` in all; None: all of them."""
        options, floats = snapshot.options, snapshot.coder.floats
        rows = store.codes() if floats else store.vectors()
        rows.touch_all()
        kind = "float32" if floats else options.keep_vectors
        assert kind is not None
        bits = deleted.addresses(store.source)
        column = (rows.starts, rows.counts, rows.addresses)
        self._vectors = _exact.Vectors(*column, kind, options.dim, 0, bits, deleted.SEGMENT_ROWS)
        self._metric, self._allowed, self._kept = snapshot.metric.number, allowed, not floats
        self._total = snapshot.state.count if total is None else total
        self._numbers = self._vectors.rows * options.dim
        self.cost = self._numbers * tuning.THREAD_WORK // tuning.EXACT_WORK

    def find(self, search: Search, wide: int) -> Found:
        """The ``wide`` nearest of each query."""
        queries, limit = search.vectors, search.plan.limit
        search.trace.rows += self._total * len(queries)
        search.trace.reranked += self._total * len(queries) if self._kept else 0
        threads = min(search.threads, self._numbers * len(queries) // tuning.EXACT_WORK)
        parts = max(1, threads)
        scan = _exact.Scan(self._vectors, self._metric, queries, wide, self._allowed, parts, limit)
        if parts == 1:
            scan.run()
        else:
            in_parallel(scan.run, range(parts), threads, search.share)
        found = Found(*scan.finish())
        if limit == math.inf and (found.counts < min(wide, self._total)).any():
            raise DamagedError(
                f"deleted rows: {self._total} rows are expected, and more are marked as deleted; {REMEDY}"
            )
        return found
