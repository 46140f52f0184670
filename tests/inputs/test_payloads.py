"""Payloads: stored with their vectors, read as they were given, moved and copied with them, and errors that say why."""

from __future__ import annotations

import enum
import math
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex._storage import rewrite
from lsqindex._storage.format import columns, keys, payload_columns
from lsqindex._storage.lmdb import engine
from lsqindex._storage.lmdb.writer import Writer
from lsqindex._storage.store import Store
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex.errors import (
    DuplicateIdError,
    FilterError,
    IdError,
    LsqIndexError,
    ParameterError,
    PayloadError,
    ReadOnlyError,
    UnknownIdError,
    VectorError,
)

DIM = 3
CHUNK = columns.CHUNK_ROWS

#: The ways to have an index; what is the same in all of them is tested in all of them.
OPTIONS: dict[str, dict[str, Any]] = {
    "untrained": {"train_size": 1 << 40},
    "trained": {"encoder": "lsh", "bits": 16, "train_size": 10},
    "kept": {"encoder": "lsh", "bits": 16, "train_size": 10, "keep_vectors": "float16"},
    "indexed": {"fields": ["lang", "meta.year"]},
    "all": {"encoder": "lsh", "bits": 16, "train_size": 10, "keep_vectors": "int8", "fields": ["i", "lang"]},
    "lists": {"encoder": "lsh", "bits": 16, "train_size": 10, "subset": MultiIndex(bits=8), "fields": ["i"]},
}


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


def payload(i: int) -> dict[str, Any] | None:
    """None, empty, small and larger ones, by a number."""
    if i % 7 == 3:
        return None if i % 2 else {}
    return {"i": i, "lang": ["en", "vi", "eo"][i % 3], "meta": {"year": 1990 + i % 40}, "text": "é" * (i % 50)}


def payloads(first: int, end: int) -> list[Any]:
    return [payload(i) for i in range(first, end)]


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Index]]:
    """Makes an index, in memory or in a file, and looks at it when all is done."""
    made: list[Index] = []

    def create(**options: Any) -> Index:
        in_memory = request.param == "memory"
        made.append(Index(DIM, **options) if in_memory else Index.create(tmp_path / "index.lsq", DIM, **options))
        return made[-1]

    yield create
    for index in made:
        assert index.check() == []
        index.close()


def holds(index: Index, wanted: dict[Any, Any]) -> None:
    """The index has these ids and payloads, however it is asked."""
    names = sorted(wanted)
    assert [*index.ids()] == names
    given = [wanted[name] for name in names]
    assert index.payloads(names) == given
    for filter in (
        {"i": {"$gte": 40}},
        {"lang": "vi"},
        {"meta.year": {"$in": [1991, 2000]}},
        {"i": {"$exists": False}},
    ):
        ((name, test),) = filter.items()
        matching = [own for own in names if _matches(wanted[own], name, test)]
        assert [*index.ids(filter)] == matching
    assert index.check() == []


def _matches(own: Any, name: str, test: Any) -> bool:
    own = own or {}
    if name == "lang":
        return bool(own.get("lang") == test)
    if name == "meta.year":
        return own.get("meta", {}).get("year") in test["$in"]
    return ("i" in own and own["i"] >= test["$gte"]) if "$gte" in test else "i" not in own


