"""Posting lists in the file: their records, what is listed when, and what that costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._storage.format import keys, records
from lsqindex._storage.lmdb.writer import Writer
from lsqindex._subsets.multi_index import postings
from lsqindex._subsets.multi_index.structure import MultiIndexStructure
from lsqindex.errors import (
    DamagedError,
)
from lsqindex.testing import reference

from .listed import DIM, SEGMENT, UNIT, create, sound, state_of, unpacked, vectors

# -- records --------------------------------------------------------------------------------------


def test_a_record_of_posting_lists_is_frozen() -> None:
    """Four rows of a block that begins with row 16,256, in a table of two bits: buckets 2, 0, 2 and 1."""
    payload = reference.list_payload(np.array([2, 0, 2, 1]), np.array([0, 3, 4, 9]), 2)
    header = records.Header(records.POSTINGS, count=4, first=16_256, width=2, generation=3, head=5)
    record = records.encode(header, payload)
    assert record[:40].hex(" ", 4) == (
        "4c535170 04000000 803f0000 00000000 02000000 03000000 12000000 00000000 05000000 00000000"
    )
    assert record[48:].hex(" ", 2) == "0000 0100 0200 0400 0400 0300 0900 0000 0400"
    assert postings.decode(record, header, span=10) == payload.tobytes()


def test_a_table_of_more_than_14_bits_has_the_lower_ones_apart() -> None:
    payload = reference.list_payload(np.array([7, 5, 32_767, 4]), np.array([0, 1, 2, 3]), 15)
    starts, rest = np.frombuffer(payload, "<u2", 16_385), payload[2 * 16_385 :].tobytes()
    assert (starts[:5].tolist(), starts[-2:].tolist()) == ([0, 0, 0, 2, 3], [3, 4])
    assert rest == bytes.fromhex("0300 0100 0000 0200 00 01 01 01")
    buckets, rows = postings.buckets(payload, 4, 15)
    assert (buckets.tolist(), rows.tolist()) == ([4, 5, 7, 32_767], [3, 1, 0, 2])


def test_a_table_of_14_bits_has_a_start_for_each_bucket() -> None:
    payload = reference.list_payload(np.array([7, 5, 16_383, 4]), np.array([0, 1, 2, 3]), 14)
    assert len(payload) == 2 * 16_385 + 2 * 4
    buckets, rows = postings.buckets(payload, 4, 14)
    assert (buckets.tolist(), rows.tolist()) == ([4, 5, 7, 16_383], [3, 1, 0, 2])


@pytest.mark.parametrize("bits", [1, 4, 11, 12, 13, 14, 15, 16, 20])
@pytest.mark.parametrize("count", [1, 2, 300, SEGMENT])
def test_records_go_there_and_back(bits: int, count: int) -> None:
    rng = np.random.default_rng(bits)
    rows = np.sort(rng.choice(SEGMENT, count, replace=False))
    buckets = rng.integers(0, 1 << bits, count)
    payload = reference.list_payload(buckets, rows, bits)
    header = records.Header(records.POSTINGS, count, 65_024, bits, 1, 2)
    held = postings.decode(records.encode(header, payload), header, SEGMENT)
    for back in (postings.buckets(held, count, bits), unpacked(held, count, bits)):
        order = np.argsort(back[1])
        assert np.array_equal(back[1][order], rows) and np.array_equal(back[0][order], buckets)
    with pytest.raises(DamagedError, match="impossible"):
        postings.decode(records.encode(header, payload), header, int(rows[-1]))  # a row beyond its span


# -- what is listed when --------------------------------------------------------------------------


def test_rows_are_listed_when_they_fill_a_unit(path: Path) -> None:
    with create(path) as index:
        for n, listed in ((UNIT - 1, 0), (1, UNIT), (UNIT - 1, UNIT), (2, 2 * UNIT), (10, 2 * UNIT)):
            index.add(vectors(n))
            assert state_of(index).listed == listed
            told = index.stats()
            assert (told["listed"], told["fresh"]) == (listed, len(index) - listed)
        assert sound(index) == [(0, UNIT, UNIT), (UNIT, 2 * UNIT, UNIT)]


def test_a_full_segment_becomes_one_block(path: Path) -> None:
    with create(path, 2 * UNIT + 5) as index:
        assert sound(index) == [(0, 2 * UNIT, 2 * UNIT)]
        index.add(vectors(UNIT))
        assert sound(index) == [(0, 2 * UNIT, 2 * UNIT), (2 * UNIT, 3 * UNIT, UNIT)]
        assert state_of(index).relisted == 0
        index.add(vectors(UNIT))
        assert sound(index) == [(0, SEGMENT, SEGMENT)]
        index.add(vectors(2 * UNIT))
        assert sound(index) == [(0, SEGMENT, SEGMENT), (SEGMENT, SEGMENT + 2 * UNIT, 2 * UNIT)]


def test_merge_lists_the_rest_and_the_next_unit_takes_its_place(path: Path) -> None:
    with create(path, UNIT + 100) as index:
        index.merge()
        assert sound(index) == [(0, UNIT, UNIT), (UNIT, UNIT + 100, 100)] and index.stats()["fresh"] == 0
        index.add(vectors(50))
        assert sound(index)[-1] == (UNIT, UNIT + 100, 100) and index.stats()["fresh"] == 50
        index.merge()
        assert sound(index) == [(0, UNIT, UNIT), (UNIT, UNIT + 150, 150)]
        index.add(vectors(UNIT))
        assert sound(index) == [(0, UNIT, UNIT), (UNIT, 2 * UNIT, UNIT)] and index.stats()["fresh"] == 150


def test_merge_without_anything_fresh_writes_nothing(path: Path) -> None:
    with create(path, 300) as index:
        index.merge()
        before = state_of(index).txn
        index.merge()
        index.merge(progress=lambda done, total: pytest.fail("nothing was to be done"))
        assert state_of(index).txn == before


def test_an_index_that_is_not_trained_lists_nothing_until_it_is(path: Path) -> None:
    with Index.create(path, DIM, encoder="lsh", bits=16, subset="multi-index", keep_vectors=None) as index:
        index.add(vectors(100))
        index.merge()
        assert sound(index) == [] and index.subset == MultiIndex()
        index.train()
        assert sound(index) == [] and state_of(index).listed == 0
        index.merge()
        assert sound(index) == [(0, 100, 100)]


def test_training_by_an_add_lists_what_fills_units(path: Path) -> None:
    with Index.create(
        path, DIM, encoder="lsh", bits=16, subset="multi-index", train_size=UNIT + 50, keep_vectors=None
    ) as index:
        index.add(vectors(UNIT))
        assert not index.is_trained and sound(index) == []
        index.add(vectors(60))
        assert index.is_trained and sound(index) == [(0, UNIT, UNIT)]


def test_one_transaction_lists_a_bounded_number_of_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier one left fresh is caught up with, a segment and twice what is added at a time."""
    with create(path, 3 * SEGMENT + UNIT + 7, subset=None) as index:
        monkeypatch.setattr(MultiIndexStructure, "catch_up", lambda self, writer, **_: writer.commit())
        index.set_subset("multi-index")
        assert state_of(index).listed == 0
        listed = []
        for i in range(4):
            index.add(vectors(1, i))
            listed.append(state_of(index).listed)
        # A block may begin as long as one row is left to be listed.
        assert listed == [2 * SEGMENT, 3 * SEGMENT + UNIT, 3 * SEGMENT + UNIT, 3 * SEGMENT + UNIT]
        assert sound(index)[-1] == (3 * SEGMENT, 3 * SEGMENT + UNIT, UNIT)


