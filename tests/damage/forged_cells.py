"""Forgeries of cells: records that are sound by themselves, and do not agree with the rows or with each other."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgpack
import numpy as np

from lsqindex._storage.format import keys

from .forging import Entries, Forgery, again, body, mapping


def forged_cells(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Entries, tails, centres, and what the state and the structure say of them."""
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    of = {
        letter: sorted(key for db, key in there if db == keys.CELLS and key[:1] == letter)
        for letter in (b"c", b"k", b"t", b"z")
    }
    one, two = of[b"k"][:2]
    width = state["code_size"]
    payload = body(there[keys.CELLS, one])
    padded = len(payload) // (width + 4)
    rows = np.frombuffer(payload, "<u4", offset=padded * width)
    for name, other in (
        ("falling", rows[::-1]),
        ("one twice", np.where(np.arange(padded) == 1, rows[0], rows)),
        ("a fresh one", np.where(np.arange(padded) == padded - 1, state["rows"] - 1, rows)),
        ("a huge one", np.where(np.arange(padded) == 3, 0xFFFFFFF0, rows)),
        ("padding among them", np.where(np.arange(padded) == 3, 0xFFFFFFFF, rows)),
        ("other ones", np.sort(rows) ^ 1),
    ):
        forged = payload[: padded * width] + other.astype("<u4").tobytes()
        yield f"cells: rows, {name}", {(keys.CELLS, one): again(there[keys.CELLS, one], forged)}
    last = struct.unpack("<I", there[keys.CELLS, one][4:8])[0] - 1  # (the first rows are deleted)
    at = last // 32 * 32 * state["head"] + last % 32
    flipped = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
    yield "cells: another code", {(keys.CELLS, one): again(there[keys.CELLS, one], flipped)}
    count = struct.unpack("<I", there[keys.CELLS, one][4:8])[0]
    for changes in ({"count": count - 1}, {"count": count + 32}, {"count": 0}, {"count": 1 << 31}, {"first": 77}):
        yield f"cells: {changes}", {(keys.CELLS, one): again(there[keys.CELLS, one], **changes)}
    for changes in ({"width": width + 1}, {"generation": 9}, {"head": 0}, {"kind": b"t"}, {"kind": b"c"}):
        yield f"cells: {changes}", {(keys.CELLS, one): again(there[keys.CELLS, one], **changes)}
    yield "cells: shorter", {(keys.CELLS, one): again(there[keys.CELLS, one], payload[:-4])}
    yield "cells: empty", {(keys.CELLS, one): b""}
    yield "cells: exchanged", {(keys.CELLS, one): there[keys.CELLS, two], (keys.CELLS, two): there[keys.CELLS, one]}
    for letter, some in of.items():
        for key in some:
            yield f"cells: {letter.decode()} {keys.row_of(key)} is missing", {(keys.CELLS, key): None}
    yield "cells: without tails", {(keys.CELLS, key): None for key in of[b"t"]}
    yield "cells: of no centre", {(keys.CELLS, keys.cell(1 << 20)): again(there[keys.CELLS, one], first=1 << 20)}
    tail = keys.cell_tail(keys.row_of(one))
    yield "cells: a long tail", {(keys.CELLS, tail): again(there[keys.CELLS, one], kind=b"t")}
    centre = of[b"c"][0]
    floats = np.frombuffer(body(there[keys.CELLS, centre]), "<f4")
    for name, value in (("nan", np.nan), ("inf", np.inf)):
        forged = np.where(np.arange(len(floats)) == 1, value, floats).astype("<f4").tobytes()
        yield f"centre: {name}", {(keys.CELLS, centre): again(there[keys.CELLS, centre], forged)}
    negative = np.append(floats[:-1], -1).astype("<f4").tobytes()
    yield "centre: a negative spread", {(keys.CELLS, centre): again(there[keys.CELLS, centre], negative)}
    yield "centre: longer", {(keys.CELLS, centre): again(there[keys.CELLS, centre], floats.tobytes() + bytes(4))}
    yield "centre: two", {(keys.CELLS, centre): again(there[keys.CELLS, centre], count=2)}
    yield "centre: missing", {(keys.CELLS, centre): None}
    (coded,) = of[b"z"]
    payload = body(there[keys.CELLS, coded])
    count = len(of[b"c"])
    numbers = np.frombuffer(payload, "<u4", count)
    for name, other in (("falling", numbers[::-1]), ("equal", np.zeros_like(numbers))):
        forged = other.astype("<u4").tobytes() + payload[4 * count :]
        yield f"codes of centres: {name}", {(keys.CELLS, coded): again(there[keys.CELLS, coded], forged)}
    for changes in ({"count": count + 1}, {"width": width + 1}, {"generation": 9}, {"kind": b"c"}, {"first": 1}):
        yield f"codes of centres: {changes}", {(keys.CELLS, coded): again(there[keys.CELLS, coded], **changes)}
    yield "codes of centres: shorter", {(keys.CELLS, coded): again(there[keys.CELLS, coded], payload[:-1])}
    yield "cells: a key of no kind", {(keys.CELLS, b"x\0\0\0\0"): there[keys.CELLS, one]}
    yield "cells: a long key", {(keys.CELLS, one + b"\0"): there[keys.CELLS, one]}
    for changes in ({"cells": 0}, {"cells": 1}, {"cells": 1 << 31}, {"next_cell": 1}, {"listed": 5}, {"listed": 0}):
        yield f"state: {changes}", mapping(there, keys.STATE, **changes)
    for changes in ({"count": -1}, {"spill": 1}, {"spill": False}, {"codes": False}, {"rule": 3}, {"rule": {"a": "b"}}):
        yield f"subset: {changes}", mapping(there, keys.SUBSET, **changes)
    for changes in ({"rule": {"a": float("nan")}}, {"kind": "multi-index"}, {"kind": ...}, {"count": ...}):
        yield f"subset: {changes}", mapping(there, keys.SUBSET, **changes)
