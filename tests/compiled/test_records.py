"""The compiled readers of a file, against plain Python: checksums, rows of a column, LMDB's pages."""

from __future__ import annotations

import os
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lmdb import verify as lmdb_verify
from numpy.typing import NDArray

from lsqindex import Index, LsqIndexError
from lsqindex._compiled import records as _records
from lsqindex._storage.format import columns, records
from lsqindex._storage.lmdb import pages

LONG = os.environ.get("LSQINDEX_LONG") == "1"
EXAMPLES = 1_000 if LONG else 60

# -- checksums ------------------------------------------------------------------------------------

PRIME = 2_654_435_761


def official_bytes(n: int) -> bytes:
    """The test buffer of the xxHash project."""
    found, number = bytearray(), PRIME
    for _ in range(n):
        found.append(number >> 24)
        number = number * number % 2**32
    return bytes(found)


def our_bytes(n: int) -> bytes:
    return bytes((i * 131 + 17 * (i // 7)) % 256 for i in range(n))


@pytest.mark.parametrize(
    ("size", "seed", "expected"),
    [
        (0, 0, 0xEF46DB3751D8E999),
        (0, PRIME, 0xAC75FDA2929B17EF),
        (1, 0, 0x4FCE394CC88952D8),
        (1, PRIME, 0x739840CB819FA723),
        (4, 0, 0x9256E58AA397AEF1),
        (4, PRIME, 0x9D5FFDFB928AB4B),
        (14, 0, 0xCFFA8DB881BC3A3D),
        (14, PRIME, 0x5B9611585EFCC9CB),
        (222, 0, 0x9DD507880DEBB03D),
        (222, PRIME, 0xDC515172B8EE0600),
    ],
)
def test_checksum_gives_the_official_values(size: int, seed: int, expected: int) -> None:
    assert _records.checksum(official_bytes(size), seed) == expected


@pytest.mark.parametrize(
    ("size", "seed", "expected"),
    [
        (3, 0, 0xA83378D1EB86EC62),
        (7, 0, 0xF0AEF407B44730F8),
        (8, 0, 0x7732884125A18FCB),
        (31, 0, 0x5CA9F6BA71693B34),
        (32, 0, 0x9F85BD4BDA919F1E),
        (33, 0, 0x564CB168327EE1C7),
        (64, 0, 0x87A983B45326D6E6),
        (1000, 0, 0x4B2CA7C2AD8FB4B),
        (1000, 2**64 - 1, 0xD0A0DE316FFB826B),
        (5, 0x9E3779B1, 0xC3C81C250CFDACED),
    ],
)
def test_checksum_gives_the_values_of_the_xxhash_package(size: int, seed: int, expected: int) -> None:
    assert _records.checksum(our_bytes(size), seed) == expected


def test_checksums_of_all_small_sizes_each_seeding_the_next() -> None:
    """One number for 201 sizes and seeds, found with the xxhash package."""
    seed = 0
    for size in range(201):
        seed = _records.checksum(our_bytes(size), seed)
    assert seed == 0xADD9A3C89798603D


def test_checksum_takes_any_address_and_read_only_buffers() -> None:
    data = our_bytes(300)
    for first in range(17):
        view = memoryview(bytearray(data))[first : first + 100]
        assert _records.checksum(view) == _records.checksum(data[first : first + 100])


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_flipped_bit_changes_the_checksum(data: bytes, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    assert _records.checksum(bytes(flipped)) != _records.checksum(data)


# -- rows of a column -----------------------------------------------------------------------------


class Records:
    """A column in memory: records of these sizes with these gaps before them."""

    def __init__(self, sizes: list[int], gaps: list[int], hidden: int = 0) -> None:
        starts, at = [], 0
        for size, gap in zip(sizes, gaps, strict=True):
            starts.append(at + gap)
            at += gap + size
        self.starts = np.array(starts, np.uint32)
        self.counts = np.array(sizes, np.uint32)
        #: Rows that the last record holds and nobody may see: those of an unfinished add.
        self.hidden = hidden
        self.rows = [start + i for start, size in zip(starts, sizes, strict=True) for i in range(size)]
        self.held: list[bytearray] = []

    def stored(self) -> Iterator[tuple[int, int]]:
        """(first row, rows) of each record, hidden ones included."""
        for i, (start, count) in enumerate(zip(self.starts.tolist(), self.counts.tolist(), strict=True)):
            yield start, count + (self.hidden if i == len(self.starts) - 1 else 0)

    def hold(self, record: bytes) -> None:
        self.held.append(bytearray(record))

    def arrays(self) -> tuple[Any, Any, Any]:
        addresses = [_records.address(record) + records.HEADER_SIZE for record in self.held]
        return self.starts, self.counts, np.array(addresses, np.uint64)


@st.composite
def shapes(draw: st.DrawFn) -> Records:
    sizes = draw(st.lists(st.integers(1, 70), max_size=5))
    gaps = [draw(st.sampled_from([0, 0, 1, 40])) for _ in sizes]
    return Records(sizes, gaps, draw(st.sampled_from([0, 1, 40])) if sizes else 0)


def fill_fixed(column: Records, width: int, head: int, seed: int) -> dict[int, bytes]:
    """Fill a column with random rows; the rows by number."""
    rng = np.random.default_rng(seed)
    wanted: dict[int, bytes] = {}
    for start, count in column.stored():
        rows = rng.integers(0, 256, (count, width)).astype(np.uint8)
        body = columns.to_blocks(rows, head) if head else rows
        column.hold(records.encode(records.Header(records.CODES, count, start, width, 0, head), np.ravel(body)))
        wanted.update({start + i: rows[i].tobytes() for i in range(count)})
    return {row: wanted[row] for row in column.rows}


def fill_strings(column: Records, values: list[str]) -> dict[int, str]:
    wanted: dict[int, str] = {}
    at = 0
    for start, count in column.stored():
        part = [values[(at + i) % len(values)] for i in range(count)]
        at += count
        text, ends = columns.utf8(part)
        column.hold(records.encode(records.Header(records.IDS, count, start), ends.tobytes() + text.tobytes()))
        wanted.update({start + i: part[i] for i in range(count)})
    return {row: wanted[row] for row in column.rows}


def fill_ints(column: Records, values: list[int]) -> None:
    """Ids in records of four bytes each where these are small, as the file has them."""
    for start, count in column.stored():
        part = np.array([values[(start + i) % len(values)] for i in range(count)], np.int64)
        small = part.min() >= 0 and part.max() < 2**32
        body: Any = part.astype(np.uint32) if small else part
        column.hold(records.encode(records.Header(records.IDS, count, start, body.itemsize), body))


def asked(column: Records, seed: int) -> NDArray[np.uint32]:
    """Rows that are there, in no order, some twice."""
    rng = random.Random(seed)
    return np.array(rng.choices(column.rows, k=len(column.rows)) if column.rows else [], np.uint32)


def missing(column: Records) -> list[int]:
    """Rows next to those that are there, hidden ones, and the last one that can be."""
    last = column.rows[-1] if column.rows else 0
    there = set(column.rows)
    return [row for row in [*range(last + 50), 2**32 - 2, 2**32 - 1] if row not in there]


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes(), st.sampled_from([1, 2, 3, 8, 33]), st.data(), st.integers(0, 99))
def test_gather_gives_the_rows_asked_for(column: Records, width: int, draw: st.DataObject, seed: int) -> None:
    head = draw.draw(st.sampled_from([0, 1, (width + 1) // 2, width]), "head")
    wanted = fill_fixed(column, width, head, seed)
    rows = asked(column, seed)
    found = _records.gather(*column.arrays(), rows, width, head)
    assert found.shape == (len(rows), width)
    assert found.tobytes() == b"".join(wanted[row] for row in rows.tolist())


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes(), st.lists(st.text(max_size=6), min_size=1, max_size=20), st.integers(0, 99))
def test_gather_strings_gives_the_rows_asked_for(column: Records, values: list[str], seed: int) -> None:
    values = [value.encode("utf-8", "ignore").decode() for value in values]
    wanted = fill_strings(column, values)
    rows = asked(column, seed)
    assert _records.gather_strings(*column.arrays(), rows) == [wanted[row] for row in rows.tolist()]


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes(), st.lists(st.integers(-2, 2**33) | st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(0, 99))
def test_gather_ints_gives_the_rows_asked_for(column: Records, values: list[int], seed: int) -> None:
    fill_ints(column, values)
    rows = asked(column, seed)
    found = _records.gather_ints(*column.arrays(), rows)
    assert found.dtype == np.int64
    assert found.tolist() == [values[row % len(values)] for row in rows.tolist()]


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes(), st.data())
def test_a_row_that_no_record_holds_is_a_lookup_error(column: Records, draw: st.DataObject) -> None:
    row = draw.draw(st.sampled_from(missing(column)))
    rows = np.array([*column.rows[:2], row], np.uint32)
    fill_fixed(column, 8, 0, 0)
    for head in (0, 3, 8):
        with pytest.raises(LookupError, match=str(row)):
            _records.gather(*column.arrays(), rows, 8, head)
    column.held.clear()
    fill_ints(column, [3, -7])
    with pytest.raises(LookupError, match=str(row)):
        _records.gather_ints(*column.arrays(), rows)
    with pytest.raises(LookupError):
        _records.find_ints(*column.arrays(), np.array([row], np.uint32), np.array([5]))
    column.held.clear()
    fill_strings(column, ["a", "bc"])
    with pytest.raises(LookupError, match=str(row)):
        _records.gather_strings(*column.arrays(), rows)
    with pytest.raises(LookupError):
        text, ends = columns.utf8(["x"])
        _records.find_strings(*column.arrays(), np.array([row], np.uint32), text, ends)


int_ids = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 60), max_size=80, unique=True)
str_ids = st.lists(st.text(st.characters(codec="utf-8"), max_size=4), max_size=80, unique=True)


def cut(n: int) -> list[int]:
    return [min(17, n - at) for at in range(0, n, 17)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(int_ids, int_ids, st.randoms(use_true_random=False))
def test_find_ints_is_bisect(there: list[int], wanted: list[int], rng: random.Random) -> None:
    column = Records(cut(len(there)), [0] * len(cut(len(there))))
    rng.shuffle(there)
    fill_ints(column, there)
    rows = np.array(sorted(range(len(there)), key=there.__getitem__), np.uint32)
    wanted = sorted({*wanted, *there[::2]})
    places, found = _records.find_ints(*column.arrays(), rows, np.array(wanted, np.int64))
    ordered = sorted(there)
    assert places.tolist() == [bisect_left(ordered, value) for value in wanted]
    assert found.tolist() == [value in there for value in wanted]


@settings(max_examples=EXAMPLES, deadline=None)
@given(str_ids, str_ids, st.randoms(use_true_random=False))
def test_find_strings_is_bisect_over_utf8(there: list[str], wanted: list[str], rng: random.Random) -> None:
    column = Records(cut(len(there)), [0] * len(cut(len(there))))
    rng.shuffle(there)
    if there:
        fill_strings(column, there)
    ordered = sorted(there, key=str.encode)
    rows = np.array(sorted(range(len(there)), key=lambda row: there[row].encode()), np.uint32)
    wanted = sorted({*wanted, *there[::2]})
    text, ends = columns.utf8(wanted)
    places, found = _records.find_strings(*column.arrays(), rows, text, ends)
    names = [value.encode() for value in ordered]
    assert places.tolist() == [bisect_left(names, value.encode()) for value in wanted]
    assert found.tolist() == [value in there for value in wanted]


def test_a_column_whose_arrays_do_not_fit_is_refused() -> None:
    column = Records([3, 4], [0, 0])
    fill_fixed(column, 2, 0, 0)
    starts, counts, addresses = column.arrays()
    rows = np.zeros(1, np.uint32)
    for arrays in ((starts[:1], counts, addresses), (starts, counts[:1], addresses), (starts, counts, addresses[:1])):
        with pytest.raises(ValueError, match="differ in length"):
            _records.gather(*arrays, rows, 2, 0)
        with pytest.raises(ValueError, match="differ in length"):
            _records.gather_strings(*arrays, rows)
    for head in (-1, 3):
        with pytest.raises(ValueError, match="head"):
            _records.gather(starts, counts, addresses, rows, 2, head)
    with pytest.raises(ValueError, match="ends"):
        _records.find_strings(starts, counts, addresses, rows, np.zeros(3, np.uint8), np.array([2], np.uint32))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=9), st.lists(st.integers(0, 70), max_size=9))
def test_touched_says_whether_the_records_of_all_rows_were_verified(there: list[Any], rows: list[int]) -> None:
    starts = sorted({start for start, _ in there})
    verified = [done for (_, done), _ in zip(there, starts, strict=False)]
    holders = [bisect_right(starts, row) - 1 for row in rows]
    wanted = all(at >= 0 and verified[at] for at in holders)
    arrays = np.array(starts, np.uint32), np.array(verified, np.uint8), np.array(rows, np.uint32)
    assert _records.touched(*arrays) is wanted
    with pytest.raises(ValueError, match="touched: shapes"):
        _records.touched(arrays[0], np.ones(len(starts) + 1, np.uint8), arrays[2])


# -- LMDB's pages ---------------------------------------------------------------------------------

PAGE = 4096
Changes = list[list[tuple[int, bytes, int]]]


def write_file(path: Path, transactions: Changes, *, shrink: bool = False) -> None:
    """An LMDB file by real transactions of (database, key, size of the value; 0 deletes)."""
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 26, sync=False) as env:
        dbs = [env.open_db(name) for name in (b"a", b"b")]
        for changes in transactions:
            with env.begin(write=True) as txn:
                for db, key, size in changes:
                    # LMDB never gives back pages of a value that was written in the same transaction and shrinks.
                    if not size or not shrink:
                        txn.delete(key, db=dbs[db])
                    if size:
                        txn.put(key, bytes([size % 256]) * size, db=dbs[db])


