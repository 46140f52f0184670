"""Posting lists in the file: what is listed when, what that costs, and that lists are what the codes say, always.

``lists_of`` reads a file without this package's own readers: every block of every table, held against the codes. It is
what ``Index.check`` must agree with, and not made of it.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex._storage import rewrite
from lsqindex._storage.format import columns, keys, meta, records
from lsqindex._storage.lmdb import engine, growth
from lsqindex._storage.lmdb.opening import OpenFile
from lsqindex._storage.lmdb.writer import Writer
from lsqindex._storage.store import Store
from lsqindex._subsets.multi_index import lists, merge, postings
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex.errors import (
    DamagedError,
    DuplicateIdError,
    LsqIndexError,
    NewerFormatError,
    ParameterError,
    StorageError,
)
from lsqindex.testing import reference

FIXTURES = Path(__file__).parents[1] / "fixtures"
CHUNK, UNIT, SEGMENT = 4064, 16_256, 65_024
DIM = 4


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.lsq"


@pytest.fixture
def untidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file in which chunks were given back is not compacted at once, as a large one is not."""
    monkeypatch.setattr(rewrite, "_SMALL", 0)


def create(path: Path | None, n: int = 0, *, subset: Any = "multi-index", **options: Any) -> Index:
    """An index whose codes are LSH of 16 bits, trained, with ``n`` vectors in it."""
    options = {"dim": DIM, "encoder": "lsh", "bits": 16, "subset": subset, "keep_vectors": None, **options}
    index = Index(**options) if path is None else Index.create(path, **options)
    index.train(vectors(300))
    if n:
        index.add(vectors(n))
    return index


# -- a file as it is ------------------------------------------------------------------------------


