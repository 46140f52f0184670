"""Forgeries of options, state and encoder, and msgpack that means harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np

from lsqindex import make_encoder
from lsqindex._storage.format import keys, meta, records
from lsqindex.encoders import to_bytes

from .forging import Entries, Forgery, again, body, mapping


def forged_state(there: Entries) -> Iterator[tuple[str, Forgery]]:
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    rows, stored, count, size = state["rows"], state["stored"], state["count"], state["code_size"]
    changes: dict[str, Any]
    for changes in (
        {"rows": rows + 1},
        {"rows": rows + 4064},
        {"rows": rows - 1},
        {"rows": rows - 1, "stored": stored - 1},
        {"rows": rows - 1, "stored": stored - 1, "count": count - 1},
        {"rows": 2**32 - 2},
        {"rows": 0, "stored": 0, "count": 0},
        {"stored": stored - 1},
        {"count": count - 1},
        {"count": stored},
        {"count": 0},
        {"generation": state["generation"] + 1},
        {"generation": 2**32 - 1},
        {"code_size": size + 1},
        {"code_size": 1},
        {"code_size": 1 << 24},
        {"head": 0 if state["head"] else 1},
        {"head": max(1, state["head"] - 1)} if state["head"] > 1 else {"head": size},
        {"staged_generation": state["generation"]} if state["generation"] else {"staged_generation": -1},
        {"staged_generation": 2**32},
        {"staged_rows": 1},
        {"staged_rows": rows},
        {"staged_rows": 2**32 - 1},
        {"txn": ...},
        {"txn": "1"},
        {"rows": None},
        {"next_id": 2**62},
        {"next_id": -1},
        {"count": 1.5},
        {"head": True},
        {"more": 1},
        {"listed": state["listed"] + 1},
        {"listed": rows + 1},
        {"listed": -1},
        {"listed": None},
        {"listed": ...},
        {"listed": ..., "relisted": ...},
        {"relisted": -1},
        {"relisted": "1"},
        {"payloads": 1 - state["payloads"]},
        {"payloads": 2},
        {"payloads": -1},
        {"payloads": None},
        {"payloads": ...},
        {"listed": ..., "relisted": ..., "payloads": ..., **NO_NEXT},
        NO_NEXT,
        NO_CELLS,
        {"next_generation": ...},
        {"next_generation": state["generation"] + 7},
        {"next_generation": state["generation"], "next_size": 5},
        {"next_generation": state["generation"] + 7, "next_size": 5, "next_head": 5},
        {"next_generation": state["generation"] + 7, "next_size": 5, "next_head": 5, "recoded": rows},
        {"next_size": 5},
        {"recoded": 5},
    ):
        yield f"state: {changes}", mapping(there, keys.STATE, **changes)
    later = {"staged_rows": rows + 10, "staged_generation": state["generation"] + 1}
    yield "state: unfinished", mapping(there, keys.STATE, **later)
    yield "state: missing", {(keys.META, keys.STATE): None}
    yield "state: the options", {(keys.META, keys.STATE): there[keys.META, keys.OPTIONS]}


#: The fields of the state that came with format 4.
NO_CELLS: dict[str, Any] = dict.fromkeys(("cells", "next_cell"), ...)
NO_NEXT: dict[str, Any] = {**dict.fromkeys(("next_generation", "next_size", "next_head", "recoded"), ...), **NO_CELLS}


def forged_next(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Codes that are being rewritten, their encoder, and the records of both trainings."""
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    number, recoded, size = state["next_generation"], state["recoded"], state["next_size"]
    assert number and 32 < recoded < state["rows"]
    changes: dict[str, Any]
    for changes in (
        {"recoded": recoded - 1},
        {"recoded": recoded + 1},
        {"recoded": 0},
        {"recoded": state["rows"]},
        {"next_generation": number + 1},
        {"next_size": size + 1},
        {"next_size": 1},
        {"next_head": 0},
        {"next_generation": 0, "next_size": 0, "next_head": 0, "recoded": 0},
    ):
        yield f"next: {changes}", mapping(there, keys.STATE, **changes)
    own = sorted(entry for entry in there if entry[1].startswith(keys.codes_prefix(number)))
    yield "next: codes missing", dict.fromkeys(own, None)
    yield "next: the first codes missing", {own[0]: None}
    yield "next: the last codes missing", {own[-1]: None}
    yield "next: codes of the other generation", {own[0]: there[keys.CODES, b"c\0\0\0\1" + own[0][1][5:]]}
    encoder, following = (keys.META, keys.ENCODER), (keys.META, keys.NEXT_ENCODER)
    yield "next: no encoder", {following: None}
    yield "next: an encoder of other codes", {following: meta.pack(other_encoder(there))}
    yield "next: the options for an encoder", {following: there[keys.META, keys.OPTIONS]}
    yield "next: encoder damaged", {following: again(there[encoder], body(there[encoder])[:-1])}
    for key in (keys.TRAINING, keys.NEXT_TRAINING):
        for changes in ({"error": -1.0}, {"now": float("nan")}, {"reviewed": -1}, {"sampled": ...}, {"vectors": "8"}):
            yield f"next: {key.decode()} {changes}", mapping(there, key, **changes)
        yield f"next: {key.decode()} is a state", {(keys.META, key): there[keys.META, keys.STATE]}
    yield "next: no training of the next encoder", {(keys.META, keys.NEXT_TRAINING): None}


