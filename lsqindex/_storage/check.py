"""Everything in a file, looked at: what ``Index.check`` reports.

Each part is checked on its own, so that one damaged record does not hide another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from ..errors import LsqIndexError
from .format import deleted, keys, large_payloads, sorted_ids
from .format.columns import CHUNK_ROWS, Column, RowNumbers, ids_column
from .format.meta import Options, check_format, read_training
from .format.rows import Rows
from .lmdb.reader import Reader
from .store import Store


def problems(reader: Reader, options: Options) -> list[str]:
    """What is wrong in a snapshot; nothing, if it is sound. Everything is looked at again."""
    reader.file.check_pages(reader.txn)
    reader.env.forget()
    return list(_problems(reader, options))


def _problems(reader: Reader, options: Options) -> Iterator[str]:
    store = Store(reader, options)
    found: list[str] = []
    _try(found, partial(_format, reader, options))
    for column in store.columns():
        _try(found, partial(_column, reader, column))
    _try(found, partial(_next_codes, reader, store))
    _try(found, partial(_strangers, reader, store))
    # What follows reads columns, so they must be sound.
    if not found and _try(found, partial(_deleted, store)):
        _try(found, partial(_sorted, store, options))
        _try(found, partial(_large, store))
    yield from found


def _try(found: list[str], check: Callable[[], Iterator[str]]) -> bool:
    before = len(found)
    try:
        found.extend(check())
    except LsqIndexError as error:
        found.append(str(error))
    return len(found) == before


def _format(reader: Reader, options: Options) -> Iterator[str]:
    """The fields of the state are those of the file's format; with indexed fields there are payloads."""
    number = check_format(reader.get(keys.META, keys.OPTIONS))["format"]
    if number != reader.state.format:
        yield f"state: has format {reader.state.format}, but the file has format {number}"
    if options.fields and not reader.state.payloads:
        yield "state: says that there are no payloads, but the options name indexed fields"


def _column(reader: Reader, column: Column) -> Iterator[str]:
    """Every record of a column: verified, whole, and as many rows as there should be."""
    rows = Rows.all(column, reader)
    state = reader.state
    yield from _records(reader, rows, max(state.rows, state.staged_rows))
    if column.listed:
        # Every string must be UTF-8, every value msgpack; all of them at once may be more than memory holds.
        numbers = rows.numbers()
        for first in range(0, len(numbers), column.part_rows):
            rows.gather(numbers[first : first + column.part_rows])


def _records(reader: Reader, rows: Rows, most: int) -> Iterator[str]:
    """Every record of a column is verified and whole, and has no row beyond ``most``."""
    column = rows.column
    for i in range(len(rows.starts)):
        first = int(rows.starts[i])
        count, _ = column.check(reader.get(column.db, column.key(first)), first)
        if first + count > most:
            yield f"{column.what}: has rows up to {first + count}, but the index ends before row {most}"
        if count < rows.counts[i]:
            yield f"{column.what}: {count} rows from row {first} on, expected {int(rows.counts[i])}"


def _next_codes(reader: Reader, store: Store) -> Iterator[str]:
    """The codes that are being rewritten: one for each stored row below ``recoded``, and no other."""
    column, state = store.next_codes(), reader.state
    there = [reader.get(keys.META, key) is not None for key in (keys.NEXT_ENCODER, keys.NEXT_TRAINING)]
    if there != [column is not None] * 2:
        yield "next encoder: stored although no codes are being rewritten, or missing although some are"
    read_training(reader)
    read_training(reader, keys.NEXT_TRAINING)
    if column is not None:
        rows = Rows(column, reader)
        yield from _records(reader, rows, state.recoded)
        ids = store.ids().numbers()
        if not np.array_equal(rows.numbers(), ids[ids < state.recoded]):
            yield f"codes being rewritten: they are not those of the rows below {state.recoded}"


