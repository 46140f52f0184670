"""Damaged, forged and foreign files: a typed error or the right answer; never a crash, never a wrong answer in silence.

Files are opened in child processes, for a crash would take the tests with it. A child is this file run as a
program: it takes a list of changes to a file, makes each on a fresh copy, puts the copy through everything an
index does, and prints what happened.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest

import lsqindex
from lsqindex import Index, LsqIndexError, MultiIndex, make_encoder
from lsqindex._storage.format import keys, meta, records
from lsqindex._subsets.multi_index import postings
from lsqindex.encoders import to_bytes
from lsqindex.errors import DamagedError, IndexMissingError, NotAnIndexError, ParameterError, StorageError
from lsqindex.testing import reference

LONG = os.environ.get("LSQINDEX_LONG") == "1"
PAGE = 4096

# -- the files that are damaged -------------------------------------------------------------------


def vectors(n: int, dim: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def names(n: int) -> list[str]:
    return [f"név {i * 7919 % 100_003}" for i in range(n)]


def make_untrained(path: Path) -> None:
    """Int ids in no order, pieces that are not full, deleted rows, pages that are free again."""
    with Index.create(path, dim=10, keep_vectors=None) as index:
        ids = np.random.default_rng(1).permutation(10_000)[:150] - 2_000
        index.add(vectors(100, 10), ids=ids[:100])
        index.add(vectors(1, 10, 1), ids=ids[100:101])
        index.add(vectors(49, 10, 2), ids=ids[101:])
        index.delete(ids[20:50])
        index.add(vectors(10, 10, 3), ids=ids[50:60], upsert=True)


def make_untrained_str(path: Path) -> None:
    """String ids, kept vectors, an encoder that waits."""
    with Index.create(path, dim=5, ids="str", metric="cosine", keep_vectors="float32", bits=16) as index:
        index.add(vectors(90, 5), ids=names(90))
        index.delete(names(90)[10:20])


def make_trained(path: Path) -> None:
    """Trained codes, kept vectors, deleted rows, several leaves and a branch in each tree."""
    with Index.create(path, dim=8, bits=32, keep_vectors="float16", iterations=2, train_size=300) as index:
        index.add(vectors(1_300, 8))
        for i in range(5):
            index.add(vectors(3, 8, i))
        index.delete(range(100, 300))


def make_trained_str(path: Path) -> None:
    """String ids, trained by another encoder, inner product."""
    with Index.create(
        path, dim=6, ids="str", metric="ip", encoder="itq", bits=6, iterations=2, keep_vectors=None
    ) as index:
        index.add(vectors(400, 6), ids=names(400))
        index.train()
        index.delete(names(400)[::7])


def make_chunks(path: Path) -> None:
    """More than a chunk, of which the first was given back: full parts, a gap, large values, free pages."""
    with Index.create(path, dim=4, bits=16, iterations=1, train_size=500, keep_vectors=None) as index:
        index.add(vectors(9_000, 4))
        index.delete(range(1_500))
        index.delete(range(8_000, 8_100))


def make_freed(path: Path) -> None:
    """A free list too long for a leaf: training gives back the pages of all vectors."""
    with Index.create(path, dim=64, bits=16, iterations=1, keep_vectors=None) as index:
        index.add(vectors(4_100, 64))
        index.train()


def make_lists(path: Path) -> None:
    """Posting lists: a block of a unit, of which a chunk is gone, a last block, and fresh rows."""
    subset = MultiIndex(bits=15)
    with Index.create(path, dim=4, encoder="lsh", bits=18, train_size=500, subset=subset, keep_vectors=None) as index:
        index.add(vectors(17_000, 4))
        index.delete(range(4064, 2 * 4064))
        index.merge()
        index.delete(range(50))
        index.add(vectors(40, 4, 1))


def make_few_lists(path: Path) -> None:
    """Tables of 15 and of 8 bits, these in a value that is not large; the last byte has a bit more than the code."""
    with Index.create(
        path, dim=6, encoder="lsh", bits=23, ids="str", subset=MultiIndex(bits=15), keep_vectors=None
    ) as index:
        index.add(vectors(300, 6), ids=names(300))
        index.train()
        index.delete(names(300)[::9])
        index.merge()
        index.add(vectors(5, 6, 1), ids=names(310)[300:305])


def payload(i: int) -> dict[str, Any] | None:
    return (
        None
        if i % 5 == 4
        else {"lang": ["en", "vi", "eo"][i % 3], "n": i, "tags": [f"t{i % 4}"], "text": "é" * (i % 9)}
    )


def make_payloads(path: Path) -> None:
    """Payloads in a full part, groups and pieces; two indexed fields; deleted rows and rows without a payload."""
    options: dict[str, Any] = {"encoder": "lsh", "bits": 32, "train_size": 300, "keep_vectors": "float16"}
    with Index.create(path, dim=8, fields=["lang", "tags"], **options) as index:
        index.add(vectors(700, 8), payloads=[payload(i) for i in range(700)])
        index.add(vectors(5, 8, 1))
        index.delete(range(100, 160))
        index.set_payloads([3, 300], [{"lang": "fr"}, None])


def make_rewriting(path: Path) -> None:
    """Trained by itself, and again after other vectors came: two generations of codes, the second not finished."""
    with Index.create(path, dim=8, bits=32, keep_vectors="float16", iterations=2, train_size=800) as index:
        index.add(vectors(800, 8))
        index.add(vectors(265, 8, 1) * 9 + 40)
        index.add(vectors(1, 8, 2) + 40)
        index.delete(range(30, 60))


VARIANTS: dict[str, Callable[[Path], None]] = {
    "untrained": make_untrained,
    "untrained str": make_untrained_str,
    "trained": make_trained,
    "trained str": make_trained_str,
    "chunks": make_chunks,
    "freed": make_freed,
    "lists": make_lists,
    "few lists": make_few_lists,
    "payloads": make_payloads,
    "rewriting": make_rewriting,
}


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The sound file of a variant, made once."""
    directory = tmp_path_factory.mktemp("sound")

    @cache
    def make(variant: str) -> Path:
        path = directory / f"{variant}.lsq"
        VARIANTS[variant](path)
        with Index.open(path) as index:
            assert index.check() == []
        return path

    return make


# -- what is where in a file ----------------------------------------------------------------------


class Places:
    """Every bit of an LMDB file by what it is for: record, skeleton or unused."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.skeleton: list[tuple[int, int]] = []
        self.records: list[tuple[int, int]] = []
        self.headers: list[tuple[int, int]] = []
        newest = max((0, 1), key=lambda page: self._number(page * PAGE + 144))
        for page in (0, 1):
            self._take(self.headers, page * PAGE, 152)
        self._tree(newest * PAGE + 40, free=True)
        self._tree(newest * PAGE + 88)
        self.skeleton += self.headers

    def _number(self, at: int, size: int = 8) -> int:
        return int.from_bytes(self.data[at : at + size], "little")

    def _take(self, kind: list[tuple[int, int]], at: int, size: int) -> None:
        if size:
            kind.append((at, at + size))

    def _tree(self, db: int, *, free: bool = False) -> None:
        if self._number(db + 40) != 2**64 - 1:
            self._page(self._number(db + 40), free)

    def _page(self, page: int, free: bool) -> None:
        at = page * PAGE
        lower, leaf = self._number(at + 12, 2), self._number(at + 10, 2) == 2
        self._take(self.headers, at, 16)
        self._take(self.skeleton, at + 16, lower - 16)
        for pointer in range(at + 16, at + lower, 2):
            node = at + self._number(pointer, 2)
            low, flags, key = self._number(node, 4), self._number(node + 4, 2), self._number(node + 6, 2)
            self._take(self.skeleton, node, 8 + key)
            value = node + 8 + key
            if not leaf:
                self._page(low | flags << 32, free)
            elif flags & 2:
                self._take(self.skeleton, value, 48)
                self._tree(value)
            elif flags & 1:
                self._take(self.skeleton, value, 8)
                first = self._number(value) * PAGE
                self._take(self.headers, first, 16)
                self._take(self.skeleton if free else self.records, first + 16, low)
            else:
                self._take(self.skeleton if free else self.records, value, low)

    def unused(self) -> list[tuple[int, int]]:
        """What nothing above is: free pages, gaps, what lies behind a value's end."""
        found, at = [], 0
        for begin, end in sorted([*self.skeleton, *self.records]):
            if begin > at:
                found.append((at, begin))
            at = max(at, end)
        return [*found, (at, len(self.data))] if at < len(self.data) else found

    def bits(self, ranges: list[tuple[int, int]], count: int, rng: random.Random) -> list[int]:
        """So many bits of these ranges at random, or all."""
        sizes = [8 * (end - begin) for begin, end in ranges]
        if count >= sum(sizes):
            return [bit for begin, end in ranges for bit in range(8 * begin, 8 * end)]
        # Each range equally often: a small record counts as much as a large one.
        chosen = rng.choices(ranges, k=count)
        return [rng.randrange(8 * begin, 8 * end) for begin, end in chosen]


# -- the child: a changed copy, put through everything --------------------------------------------


