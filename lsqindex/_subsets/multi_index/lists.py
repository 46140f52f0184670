"""Posting lists as a snapshot has them: found by their keys, verified once, and known again in later snapshots.

A block of a full segment is never changed in place, and LMDB never moves a large value, so its addresses hold in later
snapshots, too, until the map moves (``env.moved``) or such blocks are removed or replaced (``state.relisted``). Those
of the last segment are looked for in every snapshot, at most four; what is in them is verified when it is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ..._storage.format import keys, records
from ..._storage.format.columns import RowNumbers
from ..._storage.format.rows import Rows
from ..._storage.lmdb.known import Slot
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ...errors import DamagedError
from . import postings
from .tables import Tables


@dataclass(frozen=True)
class Lists:
    """All posting lists of a snapshot, where they lie; they are good as long as its transaction."""

    #: Per block: its first row; how many rows its lists name; how many row numbers it spans.
    firsts: RowNumbers
    counts: RowNumbers
    spans: RowNumbers
    #: Per block and table: where the payload begins.
    addresses: NDArray[np.uint64]
    #: Per table: its first bit in the code, and how many.
    first_bits: NDArray[np.int64]
    bits: NDArray[np.int64]
    #: Rows below are in these lists, as far as they are stored; from here on they are fresh.
    listed: int


@dataclass
class _Known:
    """The blocks of a snapshot, and how far they are known to stay."""

    lists: Lists
    #: Which snapshot, and what voids addresses: where the map was, and which lists these are.
    txn: int
    moved: int
    valid: tuple[Any, ...]
    #: How many leading blocks stay where they are, and the row after them.
    settled: int = 0
    settled_rows: int = 0
    #: What was verified: sizes, spans and checksums by key.
    verified: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)


_LISTS: Slot[_Known] = Slot("posting lists")


def find(source: Reader | Writer, tables: Tables, codes: Callable[[], Rows]) -> Lists:
    """The posting lists of a snapshot with these tables, whose codes ``codes`` gives."""
    env, state = source.env, source.state
    old = env.known.get(_LISTS)
    if old and source.clean and (old.txn, old.moved, old.valid[-1]) == (state.txn, env.moved, tables):
        return old.lists
    valid = (state.relisted, state.generation, tables)
    if old and (old.valid != valid or old.settled_rows > state.listed):
        old = None
    known = _look_up(source, tables, old or _nothing(tables, valid))
    _check_rows(known.lists, codes())
    if source.clean:
        env.known.keep(_LISTS, known)
    return known.lists


def _look_up(source: Reader | Writer, tables: Tables, old: _Known) -> _Known:
    """The blocks after the settled ones."""
    state, width = source.state, len(tables)
    # Where the map has moved, all have other addresses.
    moved = source.env.moved
    keep, settled = (old.settled, old.settled_rows) if old.moved == moved else (0, 0)
    firsts, counts, values = _entries(source, tables, settled)
    ends = np.append(firsts[1:], state.listed)
    spans = np.minimum(ends, firsts // postings.SEGMENT_ROWS * postings.SEGMENT_ROWS + postings.SEGMENT_ROWS) - firsts
    for i, (first, count, span) in enumerate(zip(firsts.tolist(), counts.tolist(), spans.tolist(), strict=True)):
        for table, value in enumerate(values[i * width : (i + 1) * width]):
            key = keys.postings(state.generation, first, table)
            seen = (len(value), span, records.peek(value, "posting lists")[1])
            if old.verified.get(key) != seen:
                postings.decode(value, postings.header(source, tables, first, table, count), span)
                old.verified[key] = seen
    addresses, sizes = _records.places(values)
    # What stays: full segments, in values too large for a page that others share.
    stays = firsts // postings.SEGMENT_ROWS < state.listed // postings.SEGMENT_ROWS
    stays &= (sizes.reshape(-1, width) > source.file.page_size // 2).all(axis=1)
    run = int(np.argmin(stays)) if not stays.all() else len(stays)
    lists = Lists(
        np.concatenate([old.lists.firsts[:keep], firsts.astype(np.uint32)]),
        np.concatenate([old.lists.counts[:keep], counts.astype(np.uint32)]),
        np.concatenate([old.lists.spans[:keep], spans.astype(np.uint32)]),
        np.concatenate([old.lists.addresses[:keep], addresses.reshape(-1, width) + np.uint64(records.HEADER_SIZE)]),
        old.lists.first_bits,
        old.lists.bits,
        state.listed,
    )
    rows = int(firsts[run - 1] // postings.SEGMENT_ROWS + 1) * postings.SEGMENT_ROWS if run else settled
    return _Known(lists, state.txn, moved, old.valid, keep + run, rows, old.verified)


def _entries(
    source: Reader | Writer, tables: Tables, row: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Any]]:
    """First row and count of each block from ``row`` on, and the records of all its tables."""
    firsts: list[int] = []
    counts: list[int] = []
    values: list[Any] = []
    state, width = source.state, len(tables)
    for key, value in entries(source, row):
        place = keys.postings_of(key)
        block, table = divmod(len(values), width)
        count, _ = records.peek(value, "posting lists")
        if table == 0 and place is not None:
            firsts.append(place[1])
            counts.append(count)
        if place != (state.generation, firsts[block] if block < len(firsts) else -1, table) or count != counts[block]:
            raise DamagedError(f"posting lists: {key!r} does not follow; {records.REMEDY}")
        values.append(value)
    if len(values) % width:
        raise DamagedError(f"posting lists from row {firsts[-1]} on: a table is missing; {records.REMEDY}")
    found = np.array(firsts, np.int64)
    if len(found) and (int(found[-1]) >= state.listed or (found % postings.UNIT_ROWS).any()):
        raise DamagedError(f"posting lists: a block begins where none can; {records.REMEDY}")
    return found, np.array(counts, np.int64), values


def entries(source: Reader | Writer, row: int = 0) -> list[tuple[bytes, Any]]:
    """Keys and values of all posting lists of this generation from ``row`` on, and of whatever is behind them."""
    found = []
    cursor = source.cursor(keys.POSTINGS)
    if cursor.set_range(keys.postings(source.state.generation, row)):
        found = [(bytes(key), value) for key, value in cursor.iternext()]
    cursor.close()
    return found


def _check_rows(lists: Lists, codes: Rows) -> None:
    """Every stored row below ``listed`` must be in a block that names as many rows as it holds, or more."""
    firsts, spans = lists.firsts.astype(np.int64), lists.spans.astype(np.int64)
    starts = codes.starts.astype(np.int64)
    seen = np.concatenate([[0], np.cumsum(codes.counts, dtype=np.int64)])

    def below(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many rows are stored below each of ``rows``."""
        at = np.searchsorted(starts, rows, side="right")
        inside = rows - np.append(starts, 0)[at - 1]
        counts = np.append(codes.counts, 0).astype(np.int64)[at - 1]
        return np.where(at == 0, 0, seen[at - 1] + np.minimum(inside, counts))

    stored = below(firsts + spans) - below(firsts)
    missing = int(below(np.array([lists.listed]))[0]) - int(stored.sum())
    if missing or (lists.counts < stored).any():
        raise DamagedError(f"posting lists: not all of {lists.listed} listed rows are in them; {records.REMEDY}")


def _nothing(tables: Tables, valid: tuple[Any, ...]) -> _Known:
    rows = np.empty(0, np.uint32)
    first_bits, bits = np.array(tables.firsts, np.int64), np.array(tables.widths, np.int64)
    return _Known(Lists(rows, rows, rows, np.empty((0, len(tables)), np.uint64), first_bits, bits, 0), 0, -1, valid)
