"""Whether cells and rows agree: every listed row that is not deleted is in as many cells as it should be, and codes are
those of the rows.

So a record that is lost is noticed, unless all its rows are deleted. The codes of centres need not be stored: the
encoder makes them again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._compiled import assign as _assign
from ..._storage.store import Store
from . import sampled
from .found import Cells
from .kernel import stored_codes
from .vectors import living

#: Entries that are held in memory at a time are of so many cells.
_CELLS_AT_ONCE = 256


def problems(store: Store, cells: Cells | None, *, spill: bool) -> Iterator[str]:
    """What is wrong with the cells of a snapshot, whose records have been verified; ``spill``: rows are in two."""
    state, codes = store.state, store.codes()
    if cells is None:
        if state.listed:
            yield f"cells: there are none, expected cells of {state.listed} rows"
        return
    times = np.zeros(state.listed, np.uint32)
    for first in range(0, len(cells.numbers), _CELLS_AT_ONCE):
        some = slice(first, first + _CELLS_AT_ONCE)
        counts, addresses = cells.counts[some].astype(np.int64), cells.addresses[some]
        rows, stored = _assign.unpack(addresses.ravel(), counts.ravel(), state.code_size, state.head)
        number = np.repeat(cells.numbers[some], counts.sum(axis=1))
        pairs = number.astype(np.uint64) << np.uint64(32) | rows
        once, places = np.unique(pairs, return_index=True)
        if len(once) < len(pairs):
            twice = number[np.setdiff1d(np.arange(len(pairs)), places)[0]]
            yield f"cell {int(twice)}: a row is there twice"
        there = living(store.source, codes, rows)
        np.add.at(times, rows[there], 1)
        differ = (stored[there] != codes.gather(rows[there])).any(axis=1)
        if differ.any():
            yield f"cell {int(number[there][np.argmax(differ)])}: a code that is not that of its row"
    listed = np.arange(state.listed, dtype=np.uint32)
    listed = listed[living(store.source, codes, listed)]
    wanted = min(1 + spill, len(cells.numbers))
    wrong = listed[times[listed] != wanted]
    if len(wrong):
        yield f"cells: row {int(wrong[0])} is in {int(times[wrong[0]])}, expected {wanted}; {len(wrong)} such rows"
    stored_codes(store.source)
    sampled.stored(store.source)
