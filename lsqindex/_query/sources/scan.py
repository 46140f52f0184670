"""Distance estimation (section 3.1 of the paper): the nearest of all codes, by one look-up per field.

One call of the kernel (``cython_src/search.h``) makes the tables, scans codes where they lie, compares the best of them
with the kept vectors, and orders the answer. Codes whose fields fit nibbles, or whose tables are affine in their bits
(``layout.linear``), are scanned 32 rows at a time; others field after field. Where the encoder says that the head of a
code ranks nearly as well as all of it (``layout.head``), most rows are left after their head.

How many rows are worth comparing depends on the query and on the code. So the kernel starts with a few
(``tuning.first_depth``), and goes on with four times as many where the exact distances show that neighbours are likely
to be missing (``cython_src/misses.h``).

Where a filter leaves few rows, their codes are copied together and scanned as all would be.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ..._compiled import scan as _scan
from ..._compiled import search as _search
from ..._storage.format.columns import CHUNK_ROWS, RowNumbers
from ..._storage.format.records import HEADER_SIZE, REMEDY
from ..._storage.store import Store
from ..._threads.pool import in_parallel
from ...encoders.base import Distance
from ...encoders.layout import MARGIN_SHARES, Layout
from ...errors import DamagedError
from .. import tuning, zeros
from ..found import Answer, Found, together
from ..ranking import ids_of
from ..select import bits_of

if TYPE_CHECKING:
    from ..plan import Depth
    from ..search import Search
    from ..snapshot import Snapshot


#: Values and bias of queries, or twice None where the call makes them.
_Tables: TypeAlias = tuple[Any, Any]


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
        rows: RowNumbers | None = None,
        copied: NDArray[np.uint8] | None = None,
        total: int | None = None,
    ) -> None:
        """``allowed`` has a bit for each row that may be found, ``total`` in all; None: all of them.

        ``rows`` are those of codes that were ``copied`` together.
        """
        self._codes, self._allowed, self._rows, self._copied = codes, allowed, rows, copied
        self.cost = codes.rows
        self._layout, self._head = snapshot.coder.layout, snapshot.state.head
        self.distance: Distance = distance
        self._nibbles = self._layout.by_nibbles(distance)
        self._progressive = progressive and distance == "asymmetric"
        self._total = snapshot.state.count if total is None else total
        self._chunks = 0 if rows is not None else -(-codes.rows // CHUNK_ROWS)

    # -- in one call ----------------------------------------------------------------------------

    def prepare(self, snapshot: Snapshot, k: int, limit: float, code_limit: float, depth: Depth) -> None:
        """Prepare the searches of a plan."""
        coder, wides = snapshot.coder, [depth.wide]
        most = min(self._total, tuning.DEEPEST)
        while depth.deepen and wides[-1] < most:
            wides.append(min(tuning.DEEPER * wides[-1], most))
        kept, linear = depth.better, coder.encoder._linear_tables(coder.metric, self.distance)
        assert kept is None or kept is snapshot.kept
        self._prepared = _search.Prepared(
            self._codes,
            self._nibbles,
            linear,
            coder.dim,
            None if kept is None else (kept.vectors, kept.verified),
            snapshot.metric.number,
            snapshot.ids,
            snapshot.options.ids == "str",
            k,
            limit,
            code_limit,
            self._total,
            np.array(wides),
            np.array([self._margin(wide) for wide in wides]),
            depth.missed * k,
            self._allowed,
            self._rows,
            tuning.DEEP_ROWS,
        )
        #: Whether tables are made in the call; and the numbers that one query compares exactly, at least.
        self._linear, self._compared = linear is not None, 0 if kept is None else wides[0] * coder.dim

    def _margin(self, wide: int) -> float:
        z = margin(self._layout, self._head, wide, self._total) if self._progressive else None
        return math.nan if z is None else z

    def answer(self, search: Search, *, lifted: bool = False) -> Answer:
        """The nearest of each query. ``lifted``: short ones have been made longer."""
        nq, plan = len(search.vectors), search.plan
        shape = (nq, plan.k)
        ids = np.full(shape, None, object) if search.strings else np.empty(shape, np.int64)
        answer = Answer(ids, np.empty(shape, np.float32), np.empty(shape, np.int64))  # the call writes all of it
        # (Tables of other encoders are made for all queries together: a product's last bits may depend on its size.)
        made = None if self._linear else search.tables()
        tables = (None, None) if made is None else (made.values, made.bias)
        workers = min(plan.threads, nq * self.cost // tuning.THREAD_WORK)
        split = workers > 1 and nq >= 2 * self.group * workers
        parts = 1 if split else min(plan.threads, self._parts(nq))
        step = min(tuning.AT_ONCE, -(-nq // (workers * self.group)) * self.group) if split else tuning.AT_ONCE
        try:
            if parts > 1:
                done, step = [self._in_parts(search, answer, tables, parts, lifted=lifted)], nq
            elif nq <= step:
                done = [self._one_call(search, answer, tables, lifted=lifted)]
            else:
                done = self._in_groups(search, answer, tables, step, workers if split else 1, lifted=lifted)
        except LookupError as error:
            raise DamagedError(f"{error}; {REMEDY}") from error
        for own in done:
            search.trace.rows += self.cost * own.scans
            search.trace.chunks += self._chunks * own.scans
            search.trace.reranked += own.reranked
        return self._completed(search, answer, done, step)

    def _one_call(self, search: Search, answer: Answer, tables: _Tables, *, lifted: bool) -> _search.Search:
        ids = None if search.strings else answer.ids
        least = search.snapshot.metric.least
        return self._prepared.search(search.vectors, search.touch, ids, *answer[1:], least, *tables, lifted)

    def _in_groups(
        self,
        search: Search,
        answer: Answer,
        tables: _Tables,
        step: int,
        workers: int,
        *,
        lifted: bool,
    ) -> list[_search.Search]:
        """Group after group, or by several threads; each group is one call."""
        some = [slice(first, first + step) for first in range(0, len(search.vectors), step)]

        def one(part: slice) -> _search.Search:
            own = tables if tables[0] is None else (tables[0][part], tables[1][part])
            to = Answer(answer.ids[part], answer.distances[part], answer.rows[part])
            return self._one_call(search.only(part), to, own, lifted=lifted)

        return in_parallel(one, some, workers, search.share)

    def _parts(self, nq: int) -> int:
        """How many threads are worth while for so few queries that each would have too few."""
        return max(self.cost * nq // tuning.SHARED_WORK, self._compared * nq // tuning.EXACT_WORK)

    def _in_parts(
        self,
        search: Search,
        answer: Answer,
        tables: _Tables,
        parts: int,
        *,
        lifted: bool,
    ) -> _search.Search:
        """By several threads that share the codes, and then the candidates."""
        running = _search.Search(self._prepared, search.vectors, *tables, parts, lifted)
        more = running.begun
        while more:
            in_parallel(running.scan, range(parts), parts, search.share)
            running.collect(search.touch)
            in_parallel(running.compare, range(parts), parts, search.share)
            more = running.rank()
        running.write(None if search.strings else answer.ids, *answer[1:], search.snapshot.metric.least)
        return running

    def _completed(self, search: Search, answer: Answer, done: list[_search.Search], step: int) -> Answer:
        """The answer with the ids of strings, and for queries that the kernel left; each of ``done`` is of ``step``."""
        if search.strings:
            there = answer.rows >= 0
            answer.ids[there] = ids_of(search.snapshot, answer.rows[there].astype(np.uint32))
        for number, own in enumerate(done):
            left = own.left()
            if left is not None:
                short, crowded = (some + number * step for some in left[:2])
                if len(short):
                    answer.put(short, zeros.with_short_queries(search.only(short), partial(self.answer, lifted=True)))
                if len(crowded):
                    answer.put(crowded, zeros.without_crowds(search.only(crowded), self, left[2]))
        return answer

    def among(self, search: Search, rows: RowNumbers) -> Scan:
        """The same scan of these rows only, which ascend."""
        snapshot = search.snapshot
        if self._rows is not None or len(rows) * tuning.SCAN_SHARE < snapshot.state.count:
            return scan_of_few(snapshot, search.store, rows, self.distance)
        progressive, bits = self._progressive, bits_of(rows)
        return Scan(snapshot, self._codes, self.distance, progressive=progressive, allowed=bits, total=len(rows))

    # -- for sources that go on with what it finds -----------------------------------------------

    def find(self, search: Search, wide: int) -> Found:
        """The ``wide`` nearest of each query by their codes, ties included, and none beyond the limit of the plan."""
        codes, tables, trace, nq = self._codes, search.tables(), search.trace, len(search.vectors)
        trace.rows += codes.rows * nq
        trace.chunks += self._chunks * nq
        z = margin(self._layout, self._head, wide, self._total) if self._progressive else None
        found = self._run(search, tables.values, tables.bias, wide, z)
        return found if self._rows is None else found._replace(rows=self._rows[found.rows])

    def _run(
        self, search: Search, values: NDArray[np.float32], bias: NDArray[np.float32], wide: int, z: float | None
    ) -> Found:
        threads = min(search.threads, self._codes.rows * len(values) // tuning.SHARED_WORK)
        parts, limit = max(1, threads), search.plan.code_limit
        scan = _scan.Scan(self._codes, values, bias, wide, self._nibbles, z, self._allowed, parts, limit)
        in_parallel(scan.run, range(parts), parts, search.share)
        counts, rows, distances, sure = scan.finish()
        found = Found(counts, rows, distances)
        if z is None or sure.all():
            return found
        # Those that are not sure again: all columns of all rows.
        again = np.flatnonzero(sure == 0)
        whole = self._run(search, values[again], bias[again], wide, None)
        kept = np.repeat(sure != 0, counts)
        assert whole.distances is not None
        return together(
            [
                Found(np.where(sure != 0, counts, 0), rows[kept], distances[kept]),
                Found(_at(again, whole.counts, len(counts)), whole.rows, whole.distances),
            ]
        )

    def distances(self, search: Search, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """How far ``rows`` are by their codes, ``counts[0]`` of them from the first query, and so on."""
        tables = search.tables()
        return self._codes.distances(tables.values, tables.bias, self._nibbles, counts, rows)


def scan_of_few(snapshot: Snapshot, store: Store, rows: RowNumbers, distance: Distance) -> Scan:
    """A scan of the codes of few rows, copied together."""
    codes = store.codes()
    record = np.frombuffer(codes.column.encode(0, codes.gather(rows)), np.uint8)
    address = np.array([_records.address(record) + HEADER_SIZE], np.uint64)
    counts, nothing = np.array([len(rows)], np.uint32), np.empty(0, np.uint64)
    own = snapshot.codes_at(np.zeros(1, np.uint32), counts, address, nothing)
    return Scan(snapshot, own, distance, rows=rows, copied=record, total=len(rows))


def _at(places: NDArray[np.intp], counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """``counts`` at these of ``n`` places, 0 elsewhere."""
    out = np.zeros(n, np.int64)
    out[places] = counts
    return out


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
