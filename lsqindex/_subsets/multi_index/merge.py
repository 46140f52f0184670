"""What is listed when: fresh rows become posting lists, in the transaction that adds them or by ``Index.merge``.

    fresh rows fill a unit      → a block of the units that are full
    fresh rows fill a segment   → one block, in the place of those that the segment had
    merge()                     → also a last block that ends within a unit; the next one takes its place

So a row is listed twice at most, and an add writes lists in proportion to what it adds, whatever is stored. What a
transaction lists is bounded; what is left stays fresh, is scanned, and the next ones list it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..._storage.format import keys, records
from ..._storage.format.columns import CHUNK_ROWS, codes_column
from ..._storage.format.meta import State, Subset, read_subset
from ..._storage.format.upgrade import upgrade
from ..._storage.lmdb.writer import COMMIT_BYTES, Writer
from ...errors import Committed, DamagedError, add_note
from . import postings

#: ``progress(rows listed, rows in all)``
Progress = Callable[[int, int], None]


def list_fresh(writer: Writer, changed: int) -> None:
    """List rows that fill units, in the open transaction, after ``changed`` rows were changed in it.

    Twice of these, and a segment: so what an earlier transaction left is caught up with, but not all at once.
    """
    subset = _tables(writer)
    if subset is not None:
        _list(writer, subset, min(postings.SEGMENT_ROWS + 2 * changed, _rows_at_once(subset)), everything=False)


def catch_up(writer: Writer, *, everything: bool = False, progress: Progress | None = None) -> None:
    """List all that fills units, or ``everything``, in as many transactions as it takes, and commit.

    The first is the one that is open; none is open afterwards. ``progress`` is called before each commit: if it raises,
    that transaction is undone. Stopped in between, the rest is still fresh, and the next writer goes on.
    """
    committed = 0
    try:
        while (subset := _tables(writer)) is not None and _next(writer.state, everything) is not None:
            rows = _rows_at_once(subset)
            writer.run(partial(_list_some, subset, rows, everything))
            state = writer.state
            if progress is not None:
                progress(state.listed, state.rows)
            writer.commit()
            committed = state.listed
            writer.begin(min(rows, state.rows - state.listed) * postings.bytes_a_row(subset))
        writer.commit()
    except BaseException as error:
        if committed:
            add_note(error, f"{committed} rows were listed before this, and stay so; merge() lists the others")
        raise


def settle(writer: Writer) -> None:
    """As :func:`catch_up`, after a change that is durable: what cannot be listed now (a full disk) stays fresh."""
    with Committed("the change was committed"):
        writer.begin()
        catch_up(writer)
    writer.abort()


def put_subset(writer: Writer, subset: Subset | None) -> None:
    """Store a subset structure, or none, in the place of what there was; nothing is listed in it yet."""
    upgrade(writer)
    clear(writer)
    if subset is not None:
        writer.put(keys.META, keys.SUBSET, subset.to_record())
    elif writer.get(keys.META, keys.SUBSET) is not None:
        writer.delete(keys.META, keys.SUBSET)


def clear(writer: Writer) -> None:
    """Remove all posting lists: all rows are fresh."""
    if writer.state.listed:
        postings.remove(writer)
        writer.state.listed = 0
        writer.state.relisted += 1


def give_back(writer: Writer, chunk: int) -> None:
    """A listed chunk is gone: where at most half of what its block names is still there, make the block anew."""
    state, row = writer.state, chunk * CHUNK_ROWS
    subset = _tables(writer)
    if subset is None or row >= state.listed:
        return
    first, end, named = _block(writer, row)
    stored = sum(
        min(start + CHUNK_ROWS, end) - start
        for start in range(first, end, CHUNK_ROWS)
        if writer.get(keys.CODES, codes_column(state).key(start)) is not None
    )
    if 2 * stored <= named:
        postings.write(writer, subset, first, end)
        if _segment_end(first) <= state.listed:
            state.relisted += 1


def _block(writer: Writer, row: int) -> tuple[int, int, int]:
    """First row, end and count of the block that lists ``row``."""
    state, cursor = writer.state, writer.cursor(keys.POSTINGS)
    after = keys.postings(state.generation, row + 1)
    found = cursor.set_range(after)
    next_place = keys.postings_of(bytes(cursor.key())) if found else None
    place = keys.postings_of(bytes(cursor.key())) if (cursor.prev() if found else cursor.last()) else None
    if place is None or place[0] != state.generation or _segment_end(place[1]) <= row:
        raise DamagedError(f"posting lists: none for row {row}, which is listed; {records.REMEDY}")
    cursor.close()
    first = place[1]
    end = min(_segment_end(first), state.listed, next_place[1] if next_place else state.listed)
    count, _ = records.peek(writer.get(keys.POSTINGS, keys.postings(state.generation, first)), "posting lists")
    return first, end, count


def _tables(writer: Writer) -> Subset | None:
    """The subset structure, where rows can be listed in it."""
    subset = read_subset(writer)
    return subset if subset is not None and subset.tables else None


def _list_some(subset: Subset, rows: int, everything: bool, writer: Writer) -> None:
    _list(writer, subset, rows, everything=everything)


def _list(writer: Writer, subset: Subset, rows: int, *, everything: bool) -> None:
    """List blocks, one after another, of about ``rows`` rows together."""
    state = writer.state
    while rows > 0 and (block := _next(state, everything)) is not None:
        first, end = block
        postings.write(writer, subset, first, end)
        rows -= end - first
        state.listed = end


def _next(state: State, everything: bool) -> tuple[int, int] | None:
    """The rows of the next block to be written; None where nothing is due."""
    unit = postings.UNIT_ROWS
    begin, full = state.listed // unit * unit, state.rows // unit * unit
    segment = _segment_end(begin)
    if full >= segment:
        return segment - postings.SEGMENT_ROWS, segment
    if full > begin:
        return begin, full
    return (begin, state.rows) if everything and state.rows > state.listed else None


def _segment_end(row: int) -> int:
    return (row // postings.SEGMENT_ROWS + 1) * postings.SEGMENT_ROWS


def _rows_at_once(subset: Subset) -> int:
    """About how many rows one transaction lists."""
    return max(1, COMMIT_BYTES // postings.bytes_a_row(subset))