def ours(path: Path, *, deep: bool = True) -> str | None:
    """Why this package refuses a file, or None; as when it is opened (deep: as when it is checked)."""
    with path.open("rb") as file:
        try:
            metas = pages.read_metas(file.fileno(), str(path))
            assert pages.check_snapshot(file.fileno(), str(path), max(meta.txn for meta in metas), deep=deep)
        except LsqIndexError as error:
            return str(error)
    return None


def theirs(path: Path) -> list[str]:
    """What py-lmdb's own verifier says."""
    try:
        return list(lmdb_verify.verify(str(path)))  # type: ignore[no-untyped-call]
    except lmdb_verify.VerifyError as error:
        return [str(error)]


small_keys = st.binary(min_size=1, max_size=8) | st.integers(0, 300).map(lambda i: b"%03d" % i * 12)
sizes = st.sampled_from([0, 0, 1, 30, 300, 1500, 2030, 2040, 4080, 4081, 9000, 40_000])
changes = st.lists(st.lists(st.tuples(st.integers(0, 1), small_keys, sizes), max_size=60), min_size=1, max_size=8)


@settings(max_examples=EXAMPLES, deadline=None)
@given(transactions=changes)
def test_sound_files_of_lmdb_pass(tmp_path_factory: pytest.TempPathFactory, transactions: Changes) -> None:
    path = tmp_path_factory.mktemp("sound") / "file"
    write_file(path, [[(0, b"first", 10)], *transactions])
    assert (ours(path), theirs(path)) == (None, [])


