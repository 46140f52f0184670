"""Which rows are deleted: a bit for each, in segments of 65,024 rows (16 chunks, two pages).

A segment without deleted rows has no record. Rows of a chunk that was given back have no bits either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ...errors import DamagedError
from ..lmdb.reader import Reader
from ..lmdb.writer import Writer
from . import keys, records
from .columns import CHUNK_ROWS, RowNumbers

SEGMENT_ROWS = 16 * CHUNK_ROWS
_BYTES = SEGMENT_ROWS // 8


def load(source: Reader | Writer, segment: int) -> NDArray[np.uint8] | None:
    """The bits of a segment, lowest bit first, copied; None if nothing in it is deleted."""
    value = source.get(keys.CODES, keys.deleted(segment))
    return None if value is None else decode(value, segment)


def decode(value: Any, segment: int) -> NDArray[np.uint8]:
    """The bits of a record."""
    what, found = f"deleted rows of segment {segment}", _records.decode(value)
    if not found or found != (records.DELETED, found[1], segment, 0, 0, 0):
        raise records.damage(value, what)
    bits = np.frombuffer(value, np.uint8)[records.HEADER_SIZE :].copy()
    if len(bits) != _BYTES:
        raise records.damage(value, what)
    if int(np.unpackbits(bits).sum()) != found[1] or not found[1]:
        raise DamagedError(f"{what}: {found[1]} bits should be set, and others are; {records.REMEDY}")
    return bits


def segments(source: Reader | Writer) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """All segments with deleted rows."""
    for segment, value in _values(source):
        yield segment, decode(value, segment)


def _values(source: Reader | Writer) -> Iterator[tuple[int, Any]]:
    cursor = source.cursor(keys.CODES)
    found = cursor.set_range(keys.deleted_prefix())
    while found and bytes(cursor.key()).startswith(keys.deleted_prefix()):
        if len(cursor.key()) != 5:
            raise DamagedError(f"deleted rows: a key of impossible size; {records.REMEDY}")
        yield keys.row_of(bytes(cursor.key())), cursor.value()
        found = cursor.next()
    cursor.close()


def addresses(source: Reader | Writer) -> NDArray[np.uint64]:
    """Where the bits of each segment lie, 0 where nothing is deleted; they hold as long as the transaction."""
    out = np.zeros(-(-source.state.rows // SEGMENT_ROWS), np.uint64)
    if source.state.count < source.state.stored:
        verified = source.env.known.deleted
        for segment, value in _values(source):
            # As for columns: a record is verified when it is first touched, and known again by its checksum.
            seen = (len(value), *records.peek(value, "deleted rows"))
            if verified.get(segment) != seen:
                decode(value, segment)
                verified[segment] = seen
            if segment < len(out):
                out[segment] = _records.address(value) + records.HEADER_SIZE
    return out


def mask(source: Reader | Writer, rows: RowNumbers) -> NDArray[np.bool_]:
    """Which of ``rows`` are deleted."""
    dead = np.zeros(len(rows), np.bool_)
    if source.state.count == source.state.stored:
        return dead
    for segment, bits in segments(source):
        inside = rows // SEGMENT_ROWS == segment
        at = rows[inside] % SEGMENT_ROWS
        dead[inside] = bits[at // 8] >> (at % 8).astype(np.uint8) & 1
    return dead


def mark(writer: Writer, rows: RowNumbers) -> None:
    """Delete ``rows``, which are not deleted."""
    for segment in sorted(set((rows // SEGMENT_ROWS).tolist())):
        bits = load(writer, segment)
        flags = np.zeros(SEGMENT_ROWS, np.bool_) if bits is None else _flags(bits)
        flags[rows[rows // SEGMENT_ROWS == segment] % SEGMENT_ROWS] = True
        _store(writer, segment, flags)


def forget_chunk(writer: Writer, chunk: int) -> None:
    """Clear the bits of a chunk that is given back."""
    segment, first = divmod(chunk * CHUNK_ROWS, SEGMENT_ROWS)
    bits = load(writer, segment)
    if bits is not None:
        flags = _flags(bits)
        flags[first : first + CHUNK_ROWS] = False
        _store(writer, segment, flags)


def chunk_flags(source: Reader | Writer, chunk: int) -> NDArray[np.bool_]:
    """Which rows of a chunk are deleted."""
    segment, first = divmod(chunk * CHUNK_ROWS, SEGMENT_ROWS)
    bits = load(source, segment)
    return np.zeros(CHUNK_ROWS, np.bool_) if bits is None else _flags(bits)[first : first + CHUNK_ROWS]


def _flags(bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.unpackbits(bits, bitorder="little").astype(np.bool_)


def _store(writer: Writer, segment: int, flags: NDArray[np.bool_]) -> None:
    count = int(flags.sum())
    if not count:
        writer.delete(keys.CODES, keys.deleted(segment))
        return
    bits = np.packbits(flags, bitorder="little")
    writer.put(keys.CODES, keys.deleted(segment), _records.encode(records.DELETED, count, segment, 0, 0, 0, bits))
