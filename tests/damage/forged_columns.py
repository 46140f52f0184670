"""Forgeries of what is stored row by row: codes, ids, vectors, payloads, fields, and which rows are deleted."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lsqindex._storage.format import keys, records

from .forged_meta import NO_NEXT
from .forging import Entries, Forgery, again, body, mapping


def forged_columns(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Records of codes, ids, vectors, payloads and their fields that are not what their place wants."""
    own = ((keys.PAYLOADS, b"y"), (keys.PAYLOADS, b"f\0\0"), (keys.PAYLOADS, b"f\0\1"))
    for db, prefix in ((keys.CODES, b"c"), (keys.IDS, b"i"), (keys.VECTORS, b"v"), *own):
        column = sorted(entry for entry in there if entry[0] == db and entry[1].startswith(prefix))
        if not column:
            continue
        for where, entry in (("first", column[0]), ("last", column[-1])):
            value = there[entry]
            header, payload = records.decode(value, "test")
            name = f"{db.decode()}, {where}"
            changes: dict[str, Any]
            for changes in (
                {"count": header.count + 1},
                {"count": header.count - 1},
                {"count": 0},
                {"count": 2**32 - 1},
                {"first": header.first + 1},
                {"first": 2**63},
                {"width": header.width + 1},
                {"width": 2**32 - 1},
                {"generation": header.generation + 1},
                {"head": header.head + 1},
                {"kind": b"?"},
                {"kind": b"s"},
            ):
                yield f"{name}: {changes}", {entry: again(value, **changes)}
            yield f"{name}: missing", {entry: None}
            yield f"{name}: empty", {entry: b""}
            yield f"{name}: a header alone", {entry: again(value, b"")}
            yield f"{name}: cut", {entry: again(value, payload[:-1])}
            yield f"{name}: longer", {entry: again(value, bytes(payload) + b"x")}
            yield f"{name}: ten times", {entry: again(value, bytes(payload) * 10)}
            twin = (db, entry[1][:-4] + struct.pack(">I", header.first + 5))
            yield f"{name}: twice", {twin: again(value, first=header.first + 5)}
            far = (db, entry[1][:-4] + struct.pack(">I", 4064))
            yield f"{name}: far ahead", {far: again(value, first=4064)}
        yield f"{db.decode()}: all missing", dict.fromkeys(column, None)
        yield f"{db.decode()}: a strange key", {(db, b"zz"): there[column[0]]}
        yield f"{db.decode()}: a key too long", {(db, column[0][1] + b"x"): there[column[0]]}
        yield f"{db.decode()}: a key too short", {(db, column[0][1][:2]): there[column[0]]}


