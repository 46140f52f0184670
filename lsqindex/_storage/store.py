"""Rows in and out: what one operation of a write transaction does to all columns, ids and bits together.

    insert   ids → plan of sorted ids → columns get new rows → old rows of replaced ids are deleted
    delete   ids → rows → bits; a chunk with many deleted rows is given back: its living rows move to
             the end, as an update would move them, and its records go
    both     tell what a subset structure needs to follow: how many rows changed, which chunks are gone

A next generation of codes may be half written (``state.next_generation``): rows below ``state.recoded`` have a code in
it. New rows are not written to it; they come later than ``recoded`` and get their turn. A chunk that is given back is
removed from it as well.

A chunk is given back when a quarter of its rows are deleted, so a file that is updated for ever does not grow for
ever, and each deleted row pays for moving three. An operation gives back only so many chunks as its own size
allows: what a large delete leaves, later ones or compact() take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..errors import DamagedError, DuplicateIdError, NoVectorsError, ParameterError, UnknownIdError
from .format import deleted, keys, large_payloads, sorted_ids
from .format.columns import CHUNK_ROWS, Bytes, Column, RowNumbers, codes_column, codes_of, ids_column, vectors_column
from .format.meta import MAX_ROWS, Options
from .format.payload_columns import payload_columns
from .format.records import REMEDY
from .format.rows import Rows
from .format.sorted_ids import GONE, Ids, SortedIds
from .lmdb.growth import database_bytes
from .lmdb.reader import Reader
from .lmdb.writer import Writer

#: A full chunk with this share of deleted rows, or more, is given back.
DEAD_SHARE = 4

#: An operation moves at most about so much.
_MOVED_BYTES = 64 << 20

#: A list for the payloads and one for each indexed field, all of as many bytes as there are rows.
PackedPayloads = list[list[bytes]]

#: Numbers given to vectors without an id end here; larger ids are the user's own.
LAST_AUTO_ID = (1 << 62) - 1


@dataclass(frozen=True)
class NewRows:
    """Rows to be stored: ids, codes (n, code_size), and kept vectors as bytes (n, width) or None.

    ``payloads``: msgpack of each row's payload, then of its values of each indexed field; None without payloads.
    """

    ids: Ids
    codes: Bytes
    vectors: Bytes | None
    payloads: PackedPayloads | None = None


@dataclass(frozen=True)
class _Plan:
    """What makes new rows visible: changes of sorted ids, and rows that are replaced."""

    changes: sorted_ids.Changes
    replaced: RowNumbers
    count: int
    next_id: int


class Store:
    """An index's rows in one transaction."""

    def __init__(self, source: Reader | Writer, options: Options) -> None:
        self.source = source
        self.options = options
        #: Where the index stands in this transaction.
        self.state = source.state
        #: Whoever changes rows has a write transaction.
        self._writer = cast(Writer, source)

    # -- reading ------------------------------------------------------------------------------

    def codes(self) -> Rows:
        """The codes."""
        return Rows.all(codes_column(self.state), self.source)

    def ids(self) -> Rows:
        """The ids."""
        return Rows.all(ids_column(self.options.ids), self.source)

    def vectors(self) -> Rows:
        """The kept vectors."""
        kind = self.options.keep_vectors
        if kind is None:
            raise NoVectorsError("vectors: the index keeps none; create it with keep_vectors='float16'")
        return Rows.all(vectors_column(self.options.dim, kind), self.source)

    def payloads_of(self, rows: RowNumbers) -> list[bytes]:
        """The payloads of rows, as msgpack; nothing where a row has none."""
        if not self.state.payloads:
            return [b""] * len(rows)
        stored = Rows.all(payload_columns(0)[0], self.source).gather(rows)
        return large_payloads.read(self.source, stored) if self.state.large else stored

    def large_payloads(self, rows: RowNumbers) -> list[int]:
        """The numbers of the large payloads of rows."""
        column, numbers = Rows(payload_columns(0)[0], self.source), []
        for first in range(0, len(rows), CHUNK_ROWS):  # all payloads at once may be more than memory holds
            numbers += large_payloads.references(column.gather(rows[first : first + CHUNK_ROWS]))
        return numbers

    def field(self, number: int) -> Rows:
        """The values of an indexed field."""
        if not self.state.payloads:
            raise DamagedError(f"payloads: there are none, but fields of them are indexed; {REMEDY}")
        return Rows.all(payload_columns(len(self.options.fields))[1 + number], self.source)

    def rows_of(self, ids: Ids) -> NDArray[np.int64]:
        """The row of each id; -1 where the index does not hold it."""
        return SortedIds(self.source, self.ids()).rows(ids)

    def known_rows(self, ids: Ids) -> RowNumbers:
        """The row of each id; UnknownIdError where there is none."""
        rows = self.rows_of(ids)
        if (rows < 0).any():
            missing = ids[int(np.argmax(rows < 0))]
            missing = missing if isinstance(missing, str) else int(missing)
            raise UnknownIdError(f"id {missing!r} is not in the index ({int((rows < 0).sum())} of {len(ids)} are not)")
        return rows.astype(np.uint32)

    def ids_of(self, rows: RowNumbers) -> Ids:
        """The id of each row."""
        return self.ids().gather(rows)

    def next_codes(self) -> Column | None:
        """The generation of codes that is being written step by step; None where there is none."""
        state = self.state
        return codes_of(state.next_generation, state.next_size, state.next_head) if state.next_generation else None

    def fresh(self) -> int:
        """How many rows, deleted ones included, are not in the subset structure."""
        codes = self.codes()
        ends = codes.starts.astype(np.int64) + codes.counts
        return int(np.clip(ends - self.state.listed, 0, codes.counts).sum())

    def living(self) -> RowNumbers:
        """All rows that are not deleted, ascending."""
        rows = self.codes().numbers()
        return rows if self.state.count == self.state.stored else rows[~deleted.mask(self.source, rows)]

    # -- writing ------------------------------------------------------------------------------

    def columns(self) -> list[Column]:
        """All columns of the valid generation."""
        columns = [codes_column(self.state), ids_column(self.options.ids)]
        if self.options.keep_vectors:
            columns.append(vectors_column(self.options.dim, self.options.keep_vectors))
        if self.state.payloads:
            columns += payload_columns(len(self.options.fields))
        return columns

    def row_bytes(self) -> int:
        """About how much a row takes in the file."""
        source = self.source
        payloads = database_bytes(source, keys.PAYLOADS) if self.state.payloads else 0
        return sum(max(16, column.width) for column in self.columns()) + payloads // max(1, self.state.stored)

    def insert(self, rows: NewRows, *, upsert: bool = False) -> list[int]:
        """Store new rows; the chunks that were given back.

        DuplicateIdError, and nothing changed, where an id exists and ``upsert`` is off.
        """
        if not len(rows.codes):
            return []
        plan = self._plan(rows.ids, upsert=upsert)
        self.stage(self.state.rows, rows)
        return self._publish(plan)

    def stage(self, first: int, rows: NewRows, codes: Column | None = None) -> None:
        """Write rows that nobody sees yet, from row ``first`` on; ``codes``: a generation that is written ahead."""
        end = first + len(rows.codes)
        if end > MAX_ROWS:
            raise self._too_many()
        if rows.payloads is not None:
            self._begin_payloads()
        columns = [codes or codes_column(self.state), *self.columns()[1:]]
        values = [rows.codes, rows.ids, *([] if rows.vectors is None else [rows.vectors])]
        payloads = [[b""] * (end - first)] * (len(columns) - len(values))
        if rows.payloads is not None:
            payloads = [large_payloads.put(self._writer, rows.payloads[0]), *rows.payloads[1:]]
        for column, own in zip(columns, (*values, *payloads), strict=True):
            column.append(self._writer, first, own)
        self.state.staged_rows = end

    def _begin_payloads(self) -> None:
        """With the first payload: the rows that are there get none."""
        if not self.state.payloads:
            runs = self.ids().runs()
            self.state.payloads = 1
            for column in payload_columns(len(self.options.fields)):
                for first, end in runs:
                    column.append(self._writer, first, [b""] * (end - first))

    def publish(self, ids: Ids, *, upsert: bool) -> list[int]:
        """Make the staged rows, which have these ids, visible; the chunks that were given back."""
        return self._publish(self._plan(ids, upsert=upsert))

    def _plan(self, ids: Ids, *, upsert: bool) -> _Plan:
        """What making the next rows visible under these ids takes; DuplicateIdError as in ``insert``."""
        order = sorted_ids.sort_order(ids)
        wanted = sorted_ids.take(ids, order)
        rows = (self.state.rows + order).astype(np.uint32)
        if isinstance(wanted, np.ndarray) and wanted[0] >= self.state.next_id and wanted[-1] < LAST_AUTO_ID:
            # No id below that limit is as large as the next one: these are new.
            rising = sorted_ids.plan_rising(self.source, ids_column("int"), wanted, rows)
            if rising is not None:
                return _Plan(rising, np.empty(0, np.uint32), len(ids), int(wanted[-1]) + 1)
        lookup = SortedIds(self.source, self.ids())
        changes, old = lookup.plan(wanted, rows)
        if not upsert:
            _refuse(wanted, old)
        next_id = self.state.next_id
        if isinstance(ids, np.ndarray):
            low = wanted[wanted < LAST_AUTO_ID]
            next_id = max(next_id, int(low[-1]) + 1 if len(low) else 0)
        return _Plan(changes, old[old >= 0].astype(np.uint32), len(ids), next_id)

    def _publish(self, plan: _Plan) -> list[int]:
        state, first, replaced = self.state, self.state.rows, plan.replaced
        sorted_ids.apply(self._writer, plan.changes)
        state.rows = first + plan.count
        state.staged_rows = state.staged_large = 0
        state.stored += plan.count
        state.count += plan.count - len(replaced)
        state.next_id = plan.next_id
        if len(replaced):
            if state.large:
                large_payloads.remove(self._writer, self.large_payloads(replaced))
            deleted.mark(self._writer, replaced)
        chunks = {*range(first // CHUNK_ROWS, state.rows // CHUNK_ROWS), *(replaced // CHUNK_ROWS).tolist()}
        return self._give_back(chunks, plan.count) if chunks else []

    def refuse_known(self, ids: Ids) -> None:
        """DuplicateIdError where one of ``ids`` is in the index."""
        _refuse(ids, self.rows_of(ids))

    def delete(self, ids: Ids) -> tuple[int, list[int]]:
        """Delete those of ``ids``, sorted and each once, that exist; their number, and the chunks given back."""
        changes, old = SortedIds(self.source, self.ids()).plan(ids, np.full(len(ids), GONE, np.uint32))
        gone = old[old >= 0].astype(np.uint32)
        if not len(gone):
            return 0, []
        sorted_ids.apply(self._writer, changes)
        if self.state.large:
            large_payloads.remove(self._writer, self.large_payloads(gone))
        deleted.mark(self._writer, gone)
        self.state.count -= len(gone)
        return len(gone), self._give_back(set((gone // CHUNK_ROWS).tolist()), len(gone))

    def _give_back(self, chunks: set[int], changed: int) -> list[int]:
        """Give back those of the full ``chunks`` that hold too many deleted rows, after ``changed`` were changed.

        On the average a chunk is due for every 1,016 deleted rows; twice as many are allowed, but not more than one
        transaction should hold. Chunks without a living row cost nothing and always go.
        """
        flags: dict[int, NDArray[np.bool_]] = {}
        due = []
        for chunk in chunks:
            if chunk < self.state.rows // CHUNK_ROWS:
                flags[chunk] = deleted.chunk_flags(self.source, chunk)
                if DEAD_SHARE * int(flags[chunk].sum()) >= CHUNK_ROWS:
                    due.append(chunk)
        moved, given = 0, []
        budget = CHUNK_ROWS + 2 * DEAD_SHARE * changed
        if due:
            budget = min(budget, max(CHUNK_ROWS, _MOVED_BYTES // self.row_bytes()))
        for chunk in sorted(due, key=lambda chunk: (-int(flags[chunk].sum()), chunk)):
            living = (chunk * CHUNK_ROWS + np.flatnonzero(~flags[chunk])).astype(np.uint32)
            moved += len(living)
            if moved > budget:
                break
            self._move(chunk, living)
            given.append(chunk)
        return given

    def _move(self, chunk: int, living: RowNumbers) -> None:
        """Move the living rows of a full chunk to the end, and remove the chunk."""
        writer, state, first = self._writer, self.state, self.state.rows
        writer.moved_rows = True
        if first + len(living) > MAX_ROWS:
            raise self._too_many()
        moved = [Rows.all(column, self.source).gather(living) for column in self.columns()]
        changes: sorted_ids.Changes = []
        if len(living):
            ids = self.ids_of(living)
            order = sorted_ids.sort_order(ids)
            lookup = SortedIds(self.source, self.ids())
            changes, _ = lookup.plan(sorted_ids.take(ids, order), (first + order).astype(np.uint32))
        for column, values in zip(self.columns(), moved, strict=True):
            column.append(writer, first, values)
            column.remove(writer, chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
        self._forget_next(chunk)
        sorted_ids.apply(writer, changes)
        deleted.forget_chunk(writer, chunk)
        state.rows += len(living)
        state.stored += len(living) - CHUNK_ROWS
        state.shape += 1

    def _forget_next(self, chunk: int) -> None:
        """Remove a chunk from the next generation of codes, as far as it is there."""
        column, state = self.next_codes(), self.state
        first, end = chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS
        if column is not None and state.recoded > first:
            column.remove(self._writer, first, end)
            state.recoded = max(state.recoded, end)

    def replace_codes(self, code_size: int, head: int) -> Column:
        """Begin a generation of codes beside the valid one; its column."""
        self.state.staged_generation = self._new_generation()
        return codes_of(self.state.staged_generation, code_size, head)

    def begin_next(self, code_size: int, head: int) -> None:
        """Begin a generation of codes that later transactions fill step by step."""
        state = self.state
        state.next_generation = self._new_generation()
        state.next_size, state.next_head, state.recoded = code_size, head, 0

    def _new_generation(self) -> int:
        state = self.state
        return max(state.generation, state.staged_generation, state.next_generation) + 1

    def rows_to_recode(self, most: int) -> RowNumbers:
        """The next rows, at most ``most``, that have no code in the next generation yet.

        They follow each other without a gap.
        """
        ids = self.ids()
        at = int(np.searchsorted(ids.starts, self.state.recoded, side="right"))
        if at and int(ids.starts[at - 1]) + int(ids.counts[at - 1]) > self.state.recoded:
            at -= 1
        if at == len(ids.starts):
            return np.empty(0, np.uint32)
        begin = end = max(self.state.recoded, int(ids.starts[at]))
        for start, count in zip(ids.starts[at:].tolist(), ids.counts[at:].tolist(), strict=True):
            if start > end or end - begin >= most:
                break
            end = start + count
        return np.arange(begin, min(end, begin + most), dtype=np.uint32)

    def append_next(self, rows: RowNumbers, codes: Bytes) -> None:
        """Write the codes of rows, as :meth:`rows_to_recode` returned them, to the next generation."""
        column = self.next_codes()
        if column is not None and len(rows):
            column.append(self._writer, int(rows[0]), codes)
            self.state.recoded = int(rows[-1]) + 1

    def drop_next(self) -> None:
        """Give up the next generation of codes."""
        column, state, writer = self.next_codes(), self.state, self._writer
        if column is not None:
            column.remove(writer, 0, (1 << 32) - 1)
            self._end_next()
            # The number of this generation will be used again, and its records must not be taken for the new ones.
            state.shape += 1

    def _end_next(self) -> None:
        state, writer = self.state, self._writer
        state.next_generation = state.next_size = state.next_head = state.recoded = 0
        for key in (keys.NEXT_ENCODER, keys.NEXT_TRAINING):
            if writer.get(keys.META, key) is not None:
                writer.delete(keys.META, key)

    def publish_codes(self, column: Column) -> None:
        """Make a written generation the valid one, and remove the other. Nothing may be listed by the codes that go.

        A next generation that is not the one published is dropped.
        """
        old = codes_column(self.state)
        old.remove(self._writer, 0, (1 << 32) - 1)
        state = self.state
        if state.next_generation == column.generation:
            self._end_next()
        else:
            self.drop_next()
        state.generation, state.code_size, state.head = column.generation, column.width, column.head
        state.staged_generation = 0
        state.shape += 1

    def tidy(self) -> None:
        """Remove what an unfinished add or training left behind."""
        state = self.state
        if state.staged_rows:
            large_payloads.remove_staged(self._writer)
            for column in self.columns():
                column.truncate(self._writer, state.rows)
            state.staged_rows = 0
        if state.staged_generation:
            codes_of(state.staged_generation, 1, 0).remove(self._writer, 0, (1 << 32) - 1)
            state.staged_generation = 0

    def _too_many(self) -> ParameterError:
        return ParameterError(
            f"the index has used {self.state.rows} of {MAX_ROWS} row numbers; compact() frees those of deleted rows"
        )


def _refuse(ids: Ids, rows: NDArray[np.int64]) -> None:
    known = np.flatnonzero(rows >= 0)
    if len(known):
        first = ids[int(known[0])]
        name = repr(first.item() if isinstance(first, np.generic) else first)
        others = f", and {len(known) - 1} more of these are" if len(known) > 1 else ""
        raise DuplicateIdError(
            f"ids: {name} is in the index already{others}; upsert=True replaces, delete(ids) removes"
        )
