"""Cells stay as they should be while rows come and go.

    split      a cell past its limit, or the largest while there are too few: two new cells, by 2-means
    dissolve   a cell that is nearly empty: none. Such cells do not count when there should be more
    both       its rows, and those of neighbours that are now nearer to a new centre, are assigned anew among the
               centres there
    sweep      after deletes: a few cells are written again without the rows that are gone

Codes are copied, nothing is encoded. Everything is done in the transaction that adds or deletes, and bounded by what
that changes.

A cell of equal vectors cannot be split, and stays as it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._inputs.options import thread_count
from ..._storage.format import keys, records
from ..._storage.lmdb.writer import Writer
from . import entries, listing
from .entries import Entries, Floats
from .found import Cells, find
from .training import halve, nearest
from .vectors import RowVectors

Places = NDArray[np.int64]

#: A cell is split when it is so many times as large as the mean should be, and dissolved at such a share of it.
_LIMIT, _SMALL = 3.0, 1 / 8

#: Many rows are in no cell if they are more than such a share.
_WAITING = 1 / 8

#: A cell of so few entries is never split: its halves would be read no faster.
_LEAST = 64

#: Cells to be split are chosen from so many times as many.
_CHOSEN_FROM = 4

#: Of a cell that is split or dissolved, so many neighbours are re-assigned.
_NEIGHBOURS = 16

#: 2-means sees at most so many entries; and a part must have such a share of them, or the cell stays whole.
_SAMPLED, _PART = 1024, 1 / 16

#: Vectors are equal if their spread, squared, is at most this share of their length, squared.
_EQUAL = 1e-8

#: Cells with this share of entries that are gone are written again; a deleted row pays for looking at so many entries.
_GONE, _SWEPT = 1 / 8, 8


def maintain(writer: Writer, target: int, work: int, *, spill: bool) -> bool:
    """Split and dissolve cells so that there are about ``target``; about ``work`` entries are compared for it.

    None is dissolved while many rows are in no cell: those that belong into the small ones may be among them.
    ``spill``: rows are in two cells, as soon as there are two. Whether there was anything to do.
    """
    cells = find(writer, {})
    if cells is None:
        return False
    vectors = RowVectors(writer)
    sizes = cells.counts.sum(axis=1, dtype=np.int64)
    mean = sizes.sum() / target
    state = writer.state
    waiting = state.rows - state.listed > _WAITING * state.stored
    most = max(1, int(work / max(1.0, (1 + _NEIGHBOURS) * sizes.mean())))
    if not waiting and (sizes == 0).any() and sizes.any():
        _remove(writer, cells.numbers[sizes == 0])
        writer.state.relisted += 1
        return True  # what was found is void
    small = _smallest(sizes, mean, 0 if waiting else -(-most // 2))
    large = _largest(cells, sizes, mean, target)
    if len(large) > (some := max(1, most - len(small))):
        # Not always the largest ones: those that cannot be split would stand in the way of the others.
        rng = np.random.default_rng(writer.txn.id())
        large = large[np.sort(rng.permutation(min(len(large), _CHOSEN_FROM * some))[:some])]
    split, parts = _halves(writer, vectors, cells, large)
    if not len(split) and not len(small):
        return False
    _reassign(writer, vectors, cells, np.concatenate([split, small]), parts, spill=spill)
    return True


def _smallest(sizes: Places, mean: float, most: int) -> Places:
    """Cells to be dissolved."""
    order = np.argsort(sizes, kind="stable")[: min(most, len(sizes) - 1)]
    small: Places = order[sizes[order] < _SMALL * mean]
    return small


def _largest(cells: Cells, sizes: Places, mean: float, target: int) -> Places:
    """Cells to be split, if they can be; the largest first."""
    lengths = np.square(cells.centres, dtype=np.float64).sum(axis=1)
    equal = np.square(cells.spreads, dtype=np.float64) <= _EQUAL * lengths
    order = np.argsort(np.where(equal, 0, -sizes), kind="stable")
    order = order[~equal[order]]
    wanted = max(target - int((sizes >= _SMALL * mean).sum()), int((sizes[order] > _LIMIT * mean).sum()))
    wanted = max(0, min(wanted, 2 * target - len(sizes)))
    order = order[:wanted]
    large: Places = order[sizes[order] > max(mean, _LEAST)]
    return large


def _halves(writer: Writer, vectors: RowVectors, cells: Cells, places: Places) -> tuple[Places, Floats]:
    """Those of these cells that 2-means cuts into two, and the centres, two of each."""
    done, parts = [], []
    rng = np.random.default_rng(0)
    held = entries.load_all(writer, cells.numbers[places])
    ends = np.cumsum(held.counts)
    for place, first, end in zip(places.tolist(), (ends - held.counts).tolist(), ends.tolist(), strict=True):
        rows = held.rows[first:end]
        rows = rows[np.sort(rng.permutation(len(rows))[:_SAMPLED])]
        rows = rows[vectors.living(rows)]
        if len(rows) < 2:
            continue
        own = vectors[rows]
        two = halve(own)
        if two is None:
            continue
        share = np.bincount(_assign.Centres(two).nearest(own)[0][:, 0], minlength=2).min() / len(rows)
        if share >= _PART:
            done.append(place)
            parts.append(two)
    return np.array(done, np.int64), np.concatenate([np.empty((0, cells.centres.shape[1]), np.float32), *parts])


def _reassign(writer: Writer, vectors: RowVectors, cells: Cells, gone: Places, new: Floats, *, spill: bool) -> None:
    """Put cells with the centres ``new`` into the place of the cells ``gone``, and re-assign rows around them.

    A row that was in a cell that goes, or is now nearer to a new centre than to that of a cell it is in, is assigned
    anew among these centres: as often as it was in these cells, for of its other cell nothing is known here. Rows of
    a cell that was the only one are in one cell, and get their second.
    """
    around = _neighbours(cells, gone)
    if not len(around) and not len(new):
        return  # the last cell is not dissolved
    centres = np.ascontiguousarray(np.concatenate([cells.centres[around], new]))
    held, loose = (_living(writer, vectors, cells, places) for places in (around, gone))
    own = held.cells
    squares, nearer = _compared(vectors, held, centres, new)
    moved = nearer | np.isin(held.rows, loose.rows)
    moved = np.isin(held.rows, held.rows[moved])  # all entries of such a row
    rows, first, times = np.unique(
        np.concatenate([held.rows[moved], loose.rows]), return_index=True, return_counts=True
    )
    codes = np.concatenate([held.codes[moved], loose.codes])[first]
    places, apart = listing.assign(centres, vectors, rows, spill=spill)
    # What stays, then the first cell of each row, then the second of those that have two.
    twice = (times > 1) | (spill and len(cells.numbers) == 1)
    twice &= places.shape[1] > 1
    every = np.concatenate([own[~moved], places[:, 0], places[twice, -1]]).astype(np.int64)
    squares = np.concatenate([squares[~moved], apart[:, 0], apart[twice, -1]])
    names = np.concatenate([held.rows[~moved], rows, rows[twice]])
    made = entries.in_cells(every, names, np.concatenate([held.codes[~moved], codes, codes[twice]]), len(centres))
    spreads = listing.spreads_of(every, squares, len(centres))
    changed = _differ(held, made, len(around))
    # Everything is read: a write may move what it was read from.
    _remove(writer, cells.numbers[gone])
    numbers = np.concatenate([cells.numbers[around], listing.new_cells(writer, new, spreads[len(around) :])])
    entries.store(writer, records.CELL, numbers[changed], made.of(changed))
    entries.remove(writer, records.TAIL, numbers[changed])
    old = np.flatnonzero(changed[: len(around)])
    entries.store_centres(writer, numbers[old], centres[old], spreads[old])
    writer.state.relisted += 1


def _compared(
    vectors: RowVectors, held: Entries, centres: Floats, new: Floats
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The squared distance of each entry from the centre of its cell, and whether a new centre is nearer."""
    known, others = _assign.Centres(centres), _assign.Centres(new) if len(new) else None
    own, threads = held.cells[:, None].astype(np.uint32), thread_count(None)
    squares, nearer = np.empty(len(held.rows), np.float32), np.zeros(len(held.rows), np.bool_)
    for first in range(0, len(held.rows), listing.BLOCK_ROWS):
        some = slice(first, first + listing.BLOCK_ROWS)
        block = vectors[held.rows[some]]
        squares[some] = known.among(block, own[some])[1]
        if others is not None:
            nearer[some] = nearest(others, block, 1, threads)[1][:, 0] < squares[some]
    return squares, nearer


