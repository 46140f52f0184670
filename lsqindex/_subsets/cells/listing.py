"""Fresh rows move into cells.

A row goes to the cell of its nearest centre and, with spilling, to one more (``cython_src/assign.h``). In a cell it is
appended to the tail, a small record; a tail that is full becomes part of the cell, and entries of rows that are gone by
then are dropped. So what an add writes does not depend on how large cells are, but for one cell in every 32 entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._inputs.options import thread_count
from ..._storage.format import records
from ..._storage.format.columns import Bytes, RowNumbers
from ..._storage.lmdb.writer import Writer
from . import entries
from .entries import TAIL_ENTRIES
from .found import Cells, find
from .training import NEAR, SAMPLE_ROWS, nearest, train
from .vectors import RowVectors, living

#: Vectors that are held in memory at a time.
BLOCK_ROWS = 1 << 12

#: Cells that are written at a time.
_CELLS_AT_ONCE = 256

#: A spread is a finite number in the file.
_LARGEST = float(np.finfo(np.float32).max)


def begin(writer: Writer, count: int) -> None:
    """Train the centres of about ``count`` cells on what is stored; no row is in them yet."""
    vectors = RowVectors(writer)
    rows, rng = vectors.codes.numbers(), np.random.default_rng(0)
    rows = rows[vectors.living(rows)]
    sample = rows[np.sort(rng.permutation(len(rows))[: SAMPLE_ROWS * count])]
    if not len(sample):
        return
    centres = train(_blocks(vectors, sample), count, thread_count(None))
    new_cells(writer, centres, np.zeros(len(centres), np.float32))


def new_cells(writer: Writer, centres: NDArray[np.float32], spreads: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Make cells, without entries; their numbers."""
    state = writer.state
    numbers = np.arange(state.next_cell, state.next_cell + len(centres), dtype=np.uint32)
    entries.store_centres(writer, numbers, centres, spreads)
    state.cells += len(centres)
    state.next_cell += len(centres)
    state.relisted += 1
    return numbers


def list_rows(writer: Writer, end: int, *, spill: bool, threads: int | None = None) -> None:
    """Put the rows from ``state.listed`` to ``end`` into cells."""
    state, cells, vectors = writer.state, find(writer, {}), RowVectors(writer)
    if cells is None:
        return
    rows = np.arange(state.listed, end, dtype=np.uint32)
    rows = rows[vectors.living(rows)]
    if len(rows):
        places, squares = assign(cells.centres, vectors, rows, spill=spill, threads=threads)
        copies = places.shape[1]
        codes = vectors.codes.gather(rows)
        every = np.repeat(np.arange(len(rows)), copies)
        append(writer, cells, vectors, places.ravel().astype(np.int64), rows[every], codes[every], squares.ravel())
    state.listed = end
    state.relisted += 1


class Places(NamedTuple):
    """Which rows are in which cells."""

    #: Rows below are in cells.
    listed: int
    numbers: NDArray[np.uint32]
    counts: NDArray[np.int64]
    rows: RowNumbers


