"""Distance estimation (section 3.1 of the paper): the nearest of all codes, by one look-up per field.

The kernel (``cython_src/scan.h``) reads codes where they lie. Codes whose fields fit nibbles, or whose tables are
affine in their bits (``layout.linear``), are scanned 32 rows at a time; others field after field. Where the encoder
says that the head of a code ranks nearly as well as all of it (``layout.head``), most rows are left after their head.

Where a filter leaves few rows, their codes are copied together and scanned as all would be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ..._compiled import scan as _scan
from ..._storage.format.columns import CHUNK_ROWS, RowNumbers
from ..._storage.format.records import HEADER_SIZE
from ..._storage.store import Store
from ..._threads.pool import in_parallel
from ...encoders.base import Distance
from ...encoders.layout import MARGIN_SHARES, Layout
from .. import tuning
from ..found import Found
from ..ranking import by_nibbles
from ..select import bits_of

if TYPE_CHECKING:
    from ..search import Search
    from ..snapshot import Snapshot


class Scan:
    """All codes of some records, and how to look up their distances."""

    group = tuning.GROUP

    def __init__(
        self,
        snapshot: Snapshot,
        codes: _scan.Codes,
        distance: Distance,
        *,
        progressive: bool = False,
        allowed: NDArray[np.uint8] | None = None,
        total: int | None = None,
    ) -> None:
        """``allowed`` has a bit for each row that may be found, ``total`` in all; None: all of them."""
        self._codes, self._allowed, self.cost = codes, allowed, codes.rows
        self._layout, self._head = snapshot.coder.layout, snapshot.state.head
        self.distance: Distance = distance
        self._nibbles = by_nibbles(self._layout, asymmetric=distance == "asymmetric")
        self._progressive = progressive and distance == "asymmetric"
        self._total = snapshot.state.count if total is None else total

    def find(self, search: Search, wide: int) -> Found:
        """The ``wide`` nearest of each query by their codes."""
        codes, tables, trace, nq = self._codes, search.tables(), search.trace, len(search.vectors)
        trace.rows += codes.rows * nq
        trace.chunks += -(-codes.rows // CHUNK_ROWS) * nq
        z = margin(self._layout, self._head, wide, self._total) if self._progressive else None
        return self._run(search, tables.values, tables.bias, wide, z)

    def _run(
        self, search: Search, values: NDArray[np.float32], bias: NDArray[np.float32], wide: int, z: float | None
    ) -> Found:
        threads = min(search.threads, self._codes.rows * len(values) // tuning.SHARED_WORK)
        parts, limit = max(1, threads), search.plan.estimate_limit
        scan = _scan.Scan(self._codes, values, bias, wide, self._nibbles, z, self._allowed, parts, limit)
        if parts == 1:
            scan.run()
        else:
            in_parallel(scan.run, range(parts), threads, search.share)
        counts, rows, distances, sure = scan.finish()
        found = Found(counts, rows, distances)
        if z is None or sure.all():
            return found
        again = np.flatnonzero(sure == 0)
        return _replaced(found, again, self._run(search, values[again], bias[again], wide, None))

    def among(self, search: Search, rows: RowNumbers) -> Scan | ScanOfFew:
        """The same scan of these rows only, which ascend."""
        snapshot = search.snapshot
        if len(rows) * tuning.SCAN_SHARE < snapshot.state.count:
            return ScanOfFew(snapshot, search.store, rows, self.distance)
        progressive, bits = self._progressive, bits_of(rows)
        return Scan(snapshot, self._codes, self.distance, progressive=progressive, allowed=bits, total=len(rows))

    def distances(self, search: Search, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """How far ``rows`` are by their codes, ``counts[0]`` of them from the first query, and so on."""
        tables = search.tables()
        return self._codes.distances(tables.values, tables.bias, self._nibbles, counts, rows)


class ScanOfFew:
    """The codes of few rows, copied together."""

    group = tuning.GROUP

    def __init__(self, snapshot: Snapshot, store: Store, rows: RowNumbers, distance: Distance) -> None:
        codes = store.codes()
        self._record = np.frombuffer(codes.column.encode(0, codes.gather(rows)), np.uint8)
        address = np.array([_records.address(self._record) + HEADER_SIZE], np.uint64)
        counts, nothing = np.array([len(rows)], np.uint32), np.empty(0, np.uint64)
        self._rows = rows
        self._scan = Scan(snapshot, snapshot.codes_at(np.zeros(1, np.uint32), counts, address, nothing), distance)
        self.cost = len(rows)

    def among(self, search: Search, rows: RowNumbers) -> ScanOfFew:
        """The same scan of these rows only."""
        return ScanOfFew(search.snapshot, search.store, rows, self._scan.distance)

    def find(self, search: Search, wide: int) -> Found:
        """The ``wide`` nearest of each query by their codes."""
        before = search.trace.chunks
        found = self._scan.find(search, wide)
        search.trace.chunks = before  # no chunk was read as a whole
        return found._replace(rows=self._rows[found.rows])


def margin(layout: Layout, head: int, k: int, rows: int) -> float | None:
    """How far below the mean the head of a row must be to be looked at further, in standard deviations.

    None where all of every row is to be read: ``head`` bytes stored apart are not the encoder's, there are too few
    ``rows``, or too many of them are wanted.
    """
    if not layout.margins or head != layout.head or rows < tuning.HEAD_ROWS or layout.code_size > tuning.HEAD_BYTES:
        return None
    # The encoder knows it for some shares; in between it is nearly linear in their logarithm.
    decades = math.log10(MARGIN_SHARES[0] * rows / k)
    if decades < 0:
        return None
    below = min(int(decades), len(layout.margins) - 2)
    near, far = layout.margins[below : below + 2]
    return near + (far - near) * min(1.0, decades - below)


def _replaced(found: Found, queries: NDArray[np.intp], other: Found) -> Found:
    """``found``, and for some queries what ``other`` has."""
    assert found.distances is not None and other.distances is not None
    counts = found.counts.copy()
    own = np.repeat(np.arange(len(counts)), counts)
    counts[queries] = other.counts
    kept = ~np.isin(own, queries)
    order = np.argsort(np.concatenate([own[kept], np.repeat(queries, other.counts)]), kind="stable")
    rows = np.concatenate([found.rows[kept], other.rows])[order]
    return Found(counts, rows, np.concatenate([found.distances[kept], other.distances])[order])