class Content:
    """A file, read by LMDB and msgpack alone: a copy of it, for a process may open a file once."""

    def __init__(self, path: Path) -> None:
        copy = shutil.copyfile(path, path.with_suffix(".read"))
        with lmdb.open(str(copy), subdir=False, lib_version=0, readonly=True, lock=False, max_dbs=8) as own:
            with own.begin() as txn:
                names = [name for name in keys.DATABASES if txn.get(name) is not None]
            dbs = {name: own.open_db(name, create=False) for name in names}
            with own.begin() as txn:
                self.entries = {name: dict(txn.cursor(db=db)) for name, db in dbs.items()}
        copy.unlink()
        self.meta: dict[bytes, Any] = {
            key: msgpack.unpackb(value[48:]) for key, value in self.entries[keys.META].items()
        }
        self.state, self.options = self.meta[b"state"], self.meta[b"options"]

    def codes(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The stored rows, and their codes."""
        rows, codes = [np.empty(0, np.int64)], [np.empty((0, self.state["code_size"]), np.uint8)]
        prefix = b"c" + struct.pack(">I", self.state["generation"])
        for key, value in self.entries[keys.CODES].items():
            if key.startswith(prefix):
                (first,), (count,) = struct.unpack(">I", key[5:]), struct.unpack_from("<I", value, 4)
                size, head = self.state["code_size"], self.state["head"]
                blocked = np.frombuffer(value[48:], np.uint8)
                own = columns.from_blocks(blocked, count, size, head) if head else blocked.reshape(count, size)
                rows.append(np.arange(first, first + count))
                codes.append(own[: max(0, self.state["rows"] - first)])
        return np.concatenate(rows)[: sum(map(len, codes))], np.concatenate(codes)

    def blocks(self) -> dict[int, list[bytes]]:
        """The records of all tables, by the first row of their block."""
        found: dict[int, list[bytes]] = {}
        for key, value in self.entries.get(keys.POSTINGS, {}).items():
            kind, generation, first, table = struct.unpack(">cIIH", key)
            assert (kind, generation, table) == (b"p", self.state["generation"], len(found.setdefault(first, [])))
            found[first].append(value)
        return found


def lists_of(path: Path) -> list[tuple[int, int, int]]:
    """(first row, row after, rows named) of each block; all are what the codes say, and every listed row is in one."""
    content = Content(path)
    state, subset, blocks = content.state, content.meta.get(b"subset"), content.blocks()
    if subset is None:
        assert not blocks and not state["listed"]
        return []
    rows, codes = content.codes()
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64)
    firsts, found, seen = sorted(blocks), [], 0
    for first, after in pairwise([*firsts, state["listed"]]):
        end = min(after, (first // SEGMENT + 1) * SEGMENT)
        here = (rows >= first) & (rows < end)
        seen += int(here.sum())
        count = same_lists(blocks[first], subset, first, rows[here] - first, bits[here])
        found.append((first, end, count))
    assert seen == int((rows < state["listed"]).sum()), "a listed row is in no block"
    return found


def same_lists(
    values: list[bytes], subset: dict[str, Any], first: int, rows: NDArray[np.int64], bits: NDArray[np.int64]
) -> int:
    """The records of a block name these rows, by these bits of their codes; how many they name, gone ones included."""
    counts = set()
    for table, (value, begin, width) in enumerate(zip(values, subset["tables"], subset["widths"], strict=True)):
        wanted = bits[:, begin : begin + width] @ (1 << np.arange(width))
        header, payload = records.decode(value, "lists")
        counts.add(header.count)
        assert (header.kind, header.first, header.width, header.head) == (b"p", first, width, table)
        if header.count == len(rows):
            assert payload.tobytes() == reference.list_payload(wanted, rows, width).tobytes()
            continue
        buckets, named = unpacked(payload, header.count, width)
        there = np.isin(named, rows)
        assert len(set(named.tolist())) == header.count and set(rows.tolist()) <= set(named.tolist())
        order = np.argsort(named[there], kind="stable")
        assert np.array_equal(named[there][order], rows) and np.array_equal(buckets[there][order], wanted)
    (count,) = counts
    return int(count)


def unpacked(payload: Any, count: int, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bucket and row of each posting, as docs/format.md tells."""
    bins = 1 << min(bits, 14)
    starts = np.frombuffer(payload, "<u2", bins + 1).astype(np.int64)
    rows = np.frombuffer(payload, "<u2", count, 2 * (bins + 1)).astype(np.int64)
    buckets = np.repeat(np.arange(bins), np.diff(starts))
    if bits > 14:
        low = np.frombuffer(payload, np.uint8, count, 2 * (bins + 1 + count))
        buckets = (buckets << (bits - 14)) + low
    return buckets, rows


def sound(index: Index) -> list[tuple[int, int, int]]:
    """The blocks of an index in which everything is as it must be."""
    assert index.check() == []
    assert index.path is not None
    return lists_of(Path(index.path))


def state_of(index: Index) -> meta.State:
    with index._reader() as reader:
        return reader.state


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
        monkeypatch.setattr(merge, "catch_up", lambda writer, **_: writer.commit())
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
    """Two bytes a row and table, three where a table has more than 14 bits, and the starts."""
    with create(path, SEGMENT, subset=MultiIndex(bits=bits)) as index:
        told = index.stats()
        own = (2 if bits <= 14 else 3) * SEGMENT + 2 * ((1 << min(bits, 14)) + 1) + 48
        assert told["tables"] == -(-16 // bits) and told["table_bits"] == bits
        least = own * (told["tables"] - 1)
        assert least < told["posting_bytes"] < told["tables"] * (own + 2 * 4096) + 3 * 4096


# -- changes --------------------------------------------------------------------------------------


def deletes(index: Index) -> None:
    index.delete(range(0, len(index) + 5000, 9))


def upserts(index: Index) -> None:
    ids = np.random.default_rng(3).permutation(UNIT)[:2500]
    index.add(vectors(len(ids), 5), ids=ids, upsert=True)


def gives_back(index: Index) -> None:
    index.delete(range(CHUNK, CHUNK + 1200))


def gives_all_back(index: Index) -> None:
    """Chunk by chunk, until nothing of the first unit is left, and then of anything."""
    for first in range(0, UNIT, 1500):
        index.delete(range(first, first + 1500))
        sound(index)
    assert state_of(index).listed >= UNIT and not Content(Path(str(index.path))).blocks().get(0)
    index.delete(index.ids())


def batch(index: Index) -> None:
    with index.batch() as changes:
        changes.add(vectors(UNIT, 7), ids=np.arange(10**6, 10**6 + UNIT))
        changes.delete(range(2 * CHUNK))
        with pytest.raises(LsqIndexError):
            changes.add(vectors(2), ids=[10**6, 1])
        changes.add(vectors(10, 8))


def failing_batch(index: Index) -> None:
    with pytest.raises(KeyboardInterrupt), index.batch() as changes:
        changes.add(vectors(UNIT, 7), ids=np.arange(10**6, 10**6 + UNIT))
        raise KeyboardInterrupt


def large_add(index: Index) -> None:
    index.add(vectors(UNIT + 3, 9), ids=np.arange(10**6, 10**6 + UNIT + 3))


def other_tables(index: Index) -> None:
    for subset in (MultiIndex(bits=4), MultiIndex(bits=16), None, "multi-index"):
        index.set_subset(subset)
        assert bool(sound(index)) == (subset is not None)


def copies(index: Index) -> None:
    assert index.path is not None
    copy = Path(index.path).with_name("copy.lsq")
    for _ in range(2):
        index.save(copy)
        with Index.open(copy) as other:
            assert other.stats()["fresh"] == 0 and other.subset is not None
            assert sound(other)[-1][1] == len(index)


CHANGES: dict[str, Callable[[Index], Any]] = {
    "deletes": deletes,
    "upserts": upserts,
    "gives back a chunk": gives_back,
    "gives everything back": gives_all_back,
    "a batch": batch,
    "a batch that fails": failing_batch,
    "a large add": large_add,
    "set_subset": other_tables,
    "merge": Index.merge,
    "compact": Index.compact,
    "save": copies,
    "reencode": lambda index: index.reencode("lsh", bits=29),
    "reencode, not binary": lambda index: index.reencode("pq", bits=16),
    "train": lambda index: index.train(vectors(50, 4)),
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_after_any_change_lists_are_what_the_codes_say(
    change: str, merged: bool, path: Path, untidy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if merged:  # in many transactions, too
        for module in (loader, training, rewrite, merge):
            monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 16)
    with create(path, UNIT + 3000, keep_vectors="float32") as index:
        if merged:
            index.merge()
        CHANGES[change](index)
        sound(index)
        ids = index.ids()
        index.add(vectors(50, 99), ids=np.arange(5 * 10**6, 5 * 10**6 + 50))
        index.delete(ids[:20])
        after = sound(index)
        agree(index)
    with Index.open(path) as index:
        assert sound(index) == after
        agree(index)


def agree(index: Index) -> None:
    """A search that looks into every bucket finds what a scan finds; lists that are remembered lie where they are."""
    if index.subset is None:
        return
    with index._reader() as reader:
        remembered = Store(reader, index._options).lists()
        reader.env.columns.clear()
        looked_up = Store(reader, index._options).lists()
        assert remembered is not None and looked_up is not None
        for name in ("firsts", "counts", "spans", "addresses", "bits"):
            assert np.array_equal(getattr(remembered, name), getattr(looked_up, name)), name
    everything = sum(1 << int(width) for width in subset_of(index).widths)
    queries = vectors(2, 17)
    near = index.search(queries, 20, probes=everything, candidates=len(index) + 1, rerank=0)
    scanned = index.search(queries, 20, strategy="scan", rerank=0)
    assert np.array_equal(near.ids, scanned.ids) and np.array_equal(near.distances, scanned.distances)


def subset_of(index: Index) -> meta.Subset:
    with index._reader() as reader:
        subset = meta.read_subset(reader)
    assert subset is not None
    return subset


def test_a_block_is_made_anew_when_half_of_it_is_gone(path: Path, untidy: None) -> None:
    with create(path, UNIT + 10) as index:
        index.delete(range(CHUNK))
        assert sound(index) == [(0, UNIT, UNIT)], "a quarter is gone: its lists name it still"
        index.delete(range(CHUNK, 2 * CHUNK))
        assert sound(index) == [(0, UNIT, UNIT // 2)]
        index.delete(range(2 * CHUNK, 3 * CHUNK))
        assert sound(index) == [(0, UNIT, CHUNK)]
        index.delete(range(3 * CHUNK, 4 * CHUNK))
        assert sound(index) == [] and state_of(index).listed == UNIT
        assert index.ids().tolist() == list(range(UNIT, UNIT + 10))
        agree(index)
        assert index.search(vectors(1), 3, strategy="subset").ids[0, 0] >= UNIT
        index.merge()
        assert sound(index) == [(UNIT, UNIT + 10, 10)]


def test_a_block_without_a_successor_reaches_over_what_is_gone(path: Path, untidy: None) -> None:
    """The second unit of three goes: the first block then ends where the third begins."""
    with create(path) as index:
        for i in range(3):
            index.add(vectors(UNIT, i))
        index.delete(range(UNIT, 2 * UNIT))
        assert sound(index) == [(0, 2 * UNIT, UNIT), (2 * UNIT, 3 * UNIT, UNIT)]
        agree(index)
        index.delete(range(3 * CHUNK))
        assert sound(index) == [(0, 2 * UNIT, CHUNK), (2 * UNIT, 3 * UNIT, UNIT)]
        index.add(vectors(UNIT, 4))
        assert sound(index) == [(0, SEGMENT, UNIT + UNIT + CHUNK)]
        agree(index)


def test_lists_of_a_full_segment_that_are_made_anew_are_found_again(path: Path, untidy: None) -> None:
    """Readers remember where those of full segments lie: ``relisted`` tells them to look again."""
    with create(path, SEGMENT + 10, subset=MultiIndex(bits=8)) as index, Index.open(path, read_only=True) as reader:
        agree(reader)
        before = state_of(index).relisted
        index.delete(range(SEGMENT // 2))
        assert state_of(index).relisted == before + 1
        assert sound(index) == [(0, SEGMENT, SEGMENT // 2)]
        index.add(vectors(5000, 3))  # which may take the pages that were freed
        index.add(vectors(5000, 4))
        agree(reader)
        assert reader.check() == []


def test_tables_that_come_again_are_looked_up_again(path: Path) -> None:
    """The same tables of the same codes: nothing but ``relisted`` tells that their lists were made anew."""
    with create(path, SEGMENT + 10, subset=MultiIndex(bits=8)) as index, Index.open(path, read_only=True) as reader:
        agree(reader)
        index.set_subset(None)
        index.add(vectors(20_000, 3))
        index.set_subset(MultiIndex(bits=8))
        agree(reader)
        assert reader.check() == []


def test_rows_that_a_delete_moves_are_listed_when_they_fill_a_unit(path: Path, untidy: None) -> None:
    with create(path, 2 * UNIT - 100) as index:
        assert state_of(index).listed == UNIT
        index.delete(range(1100))
        assert state_of(index).rows == 2 * UNIT - 100 + CHUNK - 1100
        assert sound(index) == [(0, UNIT, UNIT), (UNIT, 2 * UNIT, UNIT)]
        agree(index)


def test_addresses_of_full_segments_are_known_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit only the last segment's lists are looked up, and none is verified twice."""
    looked: list[int] = []
    decoded: list[records.Header] = []
    entries, decode = lists.entries, postings.decode

    def seen(source: Any, row: int = 0) -> Any:
        looked.append(row)
        return entries(source, row)

    def verified(value: Any, wanted: records.Header, span: int) -> memoryview:
        decoded.append(wanted)
        return decode(value, wanted, span)

    monkeypatch.setattr(lists, "entries", seen)
    monkeypatch.setattr(postings, "decode", verified)
    with create(path, SEGMENT + UNIT + 5, subset=MultiIndex(bits=8)) as index:
        index.search(vectors(1), probes=4)
        assert looked == [0] and [(own.first, own.head) for own in decoded] == [
            (0, 0),
            (0, 1),
            (SEGMENT, 0),
            (SEGMENT, 1),
        ]
        index.search(vectors(1), probes=4)
        assert looked == [0]
        index.add(vectors(5))
        index.search(vectors(1), probes=4)
        assert looked == [0, SEGMENT] and len(decoded) == 4
        index.add(vectors(UNIT))
        index.search(vectors(1), probes=4)
        assert looked[2:] == [SEGMENT] and [own.first for own in decoded[4:]] == [SEGMENT + UNIT] * 2


# -- the subset structure -------------------------------------------------------------------------


def test_bits_are_chosen_for_the_vectors_there_are(path: Path) -> None:
    with create(path) as index:
        assert index.subset == MultiIndex(bits=4)
        index.add(vectors(1000))
        assert index.subset == MultiIndex(bits=4), "nothing is listed: nothing is changed for a few rows"
        index.add(vectors(UNIT))
        assert index.subset == MultiIndex(bits=8)
        index.add(vectors(3 * UNIT))
        assert index.subset == MultiIndex(bits=8), "what is listed stays"
        index.merge()
        assert index.subset == MultiIndex(bits=10)
        assert sound(index) == [(0, SEGMENT, SEGMENT), (SEGMENT, SEGMENT + 1000, 1000)]
        index.delete(range(SEGMENT))
        index.compact()
        assert index.subset == MultiIndex(bits=4) and sound(index) == [(0, 1000, 1000)]


def test_bits_that_were_asked_for_stay(path: Path) -> None:
    with create(path, subset=MultiIndex(bits=5), keep_vectors="float32") as index:
        index.add(vectors(UNIT + 5))
        index.merge()
        index.compact()
        index.train(vectors(100))
        assert index.subset == MultiIndex(bits=5) and subset_of(index).widths == (5, 5, 5, 1)
        index.add(vectors(10), ids=range(10**6, 10**6 + 10))
        sound(index)


def test_the_tables_of_a_code_that_is_not_binary_are_its_dimensions(path: Path) -> None:
    with create(path, 3000, encoder="pq", bits=16, subset="multi-index", keep_vectors="float32") as index:
        index.merge()
        fields = index.encoder.layout.bits
        assert subset_of(index).widths == tuple(fields) and sound(index) == [(0, 3000, 3000)]
        with pytest.raises(ParameterError, match="bits"):
            index.set_subset(MultiIndex(bits=8))
        with pytest.raises(ParameterError, match="vectors as they are"):
            index.reencode("flat")
        assert subset_of(index).widths == tuple(fields) and sound(index) == [(0, 3000, 3000)]


def test_tables_begin_behind_row_scalars(path: Path) -> None:
    with create(path, 700, encoder="lsq", bits=40, iterations=2, subset=MultiIndex(bits=15)) as index:
        index.merge()
        layout = index.encoder.layout
        first = sum(layout.bits[: layout.scalars])
        assert first > 0 and subset_of(index).tables[0] == first
        assert sound(index) == [(0, 700, 700)]


def test_progress_tells_how_far_listing_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMMIT_BYTES", 1)
    told: list[tuple[int, int | None]] = []
    with create(path, SEGMENT + UNIT + 9, subset=None) as index:
        rows = SEGMENT + UNIT + 9
        index.set_subset("multi-index", progress=lambda done, total: told.append((done, total)))
        assert told == [(SEGMENT, rows), (SEGMENT + UNIT, rows), (rows, rows)]
        assert sound(index) == [(0, SEGMENT, SEGMENT), (SEGMENT, SEGMENT + UNIT, UNIT), (SEGMENT + UNIT, rows, 9)]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_listing_that_ends_between_transactions_goes_on_later(
    step: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed stays, what was stopped is undone; the rest is fresh, and nothing is missed."""
    monkeypatch.setattr(merge, "COMMIT_BYTES", 1)

    def stop(done: int, total: int | None) -> None:
        steps.append(done)
        if len(steps) == step:
            raise KeyboardInterrupt

    with create(path, SEGMENT + UNIT + 9, subset=None) as index:
        steps: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            index.set_subset(MultiIndex(bits=8), progress=stop)
        assert steps == [SEGMENT, SEGMENT + UNIT, SEGMENT + UNIT + 9][:step]
        if step == 1:  # the first has the tables, too
            assert index.subset is None and sound(index) == []
            index.set_subset(MultiIndex(bits=8))
            assert sound(index)[-1] == (SEGMENT + UNIT, SEGMENT + UNIT + 9, 9)
            return
        assert state_of(index).listed == steps[-2]
        assert index.stats()["fresh"] == len(index) - steps[-2]
        sound(index)
        agree(index)
        index.add(vectors(1))
        assert state_of(index).listed == SEGMENT + UNIT
        index.merge()
        assert sound(index)[-1] == (SEGMENT + UNIT, SEGMENT + UNIT + 10, 10)


def test_an_add_is_done_even_where_its_lists_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing after a durable add is help, not part of it: what fails there stays fresh, and is no error of the add."""

    def full(*_: Any, **__: Any) -> None:
        raise StorageError("no room")

    with create(path) as index, monkeypatch.context() as patch:
        patch.setattr(merge, "list_fresh", lambda *_: None)
        patch.setattr(merge, "catch_up", full)
        index.add(vectors(UNIT))
        assert (len(index), index.stats()["fresh"]) == (UNIT, UNIT)
        patch.undo()
        index.add(vectors(1))
        assert sound(index) == [(0, UNIT, UNIT)]


# -- readers beside a writer ----------------------------------------------------------------------


def test_a_snapshot_stays_as_it_was_while_a_writer_lists(path: Path) -> None:
    with create(path, UNIT + 5, subset=MultiIndex(bits=8)) as index, index._reader() as reader:
        before = Store(reader, index._options).lists()
        assert before is not None
        payloads = [bytes(value) for _, value in lists.entries(reader)]
        with Index.open(path) as other:  # in the same process: the same environment
            other.add(vectors(3 * UNIT, 2))
            other.delete(range(2 * CHUNK))
            other.set_subset(MultiIndex(bits=16))
            assert sound(other)
        assert [bytes(value) for _, value in lists.entries(reader)] == payloads
        again = lists.find(reader, Store(reader, index._options).codes)
        assert again is not None and (again.listed, again.firsts.tolist()) == (UNIT, [0])
        assert again.bits.tolist() == [8, 8] and np.array_equal(again.addresses, before.addresses)


def test_an_older_snapshot_than_the_last_one_seen_finds_its_own_lists(path: Path) -> None:
    """What is remembered of a newer snapshot must not be taken for an older one's."""
    with create(path, SEGMENT - 5, subset=MultiIndex(bits=8)) as index, index._reader() as old:
        with Index.open(path) as other:
            other.add(vectors(SEGMENT, 2))
            agree(other)  # now the newer lists are known
        found = Store(old, index._options).lists()
        assert found is not None and (found.listed, found.firsts.tolist()) == (3 * UNIT, [0])
        assert found.counts.tolist() == [3 * UNIT]
        agree(index)


# -- a full map -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pages", range(24, 124, 20))
def test_nothing_is_lost_when_the_map_is_full_while_listing(
    pages: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "INITIAL_MAP", 4096 * pages)
    monkeypatch.setattr(growth, "lacks", lambda file, room: 0)  # it is not grown beforehand
    replayed: list[int] = []
    replay = Writer._replay

    def seen(writer: Writer) -> None:
        replayed.append(writer.state.listed)
        replay(writer)

    monkeypatch.setattr(Writer, "_replay", seen)
    with create(path, subset=None) as index:
        index.add(vectors(UNIT + 500))
        del replayed[:]
        index.set_subset(MultiIndex(bits=4))
        index.add(vectors(UNIT))
        index.delete(range(2 * CHUNK))
        index.merge()
        assert sound(index)[-1][1] == state_of(index).rows
        agree(index)
        assert replayed, "the map was never full"
    with Index.open(path) as index:
        assert sound(index)[-1][1] == state_of(index).rows


# -- older formats --------------------------------------------------------------------------------


@pytest.fixture(params=["format1-trained.lsq", "format1-untrained.lsq", "format2-lists.lsq", "format2-tables.lsq"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    shutil.copyfile(FIXTURES / request.param, path)
    return path


def formats(path: Path) -> tuple[int, int, int]:
    """The format that the options tell, that of the fields of the state, that of the databases that are there."""
    content = Content(path)
    state = 1 + sum(name in content.state for name in ("listed", "payloads", "recoded"))
    return content.options["format"], state, len(content.entries) - 3


def format_of(old: Path) -> int:
    return int(old.name[len("format")])


#: (Format 4 brought no database.)
NEWEST = (4, 4, 3)


def touch(index: Index) -> None:
    new: Any = [77_777] if index.stats()["ids"] == "int" else ["new"]
    index.add(np.ones((1, index.dim)), ids=new, upsert=True)


def test_a_file_of_an_older_format_that_is_only_read_stays_one(old: Path) -> None:
    before, number = old.read_bytes(), format_of(old)
    with Index.open(old) as index:
        assert index.stats()["format"] == number and (index.subset is None) == (number == 1)
        assert index.payloads(index.ids()[:2]) == [None, None] and not len(index.ids({"lang": "en"}))
        assert len(index.ids({"lang": {"$ne": "en"}})) == len(index)
        assert index.check() == [] and len(index.search(np.ones(index.dim), 3).ids) == 3
        index.save()
        index.delete(index.ids()[:0])  # nothing is changed, so nothing is written
        if number == 1:
            index.set_subset(None)
            index.merge()
        with pytest.raises(LsqIndexError), index.batch() as changes:
            changes.add(np.ones((1, index.dim + 1)))
        if number == 1:
            with pytest.raises(ParameterError, match="set_subset"):
                index.search(np.ones(index.dim), strategy="subset")
    assert old.read_bytes() == before and formats(old) == (number, number, number)


def add_payload(index: Index) -> None:
    new: Any = [88_888] if index.stats()["ids"] == "int" else ["newer"]
    index.add(np.ones((1, index.dim)), ids=new, payloads=[{"lang": "en"}], upsert=True)


def batch_payload(index: Index) -> None:
    """The first add needs no upgrade, the second does, the third fails."""
    new: Any = [88_888, 99_999] if index.stats()["ids"] == "int" else ["newer", "newest"]
    with index.batch() as batch:
        batch.add(np.ones((1, index.dim)), ids=new[1:])
        batch.add(np.ones((1, index.dim)), ids=new[:1], payloads=[{"lang": "en"}])
        with pytest.raises(LsqIndexError):
            batch.add(np.ones((1, index.dim)), ids=new[:1], payloads=[{"lang": "vi"}])


WRITES: dict[str, Callable[[Index], Any]] = {
    "add": touch,
    "add a payload": add_payload,
    "a payload in a batch": batch_payload,
    "set a payload": lambda index: index.set_payloads(index.ids()[:1], [{"lang": "en"}]),
    "delete": lambda index: index.delete(index.ids()[:1]),
    "set_subset": lambda index: index.set_subset(None if index.subset else "multi-index"),
    "compact": Index.compact,
    # (Codes alone cannot be made anew; lists can.)
    "train or merge": lambda index: index.merge() if index.subset else index.train(),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_first_write_upgrades(write: str, old: Path) -> None:
    with Index.open(old) as index:
        count, before = len(index), Content(old)
        WRITES[write](index)
        assert index.stats()["format"] == 4 and index.check() == []
        more = {"add": 1, "add a payload": 1, "a payload in a batch": 2, "delete": -1}
        assert len(index) == count + more.get(write, 0)
        after = Content(old)
        assert formats(old) == NEWEST and after.state["payloads"] == ("payload" in write)
        if format_of(old) == 1:
            listed = after.state["rows"] if write == "set_subset" and index.is_trained else 0
            assert after.state["listed"] == listed and list(after.blocks()) == [0] * bool(listed)
        assert {**before.options, "format": 4, "fields": []} == after.options
        assert len(index.ids({"lang": "en"})) == ("payload" in write)
    with Index.open(old) as index:
        assert index.check() == [] and index.stats()["format"] == 4
        assert len(index.ids({"lang": "en"})) == ("payload" in write)


def test_a_copy_of_a_file_of_an_older_format_has_this_one(old: Path) -> None:
    with Index.open(old) as index:
        index.save(old.with_name("copy.lsq"))
        assert formats(old) == (format_of(old),) * 3 and formats(old.with_name("copy.lsq")) == NEWEST
        with Index.open(old.with_name("copy.lsq")) as copy:
            assert copy.check() == [] and [*copy.ids()] == [*index.ids()]


def test_an_upgraded_file_gets_a_multi_index(tmp_path: Path) -> None:
    path = tmp_path / "old.lsq"
    shutil.copyfile(FIXTURES / "format1-trained.lsq", path)
    with Index.open(path) as index:
        before = index.search(np.zeros((1, 8)), 20)
        index.set_subset(MultiIndex(bits=12))
        rows = state_of(index).rows
        assert sound(index) == [(0, rows, rows)]
        found = index.search(np.zeros((1, 8)), 20, probes=10**6, candidates=1000)
        assert np.array_equal(found.ids, before.ids)


@pytest.mark.parametrize("write", ["add", "add a payload", "a payload in a batch", "set a payload"])
def test_an_upgrade_that_is_undone_leaves_the_format(write: str, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.open(old) as index:
        before, number = Content(old).entries, format_of(old)
        with monkeypatch.context() as patch:
            patch.setattr(OpenFile, "replaced", lambda self: True)  # the commit notices, after the upgrade
            with pytest.raises(StorageError, match="replaced"):
                WRITES[write](index)
        assert Content(old).entries == before and formats(old) == (number,) * 3
        assert index.check() == [] and index.stats()["format"] == number
        with pytest.raises(DuplicateIdError):  # after the upgrade, too
            index.add(np.ones((1, index.dim)), ids=index.ids()[:1], payloads=[{"lang": "en"}])
        assert Content(old).entries == before and index.check() == []
        WRITES[write](index)
        assert formats(old) == NEWEST and index.check() == []


def test_a_large_add_of_payloads_upgrades(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staged in several transactions, of which the first upgrades; one that fails leaves the rows as they were."""
    monkeypatch.setattr(loader, "COMMIT_BYTES", 100_000)
    with Index.open(old) as index:
        count = len(index)
        new: Any = [*range(100_000, 109_000)]
        new = new if index.stats()["ids"] == "int" else [str(name) for name in new]
        given = [{"lang": "en", "i": i} if i % 3 else None for i in range(9_000)]

        def stop(done: int, total: int | None) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            index.add(np.ones((9_000, index.dim)), new, given, progress=stop)
        assert index.check() == [] and len(index) == count and formats(old) == NEWEST
        assert index.payloads(index.ids()) == [None] * count
        index.add(np.ones((9_000, index.dim)), new, given)
        assert index.check() == [] and index.payloads(new) == given and len(index) == count + 9_000
    with Index.open(old) as index:
        assert index.payloads(new) == given and len(index.ids({"i": {"$gte": 4_500}})) == 3_000


@pytest.mark.parametrize("write", sorted(set(WRITES) - {"compact"}))
@pytest.mark.parametrize("key", [keys.OPTIONS, keys.STATE, keys.payloads_prefix()])
def test_an_upgrade_when_the_map_is_full(key: bytes, write: str, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle of a database that was made in a transaction is void when that is rolled back: it is made again."""
    full: list[int] = []
    put = Writer.put

    def once_full(writer: Writer, db: bytes, name: bytes, value: bytes) -> None:
        if name.startswith(key) and not full and writer._before.format < 4 and not writer.env.private:
            full.append(writer.state.rows)
            raise lmdb.MapFullError("full")
        put(writer, db, name, value)

    monkeypatch.setattr(Writer, "put", once_full)
    with Index.open(old) as index:
        WRITES[write](index)
        touch(index)
        assert index.check() == [] and (full or "payload" not in write)
        assert len(index.ids({"lang": "en"})) == ("payload" in write)
    assert formats(old) == NEWEST


def test_an_environment_that_is_shared_follows_the_upgrade(old: Path) -> None:
    """Two indexes of one process, and a snapshot from before."""
    with Index.open(old) as writing, Index.open(old, read_only=True) as reading:
        with pytest.raises(KeyboardInterrupt), writing.batch():
            raise KeyboardInterrupt  # opened for writing by now, and not written to
        with reading._reader() as snapshot:
            see_an_upgrade(writing, reading, snapshot)


def see_an_upgrade(writing: Index, reading: Index, snapshot: Any) -> None:
    number, count = snapshot.state.format, len(reading)
    assert snapshot.dbs.keys() == set(keys.databases(number)) and reading.payloads(reading.ids()[:1]) == [None]
    add_payload(writing)
    assert reading.check() == [] and reading.stats()["format"] == 4 and len(reading.ids({"lang": "en"})) == 1
    assert snapshot.state.format == number and snapshot.dbs.keys() == set(keys.databases(number))
    store = Store(snapshot, reading._options)
    assert store.payloads() is None and len(store.living()) == count
    assert (meta.read_subset(snapshot) is None) == (number == 1)


@pytest.fixture(params=["format3-payloads.lsq", "format3-fields.lsq"])
def third(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of the format before this one, which has all databases already."""
    path = tmp_path / str(request.param)
    shutil.copyfile(FIXTURES / request.param, path)
    return path


def test_a_file_of_format_3_that_is_only_read_stays_one(third: Path) -> None:
    before = third.read_bytes()
    with Index.open(third) as index:
        assert index.stats()["format"] == 3 and index.stats()["training"] is None and index.check() == []
        assert len(index.search(np.ones(index.dim), 3).ids) == 3
        index.save()
        index.delete(index.ids()[:0])
    assert third.read_bytes() == before and formats(third) == (3, 3, 3)


@pytest.mark.parametrize("write", sorted(set(WRITES) - {"train or merge"}))
def test_the_first_write_upgrades_format_3(write: str, third: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.open(third) as index, Index.open(third, read_only=True) as reading:
        names, options, entries = index.ids(), Content(third).options, Content(third).entries
        payloads = index.payloads(names)
        if write != "compact":
            with monkeypatch.context() as patch:
                patch.setattr(OpenFile, "replaced", lambda self: True)  # the commit notices, after the upgrade
                with pytest.raises(StorageError, match="replaced"):
                    WRITES[write](index)
        assert Content(third).entries == entries and formats(third) == (3, 3, 3) and index.stats()["format"] == 3
        WRITES[write](index)
        assert formats(third) == NEWEST and {**options, "format": 4} == Content(third).options
        for one in (index, reading):
            assert one.check() == [] and one.stats()["format"] == 4
            assert one.payloads(names[1:]) == payloads[1:] if write != "delete" else names[0] not in one
    with Index.open(third) as index:
        assert index.check() == [] and index.stats()["format"] == 4


def forge(path: Path, change: Callable[[Any, dict[bytes, Any]], None]) -> None:
    """Change a file behind the back of this package, in a transaction that the state knows of."""
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 26) as own:
        with own.begin() as txn:
            names = [name for name in keys.DATABASES if txn.get(name) is not None]
        dbs = {name: own.open_db(name, create=False) for name in names}
        with own.begin(write=True) as txn:
            change(txn, dbs)
            state = msgpack.unpackb(txn.get(b"state", b"", db=dbs[keys.META])[48:])
            txn.put(b"state", meta.pack({**state, "txn": txn.id()}), db=dbs[keys.META])


def with_options(number: int) -> Callable[[Any, dict[bytes, Any]], None]:
    """Options of another format, and nothing else."""

    def change(txn: Any, dbs: dict[bytes, Any]) -> None:
        options = msgpack.unpackb(txn.get(b"options", db=dbs[keys.META])[48:])
        options.pop("fields", None)
        later: dict[str, Any] = {"fields": []} if number > 2 else {}
        txn.put(b"options", meta.pack({**options, **later, "format": number}), db=dbs[keys.META])

    return change


def test_options_and_state_of_different_formats_are_damage(old: Path) -> None:
    for number in range(format_of(old) + 1, 5):
        shutil.copyfile(FIXTURES / old.name, old)
        forge(old, with_options(number))
        with pytest.raises(LsqIndexError):
            Index.open(old)  # a newer format has more databases
    shutil.copyfile(FIXTURES / old.name, old)
    with Index.open(old) as index:
        touch(index)
    for number in (1, 2):
        forge(old, with_options(number))
        with pytest.raises(DamagedError, match="newer format"), Index.open(old) as index:
            len(index)
    forge(old, with_options(3))  # which has the same databases
    with Index.open(old) as index:
        assert any("of format 4, and the file has format 3" in problem for problem in index.check())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_state_of_an_older_format_in_a_file_of_this_one_is_noticed(number: int, path: Path) -> None:
    def older_state(txn: Any, dbs: dict[bytes, Any]) -> None:
        state = msgpack.unpackb(txn.get(b"state", db=dbs[keys.META])[48:])
        since = {
            2: ("listed", "relisted"),
            3: ("payloads",),
            4: ("next_generation", "next_size", "next_head", "recoded"),
        }
        for name in [name for later in range(number + 1, 5) for name in since[later]]:
            del state[name]
        txn.put(b"state", meta.pack(state), db=dbs[keys.META])

    with create(path, 300) as index:
        index.merge()
        add_payload(index)
    forge(path, older_state)
    with Index.open(path) as index:
        assert any(f"format {number}" in problem for problem in index.check())
        with pytest.raises(DamagedError, match=f"format {number}"):
            touch(index)


@pytest.mark.parametrize(
    ("name", "db"), [("format1-trained.lsq", keys.PAYLOADS), ("format2-tables.lsq", keys.PAYLOADS)]
)
def test_a_database_of_payloads_in_a_file_of_an_older_format_is_damage(name: str, db: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copyfile(FIXTURES / name, path)
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 26) as own:
        opened = own.open_db(db)
        with own.begin(write=True) as txn:
            txn.put(b"y\0\0\0\0", b"not ours", db=opened)
    forge(path, lambda txn, dbs: None)
    with Index.open(path) as index:
        for write in (touch, add_payload):
            with pytest.raises(DamagedError, match=f"format {name[6]}"):
                write(index)
        assert index.stats()["format"] == int(name[6])


def test_a_database_of_lists_in_a_file_of_format_1_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "old.lsq"
    shutil.copyfile(FIXTURES / "format1-trained.lsq", path)
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 26) as own:
        db = own.open_db(keys.POSTINGS)
        with own.begin(write=True) as txn:
            txn.put(b"p", b"not ours", db=db)
    forge(path, lambda txn, dbs: None)
    with Index.open(path) as index:
        assert len(index.search(np.ones(8), 3).ids) == 3
        with pytest.raises(DamagedError, match="format 1"):
            touch(index)
        assert index.check() == [] and index.stats()["format"] == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_version_of_this_package_that_knows_older_formats_only_is_told_so(number: int, path: Path) -> None:
    """What it would do: refuse the number, before anything whose shape depends on it."""
    with create(path, 10):
        pass
    record = Content(path).entries[keys.META][b"options"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meta, "FORMAT", number)
        with pytest.raises(NewerFormatError, match="format 4"):
            meta.check_format(record)