# -- what it costs --------------------------------------------------------------------------------


def watched(patch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, int]]:
    """What is written from now on: database, key and bytes of each record; deleted ones have none."""
    written: list[tuple[bytes, bytes, int]] = []
    put, delete = Writer.put, Writer.delete

    def seen(writer: Writer, db: bytes, key: bytes, value: bytes) -> None:
        written.append((db, key, len(value)))
        put(writer, db, key, value)

    def gone(writer: Writer, db: bytes, key: bytes) -> None:
        written.append((db, key, 0))
        delete(writer, db, key)

    patch.setattr(Writer, "put", seen)
    patch.setattr(Writer, "delete", gone)
    return written


def test_what_an_add_writes_does_not_depend_on_what_is_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same adds, from a segment's beginning on, into indexes of one segment and of three."""
    costs = []
    for segments in (1, 3):
        with create(path.with_name(f"{segments}.lsq"), segments * SEGMENT, subset=MultiIndex(bits=8)) as index:
            with monkeypatch.context() as patch:
                written = watched(patch)
                cost = []
                for n in (1, UNIT - 1, 5, UNIT, UNIT - 5, UNIT, 100):
                    del written[:]
                    index.add(vectors(n))
                    lists = [size for db, _, size in written if db == keys.POSTINGS]
                    others = sum(size for db, key, size in written if db != keys.POSTINGS and key[:1] != b"s")
                    cost.append((len(lists), sum(lists), others))
            assert sound(index)[-1] == (segments * SEGMENT, (segments + 1) * SEGMENT, SEGMENT)
            costs.append(cost)
    # Sizes of ids and msgpack differ by a byte or so as numbers grow.
    assert [[own[:2] for own in cost] for cost in costs[:1]] == [[own[:2] for own in cost] for cost in costs[1:]]
    assert all(abs(a[2] - b[2]) < 64 for a, b in zip(*costs, strict=True))
    one = 48 + 2 * 257 + 2 * UNIT  # a record of a table of 8 bits, for a unit
    assert [own[:2] for own in costs[0]] == [
        (0, 0),
        (2, 2 * one),
        (0, 0),
        (2, 2 * one),
        (2, 2 * one),
        (2, 2 * (48 + 2 * 257 + 2 * SEGMENT)),
        (0, 0),
    ]