# -- storing and reading ----------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["int", "str"])
@pytest.mark.parametrize("options", OPTIONS)
def test_payloads_are_stored_with_their_vectors(options: str, ids: Any, make: Callable[..., Index]) -> None:
    index = make(ids=ids, **OPTIONS[options])
    name: Callable[[int], Any] = str if ids == "str" else int
    index.add(vectors(100), ids=[name(i) for i in range(100)], payloads=payloads(0, 100))
    wanted = {name(i): payload(i) for i in range(100)}
    holds(index, wanted)
    # One by one, with and without; replaced with and without.
    for i in range(100, 120):
        index.add(vectors(1, i), ids=[name(i)], payloads=None if i % 2 else [payload(i)])
        wanted[name(i)] = None if i % 2 else payload(i)
    index.add(vectors(3, 7), ids=[name(i) for i in (5, 119, 200)], payloads=[{"i": 5}, None, {"i": 6}], upsert=True)
    wanted |= {name(5): {"i": 5}, name(119): None, name(200): {"i": 6}}
    index.add(vectors(2, 8), ids=[name(6), name(201)], upsert=True)
    wanted |= {name(6): None, name(201): None}
    holds(index, wanted)
    index.delete([name(i) for i in range(0, 60, 3)])
    for i in range(0, 60, 3):
        del wanted[name(i)]
    holds(index, wanted)
    with pytest.raises(UnknownIdError):
        index.payloads([name(0)])
    found = index.search(index.get(name(8)), k=3, with_payloads=True)
    assert found.payloads == [wanted[one] for one in found.ids.tolist()]
    assert index.search(vectors(1)[0], k=3).payloads is None
    if options in ("untrained", "kept", "indexed", "all"):
        index.reencode("lsh", bits=24)
        holds(index, wanted)
    if index.path:
        index.compact()
        holds(index, wanted)


def test_one_id_gives_one_payload_and_several_a_list(make: Callable[..., Index]) -> None:
    index = make()
    index.add(vectors(3), payloads=[{"a": 1}, None, {}])
    assert index.payloads(0) == {"a": 1} and index.payloads(1) is None and index.payloads(2) == {}
    assert index.payloads([2, 0, 0, 1]) == [{}, {"a": 1}, {"a": 1}, None]
    assert index.payloads([]) == [] and index.payloads(np.array([0])) == [{"a": 1}]
    found = index.search(vectors(3), k=5, with_payloads=True)
    assert [len(row) for row in found.payloads or []] == [5, 5, 5]
    assert [row[0] for row in found.payloads or []] == [{"a": 1}, None, {}]
    ids, distances = found  # a pair, as ever
    assert ids is found.ids and distances is found.distances and len(found) == 2


def test_an_index_without_payloads_has_none(make: Callable[..., Index]) -> None:
    index = make()
    index.add(vectors(5))
    assert index.payloads(range(5)) == [None] * 5 and index.stats()["payloads"] is False
    assert index.search(vectors(1)[0], 2, with_payloads=True).payloads == [None, None]
    assert index.ids({"a": 1}).tolist() == [] and index.ids({"a": {"$ne": 1}}).tolist() == [0, 1, 2, 3, 4]
    assert index.stats()["payload_bytes"] == 0


def test_everything_that_can_be_stored_comes_back(make: Callable[..., Index]) -> None:
    given: list[dict[str, Any]] = [
        {"none": None, "yes": True, "no": False, "small": -1, "large": 2**64 - 1, "least": -(2**63), "half": 0.5},
        {"": "", "é\0語": "𝄞", "bytes": b"\0\xff", "inf": math.inf, "zero": -0.0},
        {"list": [1, [2, [3, {"deep": [None]}]], {}], "map": {"a": {"b": {}}, "": 1}},
        {"keys": {1: "int", b"b": "bytes", None: 0, 1.5: True}},
        {f"field {i}": i for i in range(1000)},
    ]
    index = make(fields=["list", "map.a", "large"])
    index.add(vectors(len(given)), payloads=given)
    assert index.payloads(range(len(given))) == given
    index.add(vectors(1), ids=[50], payloads=[{"nan": math.nan}])
    assert math.isnan(index.payloads(50)["nan"])


def test_values_of_numpy_and_others_are_stored_as_plain_ones(make: Callable[..., Index]) -> None:
    given = {
        "int": np.int8(-3),
        "uint": np.uint64(2**64 - 1),
        "float": np.float32(0.5),
        "half": np.float16(1.5),
        "bool": np.bool_(True),
        "str": np.str_("é"),
        "array": np.arange(4).reshape(2, 2),
        "scalar": np.array(2.5),
        "tuple": (1, (2, "x")),
        "ordered": OrderedDict([("b", 1), ("a", 2)]),
        "proxy": MappingProxyType({"c": np.int64(3)}),
        "view": memoryview(b"12"),
        "bytearray": bytearray(b"3"),
    }
    plain = {
        "int": -3,
        "uint": 2**64 - 1,
        "float": 0.5,
        "half": 1.5,
        "bool": True,
        "str": "é",
        "array": [[0, 1], [2, 3]],
        "scalar": 2.5,
        "tuple": [1, [2, "x"]],
        "ordered": {"b": 1, "a": 2},
        "proxy": {"c": 3},
        "view": b"12",
        "bytearray": b"3",
    }
    index = make(fields=["int", "tuple", "proxy.c", "half"])
    index.add(vectors(2), payloads=[given, MappingProxyType(given)])
    assert index.payloads([0, 1]) == [plain, plain]
    assert type(index.payloads(0)["float"]) is float and type(index.payloads(0)["str"]) is str
    assert index.ids({"proxy.c": 3, "int": {"$lt": 0}, "half": 1.5, "tuple": 1}).tolist() == [0, 1]


