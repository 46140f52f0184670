"""Whether cells and rows agree: every listed row that is not deleted is in a cell, and codes are those of the rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._compiled import assign as _assign
from ..._storage.store import Store
from .found import Cells
from .vectors import living

#: Entries that are held in memory at a time are of so many cells.
_CELLS_AT_ONCE = 256


def problems(store: Store, cells: Cells | None, most: int) -> Iterator[str]:
    """What is wrong with the cells of a snapshot, whose records have been verified; a row is in ``most`` at most."""
    state, codes = store.state, store.codes()
    times = np.zeros(state.listed, np.uint8)
    total = 0 if cells is None else len(cells.numbers)
    for first in range(0, total, _CELLS_AT_ONCE):
        assert cells is not None
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
    there = living(store.source, codes, listed)
    if (times[there] == 0).any():
        yield f"cells: row {int(listed[there][np.argmin(times[there])])} is in no cell"
    if (times > most).any():
        yield f"cells: row {int(np.argmax(times))} is in {int(times.max())} cells"
