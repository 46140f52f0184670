"""From an id to its row: rows sorted by their ids, in blocks of at most 4,064.

A block holds only row numbers, four bytes each; the ids they are sorted by are in the ids column. A look-up
finds the block by its key, the first id it may hold, and then searches by halves. Half the size of keeping
the ids twice, and one entry of LMDB's tree per some thousand ids. Where rows follow each other, as they do
when ids only grow, a block is the first row and their number: no payload at all.

    key "s"         rows of the smallest ids
    key "s" id      rows of the ids from that one on

Every entry is of a row that is not deleted, so that each id is there exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ...errors import DamagedError
from ..lmdb.reader import Reader
from ..lmdb.writer import Writer
from . import keys, records
from .columns import CHUNK_ROWS, Column, RowNumbers, utf8
from .rows import Rows

BLOCK_IDS = CHUNK_ROWS

#: In a change: the id goes.
GONE = 0xFFFFFFFF

#: int64 array, or list of str; sorted ascending (strings by their UTF-8).
Ids = Any

#: Keys of blocks and what to store there; None removes.
Changes = list[tuple[bytes, bytes | None]]


def sort_order(ids: Ids) -> NDArray[np.intp]:
    """The order that sorts ids as the file does."""
    if isinstance(ids, np.ndarray):
        return np.argsort(ids, kind="stable")
    # UTF-8 sorts as code points do, and Python compares strings by these.
    return np.array(sorted(range(len(ids)), key=ids.__getitem__), np.intp)


def take(ids: Ids, order: NDArray[Any]) -> Ids:
    """``ids`` at these places."""
    return ids[order] if isinstance(ids, np.ndarray) else [ids[i] for i in order.tolist()]


def decode(value: Any, what: str = "sorted ids") -> RowNumbers:
    """The rows of a block."""
    found = _records.decode(value)
    if found:
        _, count, first, *_ = found
        size = len(value) - records.HEADER_SIZE
        if found == (records.SORTED, count, first, 0, 0, 0) and not size:
            if count <= BLOCK_IDS and first + count <= GONE:
                return np.arange(first, first + count, dtype=np.uint32)
        elif found == (records.SORTED, count, 0, 4, 0, 0) and size == 4 * count:
            return np.frombuffer(value, np.uint32, count, records.HEADER_SIZE).copy()
    raise records.damage(value, what)


def encode(rows: RowNumbers) -> bytes:
    """A block as stored: its rows, or only the first where they follow each other."""
    count = len(rows)
    first = int(rows[0]) if count else 0
    if count == 0 or (int(rows[-1]) - first == count - 1 and np.array_equal(rows, np.arange(first, first + count))):
        return _records.encode(records.SORTED, count, first, 0, 0, 0, b"")
    return _records.encode(records.SORTED, count, 0, 4, 0, 0, np.ascontiguousarray(rows, np.uint32).view(np.uint8))


@dataclass
class _Block:
    """The part of a sorted request that falls into one block."""

    key: bytes
    rows: RowNumbers
    begin: int
    end: int
    places: NDArray[np.int64]
    found: NDArray[np.bool_]
    last: bool


@dataclass(frozen=True)
class SortedIds:
    """Look-ups and planned changes in one snapshot, with its ids by row."""

    source: Reader | Writer
    ids: Rows

    def rows(self, ids: Ids) -> NDArray[np.int64]:
        """The row of each of ``ids``, in any order; -1 where there is none."""
        order = sort_order(ids)
        wanted = take(ids, order)
        found = np.full(len(ids), -1, np.int64)
        for block in self._blocks(wanted):
            places = block.places[block.found]
            found[order[block.begin : block.end][block.found]] = block.rows[places]
        return found

    def plan(self, ids: Ids, rows: RowNumbers) -> tuple[Changes, NDArray[np.int64]]:
        """What to write so that ``ids`` (sorted, each once) have these rows; and the rows they have now, or -1.

        GONE removes an id. Nothing is written yet: planning reads, and a write may move what was read.
        """
        changes: Changes = []
        before = np.full(len(ids), -1, np.int64)
        for block in self._blocks(ids):
            before[block.begin : block.end][block.found] = block.rows[block.places[block.found]]
            now = rows[block.begin : block.end]
            if not (block.found | (now != GONE)).any():
                continue
            merged, new = _merge(block, now)
            if not len(merged) and block.key != keys.SORTED:
                changes.append((block.key, None))
                continue
            # Ids that come in rising order leave full blocks behind; others leave room.
            at_end = block.last and bool((block.places >= len(block.rows)).all())
            cuts = [(0, len(merged))] if len(merged) <= BLOCK_IDS else _cuts(len(merged), at_end)
            for begin, end in cuts:
                key = block.key if begin == 0 else self._key(merged, new, begin, ids, block)
                changes.append((key, encode(merged[begin:end])))
        return changes, before

    def _key(self, merged: RowNumbers, new: NDArray[np.int64], at: int, ids: Ids, block: _Block) -> bytes:
        """The key of a block that begins with entry ``at``: its id is new, or in the column."""
        value = ids[block.begin + int(new[at])] if new[at] >= 0 else self.ids.gather(merged[at : at + 1])[0]
        return key_of([value] if isinstance(value, str) else np.array([value]))

    def _blocks(self, ids: Ids) -> Iterator[_Block]:
        """The blocks that sorted ``ids`` belong to, with their places in them."""
        cursor = self.source.cursor(keys.IDS)
        prefix = keys.SORTED
        begin = 0
        while begin < len(ids):
            # The last block that begins at or before the id.
            wanted = key_of(ids, begin)
            there = cursor.set_range(wanted)
            if not (there and bytes(cursor.key()) == wanted):
                there = cursor.prev() if there else cursor.last()
            key = bytes(cursor.key()) if there else b""
            if not key.startswith(prefix):  # no block yet: the first one will hold them all
                none = np.zeros(len(ids) - begin, np.int64)
                yield _Block(prefix, np.empty(0, np.uint32), begin, len(ids), none, none.astype(bool), True)
                return
            rows = decode(cursor.value())
            last = not cursor.next() or not bytes(cursor.key()).startswith(prefix)
            end = len(ids) if last else _search(ids, bytes(cursor.key()), begin)
            self.ids.touch(rows)
            places, found = self._find(rows, ids, begin, end)
            yield _Block(key, rows, begin, end, places, found, last)
            begin = end
        cursor.close()

    def _find(self, rows: RowNumbers, ids: Ids, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        column = (self.ids.starts, self.ids.counts, self.ids.addresses)
        try:
            if isinstance(ids, np.ndarray):
                return _records.find_ints(*column, rows, np.ascontiguousarray(ids[begin:end]))
            return _records.find_strings(*column, rows, *utf8(ids[begin:end]))
        except LookupError as error:
            raise DamagedError(f"sorted ids: {error}; {records.REMEDY}") from error


def plan_rising(source: Reader | Writer, column: Column, ids: NDArray[np.int64], rows: RowNumbers) -> Changes | None:
    """As :meth:`SortedIds.plan`, for rising int ids above all that there are; None where they are not above all.

    One look at the last block tells: ids that only grow, as those that the index gives itself do, need no search.
    """
    cursor = source.cursor(keys.IDS)
    key, block = b"s", np.empty(0, np.uint32)
    if cursor.last() and bytes(cursor.key())[:1] == key:  # sorted ids come after all others
        key, block = bytes(cursor.key()), decode(cursor.value())
    if len(block):
        last = int(block[-1])
        if not cursor.set_range(column.key(last + 1)) or not cursor.prev():
            raise DamagedError(f"sorted ids: row {last} is in no record; {records.REMEDY}")
        first = int.from_bytes(bytes(cursor.key())[-4:], "big")
        held = column.decode(cursor.value(), first)
        if not first <= last < first + len(held):
            raise DamagedError(f"sorted ids: row {last} is in no record; {records.REMEDY}")
        if held[last - first] >= ids[0]:
            return None
    cursor.close()
    merged = np.concatenate([block, rows])
    if len(merged) <= BLOCK_IDS:
        return [(key, encode(merged))]
    cuts = _cuts(len(merged), True)
    return [(key_of(ids, at - len(block)) if at else key, encode(merged[at:end])) for at, end in cuts]


def apply(writer: Writer, changes: Changes) -> None:
    """Write what was planned."""
    for key, value in changes:
        if value is None:
            writer.delete(keys.IDS, key)
        else:
            writer.put(keys.IDS, key, value)


def blocks(source: Reader | Writer) -> Iterator[tuple[bytes, RowNumbers]]:
    """All blocks, in the order of their ids."""
    cursor = source.cursor(keys.IDS)
    found = cursor.set_range(keys.SORTED)
    while found and bytes(cursor.key()).startswith(keys.SORTED):
        yield bytes(cursor.key()), decode(cursor.value())
        found = cursor.next()
    cursor.close()


def _merge(block: _Block, now: RowNumbers) -> tuple[RowNumbers, NDArray[np.int64]]:
    """The block with its changes made, and for each entry which of the changes it is (-1: an old one)."""
    rows = block.rows.copy()
    new = np.full(len(rows), -1, np.int64)
    numbers = np.arange(len(now))
    rows[block.places[block.found]] = now[block.found]
    new[block.places[block.found]] = numbers[block.found]
    fresh = ~block.found & (now != GONE)
    rows = np.insert(rows, block.places[fresh], now[fresh])
    new = np.insert(new, block.places[fresh], numbers[fresh])
    keep = rows != GONE
    return rows[keep], new[keep]


def _cuts(size: int, at_end: bool) -> list[tuple[int, int]]:
    """Where to cut a block of too many entries: full blocks where ids only grow, else equal ones."""
    count = -(-size // BLOCK_IDS)
    cuts = [min(size, i * BLOCK_IDS) if at_end else i * size // count for i in range(count + 1)]
    return list(pairwise(cuts))


def key_of(ids: Ids, at: int = 0) -> bytes:
    """The key of a block that begins with one of ``ids``."""
    return keys.sorted_int(int(ids[at])) if isinstance(ids, np.ndarray) else keys.sorted_str(ids[at].encode())


def _search(ids: Ids, key: bytes, begin: int) -> int:
    """The first of sorted ``ids`` from ``begin`` on that belongs to the block of ``key`` or after."""
    if isinstance(ids, np.ndarray):
        if len(key) != 9:
            raise DamagedError(f"sorted ids: a key of impossible size; {records.REMEDY}")
        return max(begin + 1, int(np.searchsorted(ids, keys.int_of(key), side="left")))
    low, high = begin, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if keys.sorted_str(ids[middle].encode()) < key else (low, middle)
    return max(begin + 1, low)
