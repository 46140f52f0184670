"""Posting lists as they are stored: for each block of rows and each table, which rows are in which bucket.

    row      0         16256     32512               65024
    segment  |────────────── segment 0 ─────────────|──────── segment 1 …
    blocks   |─────────────── one block ────────────|─ unit ──|─ unit ─|─ last …      ← fresh rows follow

A *unit* is four chunks, a *segment* four units. Blocks begin with units; a segment that is full is one block. Only
the last block of all may end within a unit (``Index.merge`` makes such). A block is a record a table, and what
is in one ``cython_src/lists.h`` tells. Rows of a chunk that was given back are not there any more, though lists may
still name them.

``structure.py`` decides what is listed when, ``lists.py`` finds the lists in a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import multi_index as _multi_index
from ..._compiled import records as _records
from ..._storage.format import deleted, keys, records
from ..._storage.format.columns import CHUNK_ROWS, RowNumbers, codes_column
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ...errors import DamagedError
from .tables import Tables

UNIT_ROWS = 4 * CHUNK_ROWS
SEGMENT_ROWS = deleted.SEGMENT_ROWS


@dataclass(frozen=True)
class CodeRecords:
    """Records of codes, verified, where they lie; until the transaction writes."""

    starts: RowNumbers
    counts: RowNumbers
    addresses: NDArray[np.uint64]


def code_records(source: Reader | Writer, first: int, end: int) -> CodeRecords:
    """The records that hold the rows from ``first``, where a chunk begins, to ``end``: found without the others."""
    column = codes_column(source.state)
    found: list[tuple[int, int, int]] = []
    cursor, at = source.cursor(column.db), first
    there = cursor.set_range(column.key(first))
    while there and column.key(first) <= bytes(cursor.key()) < column.key(end):
        start, value = keys.row_of(bytes(cursor.key())), cursor.value()
        count, _ = column.check(value, start)
        if start < at:
            raise DamagedError(f"{column.what}: rows from {start} on are stored twice; {records.REMEDY}")
        at = start + count
        found.append((start, min(count, source.state.rows - start), _records.address(value) + records.HEADER_SIZE))
        there = cursor.next()
    cursor.close()
    starts, counts, addresses = zip(*found, strict=True) if found else ((), (), ())
    return CodeRecords(np.array(starts, np.uint32), np.array(counts, np.uint32), np.array(addresses, np.uint64))


def build(source: Reader | Writer, tables: Tables, first: int, end: int) -> list[tuple[int, NDArray[np.uint8]]]:
    """Count and payload of each table, for the stored rows of the block from ``first`` to ``end``."""
    codes, state = code_records(source, first, end), source.state
    column = (codes.starts, codes.counts, codes.addresses, state.code_size, state.head)
    runs = zip(tables.firsts, tables.widths, strict=True)
    return [_multi_index.build(*column, bit, width, first, end) for bit, width in runs]


def header(source: Reader | Writer, tables: Tables, first: int, table: int, count: int) -> records.Header:
    """What the record of a table says about itself."""
    return records.Header(records.POSTINGS, count, first, tables.widths[table], source.state.generation, table)


def write(writer: Writer, tables: Tables, first: int, end: int) -> None:
    """List the stored rows from ``first`` to ``end`` as one block, in the place of all blocks there were."""
    # All of them are made before the first is written: a write may move what they are made from.
    lists = build(writer, tables, first, end)
    remove(writer, first, end)
    for table, (count, payload) in enumerate(lists):
        if count:
            record = records.encode(header(writer, tables, first, table, count), payload)
            writer.put(keys.POSTINGS, keys.postings(writer.state.generation, first, table), record)


def remove(writer: Writer, first: int = 0, end: int | None = None) -> None:
    """Remove all blocks that begin within these rows; by default all there are, of whatever generation."""
    generation = writer.state.generation
    begin = keys.postings_prefix() if end is None else keys.postings(generation, first)
    cursor = writer.cursor(keys.POSTINGS)
    found = cursor.set_range(begin)
    while found and (end is None or bytes(cursor.key()) < keys.postings(generation, end)):
        writer.guard(cursor.key(), cursor.value())
        writer.clean = False
        found = cursor.delete()
    cursor.close()


def decode(value: Any, wanted: records.Header, span: int) -> memoryview:
    """The payload of a record of posting lists, checked: it is what its key says, and ``sound`` in all it holds."""
    what = f"posting lists of table {wanted.head} from row {wanted.first} on"
    found, payload = records.decode(value, what)
    if found != wanted:
        raise DamagedError(f"{what}: the record of something else ({found}); {records.REMEDY}")
    if not _multi_index.sound(payload, wanted.count, wanted.width, span):
        raise DamagedError(f"{what}: impossible lists; {records.REMEDY}")
    return payload


def buckets(payload: Any, count: int, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bucket of each posting of a sound payload, and its row, less the block's first."""
    data = np.frombuffer(payload, np.uint8)
    bins = 1 << min(bits, _DIRECTORY_BITS)
    starts = data[: 2 * (bins + 1)].view("<u2").astype(np.int64)
    rows = data[2 * (bins + 1) :][: 2 * count].view("<u2").astype(np.int64)
    numbers = np.repeat(np.arange(bins, dtype=np.int64), np.diff(starts))
    if bits > _DIRECTORY_BITS:
        low = data[2 * (bins + 1) + 2 * count :]
        numbers = (numbers << (bits - _DIRECTORY_BITS)) + low
    return numbers, rows


def bytes_a_row(tables: Tables) -> int:
    """About how much a listed row takes in the file."""
    return sum(3 if width > _DIRECTORY_BITS else 2 for width in tables.widths) + 1


#: A table has a start for every value of so many upper bits of its bucket numbers (cython_src/lists.h).
_DIRECTORY_BITS = 14
