"""Files of other programs are refused, and left as they are."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from lsqindex import Index, LsqIndexError
from lsqindex.errors import DamagedError, IndexMissingError, NotAnIndexError, StorageError
from tests.damage.forging import OUR_NAMES
from tests.damage.outcomes import run_child


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
