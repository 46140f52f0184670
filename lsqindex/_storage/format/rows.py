"""A column as a snapshot has it: rows by number, verified when they are first touched.

Nothing is read when a file is opened. It finds the records of a snapshot by their keys alone and
verifies one when it is first touched, once per process. A full part is never changed in place, and LMDB
never moves a large value, so its address holds in later snapshots too, until the map moves
(``env.moved``) or parts are removed (``state.shape``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ...errors import DamagedError
from ..lmdb.reader import Reader
from ..lmdb.writer import Writer
from . import records
from .columns import BLOCK_ROWS, CHUNK_ROWS, Column, RowNumbers, Values


class Rows:
    """A column in one snapshot: rows by number. Valid as long as its transaction, or until it writes."""

    def __init__(self, column: Column, source: Reader | Writer) -> None:
        self.column = column
        self.source = source
        known = _known(column, source)
        self.starts, self.counts, self.count = known.starts, known.counts, known.count
        self.addresses, self.verified, self.checksums = known.addresses, known.verified, known.checksums

    @classmethod
    def all(cls, column: Column, source: Reader | Writer) -> Rows:
        """The column, with as many rows as the state says; DamagedError for any other number."""
        rows, state = cls(column, source), source.state
        if rows.count != state.stored:
            raise DamagedError(f"{column.what}: {rows.count} rows, expected {state.stored}; {records.REMEDY}")
        # Behind the last row there can only be chunks that were given back.
        end = int(rows.starts[-1]) + int(rows.counts[-1]) if len(rows.starts) else 0
        if end < state.rows and state.rows % CHUNK_ROWS:
            raise DamagedError(f"{column.what}: rows up to {end}, expected {state.rows}; {records.REMEDY}")
        return rows

    def numbers(self) -> RowNumbers:
        """The numbers of all rows, deleted ones included."""
        return _ranges(self.starts, self.counts)

    def runs(self) -> list[tuple[int, int]]:
        """Ranges of rows, first and end, that follow each other without a gap."""
        runs: list[tuple[int, int]] = []
        for start, count in zip(self.starts.tolist(), self.counts.tolist(), strict=True):
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], start + count)
            else:
                runs.append((start, start + count))
        return runs

    def payload(self, first: int) -> tuple[memoryview, int]:
        """The payload of a record that has been verified, and its number of rows, maybe more than the snapshot has."""
        value = memoryview(self.source.get(self.column.db, self.column.key(first)))
        return value[records.HEADER_SIZE :], records.peek(value, self.column.what)[0]

    def touch_all(self) -> None:
        """Verify all records that nobody in this process has touched before."""
        column = self.column
        begins, ends = _parts(column, self.starts.astype(np.int64))
        full = (self.starts == begins) & (self.counts == ends - begins) & (ends - begins > column.piece_rows)
        todo = np.flatnonzero(~self.verified & full)
        if column.blocked and len(todo):
            # All full parts in one go; where one fails, it is looked at again below, which tells why.
            done = _records.verify(
                self.addresses[todo],
                self.starts[todo],
                self.counts[todo],
                column.kind[0],
                column.width,
                column.generation,
                column.head,
            )
            self.verified[todo[:done]] = True
        for i in np.flatnonzero(~self.verified).tolist():
            self._verify(i)

    def touch(self, rows: RowNumbers) -> None:
        """Verify the records of ``rows`` that nobody in this process has touched before."""
        if _records.touched(self.starts, self.verified.view(np.uint8), rows):
            return
        wanted = np.zeros(len(self.starts) + 1, np.bool_)
        wanted[np.searchsorted(self.starts, rows, side="right")] = True
        for i in np.flatnonzero(wanted[1:] & ~self.verified).tolist():
            self._verify(i)

    def _verify(self, i: int) -> None:
        """Record ``i`` is what belongs there, and holds the rows it should."""
        first = int(self.starts[i])
        count, _ = self.column.check(self.source.get(self.column.db, self.column.key(first)), first)
        if count < int(self.counts[i]):
            raise DamagedError(f"{self.column.what} from row {first} on: it has only {count} rows; {records.REMEDY}")
        self.verified[i] = True

    def gather(self, rows: RowNumbers) -> Values:
        """Copies of these rows, in this order."""
        rows = np.ascontiguousarray(rows, np.uint32)
        if not len(rows) and self.column.listed:
            return []
        self.touch(rows)
        arrays = (self.starts, self.counts, self.addresses, rows)
        try:
            if self.column.ints:
                return _records.gather_ints(*arrays)
            if self.column.width:
                return _records.gather(*arrays, self.column.width, self.column.head)
            return self.column.pick(self, rows)
        except LookupError as error:
            raise DamagedError(f"{self.column.what}: {error}; {records.REMEDY}") from error
        except UnicodeDecodeError as error:
            raise DamagedError(f"{self.column.what}: an id is not UTF-8; {records.REMEDY}") from error


@dataclass
class KnownRows:
    """The records of a column, and how far they are known to stay."""

    starts: RowNumbers
    counts: RowNumbers
    #: How many rows they hold together.
    count: int
    addresses: NDArray[np.uint64]
    verified: NDArray[np.bool_]
    #: Checksums of the records, 0 where one was not looked at: they tell an old record from a new one.
    checksums: NDArray[np.uint64]
    #: Which snapshot this is, and what voids the addresses of full parts.
    txn: int
    moved: int
    shape: int
    #: How many leading records are full parts, and the row after them.
    settled: int
    settled_rows: int


def _known(column: Column, source: Reader | Writer) -> KnownRows:
    env, state = source.env, source.state
    old = env.known.columns.get(column, _NOTHING)
    # A snapshot older than the last one seen may have fewer parts: look at all of it.
    if old.shape != state.shape or old.settled_rows > state.rows:
        old = _NOTHING
    if old.moved == env.moved and old.txn == state.txn and source.clean:
        return old
    fresh = _look_up(column, source, old)
    if source.clean:
        env.known.columns[column] = fresh
    return fresh


def _look_up(column: Column, source: Reader | Writer, old: KnownRows) -> KnownRows:
    """The records after the settled ones, by their keys; of full parts nothing else is read."""
    state = source.state
    # Where the map has moved, all have other addresses.
    keep, settled = (old.settled, old.settled_rows) if old.moved == source.env.moved else (0, 0)
    names, values = _entries(column, source, settled)
    addresses, sizes = _records.places(values)
    firsts = np.frombuffer(b"".join(names), ">u4").astype(np.int64)
    begins, ends = _parts(column, firsts)
    counts, checksums = ends - begins, np.zeros(len(firsts), np.uint64)
    full = (firsts == begins) & (counts > column.piece_rows) & _fits(column, sizes - records.HEADER_SIZE, counts)
    pieces = np.flatnonzero(~full)
    tail = [*map(values.__getitem__, pieces.tolist())]
    counts[pieces], checksums[pieces] = _measure(column, tail, firsts[pieces], sizes[pieces])
    seen = np.minimum(counts, state.rows - firsts)
    before = np.concatenate([[settled], firsts + seen])[:-1]
    wrong = (
        (firsts < before) | (counts < 1) | (counts > ends - firsts) | ((firsts > before) & (before % CHUNK_ROWS != 0))
    )
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DamagedError(f"{column.what}: rows from {firsts[i]} on do not follow row {before[i]}; {records.REMEDY}")
    # Full parts without a gap of pieces between them stay where they are: LMDB gives a value that would fill half a
    # page pages of its own.
    whole = (firsts == begins) & (firsts + seen == ends) & (sizes > source.file.page_size // 2)
    run = int(np.argmin(whole)) if not whole.all() else len(whole)
    starts = np.concatenate([old.starts[:keep], firsts.astype(np.uint32)])
    checksums = np.concatenate([old.checksums[:keep], checksums])
    all_counts = np.concatenate([old.counts[:keep], seen.astype(np.uint32)])
    return KnownRows(
        starts,
        all_counts,
        int(all_counts.sum()),
        np.concatenate([old.addresses[:keep], addresses + np.uint64(records.HEADER_SIZE)]),
        _still_verified(old, starts, all_counts, checksums),
        checksums,
        state.txn,
        source.env.moved,
        state.shape,
        keep + run,
        int(ends[run - 1]) if run else settled,
    )


def _still_verified(
    old: KnownRows, starts: RowNumbers, counts: RowNumbers, checksums: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Settled parts are as they were, wherever they lie; of the others those whose checksum was verified before."""
    n = min(len(starts), len(old.starts))
    verified, keep = np.zeros(len(starts), np.bool_), min(old.settled, n)
    settled = (starts[:keep] == old.starts[:keep]) & (counts[:keep] == old.counts[:keep])
    verified[:keep] = old.verified[:keep] & settled
    same = (starts[keep:n] == old.starts[keep:n]) & (checksums[keep:n] == old.checksums[keep:n])
    verified[keep:n] = old.verified[keep:n] & same & (checksums[keep:n] != 0)
    return verified