def test_payloads_may_come_from_any_iterable(make: Callable[..., Index]) -> None:
    index = make()
    index.add(vectors(3), payloads=({"i": i} for i in range(3)))
    index.add(vectors(2), payloads=np.array([{"i": 3}, None], object))
    index.add(vectors(0), payloads=[])
    assert index.payloads(range(5)) == [{"i": 0}, {"i": 1}, {"i": 2}, {"i": 3}, None]


def test_batches_of_an_iterator_bring_payloads(make: Callable[..., Index]) -> None:
    index = make(fields=["i"])
    batches: list[Any] = [
        (vectors(2), [5, 6], [{"i": 5}, None]),
        (vectors(2), [7, 8]),
        vectors(1),
        (vectors(1), None, [{"i": 10}]),
    ]
    assert index.add(iter(batches)).tolist() == [5, 6, 7, 8, 9, 10]
    assert index.payloads(range(5, 11)) == [{"i": 5}, None, None, None, None, {"i": 10}]
    with pytest.raises(IdError, match="triples"):
        index.add(iter(batches), payloads=[None])
    with pytest.raises(PayloadError):  # the second batch; the first is there
        index.add(iter([(vectors(1), [20], [{"i": 20}]), (vectors(1), [21], [5])]))
    assert index.payloads(20) == {"i": 20} and 21 not in index


def test_a_batch_is_one_transaction(make: Callable[..., Index]) -> None:
    index = make(fields=["lang"])
    with index.batch() as batch:
        assert batch.add(vectors(2), ids=[0, 1], payloads=[{"lang": "en"}, None]).tolist() == [0, 1]
        batch.add(vectors(1), ids=[0], payloads=[{"lang": "vi"}], upsert=True)
        with pytest.raises(DuplicateIdError):
            batch.add(vectors(2), ids=[7, 1], payloads=[{"lang": "fr"}] * 2)
        with pytest.raises(PayloadError):
            batch.add(vectors(1), ids=[8], payloads=[5])
        batch.delete([1])
        batch.add(vectors(1), ids=[1])
    assert index.payloads([0, 1]) == [{"lang": "vi"}, None] and len(index) == 2
    with pytest.raises(KeyboardInterrupt), index.batch() as batch:
        batch.add(vectors(1), ids=[0], payloads=[{"lang": "de"}], upsert=True)
        raise KeyboardInterrupt
    assert index.payloads(0) == {"lang": "vi"} and index.ids({"lang": "de"}).tolist() == []


