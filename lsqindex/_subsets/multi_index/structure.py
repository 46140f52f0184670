"""The multi-index as a subset structure: what is listed when.

    fresh rows fill a unit      → a block of the units that are full
    fresh rows fill a segment   → one block, in the place of those that the segment had
    merge()                     → also a last block that ends within a unit; the next one takes its place

So a row is listed twice at most, and an add writes lists in proportion to what it adds, whatever is stored. What a
transaction lists is bounded; what is left stays fresh, is scanned, and the next ones list it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._storage.format import keys, records
from ..._storage.format.columns import CHUNK_ROWS, codes_column
from ..._storage.format.meta import State
from ..._storage.format.records import REMEDY
from ..._storage.lmdb.writer import COMMIT_BYTES, Writer
from ..._storage.store import Store
from ...encoders import Encoder
from ...encoders.coder import Coder
from ...errors import DamagedError, NotHashingWarning
from ..base import Structure
from . import lists, postings
from .tables import TABLE_BITS, MultiIndex, Tables, check_layout, layout_of, make_tables


@dataclass(frozen=True)
class MultiIndexStructure(Structure):
    """Posting lists of rows, by runs of bits of their codes."""

    kind = "multi-index"
    asked = MultiIndex
    ways_to_ask = "'multi-index' or MultiIndex(bits=…)"

    tables: Tables

    # -- configuration ------------------------------------------------------------------------

    @classmethod
    def begin(cls, asked: MultiIndex, coder: Coder, n: int) -> MultiIndexStructure:
        """The tables that were asked for."""
        check_layout(asked.bits or 0, layout_of(coder.encoder, coder.dim), coder.encoder)
        return cls(Tables(asked.bits or 0)).chosen_for(coder, n)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> MultiIndexStructure:
        """From the stored record, checked."""
        both = [fields.get(name) for name in ("tables", "widths")]
        if (
            fields.keys() != {"bits", "tables", "widths"}
            or type(fields["bits"]) is not int
            or not all(isinstance(some, list) and all(type(number) is int for number in some) for some in both)
        ):
            raise DamagedError(f"subset: fields are missing, unknown or of a wrong type; {REMEDY}")
        tables = Tables(fields["bits"], tuple(fields["tables"]), tuple(fields["widths"]))
        if not tables.sound():
            raise DamagedError(f"subset: impossible values; {REMEDY}")
        return cls(tables)

    def fields(self) -> dict[str, Any]:
        """The fields of the stored record."""
        tables = self.tables
        return {"bits": tables.bits, "tables": list(tables.firsts), "widths": list(tables.widths)}

    @property
    def ready(self) -> bool:
        """There are tables."""
        return len(self.tables) > 0

    def suits(self, state: State) -> bool:
        """Tables lie within the stored codes, which are in blocks; without tables nothing is listed."""
        end = self.tables.end
        return end <= 8 * state.code_size and (state.head > 0 if end else not state.listed)

    def fits(self, coder: Coder) -> bool:
        """The tables are those of the coder's layout."""
        tables = self.tables
        if not coder.trained:
            return not self.ready
        if coder.floats or not self.ready:
            return False
        if not coder.present:
            return tables.end <= 8 * coder.code_size
        layout = coder.layout
        if not layout.binary:
            return tables == make_tables(layout, 0, 0)
        bits = tables.widths[0]
        wanted = replace(make_tables(layout, bits, 0), bits=tables.bits)
        return bits == min(tables.bits or bits, layout.m) and tables == wanted

    def check_encoder(self, encoder: Encoder, dim: int) -> None:
        """Codes of floats have no tables, and only binary ones have tables of so many bits."""
        check_layout(self.tables.bits, layout_of(encoder, dim), encoder)

    def warn_of(self, encoder: Encoder) -> None:
        """Codes that do not hash can be listed, but neighbours share few buckets."""
        if not encoder.hashes:
            warnings.warn(
                f"subset: the codes of {encoder} do not hash, so neighbours share few buckets of a multi-index: "
                "strategy='auto' scans instead, and strategy='subset' misses many neighbours; use an encoder that "
                "hashes, such as encoder='itq' or 'lsh', or subset='cells'",
                NotHashingWarning,
                stacklevel=2,
            )

    def chosen_for(self, coder: Coder, n: int) -> MultiIndexStructure:
        """The tables of this coder's codes, of bits chosen for ``n`` vectors where none were asked for."""
        if not coder.trained:
            return MultiIndexStructure(Tables(self.tables.bits))
        return MultiIndexStructure(make_tables(coder.layout, self.tables.bits, n)) if coder.present else self

    def outgrown(self, other: MultiIndexStructure) -> bool:
        """Two bits more: four times the vectors."""
        return sum(self.tables.widths[:1]) + 1 < sum(other.tables.widths[:1])

    def told(self, coder: Coder) -> MultiIndex:
        """With the bits in use, where these are known and one number."""
        tables = self.tables
        binary = coder.present and coder.layout.binary
        bits = tables.bits or (tables.widths[0] if self.ready and binary else 0)
        return MultiIndex(bits if bits >= TABLE_BITS[0] else None)

    def stats(self, store: Store) -> dict[str, Any]:
        """How many tables, and of how many bits."""
        return {"tables": len(self.tables), "table_bits": max(self.tables.widths, default=None)}

    # -- upkeep -------------------------------------------------------------------------------

    @property
    def least_rows(self) -> int:
        """A unit."""
        return postings.UNIT_ROWS

    def follow(self, writer: Writer, changed: int, gone: Sequence[int]) -> None:
        """List rows that fill units: twice those that were changed, and a segment.

        So what an earlier transaction left is caught up with, but not all at once.
        """
        if self.ready:
            self._drop(writer, gone)
            self._list(writer, min(postings.SEGMENT_ROWS + 2 * changed, self._rows_at_once()), everything=False)

    def due(self, state: State, *, everything: bool) -> bool:
        """Whether a block can be written."""
        return _next(state, everything) is not None

    def advance(self, writer: Writer, *, everything: bool) -> None:
        """List blocks until a transaction is full."""
        self._list(writer, self._rows_at_once(), everything=everything)

    def row_bytes(self) -> int:
        """About how much a listed row takes in the file."""
        return postings.bytes_a_row(self.tables)

    def remove_all(self, writer: Writer) -> None:
        """Remove all posting lists, of whatever generation."""
        postings.remove(writer)

    def lists(self, store: Store) -> lists.Lists | None:
        """The posting lists of a snapshot; None before the index is trained."""
        return lists.find(store.source, self.tables, store.codes) if self.ready else None

    def _rows_at_once(self) -> int:
        """About how many rows one transaction lists."""
        return max(1, COMMIT_BYTES // self.row_bytes())

    def _list(self, writer: Writer, rows: int, *, everything: bool) -> None:
        """List blocks, one after another, of about ``rows`` rows together."""
        state = writer.state
        while rows > 0 and (block := _next(state, everything)) is not None:
            first, end = block
            postings.write(writer, self.tables, first, end)
            rows -= end - first
            state.listed = end

    def _drop(self, writer: Writer, gone: Sequence[int]) -> None:
        """Listed chunks are gone: a block of which at most half of what it names is still there is made anew."""
        state = writer.state
        blocks = {_block(writer, chunk * CHUNK_ROWS) for chunk in gone if chunk * CHUNK_ROWS < state.listed}
        for first, end, named in sorted(blocks):
            stored = sum(
                min(start + CHUNK_ROWS, end) - start
                for start in range(first, end, CHUNK_ROWS)
                if writer.get(keys.CODES, codes_column(state).key(start)) is not None
            )
            if 2 * stored <= named:
                postings.write(writer, self.tables, first, end)
                if _segment_end(first) <= state.listed:
                    state.relisted += 1

    # -- checking -----------------------------------------------------------------------------

    def problems(self, store: Store) -> Iterator[str]:
        """Every block names the rows that are stored, each where its code says; others only if they are given back."""
        found = self.lists(store)  # which verifies what is new in this process: all, for check() forgets what was known
        if found is None:
            return
        blocks = (own.tolist() for own in (found.firsts, found.spans, found.counts))
        for first, span, count in zip(*blocks, strict=True):
            made = postings.build(store.source, self.tables, first, first + span)
            for table, (stored, payload) in enumerate(made):
                value = store.source.get(keys.POSTINGS, keys.postings(store.state.generation, first, table))
                held = records.decode(value, "posting lists")[1]
                if not _same(held, count, payload, stored, self.tables.widths[table]):
                    yield f"posting lists of table {table} from row {first} on: they do not match the codes"


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


def _block(writer: Writer, row: int) -> tuple[int, int, int]:
    """First row, end and count of the block that lists ``row``."""
    state, cursor = writer.state, writer.cursor(keys.POSTINGS)
    after = keys.postings(state.generation, row + 1)
    found = cursor.set_range(after)
    next_place = keys.postings_of(bytes(cursor.key())) if found else None
    place = keys.postings_of(bytes(cursor.key())) if (cursor.prev() if found else cursor.last()) else None
    if place is None or place[0] != state.generation or _segment_end(place[1]) <= row:
        raise DamagedError(f"posting lists: listed row {row} is in none; {REMEDY}")
    cursor.close()
    first = place[1]
    end = min(_segment_end(first), state.listed, next_place[1] if next_place else state.listed)
    count, _ = records.peek(writer.get(keys.POSTINGS, keys.postings(state.generation, first)), "posting lists")
    return first, end, count


def _same(held: memoryview, count: int, made: Any, stored: int, bits: int) -> bool:
    """Whether lists as they are held name the rows that lists made anew do, but for rows that are gone."""
    if count == stored:
        return bytes(held) == bytes(made)
    (buckets, rows), (wanted, there) = postings.buckets(held, count, bits), postings.buckets(made, stored, bits)
    keep = np.isin(rows, there)
    once = len(np.unique(rows)) == count
    return bool(once and np.array_equal(buckets[keep], wanted) and np.array_equal(rows[keep], there))