def other_encoder(there: Entries) -> dict[str, Any]:
    """The record of a sound encoder whose codes are shorter than those of the index."""
    record = msgpack.unpackb(body(there[keys.META, keys.ENCODER]))
    made = make_encoder("lsh", bits=8).fit(np.eye(8))
    return {**record, "name": "lsh", "config": made.config, "fitted": to_bytes(made)}


def forged_options(there: Entries) -> Iterator[tuple[str, Forgery]]:
    options = msgpack.unpackb(body(there[keys.META, keys.OPTIONS]))
    changes: dict[str, Any]
    for changes in (
        {"dim": options["dim"] + 1},
        {"dim": 1},
        {"dim": 1 << 20},
        {"dim": 0},
        {"dim": -5},
        {"dim": 2**63},
        {"dim": "8"},
        {"metric": "hamming"},
        {"metric": ["l2"]},
        {"ids": "str" if options["ids"] == "int" else "int"},
        {"ids": None},
        {"keep_vectors": None if options["keep_vectors"] else "float32"},
        {"keep_vectors": "float32" if options["keep_vectors"] == "float16" else "float16"},
        {"keep_vectors": {}},
        {"train_size": -1},
        {"uuid": b""},
        {"uuid": ...},
        {"format": 7},
        {"format": 3},
        {"format": 2},
        {"format": 1},
        {"fields": None},
        {"fields": ...},
        {"fields": "lang"},
        {"fields": [5]},
        {"fields": [""]},
        {"fields": [*options["fields"], "more"]},
        {"format": 0},
        {"format": []},
        {"program": "another"},
        {"program": ...},
        {"more": 1},
    ):
        yield f"options: {changes}", mapping(there, keys.OPTIONS, **changes)
    yield "options: missing", {(keys.META, keys.OPTIONS): None}
    yield "options: a stranger in the database", {(keys.META, b"other"): there[keys.META, keys.OPTIONS]}


#: Values that no parameter of an encoder can have.
IMPOSSIBLE: list[Any] = [-(1 << 40), 1 << 60, "impossible", [8], {"a": {}}, b"8"]


