"""The file's format: keys and headers as frozen bytes, schemas, and committed files that must open for ever."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._inputs import options as settings
from lsqindex._inputs.filters import read_filter
from lsqindex._storage.format import columns, deleted, kept, keys, meta, payload_columns, records, sorted_ids
from lsqindex._storage.format.meta import Options, State, Subset, Training
from lsqindex._subsets.multi_index import postings
from lsqindex.encoders import from_bytes
from lsqindex.errors import DamagedError, LsqIndexError, NewerFormatError, NotAnIndexError

FIXTURES = Path(__file__).parents[1] / "fixtures"

# -- frozen bytes ---------------------------------------------------------------------------------

FROZEN_KEYS = [
    (keys.META, b"meta"),
    (keys.CODES, b"codes"),
    (keys.IDS, b"ids"),
    (keys.VECTORS, b"vectors"),
    (keys.POSTINGS, b"postings"),
    (keys.PAYLOADS, b"payloads"),
    (keys.OPTIONS, b"options"),
    (keys.STATE, b"state"),
    (keys.ENCODER, b"encoder"),
    (keys.SUBSET, b"subset"),
    (keys.TRAINING, b"training"),
    (keys.NEXT_ENCODER, b"next-encoder"),
    (keys.NEXT_TRAINING, b"next-training"),
    (keys.codes_prefix(0), b"c\0\0\0\0"),
    (keys.codes_prefix(0x01020304), b"c\1\2\3\4"),
    (keys.ids_prefix(), b"i"),
    (keys.vectors_prefix(), b"v"),
    (keys.payloads_prefix(), b"y"),
    (keys.field_prefix(0), b"f\0\0"),
    (keys.field_prefix(255), b"f\0\xff"),
    (keys.row(keys.codes_prefix(2), 4064), b"c\0\0\0\2\0\0\x0f\xe0"),
    (keys.row(keys.ids_prefix(), 0), b"i\0\0\0\0"),
    (keys.row(keys.vectors_prefix(), 0xFFFFFFFE), b"v\xff\xff\xff\xfe"),
    (keys.row(keys.payloads_prefix(), 508), b"y\0\0\1\xfc"),
    (keys.row(keys.field_prefix(0x0102), 4064), b"f\1\2\0\0\x0f\xe0"),
    (keys.deleted(0), b"d\0\0\0\0"),
    (keys.deleted(258), b"d\0\0\1\2"),
    (keys.postings_prefix(), b"p"),
    (keys.postings(2, 16_256), b"p\0\0\0\2\0\0\x3f\x80\0\0"),
    (keys.postings(0x01020304, 0xFFFFFFFE, 4095), b"p\1\2\3\4\xff\xff\xff\xfe\x0f\xff"),
    (keys.sorted_prefix(), b"s"),
    (keys.sorted_int(0), b"s\x80\0\0\0\0\0\0\0"),
    (keys.sorted_int(1), b"s\x80\0\0\0\0\0\0\1"),
    (keys.sorted_int(-2), b"s\x7f\xff\xff\xff\xff\xff\xff\xfe"),
    (keys.sorted_int(-(2**63)), b"s\0\0\0\0\0\0\0\0"),
    (keys.sorted_int(2**63 - 1), b"s\xff\xff\xff\xff\xff\xff\xff\xff"),
    (keys.sorted_str("né".encode()), b"sn\xc3\xa9"),
    (keys.sorted_str(b""), b"s"),
]


@pytest.mark.parametrize(("built", "frozen"), FROZEN_KEYS)
def test_keys_are_frozen(built: bytes, frozen: bytes) -> None:
    assert built == frozen


def test_keys_are_read_back_and_sort_as_their_numbers() -> None:
    numbers = [-(2**63), -5, -2, 0, 1, 255, 256, 2**40, 2**63 - 1]
    assert [keys.int_of(keys.sorted_int(number)) for number in numbers] == numbers
    assert sorted(numbers, key=keys.sorted_int) == numbers
    rows = [0, 1, 255, 256, 65_536, 2**32 - 2]
    assert [keys.row_of(keys.row(keys.codes_prefix(7), row)) for row in rows] == rows
    assert sorted(rows, key=lambda row: keys.row(keys.ids_prefix(), row)) == rows
    places = [(0, 65_024, 4095), (1, 0, 0), (1, 0, 1), (1, 0, 256), (1, 16_256, 0), (1, 2**32 - 2, 3), (256, 0, 0)]
    assert [keys.postings_of(keys.postings(*place)) for place in places] == places
    assert sorted(places, key=lambda place: keys.postings(*place)) == places
    assert [keys.field_of(keys.field_prefix(number)) for number in (0, 1, 256)] == [0, 1, 256]
    key = keys.postings(1, 2, 3)
    assert [keys.postings_of(other) for other in (key[:-1], key + b"x", b"q" + key[1:], b"")] == [None] * 4


def test_a_record_is_frozen() -> None:
    header = records.Header(records.CODES, count=3, first=4064, width=2, generation=5, head=1)
    assert records.encode(header, b"abcdef") == (
        bytes.fromhex("4c535163 03000000 e00f000000000000 02000000 05000000 0600000000000000")
        + bytes.fromhex("01000000 00000000 390a4bda78f53869")
        + b"abcdef"
    )
    assert records.encode(records.Header(records.META, 0), b"") == bytes(
        b"LSQm" + bytes(36) + bytes.fromhex("645d3aa16104da2c")
    )


def test_kinds_and_sizes_are_frozen() -> None:
    kinds = (records.META, records.CODES, records.IDS, records.SORTED, records.VECTORS, records.DELETED)
    assert (*kinds, records.POSTINGS) == (b"m", b"c", b"i", b"s", b"v", b"d", b"p")
    assert (records.PAYLOADS, records.FIELD) == (b"y", b"f")
    assert (records.HEADER_SIZE, columns.BLOCK_ROWS, columns.CHUNK_ROWS) == (48, 32, 4064)
    assert (deleted.SEGMENT_ROWS, sorted_ids.BLOCK_IDS, keys.MAX_ID_BYTES, meta.FORMAT) == (65_024, 4064, 480, 4)
    assert (postings.UNIT_ROWS, postings.SEGMENT_ROWS, meta.TABLE_BITS, meta.MAX_TABLES) == (
        16_256,
        65_024,
        (4, 20),
        4096,
    )
    limits = (payload_columns.MAX_PAYLOAD_BYTES, payload_columns.MAX_VALUE_BYTES, payload_columns.ABSENT)
    assert (*limits, meta.MAX_FIELDS) == (4_194_304, 65_536, 65_535, 256)


def test_the_databases_of_each_format_are_frozen() -> None:
    first = (b"meta", b"codes", b"ids", b"vectors")
    assert keys.databases(1) == first
    assert keys.databases(2) == (*first, b"postings")
    assert keys.databases(3) == keys.databases(4) == (*first, b"postings", b"payloads")


@pytest.mark.parametrize(
    ("column", "part", "piece"),
    [
        (columns.codes_of(0, 32, 12), 4064, 32),
        (columns.codes_of(0, 33, 33), 2048, 32),
        (columns.codes_of(0, 4096, 4), 32, 32),
        (columns.codes_of(0, 12, 0), 4064, 32),
        (columns.codes_of(0, 1536, 0), 85, 2),
        (columns.codes_of(0, 1 << 22, 0), 1, 1),
        (columns.ids_column("int"), 4064, 32),
        (columns.ids_column("str"), 4064, 32),
        (columns.vectors_column(384, "float16"), 170, 5),
        (columns.vectors_column(384, "scaled-float16"), 163, 5),
        (columns.vectors_column(384, "float32"), 85, 2),
        (columns.vectors_column(384, "int8"), 313, 10),
        (payload_columns.payload_columns(2)[0], 508, 8),
        (payload_columns.payload_columns(2)[2], 4064, 32),
    ],
)
def test_how_rows_are_cut_is_frozen(column: columns.Column, part: int, piece: int) -> None:
    """A reader works out from these where records begin: another rule would be another format."""
    assert (column.part_rows, column.piece_rows) == (part, piece)
    starts = [column.part(row)[0] for row in range(columns.CHUNK_ROWS)]
    assert sorted(set(starts)) == list(range(0, columns.CHUNK_ROWS, part))
    assert column.part(columns.CHUNK_ROWS)[0] == columns.CHUNK_ROWS


def test_payloads_are_frozen() -> None:
    codes = np.arange(99, dtype=np.uint8).reshape(33, 3)
    by_column = [bytes(range(j, 96 + j, 3)) for j in range(3)]
    last = [bytes([96 + j]) + bytes(31) for j in range(3)]
    whole = b"".join([*by_column, *last])  # two blocks of three columns
    assert columns.to_blocks(codes, 3).tobytes() == whole
    apart = b"".join([by_column[0], last[0], by_column[1], by_column[2], last[1], last[2]])
    assert columns.to_blocks(codes, 1).tobytes() == apart  # the first bytes of all codes, then the others
    for payload, head in ((whole, 3), (apart, 1)):
        assert np.array_equal(columns.from_blocks(payload, 33, 3, head), codes)
    text, ends = keys.utf8(["a", "", "né"])
    assert (text.tobytes(), ends.tobytes()) == (b"an\xc3\xa9", bytes.fromhex("01000000 01000000 04000000"))
    ids = columns.ids_column("int")
    small, large = ids.encode(32, np.array([0, 2**32 - 1])), ids.encode(32, np.array([-5, 1]))
    assert (small[16:20], small[48:]) == (b"\4\0\0\0", bytes.fromhex("00000000 ffffffff"))
    assert (large[16:20], large[48:]) == (b"\x08\0\0\0", bytes.fromhex("fbffffffffffffff 0100000000000000"))
    assert ids.decode(small, 32).tolist() == [0, 2**32 - 1] and ids.decode(large, 32).tolist() == [-5, 1]
    block, run = (sorted_ids.encode(np.array(rows, np.uint32)) for rows in ([7, 1], [7, 8, 9]))
    assert (block[4:20].hex(" ", 4), block[48:].hex(" ", 4)) == (
        "02000000 00000000 00000000 04000000",
        "07000000 01000000",
    )
    assert (run[4:20].hex(" ", 4), run[48:]) == ("03000000 07000000 00000000 00000000", b"")
    assert sorted_ids.decode(block).tolist() == [7, 1] and sorted_ids.decode(run).tolist() == [7, 8, 9]


def test_columns_of_payloads_are_frozen() -> None:
    payloads, _, field = payload_columns.payload_columns(2)
    record = payloads.encode(8, [b"\x81\xa1a\1", b"", b"\x80"])
    assert (
        record[:40].hex(" ", 8)
        == "4c53517903000000 0800000000000000 0000000000000000 1100000000000000 0000000000000000"
    )
    assert record[48:] == bytes.fromhex("04000000 04000000 05000000") + b"\x81\xa1a\1\x80"
    assert payloads.decode(record, 8) == [b"\x81\xa1a\1", b"", b"\x80"]
    # Values are numbered as they come; what is equal as bytes, once.
    values = [b"\xa2vi", b"", b"\5", b"\xa2vi", b"\xc0"]
    record = field.encode(32, values)
    assert (
        record[:40].hex(" ", 8)
        == "4c53516605000000 2000000000000000 0000000001000000 1000000000000000 0000000000000000"
    )
    assert record[48:] == bytes.fromhex("0000 ffff 0100 0000 0200") + b"\x93\xa2vi\5\xc0"
    assert field.decode(record, 32) == values
    assert field.encode(0, [b""])[48:] == b"\xff\xff\x90"


def test_schemas_are_frozen() -> None:
    """Adding a field is a new format: an older program refuses what it does not know."""
    assert [(field.name, field.type) for field in fields(Options)] == [
        ("dim", "int"),
        ("metric", "str"),
        ("ids", "str"),
        ("keep_vectors", "str | None"),
        ("train_size", "int"),
        ("uuid", "bytes"),
        ("fields", "tuple[str, ...]"),
    ]
    assert [(field.name, field.type) for field in fields(State)] == [
        ("txn", "int"),
        ("rows", "int"),
        ("stored", "int"),
        ("count", "int"),
        ("next_id", "int"),
        ("generation", "int"),
        ("code_size", "int"),
        ("head", "int"),
        ("shape", "int"),
        ("staged_rows", "int"),
        ("staged_generation", "int"),
        ("listed", "int"),
        ("relisted", "int"),
        ("payloads", "int"),
        ("next_generation", "int"),
        ("next_size", "int"),
        ("next_head", "int"),
        ("recoded", "int"),
    ]
    assert [(field.name, field.type) for field in fields(Subset)] == [
        ("kind", "str"),
        ("bits", "int"),
        ("tables", "tuple[int, ...]"),
        ("widths", "tuple[int, ...]"),
    ]
    assert [(field.name, field.type) for field in fields(Training)] == [
        ("sampled", "int"),
        ("vectors", "int"),
        ("error", "float"),
        ("now", "float"),
        ("reviewed", "int"),
    ]


# -- options and state ----------------------------------------------------------------------------

OPTIONS = Options(dim=8, metric="l2", ids="int", keep_vectors=None, train_size=10_000, uuid=bytes(16))
STATE = State(txn=3, rows=40, stored=40, count=30, code_size=4, head=4)
#: Codes that are being rewritten: half of them are.
NEXT = {"next_generation": 1, "next_size": 2, "next_head": 2, "recoded": 20}


def options_record(**changes: Any) -> bytes:
    values = {"program": "lsqindex", "format": 4, **msgpack.unpackb(OPTIONS.to_record()[48:])}
    return meta.pack({**values, **changes})


def test_options_and_state_go_there_and_back() -> None:
    for options in (OPTIONS, replace(OPTIONS, metric="cosine", ids="str", train_size=1, fields=("a", "é.b"))):
        assert Options.from_record(options.to_record()) == options
    for state in (STATE, replace(STATE, **NEXT), replace(STATE, **{**NEXT, "recoded": 40})):
        assert State.from_record(state.to_record()) == state
    assert msgpack.unpackb(OPTIONS.to_record()[48:]) == {
        "program": "lsqindex",
        "format": 4,
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


@pytest.mark.parametrize("format_number", [5, 6, 1 << 40])
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
        {"metric": "L2"},
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
    assert State.from_record(STATE.to_record()).format == STATE.format == 4
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

SUBSET = Subset(bits=8, tables=(3, 11, 19), widths=(8, 8, 5))


def test_a_subset_structure_goes_there_and_back() -> None:
    several = (
        SUBSET,
        Subset(),
        Subset(bits=20),
        Subset(tables=(0,), widths=(20,)),
        Subset(tables=(5, 6), widths=(1, 3)),
    )
    for subset in several:
        assert Subset.from_record(subset.to_record()) == subset
    assert msgpack.unpackb(SUBSET.to_record()[48:]) == {
        "kind": "multi-index",
        "bits": 8,
        "tables": [3, 11, 19],
        "widths": [8, 8, 5],
    }


@pytest.mark.parametrize(
    "changes",
    [
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
        Subset.from_record(meta.pack({**values, **changes}))


@pytest.mark.parametrize("name", [field.name for field in fields(Subset)])
def test_a_subset_structure_without_a_field_is_refused(name: str) -> None:
    values = msgpack.unpackb(SUBSET.to_record()[48:])
    del values[name]
    with pytest.raises(DamagedError, match="subset"):
        Subset.from_record(meta.pack(values))


# -- automatic training -----------------------------------------------------------------------------

TRAINING = Training(sampled=10_000, vectors=12_000, error=0.25, now=0.5, reviewed=12_000)


def test_the_record_of_a_training_goes_there_and_back() -> None:
    for training in (TRAINING, Training(0, 0, 0.0, 0.0, 0), replace(TRAINING, error=meta.MAX_ERROR)):
        assert Training.from_record(training.to_record()) == training
    assert msgpack.unpackb(TRAINING.to_record()[48:]) == {
        "sampled": 10_000,
        "vectors": 12_000,
        "error": 0.25,
        "now": 0.5,
        "reviewed": 12_000,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"sampled": -1},
        {"sampled": 1 << 62},
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
            condition = read_filter(filter, list)
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
        for name in ("uuid", "distribution", "head", "next_head", "error", "now"):
            values.pop(name, None)
        if values.get("fitted"):
            free = {"distribution": None, "state": None, "version": None}
            values["fitted"] = {**msgpack.unpackb(values["fitted"]), **free}
        # As a file of an older format becomes one of this.
        if key == keys.OPTIONS:
            values = {**values, "format": meta.FORMAT, "fields": values.get("fields", [])}
        if key == keys.STATE and number < 4:
            came = ("listed", "relisted", "payloads", "next_generation", "next_size", "recoded")
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
    made.FILES[name](tmp_path / name)
    shutil.copyfile(FIXTURES / name, tmp_path / "committed.lsq")
    here, committed = plain(contents(tmp_path / name)), plain(contents(tmp_path / "committed.lsq"))
    if name < "format4":
        here.pop((keys.META, keys.TRAINING), None)  # which came with format 4
    assert here.keys() == committed.keys()
    # Training sums in the order of the machine's BLAS: of codes and lists only what surrounds them is compared. How
    # long the head of codes is (bytes 32 to 35) is the writer's choice, and the encoder's to learn.
    for place in here:
        codes = place[0] in (keys.CODES, keys.POSTINGS)
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
    put(path, keys.OPTIONS, options_record(format=5))
    for read_only in (False, True):
        with pytest.raises(NewerFormatError, match=r"format 5.*upgrade"):
            Index.open(path, read_only=read_only)
    assert issubclass(NewerFormatError, NotAnIndexError)


def test_a_newer_format_is_told_even_where_the_state_has_changed_too(tmp_path: Path) -> None:
    """The version is looked at before anything whose shape depends on it."""
    path = tmp_path / "newer.lsq"
    shutil.copyfile(FIXTURES / "format1-trained.lsq", path)
    put(path, keys.OPTIONS, options_record(format=5, cells=100))
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=16, map_size=1 << 24) as env:
        db = env.open_db(b"meta", create=False)
        with env.begin(write=True) as txn:
            txn.put(keys.STATE, meta.pack({"fresh": 5, "txn": txn.id()}), db=db)
    with pytest.raises(NewerFormatError, match="upgrade"):
        Index.open(path)