def forged_parts(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Full parts, which are measured by their size alone: as large as they must be, and with fewer rows in them."""
    full = [(db, key) for (db, key), value in there.items() if value[4:8] == struct.pack("<I", 4064)]
    (ids,) = (entry for entry in full if entry[0] == keys.IDS and entry[1][:1] == b"i")
    (codes,) = (entry for entry in full if entry[0] == keys.CODES)
    yield "part: half as many ids, of twice the size", {ids: again(there[ids], width=8, count=2032)}
    yield "part: one code less", {codes: again(there[codes], count=4063)}
    yield "part: one id less", {ids: again(there[ids], count=4063)}
    yield "part: missing", {ids: None}


def forged_values(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Well-formed records with values that cannot be."""
    first = (keys.IDS, b"i\0\0\0\0")
    ids = body(there[first])
    if records.decode(there[first], "test")[0].width:
        yield "ids: -1", {first: again(there[first], b"\xff" * 8 + ids[8:])}
        yield "ids: one twice", {first: again(there[first], ids[8:16] + ids[8:])}
    else:
        count = records.decode(there[first], "test")[0].count
        ends = np.frombuffer(ids, np.uint32, count)
        text = ids[4 * count :]
        yield "ids: not UTF-8", {first: again(there[first], ids[: 4 * count] + b"\xff" * len(text))}
        yield (
            "ids: one twice",
            {first: again(there[first], ids[: 4 * count] + text[: ends[0]] * 2 + text[2 * ends[0] :])},
        )
        for name, forged in {
            "falling": ends[::-1],
            "beyond": ends + 1000,
            "huge": np.full_like(ends, 2**32 - 1),
            "zero": np.zeros_like(ends),
            "one long": np.where(np.arange(count) < count - 1, 0, len(text)),
        }.items():
            yield f"ids: ends {name}", {first: again(there[first], forged.astype(np.uint32).tobytes() + text)}
    for db, key in ((keys.VECTORS, b"v\0\0\0\0"), (keys.CODES, b"c\0\0\0\0\0\0\0\0")):
        if (db, key) in there:
            payload = np.frombuffer(body(there[db, key]), np.uint8)
            bad = np.full_like(payload, 0xFF)  # NaN, in float16 and float32
            yield f"{db.decode()}: NaN", {(db, key): again(there[db, key], bad)}


def packed(rows: Sequence[bytes]) -> bytes:
    """Rows that differ in size, as they are stored."""
    return np.cumsum([len(row) for row in rows], dtype="<u4").tobytes() + b"".join(rows)


def forged_large(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Large payloads that are not what their keys say, or that nobody refers to; references that lead nowhere."""
    large = sorted(entry for entry in there if entry[0] == keys.PAYLOADS and entry[1][:1] == b"l")
    first, second, value = large[0], large[1], there[large[0]]
    for changes in ({"count": 2}, {"first": 77}, {"width": 1}, {"generation": 1}, {"head": 1}, {"kind": b"y"}):
        yield f"large: {changes}", {first: again(value, **changes)}
    yield "large: missing", {first: None}
    yield "large: all missing", dict.fromkeys(large, None)
    yield "large: exchanged", {first: there[second], second: value}
    yield "large: empty", {first: again(value, b"")}
    yield "large: no msgpack", {first: again(value, b"\xc1" * 20_000)}
    yield "large: of another language", {first: again(value, body(value).replace(b"en", b"xx"))}
    yield "large: one too many", {(keys.PAYLOADS, keys.large(0)): again(value, first=0)}
    yield "large: one beyond", {(keys.PAYLOADS, keys.large(1 << 60)): again(value, first=1 << 60)}
    yield "large: a key too long", {(keys.PAYLOADS, first[1] + b"x"): value}
    column = (keys.PAYLOADS, b"y\0\0\0\0")
    reference = b"\xc1" + first[1][1:]
    stored = body(there[column])
    assert reference in stored
    for name, other in {"nowhere": b"\xc1" + bytes([9] * 8), "to another": b"\xc1" + second[1][1:]}.items():
        yield f"large: refers {name}", {column: again(there[column], stored.replace(reference, other))}
    yield "large: a reference without a number", {column: again(there[column], stored.replace(reference, b"\xc0" * 9))}
    for changes in ({"large": 0}, {"large": 1}, {"large": 100, "next_large": 200}, {"next_large": 2}):
        yield f"large: state {changes}", mapping(there, b"state", **changes)


def forged_payloads(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Well-formed records with payloads that cannot be, or that are not those of the indexed fields."""
    for key in (b"y\0\0\0\0", b"y\0\0\1\xfc"):
        entry = (keys.PAYLOADS, key)
        count, value = records.decode(there[entry], "test")[0].count, body(there[entry])
        ends = np.frombuffer(value, "<u4", count).astype(np.int64)
        data, lengths = value[4 * count :], np.diff(ends, prepend=0)
        rows = [data[end - size : end] for end, size in zip(ends, lengths, strict=True)]
        for name, forged in {
            "falling": ends[::-1],
            "beyond": ends + 1000,
            "huge": np.full_like(ends, 2**32 - 1),
            "zero": np.zeros_like(ends),
            "one long": np.where(np.arange(count) < count - 1, 0, len(data)),
            "one byte later": np.minimum(ends + 1, len(data)),
        }.items():
            yield f"payloads: ends {name}, {key!r}", {entry: again(there[entry], forged.astype("<u4").tobytes() + data)}
        for name, other in {
            "a list": b"\x91\1",
            "a number": b"\5",
            "nil": b"\xc0",
            "no msgpack": b"\xc1",
            "cut": b"\x81\xa4lang",
            "something behind": b"\x80\x80",
            "a name that is a number": b"\x81\1\1",
            "a name that is a list": b"\x81\x91\1\1",
            "a name that is no UTF-8": b"\x81\xa1\xff\1",
            "huge": b"\xdf\xff\xff\xff\xff",
            "deep": b"\x81\xa1a" + b"\x91" * 5000,
            "of another language": b"\x81\xa4lang\xa2xx",
            "nothing": b"",
        }.items():
            yield f"payloads: {name}, {key!r}", {entry: again(there[entry], packed([*rows[:2], other, *rows[3:]]))}


def forged_fields(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Values of indexed fields that are not there, are none, or are not those of the payloads."""
    one, two = (keys.PAYLOADS, b"f\0\0\0\0\0\0"), (keys.PAYLOADS, b"f\0\1\0\0\0\0")
    count, value = records.decode(there[one], "test")[0].count, body(there[one])
    numbers, values = np.frombuffer(value, "<u2", count), value[2 * count :]
    for name, forged in {
        "beyond": np.where(numbers == 2, 3, numbers),
        "far beyond": np.full(count, 0xFFFE),
        "of nothing": np.full(count, 0xFFFF),
        "all the same": np.zeros(count),
        "two swapped": np.where(numbers < 2, 1 - numbers.astype(int), numbers),
        "of one row": np.where(np.arange(count) == 7, 0xFFFF, numbers),
    }.items():
        yield f"field: numbers {name}", {one: again(there[one], forged.astype("<u2").tobytes() + values)}
    for name, other in {
        "a mapping": b"\x80",
        "a string": b"\xa3abc",
        "fewer": b"\x92\xa2en\xa2vi",
        "others": values.replace(b"vi", b"xx"),
        "numbers": b"\x93\1\2\3",
        "none": b"",
        "no msgpack": b"\xc1",
        "something behind": values + b"\x80",
        "huge": b"\xdd\xff\xff\xff\xff" + values[1:],
        "a mapping with a list as a name": b"\x93\xa2en\xa2vi\x81\x91\1\1",
        "deep": b"\x93\xa2en\xa2vi" + b"\x91" * 5000 + b"\x90",
    }.items():
        yield f"field: values {name}", {one: again(there[one], numbers.tobytes() + other)}
    yield "field: two swapped", {one: there[two], two: there[one]}
    yield (
        "field: two swapped, as if they were written so",
        {
            one: again(there[two], generation=0),
            two: again(there[one], generation=1),
        },
    )
    yield "field: payloads", {one: there[keys.PAYLOADS, b"y\0\0\0\0"]}
    yield "field: without payloads", {**mapping(there, keys.STATE, payloads=0)}
    without: Forgery = {(db, key): None for db, key in there if db == keys.PAYLOADS}
    yield "field: nothing, and no payloads", {**mapping(there, keys.STATE, payloads=0), **without}
    state_2 = mapping(there, keys.STATE, payloads=..., **NO_NEXT)
    older = {**state_2, **mapping(there, keys.OPTIONS, format=2, fields=...)}
    yield "field: format 2, with payloads", older
    for names in ([], ["lang"], ["tags", "lang"], ["lang", "tags", "n"], ["lang", "other"]):
        yield f"field: options with {names}", mapping(there, keys.OPTIONS, fields=names)


def forged_sorted(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Sorted ids that are not sorted, not all, or not there."""
    entry = (keys.IDS, b"s")
    rows = np.frombuffer(body(there[entry]), np.uint32)

    def block(new: Any) -> bytes:
        return again(there[entry], np.ascontiguousarray(new, np.uint32), count=len(new))

    swapped = rows.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    for name, forged in {
        "two swapped": swapped,
        "reversed": rows[::-1],
        "one twice": np.insert(rows, 5, rows[5]),
        "one instead of another": np.where(np.arange(len(rows)) == 5, rows[6], rows),
        "one missing": np.delete(rows, 5),
        "out of range": np.where(np.arange(len(rows)) == len(rows) // 2, 2**31, rows),
        "the largest number": np.where(np.arange(len(rows)) == len(rows) // 2, 2**32 - 1, rows),
        "all out of range": np.full_like(rows, 2**32 - 2),
        "empty": rows[:0],
        "too many": np.tile(rows, 5_000 // len(rows) + 1),
    }.items():
        yield f"sorted: {name}", {entry: block(forged)}
    for first, count in ((0, 2**32 - 1), (0, 4065), (2**32 - 50, 100), (2**63, 10), (5_000, 10), (0, 10), (0, 0)):
        run = records.encode(records.Header(records.SORTED, count, first), b"")
        yield f"sorted: {count} rows from {first} on", {entry: run}
    yield "sorted: no block", {entry: None}
    yield "sorted: another count", {entry: again(there[entry], count=3)}
    yield "sorted: cut", {entry: again(there[entry], body(there[entry])[:-1])}
    yield "sorted: another width", {entry: again(there[entry], width=8)}
    high = (keys.IDS, b"s\xff\xff\xff\xff\xff\xff\xff\xf0")
    yield "sorted: a block under a key that is too high", {entry: block(rows[:5]), high: block(rows[5:])}
    yield "sorted: an empty block more", {high: block(rows[:0])}
    yield "sorted: the same block twice", {high: there[entry]}
    yield "sorted: the first block under another key", {entry: None, (keys.IDS, b"s\1"): there[entry]}
    yield "sorted: a key of impossible size", {(keys.IDS, b"s" + b"\x90" * 3): block(rows[-3:])}
    yield "sorted: a key that is no UTF-8", {(keys.IDS, b"s\xff\xfe"): block(rows[-3:])}


def forged_deleted(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Deleted rows that are not there, or not so many."""
    entry = (keys.CODES, b"d\0\0\0\0")
    value = there[entry]
    bits, count = np.frombuffer(body(value), np.uint8), records.decode(value, "test")[0].count
    everything = np.full_like(bits, 0xFF)
    moved = np.concatenate([bits[4000:], bits[:4000]])
    for name, forged in {
        "missing": None,
        "wrong count": again(value, count=count + 1),
        "none": again(value, np.zeros_like(bits), count=0),
        "all": again(value, everything, count=8 * len(bits)),
        "rows that are not there": again(value, moved),
        "others": again(value, np.roll(bits, 1)),
        "of another segment": again(value, first=1),
        "cut": again(value, bits[:-1]),
        "longer": again(value, np.append(bits, 0).astype(np.uint8)),
        "of another kind": again(value, kind=b"c"),
    }.items():
        yield f"deleted: {name}", {entry: forged}
    for key in (b"d", b"dx", b"d\0\0\0", b"d\0\0\0\0\0", b"d\0\0\0\1", b"d\xff\xff\xff\xff"):
        number = int.from_bytes(key[1:], "big")
        yield f"deleted: also under {key!r}", {(keys.CODES, key): again(value, first=number)}
