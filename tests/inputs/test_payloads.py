"""Payloads: stored with their vectors, read as they were given, moved and copied with them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage import rewrite
from lsqindex._storage.lmdb import opening
from lsqindex._storage.lmdb.writer import Writer
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex.errors import (
    DuplicateIdError,
    IdError,
    PayloadError,
    UnknownIdError,
)

from .stored_payloads import CHUNK, DIM, OPTIONS, holds, payload, payloads, vectors

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
    monkeypatch.setattr(opening, "INITIAL_MAP", 1 << 16)
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
