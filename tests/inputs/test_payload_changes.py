"""Payloads that are set, deleted by a filter, read by another process; their largest sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format import keys, payload_columns
from lsqindex._storage.store import Store
from lsqindex.errors import (
    FilterError,
    PayloadError,
    ReadOnlyError,
)
from tests.processes import run

from .stored_payloads import CHUNK, DIM, OPTIONS, holds, payloads, vectors

# -- set_payloads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS)
def test_payloads_are_set_and_vectors_stay(options: str, make: Callable[..., Index]) -> None:
    index = make(**OPTIONS[options])
    index.add(vectors(100), payloads=payloads(0, 100))
    before, trained = index.get(range(100)), index.is_trained
    searched = index.search(vectors(5), k=100)
    index.set_payloads([3, 4, 99], [{"i": 1}, None, {}])
    index.set_payloads(50, {"lang": "fr"})
    index.set_payloads(51, None)
    index.set_payloads([], [])
    wanted = dict(enumerate(payloads(0, 100))) | {3: {"i": 1}, 4: None, 99: {}, 50: {"lang": "fr"}, 51: None}
    holds(index, wanted)
    assert np.array_equal(index.get(range(100)), before) and index.is_trained == trained
    again = index.search(vectors(5), k=100)
    assert np.array_equal(again.ids, searched.ids) and np.array_equal(again.distances, searched.distances)
    index.add(vectors(1))  # the next number is what it was
    assert index.ids()[-1] == 100


def test_setting_payloads_for_ever_does_not_grow_the_file(tmp_path: Path) -> None:
    with Index.create(tmp_path / "again.lsq", DIM, fields=["i"], keep_vectors=None) as index:
        index.add(vectors(1_500), payloads=payloads(0, 1_500))
        size = 0
        for step in range(12):
            index.set_payloads(range(1_500), [{"i": i, "step": step} for i in range(1_500)])
            size = max(size, index.stats()["file_bytes"]) if step < 6 else size
        assert index.stats()["file_bytes"] <= 1.5 * size
        assert index.payloads(range(1_500)) == [{"i": i, "step": 11} for i in range(1_500)] and index.check() == []


# -- deleting what a filter lets through ------------------------------------------------------------


@pytest.mark.parametrize("fields", [(), ("i", "lang")])
def test_a_filter_tells_what_is_deleted(fields: tuple[str, ...], make: Callable[..., Index]) -> None:
    index = make(encoder="flat", fields=fields)
    n = CHUNK + 200
    index.add(vectors(n), payloads=payloads(0, n))
    wanted = dict(enumerate(payloads(0, n)))

    def forget(matches: Callable[[dict[str, Any]], bool]) -> int:
        gone = [name for name, own in wanted.items() if matches(own or {})]
        for name in gone:
            del wanted[name]
        return len(gone)

    assert index.delete({"lang": "vi"}) == forget(lambda own: own.get("lang") == "vi")
    holds(index, wanted)  # the chunk is gone, its rows moved
    assert index.delete({"lang": "vi"}) == 0
    with index.batch() as batch:
        batch.add(vectors(2), ids=[n, n + 1], payloads=[{"i": -1}, {"i": 5_000}])
        wanted |= {n: {"i": -1}, n + 1: {"i": 5_000}}
        # What was added in this transaction counts, what was deleted in it does not.
        assert batch.delete({"i": {"$lt": 10}}) == forget(lambda own: own.get("i", 99) < 10)
        assert batch.delete({"i": {"$lt": 10}}) == 0
        with pytest.raises(FilterError):
            batch.delete({"i": {"$less": 10}})
    holds(index, wanted)
    with pytest.raises(KeyboardInterrupt), index.batch() as batch:
        assert batch.delete({}) == len(wanted)
        raise KeyboardInterrupt
    holds(index, wanted)
    with pytest.raises(FilterError):
        index.delete({"$or": []})
    rest = len(wanted)
    assert index.delete({"$ids": [20, 21], "i": {"$exists": True}}) == sum(name in wanted for name in (20, 21)) > 0
    assert 0 < index.delete({}) < rest and len(index) == 0


# -- the file, other processes ----------------------------------------------------------------------


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "shared.lsq"
    with Index.create(path, DIM, ids="str", fields=["lang"], keep_vectors=None) as index:
        index.add(vectors(2), ids=["a", "b"], payloads=[{"lang": "én"}, None])
        code = (
            "import sys; from lsqindex import Index\n"
            "with Index.open(sys.argv[1]) as index:\n"
            "    print(index.payloads(['a', 'b']), index.ids({'lang': 'én'}))\n"
            "    index.add([[1, 2, 3]], ids=['c'], payloads=[{'lang': 'én', 'from': 'there'}])\n"
        )
        assert run(code, path) == "[{'lang': 'én'}, None] ['a']"
        assert index.ids({"lang": "én"}) == ["a", "c"] and index.payloads("c")["from"] == "there"
    with Index.open(path, read_only=True) as index:
        assert index.payloads(["a", "b"]) == [{"lang": "én"}, None] and index.stats()["fields"] == ["lang"]
        with pytest.raises(ReadOnlyError):
            index.set_payloads(["a"], [None])
        with pytest.raises(ReadOnlyError):
            index.add(vectors(1), ids=["d"], payloads=[{}])
        assert index.check() == []


def test_a_snapshot_from_before_payloads_began(tmp_path: Path) -> None:
    with Index.create(tmp_path / "late.lsq", DIM, keep_vectors=None) as index:
        index.add(vectors(600))
        with index._reader() as before:
            index.add(vectors(10), payloads=[{"i": 1}] * 10)
            with index._reader() as between:
                index.set_payloads(range(600), [{"i": 2}] * 600)
                rows = np.arange(610, dtype=np.uint32)
                assert Store(before, index._options).payloads_of(rows[:600]) == [b""] * 600
                assert Store(between, index._options).payloads_of(rows)[590:] == [
                    *[b""] * 10,
                    *[msgpack.packb({"i": 1})] * 10,
                ]
        assert index.payloads([0, 605]) == [{"i": 2}, {"i": 1}] and index.check() == []


def test_what_is_stored_is_msgpack(tmp_path: Path) -> None:
    """Read without this package: docs/format.md."""
    path = tmp_path / "plain.lsq"
    with Index.create(path, DIM, fields=["lang"], keep_vectors=None) as index:
        index.add(vectors(3), payloads=[{"lang": "en"}, None, {"lang": "en", "n": 1}])
    with lmdb.open(str(path), subdir=False, lib_version=0, readonly=True, lock=False, max_dbs=6) as env:
        db = env.open_db(keys.PAYLOADS, create=False)
        with env.begin(db=db) as txn:
            stored = {key: value[48:] for key, value in txn.cursor()}
    assert stored == {
        b"f\0\0\0\0\0\0": b"\0\0\xff\xff\0\0\x91\xa2en",
        b"y\0\0\0\0": b"\x09\0\0\0\x09\0\0\0\x15\0\0\0"
        + msgpack.packb({"lang": "en"})
        + msgpack.packb({"lang": "en", "n": 1}),
    }


# -- sizes ------------------------------------------------------------------------------------------


def test_the_largest_payload(make: Callable[..., Index]) -> None:
    most = payload_columns.MAX_PAYLOAD_BYTES
    index = make()
    index.add(vectors(2), payloads=[{"a": b"x" * (most - 8)}, {"b": 1}])
    assert index.payloads([0, 1]) == [{"a": b"x" * (most - 8)}, {"b": 1}]
    for size in (most - 7, most + 5):
        with pytest.raises(PayloadError, match=r"at most 4,194,304; store the data elsewhere") as caught:
            index.add(vectors(2), payloads=[None, {"a": b"x" * size}])
        assert "at 1" in str(caught.value)
    assert len(index) == 2 and index.ids({"b": 1}).tolist() == [1]


def test_the_largest_value_of_an_indexed_field(make: Callable[..., Index]) -> None:
    most = payload_columns.MAX_VALUE_BYTES
    index = make(fields=["a"])
    texts = ["x" * (most - 3), "y" * (most - 3)]
    index.add(vectors(2), payloads=[{"a": text} for text in texts])
    assert index.ids({"a": texts[1]}).tolist() == [1]
    with pytest.raises(PayloadError, match=r"a: 65,537 bytes.*without this field"):
        index.add(vectors(1), payloads=[{"a": "x" * (most - 2)}])
    index.add(vectors(1), payloads=[{"b": "x" * most}])
    assert len(index) == 3
