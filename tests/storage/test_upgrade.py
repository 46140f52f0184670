"""Files of older formats: read as they are, and upgraded by the first write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._storage.format import keys, meta
from lsqindex._storage.format.meta import FORMAT
from lsqindex._storage.lmdb.opening import OpenFile
from lsqindex._storage.lmdb.writer import Writer
from lsqindex._storage.store import Store
from lsqindex._subsets import stored as subsets
from lsqindex._write import add as loader
from lsqindex.errors import (
    DamagedError,
    DuplicateIdError,
    LsqIndexError,
    NewerFormatError,
    ParameterError,
    StorageError,
)
from tests.settings import FIXTURES
from tests.subsets.listed import Content, create, sound, state_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.lsq"


@pytest.fixture(params=["format1-trained.lsq", "format1-untrained.lsq", "format2-lists.lsq", "format2-tables.lsq"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    shutil.copyfile(FIXTURES / request.param, path)
    return path


def formats(path: Path) -> tuple[int, int, int]:
    """The format that the options tell, that of the fields of the state, that of the databases that are there."""
    content = Content(path)
    state = 1 + sum(name in content.state for name in ("listed", "payloads", "recoded", "cells", "large"))
    databases = len(content.entries)
    return content.options["format"], state, databases - 3 if databases < 7 else FORMAT


def format_of(old: Path) -> int:
    return int(old.name[len("format")])


#: (Formats 4 and 6 brought no database: by those that are there, 4 is told as 3.)
NEWEST = (FORMAT,) * 3


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
        assert index.stats()["format"] == FORMAT and index.check() == []
        more = {"add": 1, "add a payload": 1, "a payload in a batch": 2, "delete": -1}
        assert len(index) == count + more.get(write, 0)
        after = Content(old)
        assert formats(old) == NEWEST and after.state["payloads"] == ("payload" in write)
        if format_of(old) == 1:
            listed = after.state["rows"] if write == "set_subset" and index.is_trained else 0
            assert after.state["listed"] == listed and list(after.blocks()) == [0] * bool(listed)
        assert {**before.options, "format": FORMAT, "fields": []} == after.options
        assert len(index.ids({"lang": "en"})) == ("payload" in write)
    with Index.open(old) as index:
        assert index.check() == [] and index.stats()["format"] == FORMAT
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
        if name.startswith(key) and not full and writer._before.format < FORMAT and not writer.env.private:
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
    assert snapshot.dbs.keys() == set(keys.DATABASES_OF[number]) and reading.payloads(reading.ids()[:1]) == [None]
    add_payload(writing)
    assert reading.check() == [] and reading.stats()["format"] == FORMAT and len(reading.ids({"lang": "en"})) == 1
    assert snapshot.state.format == number and snapshot.dbs.keys() == set(keys.DATABASES_OF[number])
    store = Store(snapshot, reading._options)
    assert not snapshot.state.payloads and len(store.living()) == count
    assert (subsets.read(snapshot) is None) == (number == 1)


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
        assert formats(third) == NEWEST and {**options, "format": FORMAT} == Content(third).options
        for one in (index, reading):
            assert one.check() == [] and one.stats()["format"] == FORMAT
            assert one.payloads(names[1:]) == payloads[1:] if write != "delete" else names[0] not in one
    with Index.open(third) as index:
        assert index.check() == [] and index.stats()["format"] == FORMAT


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
    for number in range(format_of(old) + 1, 6):
        shutil.copyfile(FIXTURES / old.name, old)
        forge(old, with_options(number))
        with pytest.raises(LsqIndexError):
            Index.open(old)  # a newer format has more databases
    shutil.copyfile(FIXTURES / old.name, old)
    with Index.open(old) as index:
        touch(index)
    for number in (1, 2, 3, 4):
        forge(old, with_options(number))
        with pytest.raises(DamagedError, match="newer format"), Index.open(old) as index:
            len(index)


def test_options_of_format_3_and_a_state_of_format_4_are_damage(tmp_path: Path) -> None:
    """Both have the same databases."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(FIXTURES / "format4-rewriting.lsq", path)
    forge(path, lambda txn, dbs: with_kept(txn, dbs, "float16"))
    forge(path, with_options(3))
    with Index.open(path) as index:
        assert any("has format 4, but the file has format 3" in problem for problem in index.check())


def with_kept(txn: Any, dbs: dict[bytes, Any], layout: str) -> None:
    """Options with another layout of kept vectors."""
    options = msgpack.unpackb(txn.get(b"options", db=dbs[keys.META])[48:])
    txn.put(b"options", meta.pack({**options, "keep_vectors": layout}), db=dbs[keys.META])


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_state_of_an_older_format_in_a_file_of_this_one_is_noticed(number: int, path: Path) -> None:
    def older_state(txn: Any, dbs: dict[bytes, Any]) -> None:
        state = msgpack.unpackb(txn.get(b"state", db=dbs[keys.META])[48:])
        since = {
            2: ("listed", "relisted"),
            3: ("payloads",),
            4: ("next_generation", "next_size", "next_head", "recoded"),
            5: ("cells", "next_cell"),
            6: ("large", "next_large", "staged_large"),
        }
        for name in [name for later in range(number + 1, 7) for name in since[later]]:
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


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_version_of_this_package_that_knows_older_formats_only_is_told_so(number: int, path: Path) -> None:
    """What it would do: refuse the number, before anything whose shape depends on it."""
    with create(path, 10):
        pass
    record = Content(path).entries[keys.META][b"options"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meta, "FORMAT", number)
        with pytest.raises(NewerFormatError, match="format 6"):
            meta.check_format(record)
