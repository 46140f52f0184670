"""The records of options, state, subset structure and training: there and back, and impossible values refused."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import pytest

from lsqindex import Index
from lsqindex._storage.format import keys, meta
from lsqindex._storage.format.meta import FORMAT, Options, State, Training
from lsqindex._subsets import stored as subsets
from lsqindex._subsets.multi_index.structure import MultiIndexStructure
from lsqindex._subsets.multi_index.tables import Tables
from lsqindex.errors import DamagedError, LsqIndexError, NewerFormatError, NotAnIndexError
from tests.settings import FIXTURES

# -- options and state ----------------------------------------------------------------------------
OPTIONS = Options(dim=8, metric="l2", ids="int", keep_vectors=None, train_size=10_000, uuid=bytes(16))
STATE = State(txn=3, rows=40, stored=40, count=30, code_size=4, head=4)
#: Codes that are being rewritten: half of them are.
NEXT = {"next_generation": 1, "next_size": 2, "next_head": 2, "recoded": 20}


def options_record(**changes: Any) -> bytes:
    values = {"program": "lsqindex", "format": FORMAT, **msgpack.unpackb(OPTIONS.to_record()[48:])}
    return meta.pack({**values, **changes})


def test_options_and_state_go_there_and_back() -> None:
    for options in (OPTIONS, replace(OPTIONS, metric="cosine", ids="str", train_size=1, fields=("a", "é.b"))):
        assert Options.from_record(options.to_record()) == options
    for state in (STATE, replace(STATE, **NEXT), replace(STATE, **{**NEXT, "recoded": 40})):
        assert State.from_record(state.to_record()) == state
    assert msgpack.unpackb(OPTIONS.to_record()[48:]) == {
        "program": "lsqindex",
        "format": FORMAT,
        "dim": 8,
        "metric": "l2",
        "ids": "int",
        "keep_vectors": None,
        "train_size": 10_000,
        "uuid": bytes(16),
        "fields": [],
    }


@pytest.mark.parametrize("format_number", [1, 2])
def test_options_of_an_older_format_have_no_fields(format_number: int) -> None:
    values = msgpack.unpackb(options_record(format=format_number)[48:])
    del values["fields"]
    assert Options.from_record(meta.pack(values)) == OPTIONS
    with pytest.raises(DamagedError, match="fields"):
        Options.from_record(meta.pack({**values, "fields": ["lang"]}))


@pytest.mark.parametrize("format_number", [7, 8, 1 << 40])
def test_options_of_a_newer_format_say_so(format_number: int) -> None:
    with pytest.raises(NewerFormatError, match="upgrade"):
        Options.from_record(options_record(format=format_number))
    with pytest.raises(NewerFormatError, match="upgrade"):  # whatever else such a format may hold
        Options.from_record(options_record(format=format_number, dim="eight", cells=5))


@pytest.mark.parametrize(
    "changes",
    [{"program": "other"}, {"program": None}, {"format": None}, {"format": True}, {"format": "1"}, {"format": 1.0}],
)
def test_options_of_another_program_are_no_index(changes: dict[str, Any]) -> None:
    with pytest.raises(NotAnIndexError):
        Options.from_record(options_record(**changes))


@pytest.mark.parametrize("format_number", [0, -1])
def test_a_format_that_never_was_is_refused(format_number: int) -> None:
    with pytest.raises(LsqIndexError):
        Options.from_record(options_record(format=format_number))


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 0},
        {"dim": -8},
        {"dim": (1 << 20) + 1},
        {"dim": True},
        {"dim": 8.0},
        {"dim": None},
        {"metric": b"l2"},
        {"ids": "bytes"},
        {"keep_vectors": "float64"},
        {"keep_vectors": 16},
        {"keep_vectors": "scaled-int8"},
        {"train_size": -1},
        {"train_size": 1 << 62},
        {"uuid": bytes(15)},
        {"uuid": "0123456789abcdef"},
        {"fields": None},
        {"fields": "lang"},
        {"fields": {"lang": 1}},
        {"fields": [""]},
        {"fields": ["a", "a"]},
        {"fields": [b"a"]},
        {"fields": [["a"]]},
        {"fields": [f"a{i}" for i in range(257)]},
        {"unknown": 1},
    ],
)
def test_options_with_impossible_values_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DamagedError):
        Options.from_record(options_record(**changes))


@pytest.mark.parametrize("name", [field.name for field in fields(Options)])
def test_options_without_a_field_are_refused(name: str) -> None:
    values = msgpack.unpackb(options_record()[48:])
    del values[name]
    with pytest.raises(DamagedError):
        Options.from_record(meta.pack(values))


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 39},
        {"stored": 29},
        {"rows": (1 << 32) - 1},
        {"count": -1},
        {"code_size": 0},
        {"code_size": (1 << 24) + 1},
        {"generation": 1 << 32},
        {"staged_generation": 1 << 32},
        {"staged_rows": 1 << 32},
        {"next_id": -1},
        {"next_id": 1 << 63},
        {"shape": -1},
        {"txn": 1.5},
        {"head": 5},
        {"head": None},
        {"unknown": 1},
        {"listed": 41},
        {"listed": -1},
        {"listed": None},
        {"relisted": -1},
        {"relisted": True},
        {"relisted": 1 << 62},
        {"payloads": 2},
        {"payloads": -1},
        {"payloads": True},
        {"payloads": None},
        {"next_generation": 1},
        {"next_size": 1},
        {"next_head": 1},
        {"recoded": 1},
        {**NEXT, "next_generation": 0},
        {**NEXT, "next_generation": 1 << 32},
        {**NEXT, "generation": 1},
        {**NEXT, "staged_generation": 1},
        {**NEXT, "next_size": 0},
        {**NEXT, "next_size": (1 << 24) + 1},
        {**NEXT, "next_head": 3},
        {**NEXT, "recoded": 41},
        {**NEXT, "recoded": True},
        {"cells": 1},
        {"cells": -1, "next_cell": 1},
        {"cells": 1, "next_cell": 1 << 32},
        {"large": 1, "next_large": 1, "payloads": 0},
        {"large": 2, "next_large": 1, "payloads": 1},
        {"large": 1, "next_large": 1, "payloads": 1, "staged_large": 2, "staged_rows": 100},
        {"large": 1, "next_large": 1, "payloads": 1, "staged_large": 1, "staged_rows": 0},
    ],
)
def test_a_state_with_impossible_values_is_refused(changes: dict[str, Any]) -> None:
    values = msgpack.unpackb(STATE.to_record()[48:])
    with pytest.raises(DamagedError):
        State.from_record(meta.pack({**values, **changes}))


@pytest.mark.parametrize("name", [field.name for field in fields(State)])
def test_a_state_without_a_field_is_refused(name: str) -> None:
    values = msgpack.unpackb(STATE.to_record()[48:])
    del values[name]
    with pytest.raises(DamagedError):
        State.from_record(meta.pack(values))


def test_a_state_of_an_older_format_is_read_as_one_without_what_came_later() -> None:
    values = msgpack.unpackb(STATE.to_record()[48:])
    assert State.from_record(STATE.to_record()).format == STATE.format == FORMAT
    del values["large"], values["next_large"], values["staged_large"]
    fifth = State.from_record(meta.pack(values))
    assert fifth == STATE and fifth.format == 5
    del values["cells"], values["next_cell"]
    fourth = State.from_record(meta.pack(values))
    assert fourth == STATE and fourth.format == 4
    for name in NEXT:
        del values[name]
    third = State.from_record(meta.pack(values))
    assert third == STATE and third.format == 3
    del values["payloads"]
    second = State.from_record(meta.pack(values))
    assert second == STATE and second.format == 2
    del values["listed"], values["relisted"]
    first = State.from_record(meta.pack(values))
    assert first == STATE and first.format == 1
    with pytest.raises(DamagedError):  # of no format
        State.from_record(meta.pack({**values, "payloads": 0}))


# -- the subset structure ---------------------------------------------------------------------------
SUBSET = MultiIndexStructure(Tables(bits=8, firsts=(3, 11, 19), widths=(8, 8, 5)))


def test_a_subset_structure_goes_there_and_back() -> None:
    several = (
        SUBSET,
        MultiIndexStructure(Tables()),
        MultiIndexStructure(Tables(bits=20)),
        MultiIndexStructure(Tables(firsts=(0,), widths=(20,))),
        MultiIndexStructure(Tables(firsts=(5, 6), widths=(1, 3))),
    )
    for subset in several:
        assert subsets.from_record(subset.to_record()) == subset
    assert msgpack.unpackb(SUBSET.to_record()[48:]) == {
        "kind": "multi-index",
        "bits": 8,
        "tables": [3, 11, 19],
        "widths": [8, 8, 5],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "trees"},
        {"kind": "cells"},
        {"kind": None},
        {"bits": 3},
        {"bits": 21},
        {"bits": -8},
        {"bits": 8.0},
        {"bits": True},
        {"tables": [3, 11]},
        {"tables": [3, 11, 20]},
        {"tables": [3, 10, 18]},
        {"tables": [-1, 7, 15]},
        {"tables": [3.0, 11, 19]},
        {"tables": [True, 9, 17]},
        {"tables": {}},
        {"tables": None},
        {"tables": [1 << 62, (1 << 62) + 8, (1 << 62) + 16]},
        {"widths": [8, 8, 0]},
        {"widths": [8, 8, 21]},
        {"widths": [8, 8, 5, 4]},
        {"widths": "885"},
        {"tables": list(range(4097)), "widths": [1] * 4097},
        {"more": 1},
    ],
)
def test_a_subset_structure_with_impossible_values_is_refused(changes: dict[str, Any]) -> None:
    values = msgpack.unpackb(SUBSET.to_record()[48:])
    with pytest.raises(DamagedError, match="subset"):
        subsets.from_record(meta.pack({**values, **changes}))


def test_a_subset_structure_without_a_kind_is_a_multi_index() -> None:
    values = msgpack.unpackb(SUBSET.to_record()[48:])
    del values["kind"]
    assert subsets.from_record(meta.pack(values)) == SUBSET


@pytest.mark.parametrize("name", ["bits", "tables", "widths"])
def test_a_subset_structure_without_a_field_is_refused(name: str) -> None:
    values = msgpack.unpackb(SUBSET.to_record()[48:])
    del values[name]
    with pytest.raises(DamagedError, match="subset"):
        subsets.from_record(meta.pack(values))


# -- automatic training -----------------------------------------------------------------------------
TRAINING = Training(sampled=10_000, vectors=12_000, error=0.25, now=0.5, reviewed=12_000, ideal=0.125)


def test_the_record_of_a_training_goes_there_and_back() -> None:
    for training in (TRAINING, Training(0, 0, 0.0, 0.0, 0), replace(TRAINING, error=meta.MAX_ERROR)):
        assert Training.from_record(training.to_record()) == training
    assert msgpack.unpackb(TRAINING.to_record()[48:]) == {
        "sampled": 10_000,
        "vectors": 12_000,
        "error": 0.25,
        "now": 0.5,
        "reviewed": 12_000,
        "ideal": 0.125,
    }
    # Earlier versions did not store the last one.
    earlier = {name: value for name, value in vars(TRAINING).items() if name != "ideal"}
    assert Training.from_record(meta.pack(earlier)) == replace(TRAINING, ideal=0.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampled": -1},
        {"sampled": 1 << 62},
        {"ideal": -0.1},
        {"vectors": None},
        {"vectors": 1.0},
        {"error": -0.5},
        {"error": float("nan")},
        {"error": float("inf")},
        {"error": 1},
        {"now": float("nan")},
        {"now": "0.5"},
        {"reviewed": -1},
        {"reviewed": True},
        {"more": 1},
    ],
)
def test_the_record_of_a_training_with_impossible_values_is_refused(changes: dict[str, Any]) -> None:
    values = msgpack.unpackb(TRAINING.to_record()[48:])
    with pytest.raises(DamagedError, match="training"):
        Training.from_record(meta.pack({**values, **changes}))


# -- a newer format on disk -----------------------------------------------------------------------


def put(path: Path, key: bytes, value: bytes) -> None:
    """Write into the file behind the back of this package, in a transaction that the state knows of."""
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=16, map_size=1 << 24) as env:
        db = env.open_db(b"meta", create=False)
        with env.begin(write=True) as txn:
            state = msgpack.unpackb(txn.get(keys.STATE, b"", db=db)[48:])
            txn.put(keys.STATE, meta.pack({**state, "txn": txn.id()}), db=db)
            txn.put(key, value, db=db)


def test_a_file_of_a_newer_format_says_so(tmp_path: Path) -> None:
    path = tmp_path / "newer.lsq"
    shutil.copyfile(FIXTURES / "format1-trained.lsq", path)
    put(path, keys.OPTIONS, options_record(format=7))
    for read_only in (False, True):
        with pytest.raises(NewerFormatError, match=r"format 7.*upgrade"):
            Index.open(path, read_only=read_only)
    assert issubclass(NewerFormatError, NotAnIndexError)


def test_a_newer_format_is_told_even_where_the_state_has_changed_too(tmp_path: Path) -> None:
    """The version is looked at before anything whose shape depends on it."""
    path = tmp_path / "newer.lsq"
    shutil.copyfile(FIXTURES / "format1-trained.lsq", path)
    put(path, keys.OPTIONS, options_record(format=7, cells=100))
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=16, map_size=1 << 24) as env:
        db = env.open_db(b"meta", create=False)
        with env.begin(write=True) as txn:
            txn.put(keys.STATE, meta.pack({"fresh": 5, "txn": txn.id()}), db=db)
    with pytest.raises(NewerFormatError, match="upgrade"):
        Index.open(path)
