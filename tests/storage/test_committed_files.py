"""Committed files of every format, which must open for ever."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest

from lsqindex import Cells, Index, MultiIndex
from lsqindex._inputs import options as settings
from lsqindex._inputs.filters import read_filter
from lsqindex._storage.format import columns, kept, keys, meta
from lsqindex._write import retraining
from lsqindex.encoders import from_bytes
from tests.settings import FIXTURES

# -- committed files ------------------------------------------------------------------------------


def recipes() -> Any:
    """tests/fixtures/make_index.py, which made the committed files."""
    spec = importlib.util.spec_from_file_location("make_index", FIXTURES / "make_index.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


made = recipes()


@pytest.fixture(params=["as it is", "read-only", "read-only medium"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Index]:
    """Opens a copy of a committed file, in each of the ways there are."""

    def open_copy(name: str) -> Index:
        path = tmp_path / name
        shutil.copyfile(FIXTURES / name, path)
        if request.param == "read-only medium":
            path.chmod(0o444)
        return Index.open(path, read_only=request.param != "as it is")

    return open_copy


#: What the committed file says, found when it was made: queries, and the ids and distances of the nearest.
QUERIES = np.arange(16).reshape(2, 8) % 5 - 2
NEAREST = [[1237, 187, 637, 403], [1345, 10042, 322, 1393]]
ESTIMATES = [[37.05351, 43.97017, 45.14291, 45.93269], [41.11074, 45.99322, 47.82743, 47.99699]]
#: Whole numbers, kept as they are: exact.
EXACT = ([[1237, 187, 637, 217], [1345, 10042, 322, 1393]], [[37, 44, 45, 46], [41, 46, 48, 48]])


def test_the_trained_file_of_format_1_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format1-trained.lsq") as index:
        assert index.check() == []
        first = np.delete(np.arange(550), np.s_[10:40]) * 3 - 101
        assert np.array_equal(index.ids(), [*first, *range(10_000, 10_043)])
        assert (index.dim, index.metric, index.is_trained, index.encoder.name) == (8, "l2", True, "lsq")
        assert index.stats()["deleted"] == 35
        vectors = index.get(index.ids())
        replaced = np.concatenate([made.vectors(5, 8, 3), made.vectors(41, 8, 2)[5:], made.vectors(2, 8, 4)])
        assert np.array_equal(vectors, np.concatenate([np.delete(made.vectors(550, 8, 1), np.s_[10:40], 0), replaced]))
        found = index.search(QUERIES, k=4, rerank=0)
        assert found.ids.tolist() == NEAREST
        np.testing.assert_allclose(found.distances, ESTIMATES, rtol=1e-4)
        for again in (index.search(QUERIES, k=4, rerank=600), index.search(QUERIES, k=4)):
            assert (again.ids.tolist(), again.distances.tolist()) == EXACT
        assert -71 not in index and 10_000 in index


def test_the_untrained_file_of_format_1_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format1-untrained.lsq") as index:
        assert index.check() == []
        assert index.ids() == ["", *(f"số {i:03}" for i in range(40) if i != 7)]
        assert (index.metric, index.is_trained, index.encoder.name) == ("cosine", False, "itq")
        assert np.array_equal(index.get("số 039"), (made.vectors(40, 3, 5) + 0.5)[39])
        found = index.search([-2, -1, 0], k=4)
        assert found.ids.tolist() == ["số 003", "số 021", "số 005", "số 023"]
        np.testing.assert_allclose(found.distances, [0.01638871, 0.05236904, 0.22540332, 0.26502591], rtol=1e-5)


def test_the_file_of_format_2_with_blocks_of_lists_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format2-lists.lsq") as index:
        assert index.check() == []
        assert np.array_equal(index.ids(), np.delete(np.arange(16_540), [*range(100, 200), *range(4064, 8128)]))
        assert index.subset == MultiIndex(bits=4)
        told = index.stats()
        assert {name: told[name] for name in ("format", "tables", "table_bits", "listed", "fresh", "deleted")} == {
            "format": 2,
            "tables": 2,
            "table_bits": 4,
            "listed": 16_500 - 4064,
            "fresh": 40,
            "deleted": 100,
        }
        # All buckets there are: so what a scan finds.
        found, scanned = (
            index.search(QUERIES[:, :4] + 0.25, 4, **how) for how in ({"probes": 32}, {"strategy": "scan"})
        )
        assert found.ids.tolist() == scanned.ids.tolist() == [[204, 322, 341, 419], [206, 236, 238, 269]]
        np.testing.assert_allclose(found.distances[:, 0], [40.2875, 32.96733], rtol=1e-5)


def test_the_file_of_format_2_with_wide_tables_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format2-tables.lsq") as index:
        assert index.check() == []
        names = [f"số {i:03}" for i in range(510)]
        assert index.ids() == names and index.subset == MultiIndex(bits=15)
        assert (index.stats()["tables"], index.stats()["listed"], index.stats()["fresh"]) == (3, 500, 20)
        vectors = np.concatenate([made.vectors(500, 8, 9)[:490], made.vectors(20, 8, 10)])
        assert np.array_equal(index.get(names), vectors)
        found = index.search(vectors[::9], k=1, strategy="subset", candidates=600, rerank=600)
        assert found.ids[:, 0].tolist() == names[::9] and not found.distances.any()


def test_the_file_of_format_3_with_payloads_that_began_late_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format3-payloads.lsq") as index:
        assert index.check() == []
        assert np.array_equal(index.ids(), np.arange(1_020, 4_203))
        told = index.stats()
        assert (told["format"], told["payloads"], told["fields"], told["deleted"]) == (3, True, [], 2)
        given = {name: made.payload(name - 4_100) for name in range(4_101, 4_200)}
        given |= {1_020: {"set": True}, 4_100: {}, 4_200: {"text": "x" * 5_000}}
        assert index.payloads(index.ids()) == [given.get(name) for name in range(1_020, 4_203)]
        assert index.ids({"lang": "en", "meta": {"$gt": 2**63}}).tolist() == [4_103, *range(4_121, 4_200, 9)]
        found = index.search([0.25], k=2, filter={"meta.year": {"$lt": 1993}}, with_payloads=True)
        assert (found.ids.tolist(), found.payloads) == ([4_108, 4_198], [given[4_108], given[4_198]])


def test_the_file_of_format_3_with_indexed_fields_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format3-fields.lsq") as index:
        assert index.check() == []
        names = [f"số {i:03}" for i in range(620) if not 100 <= i < 130]
        assert index.ids() == [*names, "without"] and index.stats()["fields"] == ["lang", "meta.year"]
        given = [made.payload(i) if i < 590 else {"lang": "en", "i": i - 590} for i in range(620)]
        del given[100:130]
        assert index.payloads([*names, "without"]) == [*given, None]
        for filter in ({"lang": "eo"}, {"meta.year": {"$gte": 1994}}, {"lang": {"$ne": "en"}, "meta": True}):
            condition = read_filter(filter, "int")
            wanted = [
                name
                for name, payload in zip([*names, "without"], [*given, None], strict=True)
                if condition.matches(payload)
            ]
            assert index.ids(filter) == wanted and len(wanted) > 5
        assert index.search(made.vectors(600, 4, 15)[8], 1, rerank=900, filter={"meta.year": 1991}).ids.tolist() == [
            "số 008"
        ]


def test_the_file_of_format_4_that_is_being_rewritten_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format4-rewriting.lsq") as index:
        assert index.check() == []
        assert np.array_equal(index.ids(), np.delete(np.arange(1_866), np.s_[100:130]))
        told = index.stats()["training"]
        assert (told["sampled"], told["vectors"], told["outdated"]) == (1_400, 1_400, True)
        assert told["rewritten"] == pytest.approx(792 / 1_871)
        vectors = np.concatenate([made.vectors(1_400, 8, 18), made.vectors(466, 8, 19) + 100])
        vectors[1_000:1_005] = made.vectors(5, 8, 20)
        assert np.array_equal(index.get(index.ids()), vectors[index.ids()])
        found = index.search(vectors[::70], k=1, rerank=1_866)
        assert not found.distances.any() and np.array_equal(vectors[found.ids[:, 0]], vectors[::70])


def test_the_file_of_format_5_with_cells_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format5-cells.lsq") as index:
        assert index.check() == [] and index.subset == Cells(12)
        names = np.setdiff1d(np.arange(2_300, 4_147), np.arange(4_000, 4_020))
        assert np.array_equal(index.ids(), names)
        told = index.stats()
        assert (told["format"], told["fresh"], told["cells"]["spilled"] > 0) == (5, 7, True)
        given = np.concatenate([made.vectors(4_100, 4, 22), made.vectors(40, 4, 23) + 30, made.vectors(7, 4, 24)])
        np.testing.assert_allclose(index.get(names), given[names], atol=0.2)
        found = index.search(given[names[::90]], k=1, rerank=2_000)
        np.testing.assert_allclose(given[found.ids[:, 0]], given[names[::90]], atol=1)


def test_the_file_of_format_6_with_large_payloads_opens_and_answers(opened: Callable[[str], Index]) -> None:
    with opened("format6-large-payloads.lsq") as index:
        assert index.check() == [] and index.stats()["format"] == 6
        assert index.ids() == list("acde") and index.ids({"lang": "en"}) == ["e"]
        texts = {"a": "số ", "c": "số " * 2_001, "d": "số " * 4_000, "e": "x" * 12_000}
        assert {name: index.payloads(name)["text"] for name in texts} == texts


def test_the_file_of_format_4_goes_on_with_its_rewriting(tmp_path: Path) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(FIXTURES / "format4-rewriting.lsq", path)
    with Index.open(path) as index:
        before = index.stats()["training"]
        index.merge()
        after = index.stats()["training"]
        assert index.check() == [] and after["rewritten"] is None
        assert (after["sampled"], after["vectors"], after["outdated"]) == (1_866, 1_866, False)
        assert after["error"] < before["now"]


@pytest.mark.parametrize("name", made.FILES)
def test_a_committed_file_can_be_written_to_compacted_and_copied(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copyfile(FIXTURES / name, path)
    with Index.open(path) as index:
        new: Any = [77_777] if isinstance(index.ids()[0], np.integer) else ["new"]
        count = len(index)
        index.add(np.ones((1, index.dim)), ids=new)
        index.delete([index.ids()[2]])
        index.set_payloads(new, [{"lang": "fr"}])
        before, payloads = [*index.ids()], index.payloads(index.ids())
        assert index.ids({"lang": "fr"}) == new
        index.compact()
        index.save(tmp_path / "copy.lsq")
        assert index.check() == [] and len(index) == count and [*index.ids()] == before
        assert index.payloads(before) == payloads
    with Index.open(tmp_path / "copy.lsq") as index:
        assert index.check() == [] and [*index.ids()] == before and index.payloads(before) == payloads


@pytest.mark.parametrize("name", made.FILES)
def test_committed_files_are_small(name: str) -> None:
    assert (FIXTURES / name).stat().st_size < 250_000


def contents(path: Path) -> dict[tuple[bytes, bytes], Any]:
    """Everything in a file, read without this package: (database, key) → (header, payload)."""
    with lmdb.open(str(path), subdir=False, lib_version=0, readonly=True, lock=False, max_dbs=16) as env:
        with env.begin() as txn:
            names = [name for name in keys.DATABASES if txn.get(name) is not None]
        dbs = {name: env.open_db(name, create=False) for name in names}
        with env.begin() as txn:
            return {
                (name, key): (value[:40], value[48:]) for name, db in dbs.items() for key, value in txn.cursor(db=db)
            }


def plain(stored: dict[tuple[bytes, bytes], Any]) -> dict[tuple[bytes, bytes], Any]:
    """The same with msgpack unpacked, and without what differs from making to making."""
    found = dict(stored)
    number = msgpack.unpackb(found[keys.META, keys.OPTIONS][1])["format"]
    for db, key in [place for place in found if place[0] == keys.META]:
        values = msgpack.unpackb(found[db, key][1])
        for name in ("uuid", "distribution", "head", "next_head", "error", "now", "ideal", "rule"):
            values.pop(name, None)
        if values.get("fitted"):
            free = {"distribution": None, "state": None, "version": None}
            values["fitted"] = {**msgpack.unpackb(values["fitted"]), **free}
        # As a file of an older format becomes one of this.
        if key == keys.OPTIONS:
            values = {**values, "format": meta.FORMAT, "fields": values.get("fields", [])}
        if key == keys.STATE and number < meta.FORMAT:
            came = ["listed", "relisted", "payloads", "next_generation", "next_size", "recoded", "cells", "next_cell"]
            came += ["large", "next_large", "staged_large"]
            values = {**dict.fromkeys(came, 0), **values}
        found[db, key] = values
    return found


@pytest.mark.parametrize("name", made.FILES)
def test_this_version_writes_what_the_committed_file_holds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the same bytes, for LMDB's pages may lie elsewhere: the same keys, headers and payloads."""
    # Older files are from before float16 rows had a scale, and vectors of few dimensions were stored as they are.
    if name < "format4":
        monkeypatch.setitem(kept.LAYOUTS, "float16", "float16")
    monkeypatch.setattr(settings, "worth_encoding", lambda encoder, dim: True)
    # Codes were rewritten more slowly when that file was made.
    for constant, value in {"LOOK": 4, "_STEP": 256, "_STEP_SHARE": 4}.items():
        monkeypatch.setattr(retraining, constant, value)
    made.FILES[name](tmp_path / name)
    shutil.copyfile(FIXTURES / name, tmp_path / "committed.lsq")
    here, committed = plain(contents(tmp_path / name)), plain(contents(tmp_path / "committed.lsq"))
    if name < "format4":
        here.pop((keys.META, keys.TRAINING), None)  # which came with format 4
    assert here.keys() == committed.keys()
    # Training sums in the order of the machine's BLAS: of codes and lists only what surrounds them is compared. How
    # long the head of codes is (bytes 32 to 35) is the writer's choice, and the encoder's to learn.
    for place in here:
        codes = place[0] in (keys.CODES, keys.POSTINGS, keys.CELLS)
        same = here[place][0][:32] == committed[place][0][:32] if codes else here[place] == committed[place]
        assert same, f"{place} differs"


def test_the_committed_encoder_codes_as_it_did(tmp_path: Path) -> None:
    """The stored encoder gives the stored codes; a row or so may differ where another BLAS sums in another order."""
    shutil.copyfile(FIXTURES / "format1-trained.lsq", tmp_path / "committed.lsq")
    stored = contents(tmp_path / "committed.lsq")
    encoder = from_bytes(msgpack.unpackb(stored[keys.META, keys.ENCODER][1])["fitted"])
    head, payload = stored[keys.CODES, keys.row(keys.codes_prefix(1), 0)]
    assert head[:4] == b"LSQc" and int.from_bytes(head[4:8], "little") == 512  # a group of sixteen pieces
    codes = columns.from_blocks(payload, 512, 12, 4)
    vectors = made.vectors(550, 8, 1)[:512]
    assert (encoder.encode(vectors) == codes).all(axis=1).mean() > 0.95
    np.testing.assert_allclose(encoder.decode(codes), vectors, atol=2)
