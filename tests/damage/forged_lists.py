"""Forgeries of posting lists and of the tables that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np

from lsqindex._storage.format import keys, records
from lsqindex._subsets.multi_index import postings
from lsqindex.testing import reference

from .forged_meta import MALICIOUS, NO_NEXT
from .forging import Entries, Forgery, again, body, mapping


def forged_listed(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Rows that are listed, and are not; or the other way round."""
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    firsts = sorted({place[1] for db, key in there if db == keys.POSTINGS and (place := keys.postings_of(key))})
    for listed in (0, 1, firsts[-1], firsts[-1] + 1, state["listed"] - 1, state["listed"] + 1, state["rows"]):
        yield f"listed: {listed}", mapping(there, keys.STATE, listed=listed)
    state_1 = mapping(there, keys.STATE, listed=..., relisted=..., payloads=..., **NO_NEXT)
    older = {**state_1, **mapping(there, keys.OPTIONS, format=1, fields=...)}
    yield "listed: format 1, with lists", older
    without: Forgery = {(db, key): None for db, key in there if db == keys.POSTINGS}
    yield "listed: nothing, and there are tables", {**mapping(there, keys.STATE, listed=0)}
    yield "listed: nothing, and there are no tables", {**mapping(there, keys.STATE, listed=0), **no_subset()}
    yield "listed: lists without a structure", {**no_subset()}
    yield "listed: no lists and no structure", {**without, **no_subset()}


def no_subset() -> Forgery:
    return {(keys.META, keys.SUBSET): None}