def _strangers(reader: Reader, store: Store) -> Iterator[str]:
    """Keys that belong to nothing."""
    state = store.state
    known = {column.prefix for column in store.columns()}
    if state.staged_generation:
        known.add(keys.codes_prefix(state.staged_generation))
    if state.next_generation:
        known.add(keys.codes_prefix(state.next_generation))
    names = {keys.OPTIONS, keys.STATE, keys.ENCODER}
    names |= {keys.SUBSET} if state.format >= 2 else set()
    names |= {keys.TRAINING, keys.NEXT_ENCODER, keys.NEXT_TRAINING} if state.format >= 4 else set()
    for db in reader.dbs:
        for name in reader.cursor(db).iternext(keys=True, values=False):
            key = bytes(name)
            if db == keys.META:
                fine = key in names or (state.cells > 0 and len(key) == 11 and key.startswith(keys.ANSWERS))
            elif db == keys.POSTINGS:
                place = keys.postings_of(key)
                fine = place is not None and place[0] == state.generation and place[1] < state.listed
                fine = fine and not state.cells
            elif db == keys.CELLS:
                fine = keys.is_cell(key) and state.cells > 0
            elif db == keys.PAYLOADS and key.startswith(keys.large_prefix()):
                number = keys.large_of(key)
                fine = number is not None and number < state.next_large
            elif db == keys.IDS and key.startswith(keys.SORTED):
                fine = True
            elif db == keys.CODES and key.startswith(b"d"):
                fine = len(key) == 5
            else:
                fine = key[:-4] in known and keys.row_of(key) < max(state.rows, state.staged_rows)
            if not fine:
                yield f"{db.decode()}: unknown entry {key!r}"


def _large(store: Store) -> Iterator[str]:
    """Large payloads are sound, as many as the state says, and each is that of one row, living or written ahead."""
    state = store.state
    there = [] if keys.PAYLOADS not in store.source.dbs else list(large_payloads.numbers(store.source))
    if len(there) != state.large:
        yield f"large payloads: {len(there)} are stored, expected {state.large}"
    wanted = store.large_payloads(store.living()) if state.payloads else []
    if sorted([*wanted, *range(state.next_large - state.staged_large, state.next_large)]) != there:
        yield "large payloads: they are not those that rows refer to"


def _deleted(store: Store) -> Iterator[str]:
    """Deleted rows exist, and as many as the state says."""
    rows = store.ids().numbers()
    total = 0
    for segment, bits in deleted.segments(store.source):
        flags = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        marked = segment * deleted.SEGMENT_ROWS + flags
        total += len(marked)
        if not np.isin(marked, rows).all():
            yield f"deleted rows of segment {segment}: a row is marked that does not exist"
    if total != store.state.stored - store.state.count:
        yield f"deleted rows: {total} are marked, expected {store.state.stored - store.state.count}"


def _sorted(store: Store, options: Options) -> Iterator[str]:
    """Sorted ids hold each living row once, rise through all blocks, and fit their keys."""
    column = Rows.all(ids_column(options.ids), store.source)
    blocks = list(sorted_ids.blocks(store.source))
    everything: RowNumbers = np.concatenate([rows for _, rows in blocks]) if blocks else np.empty(0, np.uint32)
    if not np.array_equal(np.sort(everything), store.living()):
        yield "sorted ids: they do not name every row that is not deleted exactly once"
        return
    if blocks and blocks[0][0] != keys.SORTED:
        yield "sorted ids: the first block is missing"
    before: bytes | None = None
    for key, rows in blocks:
        ids = column.gather(rows)
        names = (
            [keys.sorted_int(value) for value in ids.tolist()]
            if isinstance(ids, np.ndarray)
            else [keys.sorted_str(value.encode()) for value in ids]
        )
        if names and (names[0] < key or (before is not None and names[0] <= before)):
            yield f"sorted ids: block {key!r} begins before its key or its predecessor's end"
        if any(a >= b for a, b in pairwise(names)):
            yield f"sorted ids: block {key!r} is not sorted"
        before = names[-1] if names else before
        if not names and key != keys.SORTED:
            yield f"sorted ids: block {key!r} is empty"
        if len(rows) > CHUNK_ROWS:
            yield f"sorted ids: block {key!r} is too large"