# -- payloads that begin late -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["add", "batch", "large", "set", "failed batch", "failed large"])
@pytest.mark.parametrize("gone", [False, True])
def test_payloads_begin_late(how: str, gone: bool, make: Callable[..., Index], monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows there are get none: full parts, groups, pieces; and those of chunks that are gone do not."""
    monkeypatch.setattr(rewrite, "_SMALL", 0)
    n = 2 * CHUNK + 700
    index = make(encoder="flat")
    index.add(vectors(n))
    wanted: dict[Any, Any] = dict.fromkeys(range(n))
    if gone:
        index.delete(range(100, 1_500))
        index.delete(range(n - 30, n))
        wanted = {name: None for name in wanted if not (100 <= name < 1_500 or name >= n - 30)}
        assert index.stats()["deleted"] == 30
    new = payloads(n, n + 300)
    if how == "add":
        index.add(vectors(300), payloads=new)
    elif how == "set":
        index.add(vectors(300))
        index.set_payloads(range(n, n + 300), new)
    elif "batch" in how:
        with index.batch() as batch:
            if "failed" in how:
                with pytest.raises(DuplicateIdError):
                    batch.add(vectors(2), ids=[n + 5, 0], payloads=[{"i": 0}] * 2)
            batch.add(vectors(300), payloads=new)
    else:
        monkeypatch.setattr(loader, "COMMIT_BYTES", 1 << 14)
        new = payloads(n, n + 5_000)
        if "failed" in how:
            with pytest.raises(KeyboardInterrupt):
                index.add(vectors(5_000), payloads=new, progress=interrupt)
            holds(index, wanted)
        index.add(vectors(5_000), payloads=new)
    wanted |= dict(zip(range(n, n + len(new)), new, strict=True))
    holds(index, wanted)
    assert index.stats()["payloads"] is True


def interrupt(done: int, total: int | None) -> None:
    raise KeyboardInterrupt


# -- large adds, deletes, copies --------------------------------------------------------------------


@pytest.mark.parametrize("options", ["untrained", "all", "lists"])
def test_many_rows_in_several_transactions(
    options: str, make: Callable[..., Index], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rewrite, "_SMALL", 0)
    for module in (loader, training, rewrite):
        monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 16)
    n = 2 * CHUNK + 333
    index = make(**OPTIONS[options])
    steps: list[int] = []
    index.add(vectors(n), payloads=payloads(0, n), progress=lambda done, total: steps.append(done))
    assert len(steps) > 2
    wanted = dict(enumerate(payloads(0, n)))
    holds(index, wanted)
    # Replaced and deleted: chunks are given back, and what lives of them moves.
    index.add(vectors(900, 1), ids=range(900), payloads=payloads(5, 905), upsert=True)
    wanted |= dict(enumerate(payloads(5, 905)))
    holds(index, wanted)
    index.delete(range(500, 2_000))
    for i in range(500, 2_000):
        del wanted[i]
    holds(index, wanted)
    index.add(vectors(100, 2))
    wanted |= dict.fromkeys(range(n, n + 100))
    index.save(tmp_path / "copy.lsq")
    with Index.open(tmp_path / "copy.lsq", read_only=True) as copy:
        holds(copy, wanted)
        assert copy.stats()["fields"] == list(OPTIONS[options].get("fields", ()))
    if index.path:
        index.compact()
    holds(index, wanted)


def test_payloads_when_the_map_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything of the transaction is done again: the beginning of payloads, too, and nested adds."""
    monkeypatch.setattr(engine, "INITIAL_MAP", 1 << 16)
    replayed: list[int] = []
    replay = Writer._replay

    def seen(writer: Writer) -> None:
        replayed.append(writer.state.rows)
        replay(writer)

    monkeypatch.setattr(Writer, "_replay", seen)
    with Index.create(tmp_path / "full.lsq", DIM, keep_vectors=None) as index:
        index.add(vectors(5_000))
        del replayed[:]
        with index.batch() as batch:
            batch.delete(range(10))
            batch.add(vectors(1_000), payloads=payloads(0, 1_000))
            with pytest.raises(DuplicateIdError):
                batch.add(vectors(2), ids=[7_000, 4_999], payloads=[{"i": 0}] * 2)
            batch.add(vectors(50), ids=range(7_000, 7_050), payloads=[{"text": "x" * 100_000, "i": 1}] * 50)
        assert replayed
        wanted: dict[Any, Any] = dict.fromkeys(range(10, 5_000))
        wanted |= {5_000 + i: payload(i) for i in range(1_000)}
        wanted |= {name: {"text": "x" * 100_000, "i": 1} for name in range(7_000, 7_050)}
        holds(index, wanted)
        del replayed[:]
        index.set_payloads(range(7_000, 7_040), [{"text": "y" * 200_000}] * 40)
        wanted |= {name: {"text": "y" * 200_000} for name in range(7_000, 7_040)}
        holds(index, wanted)
        assert replayed
    with Index.open(tmp_path / "full.lsq") as index:
        holds(index, wanted)


def test_parts_that_are_known_stay_where_they_are(tmp_path: Path) -> None:
    """Addresses of full parts are remembered from snapshot to snapshot: also where nearly all payloads are empty."""
    n = 2 * CHUNK
    with Index.create(tmp_path / "long.lsq", DIM, fields=["i"], keep_vectors=None) as index:
        index.add(vectors(n))
        wanted: dict[Any, Any] = dict.fromkeys(range(n))
        for step in range(40):
            index.add(vectors(9), ids=range(n + 9 * step, n + 9 * step + 9), payloads=payloads(step, step + 9))
            wanted |= dict(zip(range(n + 9 * step, n + 9 * step + 9), payloads(step, step + 9), strict=True))
            assert index.payloads(sorted(wanted)) == [wanted[name] for name in sorted(wanted)]
        index.delete(range(20, 1_200, 3))
        for name in range(20, 1_200, 3):
            del wanted[name]
        holds(index, wanted)


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
        environment = {"PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(Path(loader.__file__).parents[2])}
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, encoding="utf-8", check=True, env=environment
        )
        assert done.stdout.strip() == "[{'lang': 'én'}, None] ['a']"
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
                assert Store(before, index._options).payloads() is None
                seen = Store(between, index._options).payloads()
                assert seen is not None and seen.gather(np.arange(610, dtype=np.uint32))[590:] == [
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
        with pytest.raises(PayloadError, match=r"4,194,304 are possible; store it elsewhere") as caught:
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


# -- errors -----------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)

BAD: dict[str, tuple[Any, str]] = {
    "a mapping": ({"a": 1}, "a sequence of mappings is needed, one a vector, got dict"),
    "a string": ("ab", "a sequence of mappings is needed"),
    "a number": (5, "a sequence of mappings is needed"),
    "too few": ([{}], "2 are needed, one for each vector .*got 1"),
    "too many": ([{}] * 3, "got 3"),
    "a list": ([{}, [1]], r"a mapping \(or None\) is needed, got \[1\] at 1"),
    "text": ([{}, "a"], "a mapping .* at 1"),
    "a name that is no string": ([{}, {1: 2}], "names must be strings, got 1 at 1"),
    "a set": ([{}, {"a": {1}}], "at 1: a set cannot be stored, but its list can; possible are"),
    "an object": ([{}, {"a": [object()]}], "object cannot be stored"),
    "a date": ([{}, {"a": datetime(2026, 1, 1, tzinfo=timezone.utc)}], "datetime cannot be stored"),
    "a decimal": ([{}, {"a": Decimal(1)}], "Decimal cannot be stored"),
    "a complex number": ([{}, {"a": 1j}], "complex"),
    "a date of NumPy": ([{}, {"a": np.datetime64("2026-01-01")}], "date"),
    "a large int": ([{}, {"a": 2**64}], "int of 64 bits"),
    "a small int": ([{}, {"a": -(2**63) - 1}], "int of 64 bits"),
    "half a pair": ([{}, {"a": "\ud800"}], "surrogates"),
    "a name that is half a pair": ([{}, {"\ud800": 1}], "surrogates"),
    "a cycle": ([{}, {"a": CYCLE}], "recursion limit"),
    "too deep": ([{}, {"a": nested(3000)}], "recursion limit"),
    "a tuple as a name": ([{}, {"a": {(1, 2): 3}}], "at 1: could not be read again"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("fields", [(), ("a",)])
def test_what_cannot_be_stored_is_told_and_changes_nothing(
    case: str, fields: tuple[str, ...], make: Callable[..., Index]
) -> None:
    given, says = BAD[case]
    index = make(fields=fields)
    index.add(vectors(3), payloads=[{"a": 0}, None, {"a": 2}])
    before = index.stats()
    with index.batch() as batch:
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: batch.add(vectors(2), ids=[7, 8], payloads=given),
            lambda: batch.add(vectors(2), ids=[0, 1], payloads=given, upsert=True),
        )
        for attempt in attempts:
            with pytest.raises(PayloadError, match=says):
                attempt()
    for attempt in (
        lambda: index.add(vectors(2), payloads=given),
        lambda: index.add(vectors(2), ids=[0, 1], payloads=given, upsert=True),
        lambda: index.set_payloads([0, 1], given),
    ):
        with pytest.raises(PayloadError, match=says) as caught:
            attempt()
        assert isinstance(caught.value, LsqIndexError) and isinstance(caught.value, ValueError)
    assert index.payloads([0, 1, 2]) == [{"a": 0}, None, {"a": 2}] and index.stats() == before


def test_errors_of_set_payloads_change_nothing(make: Callable[..., Index]) -> None:
    index = make(fields=["a"])
    index.add(vectors(3), payloads=[{"a": 0}, None, {"a": 2}])
    with pytest.raises(UnknownIdError, match="7"):
        index.set_payloads([0, 7], [{"a": 5}] * 2)
    with pytest.raises(DuplicateIdError, match="more than once"):
        index.set_payloads([0, 0], [{"a": 5}] * 2)
    with pytest.raises(PayloadError, match="got dict"):
        index.set_payloads([0], {"a": 5})
    with pytest.raises(IdError):
        index.set_payloads("0", {"a": 5})
    assert index.payloads([0, 1, 2]) == [{"a": 0}, None, {"a": 2}]
    index.delete([0])
    with pytest.raises(UnknownIdError):
        index.set_payloads([0], [{}])


def test_an_add_that_fails_otherwise_leaves_no_payload(make: Callable[..., Index]) -> None:
    index = make()
    index.add(vectors(3))
    wrong = vectors(2)
    wrong[1, 1] = np.nan
    with pytest.raises(VectorError):
        index.add(wrong, payloads=[{"a": 1}] * 2)
    with pytest.raises(DuplicateIdError):
        index.add(vectors(2), ids=[9, 0], payloads=[{"a": 1}] * 2)
    assert index.stats()["payloads"] is False and index.payloads(range(3)) == [None] * 3


@pytest.mark.parametrize(
    "fields",
    ["lang", b"lang", 5, None, [""], ["$or"], [5], [None], ["a", "a"], ["\ud800"], [f"f{i}" for i in range(257)]],
    ids=lambda value: repr(value)[:20],
)
def test_fields_that_cannot_be(fields: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="fields"):
        Index(DIM, fields=fields, keep_vectors=None)
    with pytest.raises(ParameterError, match="fields"):
        Index.create(tmp_path / "never.lsq", DIM, fields=fields, keep_vectors=None)
    assert not (tmp_path / "never.lsq").exists()


def test_as_many_fields_as_there_can_be(make: Callable[..., Index]) -> None:
    names = [f"f{i}" for i in range(256)]
    index = make(fields=names)
    index.add(vectors(20), payloads=[dict.fromkeys(names[i:], i) for i in range(20)])
    assert index.stats()["fields"] == names
    assert index.ids({"f255": {"$gte": 18}, "f19": 19}).tolist() == [19]
    assert index.ids({"f3": {"$exists": True}}).tolist() == [0, 1, 2, 3]


class Header(dict[str, Any]):
    """A mapping that answers to names of any case, as those of HTTP headers do."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name.lower())


class Name(str, enum.Enum):
    LANG = "lang"


def test_indexed_values_are_those_that_are_stored(make: Callable[..., Index]) -> None:
    index = make(fields=["a", "A", Name.LANG], ids="str")
    assert index.stats()["fields"] == ["a", "A", "lang"]
    index.add(np.zeros((1, DIM)), ids=[Name.LANG], payloads=[Header(a=1, lang="en")])
    assert index.ids({"A": {"$exists": True}}) == [] and index.ids({"a": 1, Name.LANG: "en"}) == ["lang"]
    assert index.check() == []


def test_what_cannot_even_be_shown_is_refused_all_the_same(make: Callable[..., Index]) -> None:
    index = make()
    for payload in (10**5000, {10**5000: 1}, {"a": 10**5000}, {"a": memoryview(b"xyzw")[::2]}):
        with pytest.raises(PayloadError):
            index.add(np.zeros((1, DIM)), payloads=[payload])
    for use in (index.delete, index.get, index.payloads, lambda ids: index.ids({"$ids": ids})):
        with pytest.raises(IdError, match="does not fit into 64 bits"):
            use([10**5000])
    with pytest.raises(ParameterError):
        Index(1, fields=[10**5000], keep_vectors=None)  # type: ignore[list-item]
    assert len(index) == 0
