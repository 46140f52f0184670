"""Forged records: written behind the back of this package, in sound LMDB, with valid checksums."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import msgpack

from lsqindex._storage.format import keys, meta, records

# -- (c) files of others --------------------------------------------------------------------------
OUR_NAMES = (b"meta", b"codes", b"ids", b"vectors", b"postings", b"payloads", b"cells")


# -- (d) forged records: sound LMDB, valid checksums ----------------------------------------------
Entry = tuple[bytes, bytes]
Entries = dict[Entry, bytes]
#: (database, key) → the new value, or None to remove it.
Forgery = dict[Entry, bytes | None]


def entries(path: Path) -> Entries:
    """Everything in an index file."""
    with (
        lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, readonly=True, lock=False) as env,
        contextlib.ExitStack() as stack,
    ):
        dbs = {name: env.open_db(name, create=False) for name in OUR_NAMES}
        txn = stack.enter_context(env.begin())
        return {(name, key): value for name, db in dbs.items() for key, value in txn.cursor(db=db)}


def forge(path: Path, forgery: Forgery) -> None:
    """Write forged values behind the back of this package; the state tells the transaction, as it must."""
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 26) as env:
        dbs = {name: env.open_db(name, create=False) for name in OUR_NAMES}
        with env.begin(write=True) as txn:
            state = (keys.META, keys.STATE)
            todo = {state: bytes(txn.get(keys.STATE, b"", db=dbs[keys.META])), **forgery}
            for (name, key), value in todo.items():
                # LMDB never shrinks a large value in place: remove it first.
                txn.delete(key, db=dbs[name])
                if (name, key) == state and value is not None:
                    value = with_number(value, txn.id())
                if value is not None:
                    txn.put(key, value, db=dbs[name])


def with_number(state: bytes, number: int) -> bytes:
    """A state of transaction ``number``, where it is one that has a number."""
    try:
        values = msgpack.unpackb(state[48:])
        return meta.pack({**values, "txn": number}) if type(values.get("txn")) is int else state
    except (ValueError, TypeError, AttributeError):
        return state


def again(value: bytes, payload: Any = None, **changes: Any) -> bytes:
    """A record with another payload or header, and a valid checksum."""
    header, body = records.decode(value, "test")
    return records.encode(replace(header, **changes), bytes(body) if payload is None else payload)


def body(value: bytes) -> bytes:
    return bytes(records.decode(value, "test")[1])


def mapping(there: Entries, key: bytes, **changes: Any) -> Forgery:
    """The options, state or encoder with other values; … removes one."""
    values = {**msgpack.unpackb(body(there[keys.META, key])), **changes}
    return {(keys.META, key): meta.pack({name: value for name, value in values.items() if value is not ...})}