@pytest.mark.parametrize("change", ["delete", "split"])
def test_a_value_that_shrinks_in_its_own_transaction_leaves_a_sound_file(change: str, tmp_path: Path) -> None:
    """Blocks of sorted ids do, in a batch; LMDB alone would keep the pages they had."""
    path, rng = tmp_path / "index.lsq", np.random.default_rng(0)
    ids = rng.permutation(100_000)
    with Index.create(path, dim=2, keep_vectors=None) as index, index.batch() as batch:
        batch.add(rng.standard_normal((4_000, 2)), ids=ids[:4_000])
        if change == "delete":
            batch.delete(ids[:3_000])
        else:
            batch.add(rng.standard_normal((100, 2)), ids=ids[4_000:4_100])
            batch.add(rng.standard_normal((100, 2)), ids=ids[4_100:4_200])
    assert (ours(path), theirs(path)) == (None, [])
    with Index.open(path) as index:
        assert index.check() == [] and len(index) == (1_000 if change == "delete" else 4_200)


def large_file(path: Path) -> None:
    """Branch pages, leaves, large values, free pages, a free list."""
    rng = random.Random(0)
    first = [(i % 2, b"key %05d" % i, rng.choice([40, 400, 1500, 5000])) for i in range(300)]
    gone = [(db, key, 0) for db, key, _ in first[50:150]]
    write_file(path, [first, gone, [(0, b"key 00007", 9000), (1, b"x" * 400, 100)]])


