"""A record: what every value in the file is. A header of 48 bytes, then the payload.

    bytes  0..3    "LSQ" and the kind, one letter
           4..7    count: rows or entries of the payload
           8..15   first: the row, segment or number that the key also tells
          16..19   width: bytes of a row, 0 where rows differ; bits of a table of posting lists; bytes of a code in a
                   cell
          20..23   generation of the codes, of codes, posting lists and entries of cells; 0 for other kinds
          24..31   bytes of the payload
          32..35   head: bytes of a code that are stored apart, before the rest; the number of a table of posting
                   lists; 0 for other kinds
          36..39   zero
          40..47   XXH64 of the payload, seeded with the XXH64 of bytes 0..39

All little-endian. LMDB puts a large value 16 bytes into a page, so the payload of a large record begins
64 bytes into a page: aligned for every instruction set.

A record tells what it is and where it belongs: one that LMDB finds under a wrong key is damage, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..._compiled import records as _records
from ...errors import REMEDY as REMEDY
from ...errors import DamagedError

HEADER_SIZE = 48

#: Kinds: meta (msgpack), codes, ids, sorted rows, vectors, deleted rows, posting lists, payloads, values of a field, a
#: large payload; entries of a cell, its tail, its centre; the codes of all centres; queries and their neighbours.
META, CODES, IDS, SORTED, VECTORS, DELETED, POSTINGS = b"m", b"c", b"i", b"s", b"v", b"d", b"p"
PAYLOADS, FIELD, LARGE = b"y", b"f", b"l"
CELL, TAIL, CENTRE, CENTRE_CODES, ANSWERS = b"k", b"t", b"e", b"z", b"a"


@dataclass(frozen=True)
class Header:
    """What a record says about itself."""

    kind: bytes
    count: int
    first: int = 0
    width: int = 0
    generation: int = 0
    head: int = 0


def encode(header: Header, payload: Any) -> bytes:
    """The record of ``payload`` (anything with a buffer).

    >>> record = encode(Header(IDS, count=1, first=7, width=8), bytes(8))
    >>> len(record), decode(record, "ids")[0].first
    (56, 7)
    """
    body = memoryview(payload).cast("B")
    return _records.encode(header.kind, header.count, header.first, header.width, header.generation, header.head, body)


def decode(value: Any, what: str) -> tuple[Header, memoryview]:
    """Header and payload of a record; DamagedError where it is none, or where its checksum differs.

    The payload is a view of ``value``: it lives as long as the transaction that gave it.
    """
    data = memoryview(value)
    found = _records.decode(data)
    if not found:
        raise damage(value, what)
    return Header(*found), data[HEADER_SIZE:]


def damage(value: Any, what: str) -> DamagedError:
    """The error for a value that is no record, or whose checksum differs; None is a record that is missing."""
    if value is None:
        return DamagedError(f"{what}: missing; {REMEDY}")
    found = _records.decode(memoryview(value))
    if found is False:
        return DamagedError(f"{what}: wrong checksum, so bytes have changed on disk; {REMEDY}")
    if len(value) < HEADER_SIZE:
        return DamagedError(f"{what}: {len(value)} bytes are too few for a record; {REMEDY}")
    why = f"the record belongs elsewhere ({Header(*found)})" if found else "not a record of an index"
    return DamagedError(f"{what}: {why}; {REMEDY}")


def peek(value: Any, what: str) -> tuple[int, int]:
    """(count, checksum) as the header tells them, not verified."""
    if len(value) < HEADER_SIZE:
        raise DamagedError(f"{what}: {len(value)} bytes are too few for a record; {REMEDY}")
    return int.from_bytes(value[4:8], "little"), int.from_bytes(value[40:HEADER_SIZE], "little")
