"""The paper's own ranking (section 3.2): by the number of tables that return a row, ties by the code's distance.

Only ``distance="score"`` comes here. The lists of fresh rows are made when it is first asked for, so that every row has
a score. The distance of a row is the number of tables that do not return it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..._compiled import multi_index as _multi_index
from ..._compiled import records as _records
from ..._storage.format.records import REMEDY
from ..._storage.store import Store
from ..._subsets.multi_index import lists
from ..._subsets.multi_index.postings import SEGMENT_ROWS, UNIT_ROWS
from ...errors import DamagedError
from .. import ranking, tuning
from ..found import Found, together
from ..query import Query
from ..select import Selection
from .multi_index import Probing, best, lists_of, probe_tables, scanned, stored_lists
from .scan import Scan

if TYPE_CHECKING:
    from ..search import Search
    from ..snapshot import Snapshot


class ByScore:
    """Candidates ranked by score."""

    group = 1

    def __init__(
        self, snapshot: Snapshot, store: Store, query: Query, scan: Scan, selection: Selection | None, wide: int
    ) -> None:
        everything, self._held = _all_lists(store)
        self._lists, self._tables = lists_of(everything, snapshot, store), len(everything.bits)
        reach = snapshot.state.count if selection is None else len(selection.rows)
        self._probing = Probing(
            query.probes or self._tables, wide, 0 if query.probes else min(wide, reach), weigh=False
        )
        self._probes = probe_tables(snapshot)
        self._scan, self._allowed = scan, None if selection is None else selection.bits
        self.cost = self._probing.probes * tuning.PROBE_COST

    def find(self, search: Search, wide: int) -> Found:
        """The best scores; where no number of buckets gives enough rows, the nearest of the others follow."""
        found = best(search, self._lists, self._probes, self._probing, self._allowed)
        missing = (self._tables - found.scores.astype(np.int64)).astype(np.float32)
        whole, lacking = Found(found.counts, found.rows, missing), found.counts < self._probing.least
        if lacking.any():
            whole = together([whole, self._without_score(scanned(search, self._scan, lacking, wide), whole)])
        counts, rows, missing = whole.counts, whole.rows, np.asarray(whole.distances)
        try:
            by_code = self._scan.distances(search, counts, rows)
        except LookupError as error:
            raise DamagedError(f"posting lists: {error}; {REMEDY}") from error
        _, near = ranking.order(counts, by_code, ranking.ids_of(search.snapshot, rows), len(rows))
        counts, first = ranking.order(counts, missing[near], np.arange(len(rows)), wide)
        places = near[first]
        return Found(counts, rows[places], missing[places], ordered=True)

    def _without_score(self, others: Found, found: Found) -> Found:
        """Those of ``others`` that no bucket returned, as rows without a score."""
        queries = np.arange(len(found.counts))
        own = np.repeat(queries, found.counts) << 32 | found.rows
        asked = np.repeat(queries, others.counts)
        new = ~np.isin(asked << 32 | others.rows, own)
        counts = np.bincount(asked[new], minlength=len(queries))
        return Found(counts, others.rows[new], np.full(int(new.sum()), self._tables, np.float32))


def _all_lists(store: Store) -> tuple[lists.Lists, list[NDArray[np.uint8]]]:
    """Posting lists of all rows, those of the fresh ones made here; and what holds these."""
    stored, state, codes = stored_lists(store), store.state, store.codes()
    codes.touch_all()
    column = (codes.starts, codes.counts, codes.addresses, state.code_size, state.head)
    begin = stored.listed if stored.listed % UNIT_ROWS == 0 else stored.listed // UNIT_ROWS * UNIT_ROWS
    kept = int(np.searchsorted(stored.firsts, begin))
    firsts, spans, counts = [stored.firsts[:kept]], [stored.spans[:kept]], [stored.counts[:kept]]
    addresses = [stored.addresses[:kept]]
    payloads: list[NDArray[np.uint8]] = []
    while begin < state.rows:
        end = min(state.rows, (begin // SEGMENT_ROWS + 1) * SEGMENT_ROWS)
        made = [
            _multi_index.build(*column, int(bit), int(bits), begin, end)
            for bit, bits in zip(stored.first_bits, stored.bits, strict=True)
        ]
        payloads += [payload for _, payload in made]
        firsts.append(np.array([begin], np.uint32))
        spans.append(np.array([end - begin], np.uint32))
        counts.append(np.array([made[0][0]], np.uint32))
        addresses.append(np.array([[_records.address(payload) for _, payload in made]], np.uint64))
        begin = end
    everything = replace(
        stored,
        firsts=np.concatenate(firsts),
        counts=np.concatenate(counts),
        spans=np.concatenate(spans),
        addresses=np.concatenate(addresses),
        listed=state.rows,
    )
    return everything, payloads