#: What the other verifier reports and ours does not, and why it can do no harm.
HARMLESS = {
    "neither reachable nor in the freeDB": "pages are lost, none is used twice",
    "stores mp_pgno": "of a meta page: LMDB reads metas by their place",
    "md_pad": "is used in DUPFIXED trees only, which are refused",
}


def is_harmless(problem: str) -> bool:
    return any(reason in problem for reason in HARMLESS)


def tree_pages(data: bytes) -> list[int]:
    """Pages that say they are a meta, branch or leaf page."""
    return [page for page in range(len(data) // PAGE) if data[page * PAGE + 10] in (1, 2, 8)]


def flips(data: bytes, rng: random.Random) -> list[int]:
    """Bits of tree pages: all of the meta pages' contents, and many of headers, pointers and nodes."""
    bits = [8 * page * PAGE + bit for page in (0, 1) for bit in range(8 * 152)]
    for page in tree_pages(data)[2:]:
        base = 8 * page * PAGE
        bits += [base + bit for bit in range(128)]
        bits += [base + rng.randrange(128, 8 * PAGE) for _ in range(300 if LONG else 20)]
    return bits


def test_what_the_other_verifier_finds_in_flipped_tree_pages_is_found_or_harmless(tmp_path: Path) -> None:
    large_file(tmp_path / "sound")
    data = (tmp_path / "sound").read_bytes()
    assert (ours(tmp_path / "sound"), theirs(tmp_path / "sound")) == (None, [])
    path = tmp_path / "flipped"
    missed, caught = [], 0
    bits = flips(data, random.Random(1))
    for bit in bits if LONG else bits[::4]:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = theirs(path)
        refused = ours(path)
        caught += refused is not None
        if refused is None and not all(is_harmless(problem) for problem in found):
            missed.append((divmod(bit // 8, PAGE), bit % 8, found))
    assert not missed
    assert caught > 500


def test_a_damaged_overflow_header_is_found_when_checked_closely(tmp_path: Path) -> None:
    large_file(tmp_path / "file")
    data = bytearray((tmp_path / "file").read_bytes())
    page = next(page for page in range(2, len(data) // PAGE) if data[page * PAGE + 10] == 4)
    with (tmp_path / "file").open("r+b") as file:
        file.seek(page * PAGE + 12)
        file.write(bytes([data[page * PAGE + 12] + 1]))
    assert ours(tmp_path / "file", deep=False) is None
    assert "overflow" in str(ours(tmp_path / "file", deep=True))


@pytest.mark.parametrize(
    ("size", "page_size", "meta"),
    [
        *((8192, 0, 136), (8192, 4095, 136), (8192, 256, 136), (8192, 1 << 17, 136), (8191, 4096, 136), (0, 4096, 136)),
        *((8192, 4096, 135), (8192, 4096, 137), (8192, 4096, 0)),
    ],
)
def test_impossible_arguments_of_check_pages_are_refused(size: int, page_size: int, meta: int) -> None:
    with pytest.raises(ValueError, match="impossible"):
        _records.check_pages(bytes(size), page_size, bytes(meta), False)
    with pytest.raises(ValueError, match="impossible"):
        _records.last_freed(bytes(size), page_size, bytes(meta))


def test_pages_of_zeros_or_noise_are_refused() -> None:
    rng = random.Random(0)
    assert _records.check_pages(bytes(4 * PAGE), PAGE, bytes(136), True) is not None
    for _ in range(200):
        assert _records.check_pages(rng.randbytes(4 * PAGE), PAGE, rng.randbytes(136), True) is not None


# -- what LMDB would free -------------------------------------------------------------------------


#: The largest value that lies inside a leaf, with a key of ten bytes and pages of 4 KiB: LMDB wants two a page.
INSIDE = (PAGE - 16) // 2 - 2 - 8 - 10


def test_overflow_sound_believes_sound_values_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lengths = [0, 1, 2000, INSIDE - 1, INSIDE, INSIDE + 1, INSIDE + 2, 4080, 4081, 8176, 8177, 100_000]
    with lmdb.open(str(path), subdir=False, lib_version=0, map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            for size in lengths:
                txn.put(b"k%09d" % size, bytes(size))
        with env.begin(buffers=True, write=True) as txn:
            assert all(_records.overflow_sound(value, 10, PAGE) for _, value in txn.cursor())
            txn.put(b"dirty", bytes(9000))  # not written out yet
            assert _records.overflow_sound(txn.get(b"dirty"), 5, PAGE)
            txn.delete(b"dirty")
    data = bytearray(path.read_bytes())
    large = [page for page in range(2, len(data) // PAGE) if data[page * PAGE + 10] == 4 and data[page * PAGE] == page]
    for page in large:
        data[page * PAGE + 12] ^= 1
    path.write_bytes(data)
    with (
        lmdb.open(str(path), subdir=False, lib_version=0, map_size=1 << 24, readonly=True, lock=False) as env,
        env.begin(buffers=True) as txn,
    ):
        sound = [_records.overflow_sound(value, 10, PAGE) for _, value in txn.cursor()]
    assert sound == [size <= INSIDE for size in lengths]