def test_a_row_is_listed_twice_at_most_by_adding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(path) as index:
        written = watched(monkeypatch)
        for i in range(-(-SEGMENT // 3000)):
            index.add(vectors(min(3000, SEGMENT - 3000 * i), i))
        named = sum(size - 48 - 2 * 257 for db, _, size in written if db == keys.POSTINGS and size) // 2
        tables = index.stats()["tables"]
        assert sound(index) == [(0, SEGMENT, SEGMENT)]
        assert index.stats()["table_bits"] == 8, "chosen for the first unit"
    assert tables == 2 and named <= 2 * tables * SEGMENT


def test_a_delete_writes_no_lists(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(path, UNIT + 10) as index:
        written = watched(monkeypatch)
        index.delete(range(900))
        assert {db for db, _, _ in written} == {keys.CODES, keys.IDS, keys.META}
        assert sound(index) == [(0, UNIT, UNIT)]


@pytest.mark.parametrize("bits", [4, 8, 12, 14, 15])
def test_lists_cost_what_is_promised(bits: int, path: Path) -> None:
    """Two bytes per row and table, three where a table has more than 14 bits, and the starts."""
    with create(path, SEGMENT, subset=MultiIndex(bits=bits)) as index:
        told = index.stats()
        own = (2 if bits <= 14 else 3) * SEGMENT + 2 * ((1 << min(bits, 14)) + 1) + 48
        assert told["tables"] == -(-16 // bits) and told["table_bits"] == bits
        least = own * (told["tables"] - 1)
        assert least < told["posting_bytes"] < told["tables"] * (own + 2 * 4096) + 3 * 4096