def forged_subset(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Tables that are not those of the code."""
    subset = msgpack.unpackb(body(there[keys.META, keys.SUBSET]))
    tables, widths, bits = subset["tables"], subset["widths"], subset["bits"]
    changes: dict[str, Any]
    for changes in (
        {"kind": "cells"},
        {"kind": 5},
        {"kind": ...},
        {"bits": bits + 1},
        {"bits": 3},
        {"bits": 21},
        {"bits": None},
        {"tables": [], "widths": []},
        {"tables": tables[:-1], "widths": widths[:-1]},
        {"tables": tables[1:], "widths": widths[1:]},
        {"tables": [first + 1 for first in tables]},
        {"tables": [first + 1 for first in tables], "widths": [*widths[:-1], widths[-1] - 1]},
        {"tables": [first + 8 for first in tables]},
        {"tables": [first + 1000 for first in tables]},
        {"tables": [first + 2**61 for first in tables]},
        {"tables": [-first for first in tables]},
        {"tables": tables[::-1], "widths": widths[::-1]},
        {"tables": [0, widths[-1]], "widths": widths[::-1]},
        {"tables": [0, widths[0] - 1], "widths": [widths[0] - 1, widths[1] + 1]},
        {"tables": [0] * 4097, "widths": [1] * 4097},
        {"tables": [str(first) for first in tables]},
        {"widths": [*widths[:-1], 21]},
        {"widths": [*widths[:-1], 0]},
        {"widths": widths[:-1]},
        {"widths": None},
        {"more": 1},
    ):
        yield f"subset: {str(changes)[:80]}", mapping(there, keys.SUBSET, **changes)
    yield "subset: the state", {(keys.META, keys.SUBSET): there[keys.META, keys.STATE]}
    yield "subset: empty", {(keys.META, keys.SUBSET): b""}
    yield "subset: of another kind", {(keys.META, keys.SUBSET): again(there[keys.META, keys.SUBSET], kind=b"p")}
    for name, data in MALICIOUS.items():
        value = records.encode(records.Header(records.META, 4), data)
        yield f"subset: {name}", {(keys.META, keys.SUBSET): value}


def forged_postings(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Records of posting lists that are not what their place wants, that cannot be, or that are not the codes'."""
    for entry in sorted(entry for entry in there if entry[0] == keys.POSTINGS):
        value = there[entry]
        header, payload = records.decode(value, "test")
        name = f"lists of table {header.head} from {header.first} on"
        changes: dict[str, Any]
        for changes in (
            {"count": header.count + 1},
            {"count": header.count - 1},
            {"count": 0},
            {"count": 2**32 - 1},
            {"first": header.first + 1},
            {"first": 2**63},
            {"width": header.width + 1},
            {"width": 0},
            {"width": 2**32 - 1},
            {"generation": header.generation + 1},
            {"head": header.head + 1},
            {"kind": b"c"},
        ):
            yield f"{name}: {changes}", {entry: again(value, **changes)}
        yield f"{name}: missing", {entry: None}
        yield f"{name}: empty", {entry: b""}
        yield f"{name}: a header alone", {entry: again(value, b"")}
        yield f"{name}: cut", {entry: again(value, payload[:-1])}
        yield f"{name}: longer", {entry: again(value, bytes(payload) + b"x")}
        for what, forged in impossible_lists(payload, header.count, header.width):
            yield f"{name}: {what}", {entry: again(value, forged)}


def forged_blocks(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Blocks of posting lists that are missing, too many, or elsewhere."""
    own = sorted(entry for entry in there if entry[0] == keys.POSTINGS)
    generation = msgpack.unpackb(body(there[keys.META, keys.STATE]))["generation"]
    tables = len(msgpack.unpackb(body(there[keys.META, keys.SUBSET]))["tables"])
    first, last = own[:tables], own[-tables:]
    yield "lists: all missing", dict.fromkeys(own, None)
    yield "lists: the first block missing", dict.fromkeys(first, None)
    yield "lists: the last block missing", dict.fromkeys(last, None)
    for what, begin in (("within a unit", 32), ("beyond", 5 * 16_256)):
        moved = {
            (db, keys.postings(generation, begin, i)): again(there[db, key], first=begin)
            for i, (db, key) in enumerate(last)
        }
        yield f"lists: a block {what}", {**dict.fromkeys(last, None), **moved}
        yield f"lists: one more block {what}", {**moved}
    if first != last:
        both: Forgery = {a: joined(there[a], there[b]) for a, b in zip(first, last, strict=True)}
        yield "lists: blocks that overlap", both
    for what, key in {
        "another generation": keys.postings(generation + 1, 0),
        "an older generation": keys.postings(generation - 1, 0),
        "a table too many": keys.postings(generation, 0, tables),
        "the last table there can be": keys.postings(generation, 0, 0xFFFF),
        "a key too long": own[0][1] + b"x",
        "a key too short": own[0][1][:-1],
        "a key before all": b"a",
        "a key behind all": b"zz",
    }.items():
        yield f"lists: {what}", {(keys.POSTINGS, key): there[own[0]]}
    yield "lists: two tables swapped", {first[i]: again(there[first[1 - i]], head=i) for i in (0, 1)}


def joined(one: bytes, other: bytes) -> bytes:
    """A block that names the rows of a later one, too."""
    (head, payload), (more, others) = (records.decode(value, "test") for value in (one, other))
    parts = postings.buckets(payload, head.count, head.width), postings.buckets(others, more.count, more.width)
    buckets, rows = (
        np.concatenate([parts[0][0], parts[1][0]]),
        np.append(parts[0][1], parts[1][1] + more.first - head.first),
    )
    order = np.argsort(rows)
    return again(one, reference.list_payload(buckets[order], rows[order], head.width), count=head.count + more.count)


def impossible_lists(payload: Any, count: int, bits: int) -> Iterator[tuple[str, bytes]]:
    """Payloads of the same size: starts, rows and lower bits that cannot be, and some that are only not the codes'."""
    bins = 1 << min(bits, 14)
    data = np.frombuffer(payload, np.uint8)
    starts, rows = data[: 2 * (bins + 1)].view("<u2"), data[2 * (bins + 1) :][: 2 * count].view("<u2")
    low = data[2 * (bins + 1 + count) :]

    def of(new: Any = starts, names: Any = rows, lower: Any = low) -> bytes:
        whole = [np.ascontiguousarray(part).astype("<u2").tobytes() for part in (new, names)]
        return b"".join(whole) + np.ascontiguousarray(lower, np.uint8).tobytes()

    middle = len(starts) // 2
    yield "starts fall", of(starts[::-1])
    yield "starts beyond", of(np.where(np.arange(len(starts)) == middle, 65_535, starts))
    yield "starts huge", of(np.full_like(starts, 65_535))
    yield "starts zero", of(np.zeros_like(starts))
    yield "starts begin late", of(np.maximum(starts, 1))
    yield "starts end early", of(np.minimum(starts, count - 1))
    yield "another bucket", of(np.where((starts > 0) & (starts < count), starts + 1, starts).clip(0, count))
    yield "rows beyond", of(names=np.where(np.arange(count) == count // 2, 65_535, rows))
    yield "rows fall", of(names=rows[::-1])
    yield "rows all the same", of(names=np.zeros_like(rows))
    own = int(np.argmax(np.diff(starts)))
    twice = rows.copy()
    twice[starts[own] + 1] = twice[starts[own]]
    yield "a row twice", of(names=twice)
    others = np.flatnonzero(np.diff(starts))
    a, b = int(starts[others[0]]), int(starts[others[-1]])
    exchanged = rows.copy()
    exchanged[[a, b]] = exchanged[[b, a]]
    yield "two rows in each other's buckets", of(names=exchanged)
    if len(low):
        yield "lower bits beyond", of(lower=np.full_like(low, 255))
        yield "lower bits fall", of(lower=low[::-1])
        yield "lower bits zero", of(lower=np.zeros_like(low))