def places(writer: Writer) -> Places | None:
    """The rows of all cells that are not deleted; None where there are none."""
    cells, state = find(writer, {}), writer.state
    if cells is None or not state.listed:
        return None
    counts = cells.counts.astype(np.int64).ravel()
    rows = _assign.rows(cells.addresses.ravel(), counts, state.code_size)
    there = living(writer, RowVectors(writer).codes, rows)
    own = np.repeat(np.arange(len(counts)) // 2, counts)[there]
    rows = rows[there]
    order = np.lexsort((rows, own))
    return Places(state.listed, cells.numbers, np.bincount(own, minlength=len(cells.numbers)), rows[order])


def restore(writer: Writer, places: Places) -> None:
    """Put rows into the cells they were in, with the codes they have now; the cells have no entries."""
    state, codes, ends = writer.state, RowVectors(writer).codes, np.cumsum(places.counts)
    parts = []
    for first in range(0, len(ends), _CELLS_AT_ONCE):
        some = slice(first, first + _CELLS_AT_ONCE)
        rows = places.rows[ends[first] - places.counts[first] : ends[some][-1]]
        parts.append((places.numbers[some], entries.Entries(places.counts[some], rows, codes.gather(rows))))
    # Everything is read: a write may move what it was read from.
    for numbers, own in parts:
        entries.store(writer, records.CELL, numbers, own)
    state.listed = places.listed
    state.relisted += 1


def assign(
    centres: NDArray[np.float32], vectors: RowVectors, rows: RowNumbers, *, spill: bool, threads: int | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """The cells of each row, by place: one, or two with ``spill``; and squared distances from their centres."""
    known, threads = _assign.Centres(centres), thread_count(threads)
    spill = spill and len(centres) > 1
    copies = 2 if spill else 1
    places, squares = [np.empty((0, copies), np.uint32)], [np.empty((0, copies), np.float32)]
    for first in range(0, len(rows), BLOCK_ROWS):
        own = vectors[rows[first : first + BLOCK_ROWS]]
        labels, apart = nearest(known, own, min(NEAR, len(centres)) if spill else 1, threads)
        if spill:
            second = known.spill(own, labels, apart)[:, None]
            labels = np.concatenate([labels[:, :1], np.take_along_axis(labels, second, 1)], axis=1)
            apart = np.concatenate([apart[:, :1], np.take_along_axis(apart, second, 1)], axis=1)
        places.append(labels)
        squares.append(apart)
    return np.concatenate(places), np.concatenate(squares)


def append(
    writer: Writer,
    cells: Cells,
    vectors: RowVectors,
    places: NDArray[np.int64],
    rows: RowNumbers,
    codes: Bytes,
    squares: NDArray[np.float32],
) -> None:
    """Add entries to the cells of these places, at these squared distances from their centres."""
    touched, inverse = np.unique(places, return_inverse=True)
    numbers = cells.numbers[touched]
    new = entries.in_cells(inverse, rows, codes, len(touched))
    tails = entries.load(writer, records.TAIL, numbers)
    full = tails.counts + new.counts > TAIL_ENTRIES
    new = entries.together([tails, new], len(touched))
    whole = entries.together([entries.load(writer, records.CELL, numbers[full]), new.of(full)], int(full.sum()))
    whole = whole.only(vectors.living(whole.rows))
    # Everything is read: a write may move what it was read from.
    entries.store(writer, records.TAIL, numbers[~full], new.of(~full))
    entries.store(writer, records.CELL, numbers[full], whole)
    entries.remove(writer, records.TAIL, numbers[full])
    changed = full | (cells.spreads[touched] == 0)
    spreads = _spreads(cells, touched, inverse, squares)
    entries.store_centres(writer, numbers[changed], cells.centres[touched[changed]], spreads[changed])


def _spreads(
    cells: Cells, touched: NDArray[np.intp], inverse: NDArray[Any], squares: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The spreads of cells with new entries at these squared distances."""
    before = cells.counts[touched].sum(axis=1).astype(np.float64)
    added = np.bincount(inverse, minlength=len(touched))
    total = before * np.square(cells.spreads[touched], dtype=np.float64)
    total += np.bincount(inverse, weights=squares, minlength=len(touched))
    spreads: NDArray[np.float32] = np.minimum(np.sqrt(total / (before + added)), _LARGEST).astype(np.float32)
    return spreads


def spreads_of(places: NDArray[np.int64], squares: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The spreads of ``count`` cells whose entries, by place, are at these squared distances; 0 without entries."""
    sizes = np.maximum(np.bincount(places, minlength=count), 1)
    spreads: NDArray[np.float32] = np.minimum(
        np.sqrt(np.bincount(places, weights=squares, minlength=count) / sizes), _LARGEST
    ).astype(np.float32)
    return spreads


def _blocks(vectors: RowVectors, rows: RowNumbers) -> NDArray[np.float32]:
    """The vectors of rows, converted block by block."""
    out = np.empty((len(rows), vectors.options.dim), np.float32)
    for first in range(0, len(rows), BLOCK_ROWS):
        out[first : first + BLOCK_ROWS] = vectors[rows[first : first + BLOCK_ROWS]]
    return out