def forged_encoder(there: Entries) -> Iterator[tuple[str, Forgery]]:
    record = msgpack.unpackb(body(there[keys.META, keys.ENCODER]))
    config, fitted = record["config"], record["fitted"]
    other = make_encoder("lsh", bits=8).fit(np.eye(3))
    changes: list[dict[str, Any]] = [
        {"name": "no such encoder"},
        {"name": ""},
        {"name": ...},
        {"name": None},
        {"name": 5},
        {"name": ["lsq"]},
        {"name": {"a": 1}},
        {"name": b"lsq"},
        {"name": "../lsq"},
        {"name": "x" * 100_000},
        {"name": "kmeans"},
        {"config": ...},
        {"config": []},
        {"config": {"no such parameter": 1}},
        {"config": {b"bits": 8}},
        {"config": {"self": 1}},
        {"config": {"encoder": "lsq"}},
        {"fitted": ...},
        {"fitted": b""},
        {"fitted": b"\xc1"},
        {"fitted": "text"},
        {"fitted": 7},
        {"fitted": to_bytes(other), "name": "lsh", "config": other.config},
        {"fitted": to_bytes(other)},
        {"fitted": None if fitted else to_bytes(other)},
        {"distribution": 5, "name": "gone"},
        {"distribution": [1, 2], "name": "gone"},
        {"distribution": ["a" * 1000, {}], "name": "gone"},
    ]
    if fitted:
        inner = msgpack.unpackb(fitted)
        array = sorted(inner["state"])[0]
        for name, forged in {
            "huge": ["<f4", [1 << 30, 1 << 9], b""],
            "negative": ["<f4", [-1], b""],
            "object": ["|O", [1], bytes(8)],
            "NaN": ["<f4", inner["state"][array][1], b"\xff" * len(inner["state"][array][2])],
            "no list": 5,
        }.items():
            state = {**inner["state"], array: forged}
            yield (
                f"encoder: array {name}",
                mapping(there, keys.ENCODER, fitted=msgpack.packb({**inner, "state": state})),
            )
        for name, value in (
            ("dim", inner["dim"] + 1),
            ("dim", 1 << 40),
            ("version", 99),
            ("format", 99),
            ("name", "pq"),
        ):
            yield f"encoder: inner {name}", mapping(there, keys.ENCODER, fitted=msgpack.packb({**inner, name: value}))
    for name in config:
        for value in IMPOSSIBLE:
            yield f"encoder: {name}={value!r}", mapping(there, keys.ENCODER, config={**config, name: value})
    for change in changes:
        yield f"encoder: {str(change)[:80]}", mapping(there, keys.ENCODER, **change)
    yield "encoder: missing", {(keys.META, keys.ENCODER): None}


#: msgpack that means harm; the count in the record's header is right where there is one.
MALICIOUS = {
    "nothing": b"",
    "nil": b"\xc0",
    "a number": b"\x05",
    "a reserved byte": b"\xc1",
    "deep arrays": b"\x91" * 200_000,
    "deep mappings": b"\x81\xa1a" * 100_000,
    "a deep value": b"\x81\xa3txn" + b"\x91" * 100_000 + b"\xc0",
    "a huge array": b"\xdd\xff\xff\xff\xff",
    "a huge mapping": b"\xdf\xff\xff\xff\xff",
    "a huge string": b"\xdb\xff\xff\xff\xff",
    "huge bytes": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "a huge extension": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "an extension": b"\x81\xa3dim\xd4\x05x",
    "a time": b"\x81\xa3txn\xd6\xff\0\0\0\0",
    "a time that cannot be": b"\x81\xa3txn\xc7\x0c\xff" + b"\xff" * 12,
    "a number as key": b"\x81\x05\x05",
    "a mapping as key": b"\x81\x80\x05",
    "bytes as key": b"\x81\xc4\x03txn\x05",
    "a key twice": b"\x82\xa3txn\x05\xa3txn\x06",
    "a name that is no UTF-8": b"\x81\xa3\xff\xfe\xfd\x05",
    "something behind": b"\x81\xa3txn\x05\x05",
}


def malicious(there: Entries) -> Iterator[tuple[str, Forgery]]:
    del there
    for key in (keys.OPTIONS, keys.STATE, keys.ENCODER):
        for name, data in MALICIOUS.items():
            for count in (1, 2**32 - 1):
                value = records.encode(records.Header(records.META, count), data)
                yield f"{key.decode()}: {name}, count {count}", {(keys.META, key): value}
