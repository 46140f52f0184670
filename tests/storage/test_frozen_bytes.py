"""The format as frozen bytes: keys, headers, records, schemas."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from lsqindex._storage.format import (
    columns,
    deleted,
    keys,
    large_payloads,
    meta,
    payload_columns,
    records,
    sorted_ids,
)
from lsqindex._storage.format.meta import Options, State, Training
from lsqindex._subsets.multi_index import postings, tables

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
    (keys.large_prefix(), b"l"),
    (keys.large(258), b"l\0\0\0\0\0\0\1\2"),
    (keys.deleted(0), b"d\0\0\0\0"),
    (keys.deleted(258), b"d\0\0\1\2"),
    (keys.postings_prefix(), b"p"),
    (keys.postings(2, 16_256), b"p\0\0\0\2\0\0\x3f\x80\0\0"),
    (keys.postings(0x01020304, 0xFFFFFFFE, 4095), b"p\1\2\3\4\xff\xff\xff\xfe\x0f\xff"),
    (keys.centre(258), b"c\0\0\1\2"),
    (keys.cell(0), b"k\0\0\0\0"),
    (keys.cell_tail(0xFFFFFFFF), b"t\xff\xff\xff\xff"),
    (keys.SORTED, b"s"),
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
    assert (records.PAYLOADS, records.FIELD, records.LARGE) == (b"y", b"f", b"l")
    assert (records.CELL, records.TAIL, records.CENTRE) == (b"k", b"t", b"e")
    assert (records.HEADER_SIZE, columns.BLOCK_ROWS, columns.CHUNK_ROWS) == (48, 32, 4064)
    assert (deleted.SEGMENT_ROWS, sorted_ids.BLOCK_IDS, keys.MAX_ID_BYTES, meta.FORMAT) == (65_024, 4064, 480, 6)
    assert (postings.UNIT_ROWS, postings.SEGMENT_ROWS, tables.TABLE_BITS, tables.MAX_TABLES) == (
        16_256,
        65_024,
        (4, 20),
        4096,
    )
    limits = (payload_columns.MAX_PAYLOAD_BYTES, payload_columns.MAX_VALUE_BYTES, payload_columns.ABSENT)
    assert (*limits, meta.MAX_FIELDS) == (4_194_304, 65_536, 65_535, 256)
    assert large_payloads.LARGE_BYTES == 10_000


def test_the_databases_of_each_format_are_frozen() -> None:
    first = (b"meta", b"codes", b"ids", b"vectors")
    assert keys.DATABASES_OF[1] == first
    assert keys.DATABASES_OF[2] == (*first, b"postings")
    assert keys.DATABASES_OF[3] == keys.DATABASES_OF[4] == (*first, b"postings", b"payloads")
    assert keys.DATABASES_OF[5] == keys.DATABASES_OF[6] == (*first, b"postings", b"payloads", b"cells")


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
    text, ends = columns.utf8(["a", "", "né"])
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
        ("cells", "int"),
        ("next_cell", "int"),
        ("large", "int"),
        ("next_large", "int"),
        ("staged_large", "int"),
    ]
    assert [(field.name, field.type) for field in fields(Training)] == [
        ("sampled", "int"),
        ("vectors", "int"),
        ("error", "float"),
        ("now", "float"),
        ("reviewed", "int"),
        ("ideal", "float"),
    ]
