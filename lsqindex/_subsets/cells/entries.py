"""Records of cells, read and written: entries of many cells at a time.

Entries of several cells lie one cell's after another's, with how many each has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._compiled import records as _records
from ..._storage.format import keys, records
from ..._storage.format.columns import Bytes, RowNumbers
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ...errors import DamagedError

#: A tail has at most so many entries: a block. One more, and it becomes part of its cell.
TAIL_ENTRIES = 32

_KEYS: dict[bytes, Callable[[int], bytes]] = {
    records.CELL: keys.cell,
    records.TAIL: keys.cell_tail,
    records.CENTRE: keys.centre,
}

Numbers = NDArray[np.uint32]
Counts = NDArray[np.int64]
Floats = NDArray[np.float32]


class Entries(NamedTuple):
    """Entries of several cells."""

    #: Per cell: how many entries it has.
    counts: Counts
    #: Per entry: its row, and the code of that.
    rows: RowNumbers
    codes: Bytes

    @property
    def cells(self) -> NDArray[np.int64]:
        """Per entry: which of the cells it is in, by place."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def only(self, kept: NDArray[np.bool_]) -> Entries:
        """Those entries that are kept; of the same cells."""
        if kept.all():
            return self
        counts = np.bincount(self.cells[kept], minlength=len(self.counts))
        return Entries(counts, self.rows[kept], self.codes[kept])

    def of(self, cells: NDArray[np.bool_]) -> Entries:
        """The entries of some of the cells."""
        kept = np.repeat(cells, self.counts)
        return Entries(self.counts[cells], self.rows[kept], self.codes[kept])


def in_cells(cells: NDArray[np.int64], rows: RowNumbers, codes: Bytes, count: int) -> Entries:
    """Entries in any order, each in a cell by place, as entries of ``count`` cells: rows ascend, each once a cell."""
    order = np.lexsort((rows, cells))
    cells, rows = cells[order], rows[order]
    once = np.ones(len(rows), np.bool_)
    once[1:] = (cells[1:] != cells[:-1]) | (rows[1:] != rows[:-1])
    return Entries(np.bincount(cells[once], minlength=count), rows[once], codes[order[once]])


def together(parts: list[Entries], count: int) -> Entries:
    """The entries of the same ``count`` cells from several records, one row once a cell."""
    rows, codes = np.concatenate([part.rows for part in parts]), np.concatenate([part.codes for part in parts])
    return in_cells(np.concatenate([part.cells for part in parts]), rows, codes, count)


def load(source: Reader | Writer, kind: bytes, numbers: Numbers) -> Entries:
    """The entries of cells, or of their tails: none where there is no record."""
    state, key = source.state, _KEYS[kind]
    counts = np.zeros(len(numbers), np.int64)
    values = [source.get(keys.CELLS, key(number)) for number in numbers.tolist()]
    there = np.array([i for i, value in enumerate(values) if value is not None], np.int64)
    found = [value for value in values if value is not None]
    addresses, sizes = _records.places(found)
    verify(source, kind, numbers[there], addresses, sizes)
    counts[there] = _records.peek(found)[0]
    rows, codes = _assign.unpack(addresses + np.uint64(records.HEADER_SIZE), counts[there], state.code_size, state.head)
    return Entries(counts, rows, codes)


def load_all(source: Reader | Writer, numbers: Numbers) -> Entries:
    """The entries of cells, tails among them."""
    return together([load(source, kind, numbers) for kind in (records.CELL, records.TAIL)], len(numbers))


def store(writer: Writer, kind: bytes, numbers: Numbers, entries: Entries) -> None:
    """Write the entries of cells, or of their tails, in the place of what there was: no record where there are none."""
    state, key = writer.state, _KEYS[kind]
    some = entries.counts > 0
    made = _assign.pack(
        kind, numbers[some], entries.counts[some], entries.rows, entries.codes, state.head, state.generation
    )
    remove(writer, kind, numbers[~some])
    for number, record in zip(numbers[some].tolist(), made, strict=True):
        writer.put(keys.CELLS, key(number), record)


def remove(writer: Writer, kind: bytes, numbers: Numbers) -> None:
    """Remove records, where there are any."""
    key = _KEYS[kind]
    for number in numbers.tolist():
        if writer.get(keys.CELLS, key(number)) is not None:
            writer.delete(keys.CELLS, key(number))


def remove_prefix(writer: Writer, letters: bytes) -> None:
    """Remove all records whose keys begin with one of ``letters``."""
    cursor = writer.cursor(keys.CELLS)
    found = cursor.first()
    while found:
        if bytes(cursor.key())[:1] in letters:
            writer.guard(cursor.key(), cursor.value())
            writer.clean = False
            found = cursor.delete()
        else:
            found = cursor.next()
    cursor.close()


def store_centres(writer: Writer, numbers: Numbers, centres: Floats, spreads: Floats) -> None:
    """Write centres and spreads of cells."""
    # The first ones fill their pages: LMDB cuts a page in halves when something is put into it, also at its end.
    put = writer.put if writer.txn.stat(writer.dbs[keys.CELLS])["entries"] else writer.append
    width = 4 * (centres.shape[1] + 1)
    payloads = np.concatenate([centres, spreads[:, None]], axis=1).astype("<f4").view(np.uint8)
    for number, payload in zip(numbers.tolist(), payloads, strict=True):
        header = records.Header(records.CENTRE, 1, number, width)
        put(keys.CELLS, keys.centre(number), records.encode(header, payload))


def verify(
    source: Reader | Writer, kind: bytes, numbers: Numbers, addresses: NDArray[np.uint64], sizes: Counts
) -> None:
    """DamagedError unless these records are what they should be."""
    state = source.state
    done = _assign.sound(
        addresses, sizes, numbers, kind[0], state.code_size, state.generation, state.head, state.listed, entries=True
    )
    if done < len(numbers):
        raise DamagedError(
            f"{what(kind, int(numbers[done]))}: wrong checksum, or the record of something else; {records.REMEDY}"
        )


def what(kind: bytes, number: int) -> str:
    """A record in messages."""
    names = {records.CELL: "cell", records.TAIL: "tail of cell", records.CENTRE: "centre of cell"}
    return f"{names[kind]} {number}"