def _differ(before: Entries, after: Entries, count: int) -> NDArray[np.bool_]:
    """Which cells have other rows than before; all are new but the first ``count``."""
    differ = np.ones(len(after.counts), np.bool_)
    differ[:count] = before.counts != after.counts[:count]
    both = np.setxor1d(_pairs(before.cells, before.rows), _pairs(after.cells, after.rows), assume_unique=True)
    differ[both >> 32] = True
    return differ


def _neighbours(cells: Cells, gone: Places) -> Places:
    """The cells around those that go, and are not gone themselves."""
    # Others that go may be among the nearest, and do not count.
    k = min(_NEIGHBOURS + len(gone), len(cells.numbers))
    near, _ = _assign.Centres(cells.centres).nearest(np.ascontiguousarray(cells.centres[gone]), k)
    others = ~np.isin(near, gone)
    return np.unique(near[others & (np.cumsum(others, axis=1) <= _NEIGHBOURS)]).astype(np.int64)


def _living(writer: Writer, vectors: RowVectors, cells: Cells, places: Places) -> Entries:
    held = entries.load_all(writer, cells.numbers[places])
    return held.only(vectors.living(held.rows))


def _pairs(places: Places, rows: NDArray[np.uint32]) -> NDArray[np.int64]:
    """A number for each pair of cell and row."""
    pairs: NDArray[np.int64] = places << 32 | rows
    return pairs


def _remove(writer: Writer, numbers: NDArray[np.uint32]) -> None:
    for kind in (records.CELL, records.TAIL, records.CENTRE):
        entries.remove(writer, kind, numbers)
    writer.state.cells -= len(numbers)


def sweep(writer: Writer, changed: int) -> None:
    """After ``changed`` rows were deleted or replaced: write some cells again, without entries that are gone.

    Which ones depends on the number of the transaction, so that all have their turn.
    """
    state = writer.state
    wanted = _SWEPT * changed * state.cells / max(1, 2 * state.count)
    turn = writer.txn.id()
    if wanted < 1:
        wanted = float(turn % round(1 / wanted) == 0) if wanted > 0 else 0.0
    count = min(int(wanted), state.cells)
    numbers = np.unique((turn * 7919 + np.arange(count)) % max(1, state.next_cell)).astype(np.uint32)
    there = [writer.get(keys.CELLS, keys.centre(number)) is not None for number in numbers.tolist()]
    numbers = numbers[np.array(there, np.bool_)]
    if not len(numbers):
        return
    held = entries.load_all(writer, numbers)
    kept = held.only(RowVectors(writer).living(held.rows))
    due = held.counts - kept.counts > _GONE * held.counts
    if due.any():
        entries.store(writer, records.CELL, numbers[due], kept.of(due))
        entries.remove(writer, records.TAIL, numbers[due])
        state.relisted += 1
