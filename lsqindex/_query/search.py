"""One search in one snapshot.

    query ─▶ plan ─▶ source: candidates ─▶ ranking ─▶ answer
                        ▲                     │
                        └── more of them, where neighbours seem to be missing

Many queries are searched in groups, and threads take a group each. Threads help with one query where it reads much.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import Vectors
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from .._threads.pool import in_parallel
from ..encoders.layout import Tables
from . import tuning, zeros
from .found import Answer, Found, joined, merged
from .plan import MakeTables, Plan, make_plan
from .query import Query
from .ranking import ranked, too_shallow
from .select import selected
from .snapshot import Snapshot
from .sources.scan import Scan, ScanOfFew
from .trace import Trace

if TYPE_CHECKING:
    from .._storage.lmdb.reader import Reader

#: Plans that are kept: few programs ask in more ways.
_PLANS = 32


def search(
    snapshot: Snapshot, reader: Reader, query: Query, vectors: Vectors, trace: Trace, *, counting: bool = False
) -> tuple[Answer, Plan]:
    """The nearest of each of ``vectors``, and what was planned for them. ``counting``: what costs time is counted, too.

    An estimate of a distance, or a sum in floats, can be a little below zero. It is returned as zero, except for inner
    products; the order of the answers is that of the estimates.
    """
    answer, plan = estimated(snapshot, reader, query, vectors, trace, counting=counting)
    np.maximum(answer.distances, snapshot.metric.least, out=answer.distances)
    return answer, plan


def estimated(
    snapshot: Snapshot, reader: Reader, query: Query, vectors: Vectors, trace: Trace, *, counting: bool = False
) -> tuple[Answer, Plan]:
    """As :func:`search`, with distances as they were estimated."""
    plans, rows = snapshot.plans, None
    if query.filter is not None:
        selection = selected(snapshot, reader, query.filter)
        plans, rows = selection.plans, selection.rows
    plan = plans.get(query[:-1])
    if plan is None:
        plan = make_plan(snapshot, Store(reader, snapshot.options), query, None if rows is None else selection)
        if len(plans) < _PLANS:
            plans[query[:-1]] = plan
    one = Search(snapshot, reader, plan, vectors, rows, plan.threads, trace, counting=counting)
    if not len(vectors) or not plan.total:
        return nothing(snapshot, len(vectors)), plan
    if snapshot.metric.unit and query.distance != "score":
        answer = zeros.with_short_queries(one, _grouped)
    else:
        answer = _grouped(one)
    if plan.deepen and plan.limit < math.inf:
        answer = ranked(snapshot, Found(*answer[:3]), plan.k, plan.limit)
    return answer, plan


def nothing(snapshot: Snapshot, nq: int) -> Answer:
    """The answer where there are no rows."""
    ids = np.empty(0, np.int64 if snapshot.options.ids == "int" else object)
    return Answer(np.zeros(nq, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32), ids)


class Search:
    """Some queries, as a source and a ranking see them."""

    def __init__(
        self,
        snapshot: Snapshot,
        reader: Reader,
        plan: Plan,
        vectors: Vectors,
        rows: RowNumbers | None,
        threads: int,
        trace: Trace,
        *,
        counting: bool = False,
        whole: Search | None = None,
        some: Any = None,
    ) -> None:
        self.snapshot, self.plan, self.vectors, self.threads = snapshot, plan, vectors, threads
        #: The rows that a filter leaves, ascending; None without one.
        self.rows = rows
        #: What is counted on the way, and whether that may cost time.
        self.trace, self.counting = trace, counting
        #: For a thread that helps: keeps the snapshot.
        self.share = reader.place.share
        self._reader, self._whole, self._some = reader, whole, some
        self._tables: dict[MakeTables, Tables] = {}

    @property
    def store(self) -> Store:
        """The snapshot's rows."""
        return Store(self._reader, self.snapshot.options)

    def only(self, some: Any, *, threads: int | None = None) -> Search:
        """The same for some of the queries, by their places or a slice."""
        trace, threads = (self.trace, self.threads) if threads is None else (Trace(), threads)
        own = self.vectors[some]
        return Search(
            self.snapshot, self._reader, self.plan, own, self.rows, threads, trace,
            counting=self.counting, whole=self, some=some,
        )  # fmt: skip

    def among(self, rows: RowNumbers, wide: int) -> Answer:
        """The answer among these rows only, by a scan of ``wide`` candidates."""
        assert isinstance(self.plan.source, Scan | ScanOfFew)
        plan = self.plan._replace(source=self.plan.source.among(self, rows), total=len(rows))
        own = Search(
            self.snapshot, self._reader, plan, self.vectors, rows, self.threads, self.trace,
            counting=self.counting, whole=self, some=slice(None),
        )  # fmt: skip
        return answered(own, wide)

    def of(self, vectors: Vectors) -> Search:
        """The same for other vectors."""
        return Search(
            self.snapshot, self._reader, self.plan, vectors, self.rows, self.threads, self.trace,
            counting=self.counting,
        )  # fmt: skip

    def tables(self, make: MakeTables | None = None) -> Tables:
        """Look-up tables, those of the plan or others.

        They are made for all queries together and not for each group, because a product's last bits depend on its size.
        """
        make = make or self.plan.tables
        assert make is not None
        made = self._tables.get(make)
        if made is None:
            if self._whole is None:
                made = make(self.vectors)
            else:
                whole = self._whole.tables(make)
                made = Tables(whole.values[self._some], whole.bias[self._some])
            self._tables[make] = made
        return made


