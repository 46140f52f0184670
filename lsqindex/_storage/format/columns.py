"""A column: one thing about every row (its code, id, kept vector, payload), stored as records in row order.

    row      0                4064                      8128 …
    chunk    |─── chunk 0 ────|──────── chunk 1 ────────|
    records  |part|part|part…|part|part|group|group|piece|pie       ← an add touches the end only

Rows are cut into chunks of 4,064; a chunk into *parts* of about 128 KiB, one record each (codes of 32
bytes: one part a chunk). Rows of the part that is not full yet lie in *pieces* of some rows, so that adding
one vector writes a piece, not a part. Sixteen full pieces become one record, a *group*; all of a full part
become the part. 4,064 rows are 127 blocks of 32, and just fill whole pages where 4,096 would begin one more.

``rows.py`` reads them in a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ..._threads.cached import cached_property
from ...errors import DamagedError
from ..lmdb.writer import Writer
from . import kept, keys, records
from .meta import State

if TYPE_CHECKING:
    from .rows import Rows

BLOCK_ROWS = 32
CHUNK_ROWS = 127 * BLOCK_ROWS
_PART_BYTES = 32 * 4096 - 64
_PIECE_BYTES = 4096
_GROUP_PIECES = 16

Bytes: TypeAlias = NDArray[np.uint8]
RowNumbers: TypeAlias = NDArray[np.uint32]
#: Rows of a column: ids as int64 or a list of str; payloads a list of bytes; others as uint8 (n, width).
Values: TypeAlias = Any


@dataclass(frozen=True)
class Column:
    """Where a column lies and how its rows are cut."""

    db: bytes
    prefix: bytes
    kind: bytes
    #: Bytes of a row; 0: strings.
    width: int
    generation: int = 0
    #: Codes lie in blocks of 32 rows, byte j of all 32 side by side: first the blocks of the first `head` bytes of
    #: all rows of a record, so that these can be read alone, then those of the others. 0: not in blocks.
    head: int = 0

    @cached_property
    def blocked(self) -> bool:
        """Whether rows lie in blocks."""
        return self.head > 0

    @cached_property
    def listed(self) -> bool:
        """Whether rows are a list, not an array: they differ in size."""
        return not self.width

    @cached_property
    def what(self) -> str:
        """Its name in messages."""
        return self.db.decode()

    @cached_property
    def part_rows(self) -> int:
        """Rows of a full part: a chunk is cut evenly, so that its last part is large, too.

        (LMDB never moves a large value; one that fits into a leaf page moves at every write.)
        """
        if not self.width:
            return CHUNK_ROWS
        step = BLOCK_ROWS if self.blocked else 1
        steps = CHUNK_ROWS // step
        parts = -(-steps // max(1, _PART_BYTES // (self.width * step)))
        return -(-steps // parts) * step

    @cached_property
    def piece_rows(self) -> int:
        """Rows of a full piece."""
        if self.blocked or not self.width:
            return BLOCK_ROWS
        return max(1, min(BLOCK_ROWS, _PIECE_BYTES // self.width))

    @cached_property
    def _units(self) -> tuple[int, ...]:
        """Rows of a part, of a group, of a piece."""
        return self.part_rows, _GROUP_PIECES * self.piece_rows, self.piece_rows

    def part(self, row: int) -> tuple[int, int]:
        """First row, and first row after, of the part that ``row`` is in."""
        chunk = row // CHUNK_ROWS * CHUNK_ROWS
        start = chunk + (row - chunk) // self.part_rows * self.part_rows
        return start, min(start + self.part_rows, chunk + CHUNK_ROWS)

    @cached_property
    def key(self) -> Callable[[int], bytes]:
        """The key of the record that begins with a row."""
        return keys.rows(self.prefix)

    # -- writing ------------------------------------------------------------------------------

    def append(self, writer: Writer, first: int, values: Values) -> None:
        """Store ``values`` as rows ``first`` and following, which are the next."""
        at, last = first, first + len(values)
        while at < last:
            begin, end = self._record(at, last)
            body = values[at - first : end - first]
            if begin < at:
                parts = (*self._take(writer, begin, at), body)
                body = list(chain(*parts)) if self.listed else np.concatenate(parts)
            writer.put(self.db, self.key(begin), self.encode(begin, body))
            at = end

    def _record(self, at: int, last: int) -> tuple[int, int]:
        """The rows of the record that row ``at`` goes to, when rows up to ``last`` are there."""
        start, end = self.part(at)
        for size in self._units:
            begin = start + (at - start) // size * size
            full = min(begin + size, end)
            if last >= full:
                return begin, full
        return begin, last

    def _take(self, writer: Writer, begin: int, end: int) -> list[Values]:
        """The rows from ``begin`` to ``end``, copied, and their records removed: they become one."""
        found, at = [], begin
        while at < end:
            rows = self.decode(writer.get(self.db, self.key(at)), at)
            found.append(rows[: end - at])
            if at > begin:
                writer.delete(self.db, self.key(at))
            at += len(rows)
        return found

    def remove(self, writer: Writer, start: int, end: int) -> None:
        """Remove all records that begin within these rows."""
        cursor = writer.cursor(self.db)
        found = cursor.set_range(self.key(start))
        while found and bytes(cursor.key()) < self.key(end) and bytes(cursor.key()).startswith(self.prefix):
            writer.guard(cursor.key(), cursor.value())
            writer.clean = False
            found = cursor.delete()

    def truncate(self, writer: Writer, rows: int) -> None:
        """Keep only rows below ``rows``."""
        start, _ = self.part(rows)
        kept = []
        cursor = writer.cursor(self.db)
        found = cursor.set_range(self.key(start))
        while found and bytes(cursor.key()).startswith(self.prefix) and keys.row_of(bytes(cursor.key())) < rows:
            first = keys.row_of(bytes(cursor.key()))
            kept.append(self.decode(cursor.value(), first)[: rows - first])
            found = cursor.next()
        cursor.close()
        self.remove(writer, start, (1 << 32) - 1)
        if kept:
            self.append(writer, start, list(chain(*kept)) if self.listed else np.concatenate(kept))

    @cached_property
    def ints(self) -> bool:
        """Whether rows are int ids, which are stored in four bytes each where they fit."""
        return self.kind == records.IDS and self.width > 0

    def encode(self, first: int, values: Values) -> bytes:
        """The record of rows from ``first`` on."""
        payload: Any
        width = self.width
        if self.listed:
            payload = self._packed(values)
        elif self.ints:
            # Most ids are small: four bytes do.
            width = 4 if int(values.min()) >= 0 and int(values.max()) < 1 << 32 else 8
            payload = values.astype("<u4" if width == 4 else "<i8").view(np.uint8)
        else:
            payload = to_blocks(values, self.head) if self.blocked else np.ascontiguousarray(values).reshape(-1)
        return _records.encode(self.kind, len(values), first, width, self.generation, self.head, payload)

    # -- reading ------------------------------------------------------------------------------

    def decode(self, value: Any, first: int) -> Values:
        """The rows of a record, copied; DamagedError where it is not what belongs there."""
        count, payload = self.check(value, first)
        if self.listed:
            return self.unpacked(payload, count)
        if self.ints:
            return np.frombuffer(payload, "<u4" if len(payload) == 4 * count else "<i8").astype(np.int64)
        if self.blocked:
            return from_blocks(payload, count, self.width, self.head)
        return np.frombuffer(payload, np.uint8).reshape(count, self.width).copy()

    def check(self, value: Any, first: int) -> tuple[int, memoryview]:
        """The row count and the payload of a record whose every size has been checked."""
        found = None if value is None else _records.decode(value)
        if not found:
            raise records.damage(value, f"{self.what} from row {first} on")
        kind, count, at, width, generation, head = found
        start, end = self.part(first)
        fits = width == self.width or (self.ints and width == 4)
        if (
            (kind, at, generation, head) != (self.kind, first, self.generation, self.head)
            or not fits
            or not 1 <= count <= end - first
            or (first - start) % self.piece_rows
        ):
            raise records.damage(value, f"{self.what} from row {first} on")
        payload = memoryview(value)[records.HEADER_SIZE :]
        if self.listed:
            self._check_list(payload, count, f"{self.what} from row {first} on")
        elif len(payload) != width * (_round_up(count) if self.blocked else count):
            raise DamagedError(
                f"{self.what} from row {first} on: {len(payload)} bytes cannot hold {count} rows; {records.REMEDY}"
            )
        return count, payload

    # -- rows that differ in size: string ids here, others in payload_columns.py ----------------

    def _packed(self, values: Values) -> bytes:
        """Where each ends, and then all of them."""
        text, ends = utf8(values)
        return ends.tobytes() + text.tobytes()

    def unpacked(self, payload: memoryview, count: int) -> Values:
        """The rows of a payload that has been checked."""
        try:
            return [part.decode() for part in cut(payload, count)]
        except UnicodeDecodeError as error:
            raise DamagedError(f"{self.what}: an id is not UTF-8; {records.REMEDY}") from error

    def _check_list(self, payload: memoryview, count: int, what: str) -> None:
        check_cuts(payload, count, keys.MAX_ID_BYTES, what)

    def pick(self, column: Rows, rows: RowNumbers) -> Values:
        """Copies of ``rows``, which have been touched, of the column in a snapshot."""
        return _records.gather_strings(column.starts, column.counts, column.addresses, rows)


def utf8(values: Sequence[str]) -> tuple[Bytes, RowNumbers]:
    """Strings as their bytes one after another, and where each ends."""
    return joined([value.encode() for value in values])


def joined(parts: Sequence[bytes]) -> tuple[Bytes, RowNumbers]:
    """Bytes one after another, and where each ends."""
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([*map(len, parts)], dtype=np.uint32)


def cut(payload: memoryview, count: int) -> list[bytes]:
    """The rows of a payload: where each ends, and then all of them."""
    body, begin, parts = bytes(payload[4 * count :]), 0, []
    for end in np.frombuffer(payload, np.uint32, count).tolist():
        parts.append(body[begin:end])
        begin = end
    return parts


def check_cuts(payload: memoryview, count: int, longest: int, what: str) -> None:
    """DamagedError unless ``count`` rows can be cut, each of at most ``longest`` bytes."""
    if len(payload) < 4 * count:
        raise DamagedError(f"{what}: {len(payload)} bytes cannot hold {count} rows; {records.REMEDY}")
    ends = np.frombuffer(payload, np.uint32, count).astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    if int(ends[-1]) != len(payload) - 4 * count or lengths.min() < 0 or lengths.max() > longest:
        raise DamagedError(f"{what}: impossible offsets; {records.REMEDY}")


def rows_within(size: int, row_bytes: int) -> int:
    """How many rows to write at a time, of about ``size`` bytes: whole chunks, or an eighth of one of large rows."""
    chunks = size // max(1, row_bytes) // CHUNK_ROWS
    return chunks * CHUNK_ROWS if chunks else CHUNK_ROWS // 8


def codes_column(state: State) -> Column:
    """The codes of the valid generation."""
    return codes_of(state.generation, state.code_size, state.head)


@lru_cache
def codes_of(generation: int, code_size: int, head: int) -> Column:
    """The codes of any generation."""
    return Column(keys.CODES, keys.codes_prefix(generation), records.CODES, code_size, generation, head)


@lru_cache
def ids_column(kind: str) -> Column:
    """The ids of all rows: int64, or strings."""
    return Column(keys.IDS, keys.ids_prefix(), records.IDS, 8 if kind == "int" else 0)


@lru_cache
def vectors_column(dim: int, kind: str) -> Column:
    """The kept vectors of all rows."""
    return Column(keys.VECTORS, keys.vectors_prefix(), records.VECTORS, kept.width(dim, kind))


def to_blocks(codes: Bytes, head: int) -> Bytes:
    """Rows (n, width) as blocks of 32 rows by column, the heads before the rest; the last block padded with zeros."""
    n, width = codes.shape
    padded = np.zeros((_round_up(n), width), np.uint8)
    padded[:n] = codes
    blocks = padded.reshape(-1, BLOCK_ROWS, width).transpose(0, 2, 1)
    return np.concatenate([blocks[:, :head].reshape(-1), blocks[:, head:].reshape(-1)])


def from_blocks(payload: Any, n: int, width: int, head: int) -> Bytes:
    """The rows (n, width) of blocks."""
    data = np.frombuffer(payload, np.uint8)
    count = len(data) // (width * BLOCK_ROWS)
    cut = count * BLOCK_ROWS * head
    parts = data[:cut].reshape(count, head, BLOCK_ROWS), data[cut:].reshape(count, width - head, BLOCK_ROWS)
    blocks = np.concatenate(parts, axis=1)
    return np.array(blocks.transpose(0, 2, 1).reshape(-1, width)[:n])  # never a view of LMDB's pages


def _round_up(rows: int) -> int:
    return (rows + BLOCK_ROWS - 1) // BLOCK_ROWS * BLOCK_ROWS