def answers(index: Index, dim: int) -> dict[str, Any]:
    """What an index says, in every way it can be asked."""
    ids = index.ids()
    queries = vectors(3, dim, 99)
    said: dict[str, Any] = {"ids": list(ids), "len": len(index), "in": [name in index for name in list(ids)[:5]]}
    said["get"] = index.get(ids).tobytes() if len(ids) else b""
    said["payloads"] = index.payloads(ids)
    for filter in ({"lang": "vi"}, {"tags": {"$in": ["t1", "t2"]}, "n": {"$gte": 30}}, {"lang": {"$exists": False}}):
        said[str(filter)] = list(index.ids(filter))
    requests: dict[str, dict[str, Any]] = {
        "all": {"k": len(ids) + 2},
        "near": {"k": 3},
        "rerank": {"k": 4, "rerank": 20},
        "filter": {"k": 5, "filter": list(ids)[::3]},
    }
    if index.subset is not None:
        requests["subset"] = {"k": 5, "strategy": "subset", "candidates": 50}
        requests["all subset"] = {"k": len(ids) + 2, "strategy": "subset"}
        requests["score"] = {"k": 7, "distance": "score"}
        requests["subset of some"] = {"k": 3, "probes": 9, "filter": list(ids)[::2]}
    for name, options in requests.items():
        found = index.search(queries, **options)
        said[name] = (found.ids.tolist(), found.distances.tobytes())
    stats = index.stats()
    # How far codes are rewritten is no answer: where damage stops that, the old ones stay valid, and check() tells.
    aside = ("path", "file_bytes", "free_bytes", "training")
    said["stats"] = {name: stats[name] for name in stats if name not in aside}
    return said


def add_one(index: Index, dim: int) -> None:
    new: Any = ["zz new"] if index.stats()["ids"] == "str" else [123_456]
    index.add(vectors(1, dim, 77), ids=new, payloads=[payload(77)] if index.stats()["payloads"] else None)


def delete_one(index: Index) -> None:
    index.delete(index.ids()[:1])


class Trial:
    """Changed copies of one sound file, each put through everything."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        self.copy = path.with_name(f"{path.stem}.{os.getpid()}.copy")
        self._write(self.data)
        with Index.open(self.copy) as index:
            self.dim = index.dim
            self.before = answers(index, self.dim)
            add_one(index, self.dim)
            self.between = answers(index, self.dim)
            delete_one(index)
            self.after = answers(index, self.dim)
        self.forget()

    def _write(self, data: bytes) -> None:
        self.forget()
        self.copy.write_bytes(data)

    def forget(self) -> None:
        for name in (self.copy, Path(f"{self.copy}-lock")):
            with contextlib.suppress(FileNotFoundError):
                name.unlink()

    def outcome(self, data: bytes) -> str:
        """ "right", "noticed by …", or "WRONG …" for what must not be."""
        self._write(data)
        noticed: list[str] = []
        try:
            self._read(noticed)
            self._change(noticed)
        except AssertionError as error:
            return f"WRONG {error}"
        except LsqIndexError as error:
            noticed.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            return f"WRONG {type(error).__name__}: {error}"
        finally:
            self.forget()
        return f"noticed by {noticed[0]}" if noticed else "right"

    def _read(self, noticed: list[str]) -> None:
        """Reading alone, and what is found after an error, too."""
        with Index.open(self.copy, read_only=True) as index:
            with self._errors(noticed, "read"):
                assert answers(index, self.dim) == self.before, "answers differ"
            if found := index.check():
                noticed.append(f"check: {found[0]}")

    def _change(self, noticed: list[str]) -> None:
        """Writing, and reading what was written; a change that fails leaves things as they were."""
        there = self.before
        with Index.open(self.copy) as index:
            with self._errors(noticed, "add"):
                add_one(index, self.dim)
                there = self.between
            with self._errors(noticed, "read after the add"):
                assert answers(index, self.dim) == there, "answers after the add differ"
            if there is self.between:
                with self._errors(noticed, "delete"):
                    delete_one(index)
                    there = self.after
        with Index.open(self.copy) as index:
            with self._errors(noticed, "read after the delete"):
                assert answers(index, self.dim) == there, "answers after the delete and reopening differ"
            found = index.check()
            assert noticed or not found, f"the change broke it: {found}"

    @contextlib.contextmanager
    def _errors(self, noticed: list[str], what: str) -> Iterator[None]:
        try:
            yield
        except LsqIndexError as error:
            noticed.append(f"{what}: {type(error).__name__}: {error}")


def child(path: str, changes: str) -> None:
    """Make each change on a copy of the file at ``path`` and print what happened."""
    limit_memory()
    trial = Trial(Path(path))
    for number, change in enumerate(json.loads(Path(changes).read_text())):
        print(f"{number} …", flush=True)
        faulthandler.dump_traceback_later(120, exit=True)  # a hang
        print(f"{number} {trial.outcome(changed(trial.data, change))}".replace("\n", " "), flush=True)
        faulthandler.cancel_dump_traceback_later()


def limit_memory() -> None:
    """Two GiB: a claim of a forged size must not be believed."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))