# -- groups of queries ------------------------------------------------------------------------------


def _grouped(one: Search) -> Answer:
    """The answer to all queries, group after group, or by several threads."""
    nq, source = len(one.vectors), one.plan.source
    workers = min(one.threads, nq * source.cost // tuning.THREAD_WORK)
    split = workers > 1 and nq >= 2 * source.group * workers
    if not split and nq <= tuning.AT_ONCE:
        return answered(one, one.plan.wide)
    step = min(tuning.AT_ONCE, -(-nq // (workers * source.group)) * source.group) if split else tuning.AT_ONCE
    threads = 1 if split else one.threads
    groups = [one.only(slice(first, first + step), threads=threads) for first in range(0, nq, step)]
    if one.plan.tables is not None and one.plan.strategy == "scan":
        one.tables()  # before threads ask for them
    parts = in_parallel(lambda group: answered(group, group.plan.wide), groups, workers if split else 1, one.share)
    for group in groups:
        one.trace.add(group.trace)
    return joined(parts)


def answered(one: Search, wide: int) -> Answer:
    """The ``k`` nearest of the ``wide`` best that the source finds."""
    plan, snapshot = one.plan, one.snapshot
    found = plan.source.find(one, wide)
    if plan.better is None:
        return ranked(snapshot, found, plan.k, plan.limit)
    if plan.deepen or (found.distances is not None and not found.ordered and (found.counts > wide).any()):
        counts, rows, distances, _ = ranked(snapshot, found, wide)
    else:
        counts, rows, distances = found[:3]  # type: ignore[assignment]
    better = plan.better.distances(one, counts, rows)
    # The limit comes last where more candidates may follow: what they are compared with is the k-th of all.
    limit = math.inf if plan.deepen else plan.limit
    answer = ranked(snapshot, Found(counts, rows, better), plan.k, limit)
    crowded = np.empty(0, np.intp)
    if snapshot.metric.unit and plan.better is snapshot.kept and plan.strategy == "scan":
        answer, crowded = zeros.without_crowds(one, answer, counts, rows, better, wide)
    if plan.deepen and wide < min(plan.total, tuning.DEEPEST):
        answer = _deepened(one, answer, distances, better, wide, crowded)
    return answer


def _deepened(
    one: Search,
    answer: Answer,
    estimates: NDArray[np.float32],
    exact: NDArray[np.float32],
    wide: int,
    crowded: NDArray[np.intp],
) -> Answer:
    """Better answers to the queries that seem to lack neighbours, among more candidates."""
    plan, shape = one.plan, (len(answer.counts), wide)
    kth = answer.distances[np.cumsum(answer.counts) - 1]
    shallow = too_shallow(estimates.reshape(shape), exact.reshape(shape), kth, plan.k, plan.total)
    if len(crowded):
        shallow = np.setdiff1d(shallow, crowded)
    wide = min(tuning.DEEPER * wide, plan.total, tuning.DEEPEST)
    # Few queries at a time, so that what they find fits into memory.
    step = max(1, tuning.DEEP_ROWS // wide)
    for some in (shallow[first : first + step] for first in range(0, len(shallow), step)):
        answer = merged(answer, answered(one.only(some), wide), some)
    return answer
