"""One search in one snapshot.

    query ─▶ plan ─▶ source ─▶ answer

Sources that run in one call of a kernel (the scan) give the answer themselves. What others find is ranked here: many
queries are searched in groups, and threads take a group each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._inputs.vectors import Vectors
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from .._threads.pool import in_parallel
from ..encoders.layout import Tables
from ..errors import ParameterError
from ..results import Matches
from . import tuning, zeros
from .found import Answer, Found, empty_answer, joined
from .plan import MakeTables, Plan, filtered, make_plan
from .query import Query
from .ranking import ranked
from .select import selected
from .snapshot import Snapshot
from .trace import Trace

if TYPE_CHECKING:
    from .._storage.lmdb.reader import Reader

#: Plans that are kept: few programs ask in more ways.
_PLANS = 32
#: A search returns at most so many ids.
_MOST_IDS = 1 << 28


def search(
    snapshot: Snapshot, reader: Reader, query: Query, vectors: Vectors, trace: Trace, *, counting: bool = False
) -> tuple[Answer, Plan]:
    """The nearest of each of ``vectors``, and what was planned for them. ``counting``: what costs time is counted, too.

    An estimate of a distance, or a sum in floats, can be a little below zero. It is returned as zero, except for inner
    products; the order of the answers is that of the estimates.
    """
    if len(vectors) * (query.k or 0) > _MOST_IDS:
        raise ParameterError(
            f"k={query.k} for {len(vectors)} queries: a search returns at most {_MOST_IDS:,} ids; pass fewer queries"
        )
    plan = snapshot.plans.get(query[:-1])
    if plan is None:
        plan = make_plan(snapshot, Store(reader, snapshot.options), query)
        if len(snapshot.plans) < _PLANS:
            snapshot.plans[query[:-1]] = plan
    rows = None
    if query.filter is not None:
        selection = selected(snapshot, reader, query.filter)
        general, rows = plan, selection.rows
        plan = selection.plans.get(query[:-1])
        if plan is None:
            plan = filtered(general, snapshot, Store(reader, snapshot.options), query, selection)
            if len(selection.plans) < _PLANS:
                selection.plans[query[:-1]] = plan
    one = Search(snapshot, reader, plan, vectors, rows, plan.threads, trace, counting=counting)
    if not len(vectors) or not plan.total:
        return empty_answer(len(vectors), query.k or 0, strings=one.strings), plan
    if plan.answer is not None:
        return plan.answer(one), plan
    if snapshot.metric.unit and query.distance != "score":
        answer = zeros.with_short_queries(one, _grouped)
    else:
        answer = _grouped(one)
    np.maximum(answer.distances, snapshot.metric.least, out=answer.distances)
    return answer, plan


def matches(answer: Answer, payloads: list[Any] | None, *, single: bool) -> Matches:
    """An answer as users see it; ``single``: there is one query, of shape (dim,)."""
    found = Matches(answer.ids[0], answer.distances[0]) if single else Matches(answer.ids, answer.distances)
    if payloads is not None:
        found.payloads = payloads[0] if single else payloads
    return found


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
        #: Whether ids are strings.
        self.strings = snapshot.options.ids == "str"
        #: For a thread that helps: keeps the snapshot.
        self.share = reader.place.share
        self._reader, self._whole, self._some = reader, whole, some
        self._tables: dict[MakeTables, Tables] = {}

    @property
    def store(self) -> Store:
        """The snapshot's rows."""
        return Store(self._reader, self.snapshot.options)

    def touch(self, rows: RowNumbers) -> None:
        """Verify the kept vectors of ``rows``."""
        assert self.snapshot.kept is not None
        self.snapshot.kept.touch(self.store, rows)

    def only(self, some: Any, *, threads: int | None = None) -> Search:
        """The same for some of the queries, by their places or a slice."""
        trace, threads = (self.trace, self.threads) if threads is None else (Trace(), threads)
        own = self.vectors[some]
        return Search(
            self.snapshot, self._reader, self.plan, own, self.rows, threads, trace,
            counting=self.counting, whole=self, some=some,
        )  # fmt: skip

    def among(self, rows: RowNumbers) -> Search:
        """The same among these rows only."""
        return Search(
            self.snapshot, self._reader, self.plan, self.vectors, rows, self.threads, self.trace,
            counting=self.counting, whole=self, some=slice(None),
        )  # fmt: skip

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


# -- what other sources find ------------------------------------------------------------------------


def _grouped(one: Search) -> Answer:
    """The answer to all queries, group after group, or by several threads."""
    nq, source = len(one.vectors), one.plan.source
    workers = min(one.threads, nq * source.cost // tuning.THREAD_WORK)
    split = workers > 1 and nq >= 2 * source.group * workers
    if not split and nq <= tuning.AT_ONCE:
        return _answered(one)
    step = min(tuning.AT_ONCE, -(-nq // (workers * source.group)) * source.group) if split else tuning.AT_ONCE
    threads = 1 if split else one.threads
    groups = [one.only(slice(first, first + step), threads=threads) for first in range(0, nq, step)]
    parts = in_parallel(_answered, groups, workers if split else 1, one.share)
    for group in groups:
        one.trace.add(group.trace)
    return joined(parts)


def _answered(one: Search) -> Answer:
    """The ``k`` nearest of the best that the source finds."""
    plan, snapshot, depth = one.plan, one.snapshot, one.plan.depth
    found = plan.source.find(one, depth.wide)
    if depth.better is None:
        return ranked(snapshot, found, plan.k, plan.limit)
    counts, rows, distances = found[:3]
    if distances is not None and not found.ordered and (counts > depth.wide).any():
        best = ranked(snapshot, found, depth.wide)
        there = best.rows >= 0
        counts, rows = there.sum(axis=1), best.rows[there].astype(np.uint32)
    better = depth.better.distances(one, counts, rows)
    return ranked(snapshot, Found(counts, rows, better), plan.k, plan.limit)