def _entries(column: Column, source: Reader | Writer, row: int) -> tuple[list[bytes], list[Any]]:
    """The first row of each record from ``row`` on, four bytes as in its key, and the values."""
    names: list[bytes] = []
    values: list[Any] = []
    cursor = source.cursor(column.db)
    end, size = column.key(source.state.rows), len(column.prefix) + 4
    if cursor.set_range(column.key(row)):
        for name, value in cursor.iternext():
            key = bytes(name)
            # (Keys of a column have one size, so an odd one belongs to nothing; check() tells of it.)
            if key >= end or len(key) != size:
                break
            names.append(key[-4:])
            values.append(value)
    cursor.close()
    return names, values


def _measure(
    column: Column, values: list[Any], firsts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """How many rows records that are no full parts hold, and their checksums."""
    counts, checksums, seen = _records.peek(values)
    if seen < len(values):
        records.decode(values[seen], column.what)  # which says what is wrong
    if column.width:
        sizes = sizes - records.HEADER_SIZE
        wrong = ~_fits(column, sizes, counts)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise DamagedError(
                f"{column.what} from row {firsts[i]} on: {sizes[i]} bytes cannot hold {counts[i]} rows; "
                f"{records.REMEDY}"
            )
    return counts, checksums


def _parts(column: Column, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As ``Column.part``, for many rows at once."""
    chunks = rows // CHUNK_ROWS * CHUNK_ROWS
    starts = chunks + (rows - chunks) // column.part_rows * column.part_rows
    return starts, np.minimum(starts + column.part_rows, chunks + CHUNK_ROWS)


def _fits(column: Column, sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether payloads of these sizes can be of so many rows each; never, for strings."""
    rows = (counts + BLOCK_ROWS - 1) // BLOCK_ROWS * BLOCK_ROWS if column.blocked else counts
    fit: NDArray[np.bool_] = (sizes == column.width * rows) & np.bool_(column.width > 0)
    return fit | (sizes == 4 * rows) if column.ints else fit


_NOTHING = KnownRows(
    np.empty(0, np.uint32),
    np.empty(0, np.uint32),
    0,
    np.empty(0, np.uint64),
    np.empty(0, np.bool_),
    np.empty(0, np.uint64),
    -1,
    -1,
    0,
    0,
    0,
)


def _ranges(starts: RowNumbers, counts: RowNumbers) -> RowNumbers:
    """All numbers of the ranges, one after another."""
    total = int(counts.sum())
    if total and int(starts[-1]) + int(counts[-1]) - int(starts[0]) == total:
        return np.arange(starts[0], int(starts[0]) + total, dtype=np.uint32)
    offsets = np.repeat(starts.astype(np.int64) - (np.cumsum(counts, dtype=np.int64) - counts), counts)
    return (offsets + np.arange(total)).astype(np.uint32)
