"""Large payloads, each under a key of its own: rows that are written beside one never write it again.

    column of payloads   … payload | reference | payload …        reference: 0xC1, number (8 bytes, big-endian)
    key "l" number       the payload

No msgpack begins with 0xC1. Numbers are given once (``state.next_large``). A payload goes with its row: when the row is
deleted or replaced, and not only when its chunk is given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import DamagedError
from ..lmdb.reader import Reader
from ..lmdb.writer import Writer
from . import keys, records

#: A payload of so many bytes or more is large.
LARGE_BYTES = 10_000

_MARK = b"\xc1"
_SIZE = 9


def put(writer: Writer, payloads: Sequence[bytes]) -> list[bytes]:
    """Store large payloads of rows that are written ahead; what the column holds, with references in their place."""
    stored = list(payloads)
    for i, payload in enumerate(stored):
        if len(payload) >= LARGE_BYTES:
            number = writer.state.next_large
            _put(writer, number, payload)
            writer.state.next_large = number + 1
            writer.state.staged_large += 1
            stored[i] = _MARK + number.to_bytes(8, "big")
    return stored


def read(source: Reader | Writer, stored: Sequence[bytes]) -> list[bytes]:
    """The payloads of which the column holds this."""
    return [_read(source, _number(one)) if one[:1] == _MARK else one for one in stored]


def remove(writer: Writer, numbers: Sequence[int]) -> None:
    """Remove large payloads."""
    for number in numbers:
        writer.delete(keys.PAYLOADS, keys.large(number))
    writer.state.large -= len(numbers)


def remove_staged(writer: Writer) -> None:
    """Remove those of rows that were written ahead."""
    end, count = writer.state.next_large, writer.state.staged_large
    remove(writer, range(end - count, end))
    writer.state.staged_large = 0


def copy(source: Reader | Writer, writer: Writer, stored: Sequence[bytes]) -> None:
    """Copy those to which the column refers to another file, where they have the same numbers."""
    for number in references(stored):
        _put(writer, number, _read(source, number))


def numbers(source: Reader | Writer) -> Iterator[int]:
    """The numbers of all that are stored, ascending; DamagedError where one is not what belongs there."""
    cursor = source.cursor(keys.PAYLOADS)
    found = cursor.set_range(keys.large_prefix())
    while found and bytes(cursor.key())[:1] == keys.large_prefix():
        number = keys.large_of(bytes(cursor.key()))
        if number is None:
            raise DamagedError(f"large payloads: a key of impossible size; {records.REMEDY}")
        _check(cursor.value(), number)
        yield number
        found = cursor.next()
    cursor.close()


def references(stored: Sequence[bytes]) -> list[int]:
    """The numbers to which the column refers."""
    return [_number(one) for one in stored if one[:1] == _MARK]


def _put(writer: Writer, number: int, payload: bytes) -> None:
    header = records.Header(records.LARGE, count=1, first=number)
    writer.put(keys.PAYLOADS, keys.large(number), records.encode(header, payload))
    writer.state.large += 1


def _number(reference: bytes) -> int:
    if len(reference) != _SIZE:
        raise DamagedError(f"payloads: a reference of {len(reference)} bytes; {records.REMEDY}")
    return int.from_bytes(reference[1:], "big")


def _read(source: Reader | Writer, number: int) -> bytes:
    return bytes(_check(source.get(keys.PAYLOADS, keys.large(number)), number))


def _check(value: memoryview | None, number: int) -> memoryview:
    what = f"large payload {number}"
    if value is None:
        raise records.damage(value, what)
    header, payload = records.decode(value, what)
    if header != records.Header(records.LARGE, count=1, first=number) or len(payload) < LARGE_BYTES:
        raise records.damage(value, what)
    return payload
