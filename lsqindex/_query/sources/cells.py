"""Cells: a query visits the nearest ones until those left hold few of its neighbours.

One call of the kernel (``cython_src/cells.h``) does all of it. How many cells and rows a recall takes was measured when
cells were made (``_subsets/cells/calibration.py``), and is decided for each query.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..._compiled import cells as _cells
from ..._storage.format.columns import CHUNK_ROWS
from ..._storage.format.records import REMEDY
from ..._storage.store import Store
from ..._subsets.cells.found import Cells as Found
from ..._subsets.cells.kernel import kernel_cells, one_cell
from ..._subsets.cells.rule import rule_for, spare_of
from ..._subsets.cells.vectors import stored_chunks
from ..._threads.pool import in_parallel
from ...errors import DamagedError
from .. import tuning, zeros
from ..found import Answer, unwritten_answer
from ..found import Found as Candidates
from ..ranking import ids_of

if TYPE_CHECKING:
    from ..plan import Plan
    from ..query import Query
    from ..search import Search
    from ..select import Selection
    from ..snapshot import Snapshot


class Cells:
    """The cells of a snapshot, and the rows that are in none yet."""

    group = 1

    def __init__(
        self,
        snapshot: Snapshot,
        store: Store,
        found: Found,
        query: Query,
        plan: Plan,
        selection: Selection | None = None,
        *,
        few: bool = False,
    ) -> None:
        """``selection``: the rows that may be found; ``few`` of them are copied into one cell, and that is searched."""
        coder, state = snapshot.coder, snapshot.state
        self._few, self._spare = few, spare_of(found.rule)
        if selection is not None and few:
            # The record is kept as long as its address is used.
            cells, self._record = one_cell(selection.rows, store.codes().gather(selection.rows), coder.dim, state)
            allowed, listed = None, state.rows
        else:
            cells = kernel_cells(store.source, found, coder)
            allowed, listed = None if selection is None else selection.bits, found.listed
        # What rows are compared with; without, the distances of their codes decide.
        kept = None if query.rerank == 0 else snapshot.kept
        # There may be fewer rows than are wanted, or to be compared.
        k = max(1, min(plan.k, plan.total))
        self._linear = coder.encoder._linear_tables(coder.metric, plan.distance)
        self._fresh = state.rows - listed
        #: About how many comparisons of a scan one query costs.
        self.cost = int(cells.counts.sum() // max(1, len(cells.counts))) * (1 if few else 32) + self._fresh
        self._prepared = _cells.Prepared(
            cells,
            snapshot.codes(store),
            coder.layout.by_nibbles(plan.distance),
            listed,
            stored_chunks(store.source, store.codes()),
            CHUNK_ROWS,
            self._linear,
            coder.dim,
            None if kept is None else (kept.vectors, kept.verified),
            snapshot.metric.number,
            snapshot.ids,
            snapshot.options.ids == "str",
            k,
            plan.limit,
            rule_for(found.rule, k, query.recall),
            0 if few else query.probes or 0,
            min(query.rerank or 0, plan.total),
            allowed,
        )

    def find(self, search: Search, wide: int) -> Candidates:
        """Not used: cells answer by themselves."""
        raise AssertionError("cells are searched by their answer")

    def answer(self, search: Search, *, lifted: bool = False) -> Answer:
        """The nearest of each query. ``lifted``: short ones have been made longer."""
        nq, plan, trace = len(search.vectors), search.plan, search.trace
        answer = unwritten_answer(nq, plan.k, strings=search.strings)
        made = None if self._linear is not None else search.tables()
        workers = min(plan.threads, nq * self.cost // tuning.THREAD_WORK)
        step = -(-nq // max(1, workers))
        least = search.snapshot.metric.least

        def one(first: int) -> _cells.Visits:
            part = slice(first, first + step)
            values, bias = (None, None) if made is None else (made.values[part], made.bias[part])
            ids = None if search.strings else answer.ids[part]
            to = (ids, answer.distances[part], answer.rows[part])
            return self._prepared.search(search.vectors[part], search.touch, *to, least, values, bias, lifted)

        short: list[int] = []
        try:
            done = [one(0)] if step == nq else in_parallel(one, range(0, nq, step), workers, search.share)
        except LookupError as error:
            raise DamagedError(f"{error}; {REMEDY}") from error
        for i, visits in enumerate(done):
            trace.probes += 0 if self._few else visits.cells
            trace.rows += visits.rows
            trace.reranked += visits.compared
            trace.expected_misses += visits.left / self._spare
            short += [i * step + q for q in visits.short]
        trace.fresh += nq * self._fresh
        if search.strings:
            there = answer.rows >= 0
            answer.ids[there] = ids_of(search.snapshot, answer.rows[there].astype(np.uint32))
        if short:
            left = np.array(short)
            answer.put(left, zeros.with_short_queries(search.only(left), partial(self.answer, lifted=True)))
        return answer