def changed(data: bytes, change: dict[str, Any]) -> bytes:
    """``data`` with bits flipped, cut to a size, or with something behind its end."""
    new = bytearray(data)
    for bit in change.get("flip", []):
        new[bit // 8] ^= 1 << bit % 8
    return bytes(new[: change.get("size", len(new))]) + bytes.fromhex(change.get("behind", ""))


def outcomes(path: Path, changes: Sequence[Any], program: str = "trial") -> list[str]:
    """What a child found for each change; where it died, a new one goes on after that."""
    found: list[str] = []
    while len(found) < len(changes):
        to_do = path.with_suffix(".json")
        to_do.write_text(json.dumps(changes[len(found) :]))
        done = run_child(program, str(path), str(to_do))
        lines = [line.partition(" ")[2] for line in done.stdout.splitlines()]
        found += [line for line in lines if line != "…"]
        if done.returncode:
            assert lines, done.stderr
            found.append(f"WRONG the process ended with {done.returncode}: {done.stderr[-1500:]}")
    return found


def run_child(*arguments: str, timeout: int = 3600) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(lsqindex.__file__).parents[1]),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    return subprocess.run(
        [sys.executable, __file__, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=timeout,
    )


def wrong(changes: Sequence[Any], found: list[str]) -> list[str]:
    return [f"{change}: {what}" for change, what in zip(changes, found, strict=True) if what.startswith("WRONG")]


# -- (a) a flipped bit ----------------------------------------------------------------------------

#: How many bits are flipped of headers (all, in the long form), the other skeleton, records, and what is unused.
FLIPS = {"headers": 40, "skeleton": 30, "records": 40, "unused": 15}


def flipped(places: Places, kind: str, seed: int) -> list[int]:
    ranges = places.unused() if kind == "unused" else getattr(places, kind)
    count = FLIPS[kind]
    if LONG:
        count = 1 << 60 if kind == "headers" else 50 * count
    return places.bits(ranges, count, random.Random(seed))


@pytest.mark.parametrize("kind", FLIPS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_flipped_bit_is_noticed_or_does_no_harm(variant: str, kind: str, sound: Callable[[str], Path]) -> None:
    path = sound(variant)
    changes = [{"flip": [bit]} for bit in flipped(Places(path.read_bytes()), kind, len(variant))]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    noticed = [what != "right" for what in found]
    if kind == "records":
        assert all(noticed), "every bit of a record is under its checksum"
    if kind == "unused":
        assert not any(noticed), "nobody reads what is not used"
    assert kind in ("records", "unused") or any(noticed)


def test_flipped_bits_of_posting_lists_and_tables_are_noticed(sound: Callable[[str], Path]) -> None:
    path = sound("few lists")
    data = path.read_bytes()
    own = [value for (db, key), value in entries(path).items() if db == keys.POSTINGS or key == keys.SUBSET]
    places = [place for place in Places(data).records if data[place[0] : place[1]] in own]
    assert len(places) == len(own) == 3
    rng = random.Random(5)
    bits = [rng.randrange(8 * begin, 8 * end) for begin, end in places for _ in range(400 if LONG else 8)]
    changes = [{"flip": [bit]} for bit in bits]
    found = outcomes(path, changes)
    assert not wrong(changes, found) and "right" not in found


@pytest.mark.parametrize("variant", ["untrained", "trained"])
def test_bits_of_the_meta_pages_are_noticed_or_do_no_harm(variant: str, sound: Callable[[str], Path]) -> None:
    """The number of the last transaction above all: one bit less, and an older state would be the last one."""
    path = sound(variant)
    bits = [8 * PAGE * page + bit for page in (0, 1) for bit in range(8 * 152)]
    low = [8 * PAGE * page + 8 * at + bit for page in (0, 1) for at in (136, 144) for bit in range(12)]
    changes = [{"flip": [bit]} for bit in (bits if LONG else [*bits[::29], *low])]
    assert not wrong(changes, outcomes(path, changes))


@pytest.mark.parametrize("variant", ["untrained", "freed"])
def test_a_large_value_whose_pages_are_miscounted_is_not_freed(variant: str, sound: Callable[[str], Path]) -> None:
    """LMDB frees as many pages as the first one's header says: those of others, if it lies."""
    path = sound(variant)
    data = path.read_bytes()
    large = [begin for begin, _ in Places(data).headers if data[begin + 10] == 4]
    bits = [8 * (at + 10) + bit for at in large[-3:] for bit in (*range(16), *range(16, 48, 1 if LONG else 5), 17, 18)]
    changes = [{"flip": [bit]} for bit in bits]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert "right" not in found


@pytest.mark.parametrize("bit", [0, 2, 5])
def test_a_change_that_would_free_the_pages_of_others_is_refused(
    bit: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """The bits of deleted rows are a large value; what the delete would have replaced is as it was."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("untrained"), path)
    with Index.open(path) as index:
        before = answers(index, 10)
    flip_on_disk(path, payload_of(path, keys.CODES, b"d\0\0\0\0") - records.HEADER_SIZE - 4, 1 << bit)
    with Index.open(path) as index, pytest.raises(DamagedError, match="overflow"):
        delete_one(index)
    with Index.open(path) as index:
        assert answers(index, 10) == before
        assert index.check() != []


@pytest.mark.parametrize("transactions", [0, 1, 2, 3])
def test_a_transaction_number_with_a_flipped_bit_is_noticed(transactions: int, tmp_path: Path) -> None:
    """Whatever the number's lowest bits are."""
    path = tmp_path / "index.lsq"
    with Index.create(path, dim=2, keep_vectors=None) as index:
        for i in range(3 + transactions):
            index.add(vectors(1, 2, i))
    changes = [{"flip": [8 * (PAGE * page + 144) + bit]} for page in (0, 1) for bit in range(5)]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert "right" not in found


@pytest.mark.parametrize("variant", ["trained", "chunks"])
def test_several_flipped_bits_are_noticed_or_do_no_harm(variant: str, sound: Callable[[str], Path]) -> None:
    path = sound(variant)
    places, rng = Places(path.read_bytes()), random.Random(7)
    used = [*places.skeleton, *places.records]
    changes = [{"flip": places.bits(used, rng.randrange(2, 6), rng)} for _ in range(2_000 if LONG else 30)]
    found = outcomes(path, changes)
    assert not wrong(changes, found)


# -- (b) cut, or with something behind -----------------------------------------------------------


@pytest.mark.parametrize("variant", ["untrained", "trained", "freed"])
def test_a_truncated_file_is_noticed_or_whole(variant: str, sound: Callable[[str], Path]) -> None:
    """Whole: only pages that nobody uses were cut off."""
    path = sound(variant)
    size, rng = path.stat().st_size, random.Random(3)
    sizes = [*range(0, size, PAGE), *(rng.randrange(size) for _ in range(300 if LONG else 10)), 1, 16, 151, 152, 153]
    if not LONG:
        sizes = sizes[:: max(1, len(sizes) // 60)]
    changes = [{"size": size} for size in sizes]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert all(what != "right" for change, what in zip(changes, found, strict=True) if change["size"] < 5 * PAGE)


@pytest.mark.parametrize("behind", ["00", "ff" * 100, "5a" * PAGE, "00" * (40 * PAGE)])
def test_what_lies_behind_the_end_does_no_harm(behind: str, sound: Callable[[str], Path]) -> None:
    changes = [{"behind": behind}]
    assert outcomes(sound("trained"), changes) == ["right"]


def test_a_cut_and_mended_file_is_noticed(sound: Callable[[str], Path]) -> None:
    """Its length is right, and zeros or noise are where its end was."""
    path = sound("trained")
    data = path.read_bytes()
    last = max(end for _, end in Places(data).records)
    sizes = range(2 * PAGE, last, max(PAGE, last // 20 // PAGE * PAGE))
    changes = [{"size": size, "behind": behind * (len(data) - size)} for size in sizes for behind in ("00", "a7")]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert "right" not in found[1::2]  # zeros may be what was there


# -- (c) files of others --------------------------------------------------------------------------

OUR_NAMES = (b"meta", b"codes", b"ids", b"vectors", b"postings", b"payloads")


def foreign_lmdb(path: Path, names: tuple[bytes, ...] = (), key: bytes = b"state", **options: Any) -> None:
    """A file of another program: ``names`` are its databases, ``options`` theirs."""
    with (
        lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 20) as env,
        env.begin(write=True) as txn,
    ):
        for name in names:
            txn.put(key, b"theirs", db=env.open_db(name, txn=txn, **options))
        if not names:
            txn.put(b"theirs", b"value")


def make_sqlite(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("create table news (id integer primary key, text)")
        database.commit()


def make_plain_keys(path: Path) -> None:
    """Our names, but as keys of values, not of databases."""
    with (
        lmdb.open(str(path), subdir=False, lib_version=0, map_size=1 << 20) as env,
        env.begin(write=True) as txn,
    ):
        for name in OUR_NAMES:
            txn.put(name, bytes(48))


def make_newer_engine(path: Path) -> None:
    try:
        env = lmdb.open(str(path), subdir=False, lib_version=1, map_size=1 << 20, max_dbs=8)
    except (lmdb.Error, TypeError, ValueError) as error:
        pytest.skip(f"this LMDB has one data format only ({error})")
    with env, env.begin(write=True) as txn:
        for name in OUR_NAMES:
            env.open_db(name, txn=txn)


def make_untouched_lmdb(path: Path) -> None:
    lmdb.open(str(path), subdir=False, lib_version=0, map_size=1 << 20).close()


FOREIGN: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"x"),
    "text": lambda path: path.write_text("not an index\n" * 5_000),
    "zeros": lambda path: path.write_bytes(bytes(50_000)),
    "noise": lambda path: path.write_bytes(random.Random(0).randbytes(50_000)),
    "LMDB's magic and noise": lambda path: path.write_bytes(
        bytes(10) + b"\x08\0" + bytes(4) + struct.pack("<II", 0xBEEFC0DE, 1) + random.Random(0).randbytes(50_000)
    ),
    "SQLite": make_sqlite,
    "LMDB, one database": foreign_lmdb,
    "LMDB, untouched": make_untouched_lmdb,
    "LMDB, other names": lambda path: foreign_lmdb(path, (b"users", b"news")),
    "LMDB, some of our names": lambda path: foreign_lmdb(path, OUR_NAMES[:2]),
    "LMDB, our names of format 1": lambda path: foreign_lmdb(path, OUR_NAMES[:4]),
    "LMDB, our names of format 2": lambda path: foreign_lmdb(path, OUR_NAMES[:5]),
    "LMDB, all our names": lambda path: foreign_lmdb(path, OUR_NAMES),
    "LMDB, all our names, other keys": lambda path: foreign_lmdb(path, OUR_NAMES, b"x"),
    "LMDB, our names are plain keys": make_plain_keys,
    "LMDB, duplicates": lambda path: foreign_lmdb(path, OUR_NAMES, dupsort=True),
    "LMDB, duplicates of one size": lambda path: foreign_lmdb(path, OUR_NAMES, dupsort=True, dupfixed=True),
    "LMDB, reversed keys": lambda path: foreign_lmdb(path, OUR_NAMES, reverse_key=True),
    "LMDB, integer keys": lambda path: foreign_lmdb(path, OUR_NAMES, b"\1\0\0\0\0\0\0\0", integerkey=True),
    "LMDB, newer engine": make_newer_engine,
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_kind_is_refused_and_left_alone(kind: str, read_only: bool, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    FOREIGN[kind](path)
    before = path.read_bytes()
    with pytest.raises((NotAnIndexError, DamagedError)):
        Index.open(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_kind_is_not_saved_over(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    FOREIGN[kind](path)
    before = path.read_bytes()
    index = Index(dim=2, keep_vectors=None)
    with pytest.raises(LsqIndexError):
        index.save(path)
    index.close()
    assert path.read_bytes() == before
    assert not [name for name in tmp_path.iterdir() if name.name.endswith(".new")]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    for read_only in (False, True):
        with pytest.raises(LsqIndexError):
            Index.open(tmp_path, read_only=read_only)
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(LsqIndexError):
        Index.open(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run_child("refuse", str(tmp_path / "pipe"), timeout=60)
    assert done.returncode == 0, done.stderr


def test_missing_files_and_broken_links_are_told(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name in ("missing", "broken", "round", "no directory/index.lsq"):
        with pytest.raises((IndexMissingError, StorageError)):
            Index.open(tmp_path / name)


def refuse(path: str) -> None:
    """In a child: the file must be refused, and soon."""
    faulthandler.dump_traceback_later(30, exit=True)
    try:
        Index.open(path)
    except LsqIndexError:
        return
    raise AssertionError("it was opened")


# -- (d) forged records: sound LMDB, valid checksums ----------------------------------------------

Entry = tuple[bytes, bytes]
Entries = dict[Entry, bytes]
#: (database, key) → the new value, or None to remove it.
Forgery = dict[Entry, bytes | None]


def entries(path: Path) -> Entries:
    """Everything in an index file."""
    with (
        lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, readonly=True, lock=False) as env,
        contextlib.ExitStack() as stack,
    ):
        dbs = {name: env.open_db(name, create=False) for name in OUR_NAMES}
        txn = stack.enter_context(env.begin())
        return {(name, key): value for name, db in dbs.items() for key, value in txn.cursor(db=db)}


def forge(path: Path, forgery: Forgery) -> None:
    """Write forged values behind the back of this package; the state tells the transaction, as it must."""
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=8, map_size=1 << 26) as env:
        dbs = {name: env.open_db(name, create=False) for name in OUR_NAMES}
        with env.begin(write=True) as txn:
            state = (keys.META, keys.STATE)
            todo = {state: bytes(txn.get(keys.STATE, b"", db=dbs[keys.META])), **forgery}
            for (name, key), value in todo.items():
                # LMDB never shrinks a large value in place: remove it first.
                txn.delete(key, db=dbs[name])
                if (name, key) == state and value is not None:
                    value = with_number(value, txn.id())
                if value is not None:
                    txn.put(key, value, db=dbs[name])


def with_number(state: bytes, number: int) -> bytes:
    """A state of transaction ``number``, where it is one that has a number."""
    try:
        values = msgpack.unpackb(state[48:])
        return meta.pack({**values, "txn": number}) if type(values.get("txn")) is int else state
    except (ValueError, TypeError, AttributeError):
        return state


def again(value: bytes, payload: Any = None, **changes: Any) -> bytes:
    """A record with another payload or header, and a valid checksum."""
    header, body = records.decode(value, "test")
    return records.encode(replace(header, **changes), bytes(body) if payload is None else payload)


def body(value: bytes) -> bytes:
    return bytes(records.decode(value, "test")[1])


def forged_columns(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Records of codes, ids, vectors, payloads and their fields that are not what their place wants."""
    own = ((keys.PAYLOADS, b"y"), (keys.PAYLOADS, b"f\0\0"), (keys.PAYLOADS, b"f\0\1"))
    for db, prefix in ((keys.CODES, b"c"), (keys.IDS, b"i"), (keys.VECTORS, b"v"), *own):
        column = sorted(entry for entry in there if entry[0] == db and entry[1].startswith(prefix))
        if not column:
            continue
        for where, entry in (("first", column[0]), ("last", column[-1])):
            value = there[entry]
            header, payload = records.decode(value, "test")
            name = f"{db.decode()}, {where}"
            changes: dict[str, Any]
            for changes in (
                {"count": header.count + 1},
                {"count": header.count - 1},
                {"count": 0},
                {"count": 2**32 - 1},
                {"first": header.first + 1},
                {"first": 2**63},
                {"width": header.width + 1},
                {"width": 2**32 - 1},
                {"generation": header.generation + 1},
                {"head": header.head + 1},
                {"kind": b"?"},
                {"kind": b"s"},
            ):
                yield f"{name}: {changes}", {entry: again(value, **changes)}
            yield f"{name}: missing", {entry: None}
            yield f"{name}: empty", {entry: b""}
            yield f"{name}: a header alone", {entry: again(value, b"")}
            yield f"{name}: cut", {entry: again(value, payload[:-1])}
            yield f"{name}: longer", {entry: again(value, bytes(payload) + b"x")}
            yield f"{name}: ten times", {entry: again(value, bytes(payload) * 10)}
            twin = (db, entry[1][:-4] + struct.pack(">I", header.first + 5))
            yield f"{name}: twice", {twin: again(value, first=header.first + 5)}
            far = (db, entry[1][:-4] + struct.pack(">I", 4064))
            yield f"{name}: far ahead", {far: again(value, first=4064)}
        yield f"{db.decode()}: all missing", dict.fromkeys(column, None)
        yield f"{db.decode()}: a strange key", {(db, b"zz"): there[column[0]]}
        yield f"{db.decode()}: a key too long", {(db, column[0][1] + b"x"): there[column[0]]}
        yield f"{db.decode()}: a key too short", {(db, column[0][1][:2]): there[column[0]]}


def forged_parts(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Full parts, which are measured by their size alone: as large as they must be, and with fewer rows in them."""
    full = [(db, key) for (db, key), value in there.items() if value[4:8] == struct.pack("<I", 4064)]
    (ids,) = (entry for entry in full if entry[0] == keys.IDS and entry[1][:1] == b"i")
    (codes,) = (entry for entry in full if entry[0] == keys.CODES)
    yield "part: half as many ids, of twice the size", {ids: again(there[ids], width=8, count=2032)}
    yield "part: one code less", {codes: again(there[codes], count=4063)}
    yield "part: one id less", {ids: again(there[ids], count=4063)}
    yield "part: missing", {ids: None}


def forged_values(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Well-formed records with values that cannot be."""
    first = (keys.IDS, b"i\0\0\0\0")
    ids = body(there[first])
    if records.decode(there[first], "test")[0].width:
        yield "ids: -1", {first: again(there[first], b"\xff" * 8 + ids[8:])}
        yield "ids: one twice", {first: again(there[first], ids[8:16] + ids[8:])}
    else:
        count = records.decode(there[first], "test")[0].count
        ends = np.frombuffer(ids, np.uint32, count)
        text = ids[4 * count :]
        yield "ids: not UTF-8", {first: again(there[first], ids[: 4 * count] + b"\xff" * len(text))}
        yield (
            "ids: one twice",
            {first: again(there[first], ids[: 4 * count] + text[: ends[0]] * 2 + text[2 * ends[0] :])},
        )
        for name, forged in {
            "falling": ends[::-1],
            "beyond": ends + 1000,
            "huge": np.full_like(ends, 2**32 - 1),
            "zero": np.zeros_like(ends),
            "one long": np.where(np.arange(count) < count - 1, 0, len(text)),
        }.items():
            yield f"ids: ends {name}", {first: again(there[first], forged.astype(np.uint32).tobytes() + text)}
    for db, key in ((keys.VECTORS, b"v\0\0\0\0"), (keys.CODES, b"c\0\0\0\0\0\0\0\0")):
        if (db, key) in there:
            payload = np.frombuffer(body(there[db, key]), np.uint8)
            bad = np.full_like(payload, 0xFF)  # NaN, in float16 and float32
            yield f"{db.decode()}: NaN", {(db, key): again(there[db, key], bad)}


def packed(rows: Sequence[bytes]) -> bytes:
    """Rows that differ in size, as they are stored."""
    return np.cumsum([len(row) for row in rows], dtype="<u4").tobytes() + b"".join(rows)


def forged_payloads(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Well-formed records with payloads that cannot be, or that are not those of the indexed fields."""
    for key in (b"y\0\0\0\0", b"y\0\0\1\xfc"):
        entry = (keys.PAYLOADS, key)
        count, value = records.decode(there[entry], "test")[0].count, body(there[entry])
        ends = np.frombuffer(value, "<u4", count).astype(np.int64)
        data, lengths = value[4 * count :], np.diff(ends, prepend=0)
        rows = [data[end - size : end] for end, size in zip(ends, lengths, strict=True)]
        for name, forged in {
            "falling": ends[::-1],
            "beyond": ends + 1000,
            "huge": np.full_like(ends, 2**32 - 1),
            "zero": np.zeros_like(ends),
            "one long": np.where(np.arange(count) < count - 1, 0, len(data)),
            "one byte later": np.minimum(ends + 1, len(data)),
        }.items():
            yield f"payloads: ends {name}, {key!r}", {entry: again(there[entry], forged.astype("<u4").tobytes() + data)}
        for name, other in {
            "a list": b"\x91\1",
            "a number": b"\5",
            "nil": b"\xc0",
            "no msgpack": b"\xc1",
            "cut": b"\x81\xa4lang",
            "something behind": b"\x80\x80",
            "a name that is a number": b"\x81\1\1",
            "a name that is a list": b"\x81\x91\1\1",
            "a name that is no UTF-8": b"\x81\xa1\xff\1",
            "huge": b"\xdf\xff\xff\xff\xff",
            "deep": b"\x81\xa1a" + b"\x91" * 5000,
            "of another language": b"\x81\xa4lang\xa2xx",
            "nothing": b"",
        }.items():
            yield f"payloads: {name}, {key!r}", {entry: again(there[entry], packed([*rows[:2], other, *rows[3:]]))}


def forged_fields(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Values of indexed fields that are not there, are none, or are not those of the payloads."""
    one, two = (keys.PAYLOADS, b"f\0\0\0\0\0\0"), (keys.PAYLOADS, b"f\0\1\0\0\0\0")
    count, value = records.decode(there[one], "test")[0].count, body(there[one])
    numbers, values = np.frombuffer(value, "<u2", count), value[2 * count :]
    for name, forged in {
        "beyond": np.where(numbers == 2, 3, numbers),
        "far beyond": np.full(count, 0xFFFE),
        "of nothing": np.full(count, 0xFFFF),
        "all the same": np.zeros(count),
        "two swapped": np.where(numbers < 2, 1 - numbers.astype(int), numbers),
        "of one row": np.where(np.arange(count) == 7, 0xFFFF, numbers),
    }.items():
        yield f"field: numbers {name}", {one: again(there[one], forged.astype("<u2").tobytes() + values)}
    for name, other in {
        "a mapping": b"\x80",
        "a string": b"\xa3abc",
        "fewer": b"\x92\xa2en\xa2vi",
        "others": values.replace(b"vi", b"xx"),
        "numbers": b"\x93\1\2\3",
        "none": b"",
        "no msgpack": b"\xc1",
        "something behind": values + b"\x80",
        "huge": b"\xdd\xff\xff\xff\xff" + values[1:],
        "a mapping with a list as a name": b"\x93\xa2en\xa2vi\x81\x91\1\1",
        "deep": b"\x93\xa2en\xa2vi" + b"\x91" * 5000 + b"\x90",
    }.items():
        yield f"field: values {name}", {one: again(there[one], numbers.tobytes() + other)}
    yield "field: two swapped", {one: there[two], two: there[one]}
    yield (
        "field: two swapped, as if they were written so",
        {
            one: again(there[two], generation=0),
            two: again(there[one], generation=1),
        },
    )
    yield "field: payloads", {one: there[keys.PAYLOADS, b"y\0\0\0\0"]}
    yield "field: without payloads", {**mapping(there, keys.STATE, payloads=0)}
    without: Forgery = {(db, key): None for db, key in there if db == keys.PAYLOADS}
    yield "field: nothing, and no payloads", {**mapping(there, keys.STATE, payloads=0), **without}
    state_2 = mapping(there, keys.STATE, payloads=..., **NO_NEXT)
    older = {**state_2, **mapping(there, keys.OPTIONS, format=2, fields=...)}
    yield "field: format 2, with payloads", older
    for names in ([], ["lang"], ["tags", "lang"], ["lang", "tags", "n"], ["lang", "other"]):
        yield f"field: options with {names}", mapping(there, keys.OPTIONS, fields=names)


def forged_sorted(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Sorted ids that are not sorted, not all, or not there."""
    entry = (keys.IDS, b"s")
    rows = np.frombuffer(body(there[entry]), np.uint32)

    def block(new: Any) -> bytes:
        return again(there[entry], np.ascontiguousarray(new, np.uint32), count=len(new))

    swapped = rows.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    for name, forged in {
        "two swapped": swapped,
        "reversed": rows[::-1],
        "one twice": np.insert(rows, 5, rows[5]),
        "one instead of another": np.where(np.arange(len(rows)) == 5, rows[6], rows),
        "one missing": np.delete(rows, 5),
        "out of range": np.where(np.arange(len(rows)) == len(rows) // 2, 2**31, rows),
        "the largest number": np.where(np.arange(len(rows)) == len(rows) // 2, 2**32 - 1, rows),
        "all out of range": np.full_like(rows, 2**32 - 2),
        "empty": rows[:0],
        "too many": np.tile(rows, 5_000 // len(rows) + 1),
    }.items():
        yield f"sorted: {name}", {entry: block(forged)}
    for first, count in ((0, 2**32 - 1), (0, 4065), (2**32 - 50, 100), (2**63, 10), (5_000, 10), (0, 10), (0, 0)):
        run = records.encode(records.Header(records.SORTED, count, first), b"")
        yield f"sorted: {count} rows from {first} on", {entry: run}
    yield "sorted: no block", {entry: None}
    yield "sorted: another count", {entry: again(there[entry], count=3)}
    yield "sorted: cut", {entry: again(there[entry], body(there[entry])[:-1])}
    yield "sorted: another width", {entry: again(there[entry], width=8)}
    high = (keys.IDS, b"s\xff\xff\xff\xff\xff\xff\xff\xf0")
    yield "sorted: a block under a key that is too high", {entry: block(rows[:5]), high: block(rows[5:])}
    yield "sorted: an empty block more", {high: block(rows[:0])}
    yield "sorted: the same block twice", {high: there[entry]}
    yield "sorted: the first block under another key", {entry: None, (keys.IDS, b"s\1"): there[entry]}
    yield "sorted: a key of impossible size", {(keys.IDS, b"s" + b"\x90" * 3): block(rows[-3:])}
    yield "sorted: a key that is no UTF-8", {(keys.IDS, b"s\xff\xfe"): block(rows[-3:])}


def forged_deleted(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Deleted rows that are not there, or not so many."""
    entry = (keys.CODES, b"d\0\0\0\0")
    value = there[entry]
    bits, count = np.frombuffer(body(value), np.uint8), records.decode(value, "test")[0].count
    everything = np.full_like(bits, 0xFF)
    moved = np.concatenate([bits[4000:], bits[:4000]])
    for name, forged in {
        "missing": None,
        "wrong count": again(value, count=count + 1),
        "none": again(value, np.zeros_like(bits), count=0),
        "all": again(value, everything, count=8 * len(bits)),
        "rows that are not there": again(value, moved),
        "others": again(value, np.roll(bits, 1)),
        "of another segment": again(value, first=1),
        "cut": again(value, bits[:-1]),
        "longer": again(value, np.append(bits, 0).astype(np.uint8)),
        "of another kind": again(value, kind=b"c"),
    }.items():
        yield f"deleted: {name}", {entry: forged}
    for key in (b"d", b"dx", b"d\0\0\0", b"d\0\0\0\0\0", b"d\0\0\0\1", b"d\xff\xff\xff\xff"):
        number = int.from_bytes(key[1:], "big")
        yield f"deleted: also under {key!r}", {(keys.CODES, key): again(value, first=number)}


def mapping(there: Entries, key: bytes, **changes: Any) -> Forgery:
    """The options, state or encoder with other values; … removes one."""
    values = {**msgpack.unpackb(body(there[keys.META, key])), **changes}
    return {(keys.META, key): meta.pack({name: value for name, value in values.items() if value is not ...})}


def forged_state(there: Entries) -> Iterator[tuple[str, Forgery]]:
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    rows, stored, count, size = state["rows"], state["stored"], state["count"], state["code_size"]
    changes: dict[str, Any]
    for changes in (
        {"rows": rows + 1},
        {"rows": rows + 4064},
        {"rows": rows - 1},
        {"rows": rows - 1, "stored": stored - 1},
        {"rows": rows - 1, "stored": stored - 1, "count": count - 1},
        {"rows": 2**32 - 2},
        {"rows": 0, "stored": 0, "count": 0},
        {"stored": stored - 1},
        {"count": count - 1},
        {"count": stored},
        {"count": 0},
        {"generation": state["generation"] + 1},
        {"generation": 2**32 - 1},
        {"code_size": size + 1},
        {"code_size": 1},
        {"code_size": 1 << 24},
        {"head": 0 if state["head"] else 1},
        {"head": max(1, state["head"] - 1)} if state["head"] > 1 else {"head": size},
        {"staged_generation": state["generation"]} if state["generation"] else {"staged_generation": -1},
        {"staged_generation": 2**32},
        {"staged_rows": 1},
        {"staged_rows": rows},
        {"staged_rows": 2**32 - 1},
        {"txn": ...},
        {"txn": "1"},
        {"rows": None},
        {"next_id": 2**62},
        {"next_id": -1},
        {"count": 1.5},
        {"head": True},
        {"more": 1},
        {"listed": state["listed"] + 1},
        {"listed": rows + 1},
        {"listed": -1},
        {"listed": None},
        {"listed": ...},
        {"listed": ..., "relisted": ...},
        {"relisted": -1},
        {"relisted": "1"},
        {"payloads": 1 - state["payloads"]},
        {"payloads": 2},
        {"payloads": -1},
        {"payloads": None},
        {"payloads": ...},
        {"listed": ..., "relisted": ..., "payloads": ..., **NO_NEXT},
        NO_NEXT,
        {"next_generation": ...},
        {"next_generation": state["generation"] + 7},
        {"next_generation": state["generation"], "next_size": 5},
        {"next_generation": state["generation"] + 7, "next_size": 5, "next_head": 5},
        {"next_generation": state["generation"] + 7, "next_size": 5, "next_head": 5, "recoded": rows},
        {"next_size": 5},
        {"recoded": 5},
    ):
        yield f"state: {changes}", mapping(there, keys.STATE, **changes)
    later = {"staged_rows": rows + 10, "staged_generation": state["generation"] + 1}
    yield "state: unfinished", mapping(there, keys.STATE, **later)
    yield "state: missing", {(keys.META, keys.STATE): None}
    yield "state: the options", {(keys.META, keys.STATE): there[keys.META, keys.OPTIONS]}


#: The fields of the state that came with format 4.
NO_NEXT: dict[str, Any] = dict.fromkeys(("next_generation", "next_size", "next_head", "recoded"), ...)


def forged_next(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Codes that are being rewritten, their encoder, and the records of both trainings."""
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    number, recoded, size = state["next_generation"], state["recoded"], state["next_size"]
    assert number and 32 < recoded < state["rows"]
    changes: dict[str, Any]
    for changes in (
        {"recoded": recoded - 1},
        {"recoded": recoded + 1},
        {"recoded": 0},
        {"recoded": state["rows"]},
        {"next_generation": number + 1},
        {"next_size": size + 1},
        {"next_size": 1},
        {"next_head": 0},
        {"next_generation": 0, "next_size": 0, "next_head": 0, "recoded": 0},
    ):
        yield f"next: {changes}", mapping(there, keys.STATE, **changes)
    own = sorted(entry for entry in there if entry[1].startswith(keys.codes_prefix(number)))
    yield "next: codes missing", dict.fromkeys(own, None)
    yield "next: the first codes missing", {own[0]: None}
    yield "next: the last codes missing", {own[-1]: None}
    yield "next: codes of the other generation", {own[0]: there[keys.CODES, b"c\0\0\0\1" + own[0][1][5:]]}
    encoder, following = (keys.META, keys.ENCODER), (keys.META, keys.NEXT_ENCODER)
    yield "next: no encoder", {following: None}
    yield "next: an encoder of other codes", {following: meta.pack(other_encoder(there))}
    yield "next: the options for an encoder", {following: there[keys.META, keys.OPTIONS]}
    yield "next: encoder damaged", {following: again(there[encoder], body(there[encoder])[:-1])}
    for key in (keys.TRAINING, keys.NEXT_TRAINING):
        for changes in ({"error": -1.0}, {"now": float("nan")}, {"reviewed": -1}, {"sampled": ...}, {"vectors": "8"}):
            yield f"next: {key.decode()} {changes}", mapping(there, key, **changes)
        yield f"next: {key.decode()} is a state", {(keys.META, key): there[keys.META, keys.STATE]}
    yield "next: no training of the next encoder", {(keys.META, keys.NEXT_TRAINING): None}


def other_encoder(there: Entries) -> dict[str, Any]:
    """The record of a sound encoder whose codes are shorter than those of the index."""
    record = msgpack.unpackb(body(there[keys.META, keys.ENCODER]))
    made = make_encoder("lsh", bits=8).fit(np.eye(8))
    return {**record, "name": "lsh", "config": made.config, "fitted": to_bytes(made)}


def forged_listed(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Rows that are listed, and are not; or the other way round."""
    state = msgpack.unpackb(body(there[keys.META, keys.STATE]))
    firsts = sorted({place[1] for db, key in there if db == keys.POSTINGS and (place := keys.postings_of(key))})
    for listed in (0, 1, firsts[-1], firsts[-1] + 1, state["listed"] - 1, state["listed"] + 1, state["rows"]):
        yield f"listed: {listed}", mapping(there, keys.STATE, listed=listed)
    state_1 = mapping(there, keys.STATE, listed=..., relisted=..., payloads=..., **NO_NEXT)
    older = {**state_1, **mapping(there, keys.OPTIONS, format=1, fields=...)}
    yield "listed: format 1, with lists", older
    without: Forgery = {(db, key): None for db, key in there if db == keys.POSTINGS}
    yield "listed: nothing, and there are tables", {**mapping(there, keys.STATE, listed=0)}
    yield "listed: nothing, and there are no tables", {**mapping(there, keys.STATE, listed=0), **no_subset()}
    yield "listed: lists without a structure", {**no_subset()}
    yield "listed: no lists and no structure", {**without, **no_subset()}


def no_subset() -> Forgery:
    return {(keys.META, keys.SUBSET): None}


def forged_subset(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Tables that are not those of the code."""
    subset = msgpack.unpackb(body(there[keys.META, keys.SUBSET]))
    tables, widths, bits = subset["tables"], subset["widths"], subset["bits"]
    changes: dict[str, Any]
    for changes in (
        {"kind": "cells"},
        {"kind": 5},
        {"kind": ...},
        {"bits": bits + 1},
        {"bits": 3},
        {"bits": 21},
        {"bits": None},
        {"tables": [], "widths": []},
        {"tables": tables[:-1], "widths": widths[:-1]},
        {"tables": tables[1:], "widths": widths[1:]},
        {"tables": [first + 1 for first in tables]},
        {"tables": [first + 1 for first in tables], "widths": [*widths[:-1], widths[-1] - 1]},
        {"tables": [first + 8 for first in tables]},
        {"tables": [first + 1000 for first in tables]},
        {"tables": [first + 2**61 for first in tables]},
        {"tables": [-first for first in tables]},
        {"tables": tables[::-1], "widths": widths[::-1]},
        {"tables": [0, widths[-1]], "widths": widths[::-1]},
        {"tables": [0, widths[0] - 1], "widths": [widths[0] - 1, widths[1] + 1]},
        {"tables": [0] * 4097, "widths": [1] * 4097},
        {"tables": [str(first) for first in tables]},
        {"widths": [*widths[:-1], 21]},
        {"widths": [*widths[:-1], 0]},
        {"widths": widths[:-1]},
        {"widths": None},
        {"more": 1},
    ):
        yield f"subset: {str(changes)[:80]}", mapping(there, keys.SUBSET, **changes)
    yield "subset: the state", {(keys.META, keys.SUBSET): there[keys.META, keys.STATE]}
    yield "subset: empty", {(keys.META, keys.SUBSET): b""}
    yield "subset: of another kind", {(keys.META, keys.SUBSET): again(there[keys.META, keys.SUBSET], kind=b"p")}
    for name, data in MALICIOUS.items():
        value = records.encode(records.Header(records.META, 4), data)
        yield f"subset: {name}", {(keys.META, keys.SUBSET): value}


def forged_postings(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Records of posting lists that are not what their place wants, that cannot be, or that are not the codes'."""
    for entry in sorted(entry for entry in there if entry[0] == keys.POSTINGS):
        value = there[entry]
        header, payload = records.decode(value, "test")
        name = f"lists of table {header.head} from {header.first} on"
        changes: dict[str, Any]
        for changes in (
            {"count": header.count + 1},
            {"count": header.count - 1},
            {"count": 0},
            {"count": 2**32 - 1},
            {"first": header.first + 1},
            {"first": 2**63},
            {"width": header.width + 1},
            {"width": 0},
            {"width": 2**32 - 1},
            {"generation": header.generation + 1},
            {"head": header.head + 1},
            {"kind": b"c"},
        ):
            yield f"{name}: {changes}", {entry: again(value, **changes)}
        yield f"{name}: missing", {entry: None}
        yield f"{name}: empty", {entry: b""}
        yield f"{name}: a header alone", {entry: again(value, b"")}
        yield f"{name}: cut", {entry: again(value, payload[:-1])}
        yield f"{name}: longer", {entry: again(value, bytes(payload) + b"x")}
        for what, forged in impossible_lists(payload, header.count, header.width):
            yield f"{name}: {what}", {entry: again(value, forged)}


def forged_blocks(there: Entries) -> Iterator[tuple[str, Forgery]]:
    """Blocks of posting lists that are missing, too many, or elsewhere."""
    own = sorted(entry for entry in there if entry[0] == keys.POSTINGS)
    generation = msgpack.unpackb(body(there[keys.META, keys.STATE]))["generation"]
    tables = len(msgpack.unpackb(body(there[keys.META, keys.SUBSET]))["tables"])
    first, last = own[:tables], own[-tables:]
    yield "lists: all missing", dict.fromkeys(own, None)
    yield "lists: the first block missing", dict.fromkeys(first, None)
    yield "lists: the last block missing", dict.fromkeys(last, None)
    for what, begin in (("within a unit", 32), ("beyond", 5 * 16_256)):
        moved = {
            (db, keys.postings(generation, begin, i)): again(there[db, key], first=begin)
            for i, (db, key) in enumerate(last)
        }
        yield f"lists: a block {what}", {**dict.fromkeys(last, None), **moved}
        yield f"lists: one more block {what}", {**moved}
    if first != last:
        both: Forgery = {a: joined(there[a], there[b]) for a, b in zip(first, last, strict=True)}
        yield "lists: blocks that overlap", both
    for what, key in {
        "another generation": keys.postings(generation + 1, 0),
        "an older generation": keys.postings(generation - 1, 0),
        "a table too many": keys.postings(generation, 0, tables),
        "the last table there can be": keys.postings(generation, 0, 0xFFFF),
        "a key too long": own[0][1] + b"x",
        "a key too short": own[0][1][:-1],
        "a key before all": b"a",
        "a key behind all": b"zz",
    }.items():
        yield f"lists: {what}", {(keys.POSTINGS, key): there[own[0]]}
    yield "lists: two tables swapped", {first[i]: again(there[first[1 - i]], head=i) for i in (0, 1)}


def joined(one: bytes, other: bytes) -> bytes:
    """A block that names the rows of a later one, too."""
    (head, payload), (more, others) = (records.decode(value, "test") for value in (one, other))
    parts = postings.buckets(payload, head.count, head.width), postings.buckets(others, more.count, more.width)
    buckets, rows = (
        np.concatenate([parts[0][0], parts[1][0]]),
        np.append(parts[0][1], parts[1][1] + more.first - head.first),
    )
    order = np.argsort(rows)
    return again(one, reference.list_payload(buckets[order], rows[order], head.width), count=head.count + more.count)


def impossible_lists(payload: Any, count: int, bits: int) -> Iterator[tuple[str, bytes]]:
    """Payloads of the same size: starts, rows and lower bits that cannot be, and some that are only not the codes'."""
    bins = 1 << min(bits, 14)
    data = np.frombuffer(payload, np.uint8)
    starts, rows = data[: 2 * (bins + 1)].view("<u2"), data[2 * (bins + 1) :][: 2 * count].view("<u2")
    low = data[2 * (bins + 1 + count) :]

    def of(new: Any = starts, names: Any = rows, lower: Any = low) -> bytes:
        whole = [np.ascontiguousarray(part).astype("<u2").tobytes() for part in (new, names)]
        return b"".join(whole) + np.ascontiguousarray(lower, np.uint8).tobytes()

    middle = len(starts) // 2
    yield "starts fall", of(starts[::-1])
    yield "starts beyond", of(np.where(np.arange(len(starts)) == middle, 65_535, starts))
    yield "starts huge", of(np.full_like(starts, 65_535))
    yield "starts zero", of(np.zeros_like(starts))
    yield "starts begin late", of(np.maximum(starts, 1))
    yield "starts end early", of(np.minimum(starts, count - 1))
    yield "another bucket", of(np.where((starts > 0) & (starts < count), starts + 1, starts).clip(0, count))
    yield "rows beyond", of(names=np.where(np.arange(count) == count // 2, 65_535, rows))
    yield "rows fall", of(names=rows[::-1])
    yield "rows all the same", of(names=np.zeros_like(rows))
    own = int(np.argmax(np.diff(starts)))
    twice = rows.copy()
    twice[starts[own] + 1] = twice[starts[own]]
    yield "a row twice", of(names=twice)
    others = np.flatnonzero(np.diff(starts))
    a, b = int(starts[others[0]]), int(starts[others[-1]])
    exchanged = rows.copy()
    exchanged[[a, b]] = exchanged[[b, a]]
    yield "two rows in each other's buckets", of(names=exchanged)
    if len(low):
        yield "lower bits beyond", of(lower=np.full_like(low, 255))
        yield "lower bits fall", of(lower=low[::-1])
        yield "lower bits zero", of(lower=np.zeros_like(low))


def forged_options(there: Entries) -> Iterator[tuple[str, Forgery]]:
    options = msgpack.unpackb(body(there[keys.META, keys.OPTIONS]))
    changes: dict[str, Any]
    for changes in (
        {"dim": options["dim"] + 1},
        {"dim": 1},
        {"dim": 1 << 20},
        {"dim": 0},
        {"dim": -5},
        {"dim": 2**63},
        {"dim": "8"},
        {"metric": "hamming"},
        {"metric": ["l2"]},
        {"ids": "str" if options["ids"] == "int" else "int"},
        {"ids": None},
        {"keep_vectors": None if options["keep_vectors"] else "float32"},
        {"keep_vectors": "float32" if options["keep_vectors"] == "float16" else "float16"},
        {"keep_vectors": {}},
        {"train_size": -1},
        {"uuid": b""},
        {"uuid": ...},
        {"format": 5},
        {"format": 3},
        {"format": 2},
        {"format": 1},
        {"fields": None},
        {"fields": ...},
        {"fields": "lang"},
        {"fields": [5]},
        {"fields": [""]},
        {"fields": [*options["fields"], "more"]},
        {"format": 0},
        {"format": []},
        {"program": "another"},
        {"program": ...},
        {"more": 1},
    ):
        yield f"options: {changes}", mapping(there, keys.OPTIONS, **changes)
    yield "options: missing", {(keys.META, keys.OPTIONS): None}
    yield "options: a stranger in the database", {(keys.META, b"other"): there[keys.META, keys.OPTIONS]}


#: Values that no parameter of an encoder can have.
IMPOSSIBLE: list[Any] = [-(1 << 40), 1 << 60, "impossible", [8], {"a": {}}, b"8"]


def forged_encoder(there: Entries) -> Iterator[tuple[str, Forgery]]:
    record = msgpack.unpackb(body(there[keys.META, keys.ENCODER]))
    config, fitted = record["config"], record["fitted"]
    other = make_encoder("lsh", bits=8).fit(np.eye(3))
    changes: list[dict[str, Any]] = [
        {"name": "no such encoder"},
        {"name": ""},
        {"name": ...},
        {"name": None},
        {"name": 5},
        {"name": ["lsq"]},
        {"name": {"a": 1}},
        {"name": b"lsq"},
        {"name": "../lsq"},
        {"name": "x" * 100_000},
        {"name": "kmeans"},
        {"config": ...},
        {"config": []},
        {"config": {"no such parameter": 1}},
        {"config": {b"bits": 8}},
        {"config": {"self": 1}},
        {"config": {"encoder": "lsq"}},
        {"fitted": ...},
        {"fitted": b""},
        {"fitted": b"\xc1"},
        {"fitted": "text"},
        {"fitted": 7},
        {"fitted": to_bytes(other), "name": "lsh", "config": other.config},
        {"fitted": to_bytes(other)},
        {"fitted": None if fitted else to_bytes(other)},
        {"distribution": 5, "name": "gone"},
        {"distribution": [1, 2], "name": "gone"},
        {"distribution": ["a" * 1000, {}], "name": "gone"},
    ]
    if fitted:
        inner = msgpack.unpackb(fitted)
        array = sorted(inner["state"])[0]
        for name, forged in {
            "huge": ["<f4", [1 << 30, 1 << 9], b""],
            "negative": ["<f4", [-1], b""],
            "object": ["|O", [1], bytes(8)],
            "NaN": ["<f4", inner["state"][array][1], b"\xff" * len(inner["state"][array][2])],
            "no list": 5,
        }.items():
            state = {**inner["state"], array: forged}
            yield (
                f"encoder: array {name}",
                mapping(there, keys.ENCODER, fitted=msgpack.packb({**inner, "state": state})),
            )
        for name, value in (
            ("dim", inner["dim"] + 1),
            ("dim", 1 << 40),
            ("version", 99),
            ("format", 99),
            ("name", "pq"),
        ):
            yield f"encoder: inner {name}", mapping(there, keys.ENCODER, fitted=msgpack.packb({**inner, name: value}))
    for name in config:
        for value in IMPOSSIBLE:
            yield f"encoder: {name}={value!r}", mapping(there, keys.ENCODER, config={**config, name: value})
    for change in changes:
        yield f"encoder: {str(change)[:80]}", mapping(there, keys.ENCODER, **change)
    yield "encoder: missing", {(keys.META, keys.ENCODER): None}


#: msgpack that means harm; the count in the record's header is right where there is one.
MALICIOUS = {
    "nothing": b"",
    "nil": b"\xc0",
    "a number": b"\x05",
    "a reserved byte": b"\xc1",
    "deep arrays": b"\x91" * 200_000,
    "deep mappings": b"\x81\xa1a" * 100_000,
    "a deep value": b"\x81\xa3txn" + b"\x91" * 100_000 + b"\xc0",
    "a huge array": b"\xdd\xff\xff\xff\xff",
    "a huge mapping": b"\xdf\xff\xff\xff\xff",
    "a huge string": b"\xdb\xff\xff\xff\xff",
    "huge bytes": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "a huge extension": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "an extension": b"\x81\xa3dim\xd4\x05x",
    "a time": b"\x81\xa3txn\xd6\xff\0\0\0\0",
    "a time that cannot be": b"\x81\xa3txn\xc7\x0c\xff" + b"\xff" * 12,
    "a number as key": b"\x81\x05\x05",
    "a mapping as key": b"\x81\x80\x05",
    "bytes as key": b"\x81\xc4\x03txn\x05",
    "a key twice": b"\x82\xa3txn\x05\xa3txn\x06",
    "a name that is no UTF-8": b"\x81\xa3\xff\xfe\xfd\x05",
    "something behind": b"\x81\xa3txn\x05\x05",
}


def malicious(there: Entries) -> Iterator[tuple[str, Forgery]]:
    del there
    for key in (keys.OPTIONS, keys.STATE, keys.ENCODER):
        for name, data in MALICIOUS.items():
            for count in (1, 2**32 - 1):
                value = records.encode(records.Header(records.META, count), data)
                yield f"{key.decode()}: {name}, count {count}", {(keys.META, key): value}


FORGERIES: list[tuple[str, Callable[[Entries], Iterator[tuple[str, Forgery]]]]] = [
    ("trained", forged_columns),
    ("untrained str", forged_columns),
    ("chunks", forged_parts),
    ("untrained", forged_values),
    ("untrained str", forged_values),
    ("trained", forged_values),
    ("untrained", forged_sorted),
    ("untrained str", forged_sorted),
    ("untrained", forged_deleted),
    ("untrained", forged_state),
    ("trained", forged_state),
    ("untrained", forged_options),
    ("trained", forged_options),
    ("untrained", forged_encoder),
    ("trained", forged_encoder),
    ("untrained", malicious),
    ("lists", forged_state),
    ("lists", forged_listed),
    ("few lists", forged_listed),
    ("few lists", forged_subset),
    ("lists", forged_blocks),
    ("few lists", forged_blocks),
    ("few lists", forged_postings),
    ("payloads", forged_columns),
    ("payloads", forged_payloads),
    ("payloads", forged_fields),
    ("payloads", forged_state),
    ("rewriting", forged_columns),
    ("rewriting", forged_state),
    ("rewriting", forged_next),
]

#: How a forgery may be noticed. A name of an encoder that is not known here may be that of a plugin: the file opens,
#: and what needs the encoder says that it is missing. (Where it was fitted, the name is stored twice, and compared.)
SOON_ENOUGH = ("noticed by", "noticed LATE by UnknownEncoderError")

#: Forgeries that give another index, as sound as the first: nothing need be noticed.
ANOTHER_INDEX = (
    "state: unfinished",  # the next writer looks for what is to be removed, and finds nothing
    "field: format 2, with payloads",  # of a database that format 2 does not know: the first write notices
    f"encoder: seed={1 << 60}",
    f"encoder: lam={1 << 60}",
)


def survive(path: str, to_do: str) -> None:
    """In a child: make each forgery on a copy, use it in every way, print whether opening or check() noticed it."""
    limit_memory()
    copy = Path(path).with_suffix(".copy")
    dim = 0
    with Index.open(path, read_only=True) as index:
        dim = index.dim
    for number, forgery in enumerate(json.loads(Path(to_do).read_text())):
        print(f"{number} …", flush=True)
        faulthandler.dump_traceback_later(120, exit=True)
        for name in (copy, Path(f"{copy}-lock")):
            name.unlink(missing_ok=True)
        shutil.copyfile(path, copy)
        forge(
            copy,
            {
                (db.encode(), bytes.fromhex(key)): None if value is None else bytes.fromhex(value)
                for db, key, value in forgery
            },
        )
        print(f"{number} {used(copy, dim)}".replace("\n", " "), flush=True)
        faulthandler.cancel_dump_traceback_later()


def use(index: Index, dim: int, what: str) -> list[str]:
    """One thing an index does; what it finds wrong."""
    if what == "check":
        return index.check()
    if what == "ask":
        answers(index, dim)
    elif what == "get":
        index.get(index.ids())
    elif what == "add":
        add_one(index, dim)
    elif what == "delete":
        delete_one(index)
    else:
        getattr(index, what)()
    return []


def used(path: Path, dim: int) -> str:
    """Everything an index does with a forged file; typed errors are fine, one after another."""
    noticed: list[str] = []

    def attempt(what: str) -> None:
        try:
            with Index.open(path) as index:
                noticed.extend(f"check: {problem}" for problem in use(index, dim, what))
        except LsqIndexError as error:
            noticed.append(f"{type(error).__name__}: {error}"[:200])

    try:
        attempt("check")
        early = bool(noticed)
        if early and not noticed[0].startswith("check"):
            return f"noticed by {noticed[0]}"  # it cannot even be opened
        for what in ("ask", "get", "add", "delete", "check", "train", "compact", "check", "ask"):
            attempt(what)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        at = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
        return f"WRONG {type(error).__name__}: {error} ({at}), after {noticed}"
    return f"noticed {'' if early else 'LATE '}by {noticed[0]}" if noticed else "right"


@pytest.mark.parametrize(("variant", "forger"), FORGERIES, ids=lambda value: getattr(value, "__name__", value))
def test_forged_records_are_noticed(
    variant: str,
    forger: Callable[[Entries], Iterator[tuple[str, Forgery]]],
    sound: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound(variant), path)
    there = entries(path)
    forgeries = list(forger(there))
    listed = [
        [(db.decode(), key.hex(), None if value is None else value.hex()) for (db, key), value in forgery.items()]
        for _, forgery in forgeries
    ]
    found = outcomes(path, listed, "survive")
    bad = {
        name: what
        for (name, _), what in zip(forgeries, found, strict=True)
        if what.startswith("WRONG") or (not what.startswith(SOON_ENOUGH) and name not in ANOTHER_INDEX)
    }
    assert not bad


@pytest.mark.parametrize("forgery", range(3))
def test_a_part_of_fewer_rows_than_its_size_tells_is_noticed_at_first_touch(
    forgery: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Before check(): nothing may be read beyond a record."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("chunks"), path)
    forge(path, list(forged_parts(entries(path)))[forgery][1])
    with Index.open(path) as index, pytest.raises(DamagedError):
        index.search(vectors(1, 4), k=len(index))


# -- (e) checksums are verified at first touch, once, and by check() -------------------------------


def flip_on_disk(path: Path, at: int, bits: int = 1) -> None:
    """Damage a file, which may be open."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bits]))


def payload_of(path: Path, db: bytes, key: bytes) -> int:
    """Where in the file, which is not open, the payload of a record begins."""
    value, data = entries(path)[db, key], path.read_bytes()
    places = [begin for begin, _ in Places(data).records if data[begin : begin + len(value)] == value]
    assert len(places) == 1
    return places[0] + records.HEADER_SIZE


COLUMNS = [
    ("codes", keys.CODES, b"c\0\0\0\1\0\0\0\0"),
    ("ids", keys.IDS, b"i\0\0\0\0"),
    ("vectors", keys.VECTORS, b"v\0\0\0\0"),
    ("payloads", keys.PAYLOADS, b"y\0\0\0\0"),
    ("field 0", keys.PAYLOADS, b"f\0\0\0\0\0\0"),
]


def ask_all(index: Index) -> None:
    """Everything is touched."""
    index.search(vectors(1, 8), k=len(index), rerank=len(index), with_payloads=True)
    index.ids({"lang": "en"})


@pytest.mark.parametrize(("name", "db", "key"), COLUMNS)
def test_the_first_touch_of_a_record_notices_damage(
    name: str, db: bytes, key: bytes, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("payloads" if db == keys.PAYLOADS else "trained"), path)
    at = payload_of(path, db, key)
    with Index.open(path) as index:
        flip_on_disk(path, at)
        with pytest.raises(DamagedError, match=rf"{name}.*checksum"):
            ask_all(index)
        assert any("checksum" in problem for problem in index.check())
        with pytest.raises(DamagedError):
            ask_all(index)


@pytest.mark.parametrize(("name", "db", "key"), COLUMNS)
def test_check_notices_damage_that_came_after_the_first_touch(
    name: str, db: bytes, key: bytes, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("payloads" if db == keys.PAYLOADS else "trained"), path)
    at = payload_of(path, db, key)
    with Index.open(path) as index:
        ask_all(index)
        assert index.check() == []
        ask_all(index)
        flip_on_disk(path, at)
        assert any(name in problem and "checksum" in problem for problem in index.check())
        flip_on_disk(path, at)  # as it was
        assert index.check() == []


def test_a_verified_record_is_not_verified_again(sound: Callable[[str], Path], tmp_path: Path) -> None:
    """What was verified is not paid for by every search: damage that comes later is for check() to find."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("chunks"), path)
    at = payload_of(path, keys.CODES, min(key for db, key in entries(path) if db == keys.CODES and key[:1] == b"c"))
    with Index.open(path) as index:
        index.search(vectors(1, 4), k=5)
        flip_on_disk(path, at)
        index.search(vectors(1, 4), k=5)
        assert any("checksum" in problem for problem in index.check())
        with pytest.raises(DamagedError, match="checksum"):  # check() looks at all anew, and so do those after it
            index.search(vectors(1, 4), k=5)


LISTS = [(0, 0), (0, 1), (16_256, 0), (16_256, 1)]


@pytest.mark.parametrize(("first", "table"), LISTS)
def test_the_first_touch_of_posting_lists_notices_damage(
    first: int, table: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("lists"), path)
    at = payload_of(path, keys.POSTINGS, keys.postings(1, first, table))
    with Index.open(path) as index:
        before = index.search(vectors(2, 4), strategy="scan")
        flip_on_disk(path, at)
        told = rf"posting lists of table {table} from row {first} .*checksum"
        for how in ({"strategy": "subset"}, {"distance": "score"}, {"probes": 1}):
            with pytest.raises(DamagedError, match=told):
                index.search(vectors(2, 4), **how)
        # Codes are as they were, and the index can be read by them.
        again = index.search(vectors(2, 4), strategy="scan")
        assert np.array_equal(again.ids, before.ids)
        assert any("posting lists" in problem and "checksum" in problem for problem in index.check())
        flip_on_disk(path, at)
        index.search(vectors(2, 4), strategy="subset")
        flip_on_disk(path, at)
        assert any("posting lists" in problem and "checksum" in problem for problem in index.check())


FORGED_LISTS: dict[str, Callable[[Entries], Iterator[tuple[str, Forgery]]]] = {
    "postings": forged_postings,
    "blocks": forged_blocks,
    "subset": forged_subset,
    "listed": forged_listed,
}
#: What only check() can tell, for it alone makes lists again from the codes; or what no search looks at.
NOT_AT_FIRST_TOUCH = (
    "another bucket",
    "two rows in each other's buckets",
    "two tables swapped",
    "lower bits zero",
    "an older generation",
    "a key before all",
    "listed: format 1, with lists",
    "a key too short",
    "there are no tables",
)


@pytest.mark.parametrize("forger", FORGED_LISTS)
def test_impossible_lists_are_noticed_by_a_search(forger: str, sound: Callable[[str], Path], tmp_path: Path) -> None:
    """Before check(): nothing may be read beyond a list, and no row be missed."""
    path = tmp_path / "index.lsq"
    there, silent = entries(sound("few lists")), []
    for name, forgery in FORGED_LISTS[forger](there):
        shutil.copyfile(sound("few lists"), path)
        forge(path, forgery)
        try:
            with Index.open(path, read_only=True) as index:
                index.search(vectors(2, 6), strategy="subset")
            silent.append(name)
        except DamagedError:
            continue
        except ParameterError:  # there is no structure any more
            silent.append(name)
    assert [name for name in silent if not name.endswith(NOT_AT_FIRST_TOUCH)] == []


def test_opening_touches_no_rows(sound: Callable[[str], Path], tmp_path: Path) -> None:
    """Damage in codes is not noticed by opening, counting or describing: nothing that grows is read."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("chunks"), path)
    first = min(key for db, key in entries(path) if db == keys.CODES and key[:1] == b"c")
    flip_on_disk(path, payload_of(path, keys.CODES, first))
    with Index.open(path) as index:
        assert len(index) == 7_400
        assert index.stats()["vectors"] == 7_400
        with pytest.raises(DamagedError, match="codes"):
            index.search(vectors(1, 4))


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"trial": child, "survive": survive, "refuse": refuse}
    programs[sys.argv[1]](*sys.argv[2:])
