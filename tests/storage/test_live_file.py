"""A file that is opened, checked, copied and compacted while another process writes to it: never a false alarm.

Everything runs in processes of its own. ``LSQINDEX_LONG=1`` opens the file 100,000 times, on disk and in memory.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.lmdb import pages
from lsqindex._storage.lmdb.reader import Reading
from lsqindex.errors import DamagedError
from tests.processes import environment
from tests.settings import LONG

WRITER = """
import os, sys
import numpy as np
from lsqindex import Index

path, stop = sys.argv[1:]
rng = np.random.default_rng(0)
index = Index.open(path)
number = 0
while not os.path.exists(stop):
    number += 1
    index.add(rng.standard_normal((3, 4)), rng.permutation(400)[:3], upsert=True)
    if number % 50 == 0:
        index.delete(rng.permutation(400)[:100])
    if number % 200 == 0:
        index.compact()
    if number == 1:
        print("writing", flush=True)
print(number)
"""

READER = """
import collections, sys
from lsqindex import Index
from lsqindex.errors import LsqIndexError
from lsqindex._storage.lmdb import opening

path, use, times, first_map = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
opening.INITIAL_MAP = first_map
seen = collections.Counter()
for _ in range(times):
    try:
        with Index.open(path, read_only=use in ("open", "check")) as index:
            if use == "check":
                seen.update(index.check())
            elif use == "save":
                index.save(path + ".copy")
                with Index.open(path + ".copy", read_only=True) as copy:
                    seen.update(copy.check())
            elif use == "compact":
                index.compact()
    except LsqIndexError as error:
        seen[f"{type(error).__name__}: {error}"] += 1
print(times, dict(seen))
"""


def start(program: str, *arguments: Any) -> subprocess.Popen[str]:
    """A Python process that runs ``program``."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """What the process printed; it must have ended well, and without a word on stderr."""
    out, err = process.communicate(timeout=7200)
    assert process.returncode == 0 and not err, (process.returncode, out, err)
    return out.strip()


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory on disk, or in the memory of the machine: commits are much faster there."""
    shared = Path("/dev/shm")
    if request.param == "disk":
        yield tmp_path
    elif not shared.is_dir():
        pytest.skip("no file system in memory")
    else:
        with tempfile.TemporaryDirectory(dir=shared) as name:
            yield Path(name)


@pytest.mark.parametrize(
    ("use", "times", "first_map"),
    [
        ("open", 100_000 if LONG else 300, 1 << 30),
        ("open", 10_000 if LONG else 150, 1),  # the map is as large as the file is when it is opened
        ("check", 5_000 if LONG else 25, 1 << 30),
        ("save", 1_000 if LONG else 10, 1 << 30),
        ("compact", 1_000 if LONG else 10, 1 << 30),
    ],
)
def test_no_false_alarm_while_another_process_writes(folder: Path, use: str, times: int, first_map: int) -> None:
    path, stop = folder / "index.lsq", folder / "stop"
    with Index.create(path, 4, train_size=1 << 40, keep_vectors=None) as index:
        index.add(np.zeros((50, 4)), np.arange(50))
    writer = start(WRITER, path, stop)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "writing\n"
        said = end(start(READER, path, use, times, first_map))
    finally:
        stop.touch()
        commits = end(writer)
    print(f"{use}: {said}, beside {commits} commits")
    assert said == f"{times} {{}}"
    assert int(commits) > 1
    with Index.open(path, read_only=True) as index:
        assert index.check() == []


@pytest.mark.parametrize("deep", [False, True])
def test_commits_between_reading_the_meta_pages_and_walking_the_trees(
    deep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has grown since it was mapped, and the meta page is that of another snapshot."""
    path = tmp_path / "index.lsq"
    with Index.create(path, 4, train_size=1 << 40, keep_vectors=None) as index:
        index.add(np.zeros((50, 4)))
        map_file, commits = mmap.mmap, []

        def slow(*how: Any, **more: Any) -> Any:
            file = map_file(*how, **more)
            for _ in range(2):
                commits.append(index.add(np.ones((2000, 4))))
            return file

        with Reading(index._env) as reader:
            monkeypatch.setattr(mmap, "mmap", slow)
            assert pages.check_snapshot(reader.file.descriptor.fd, str(path), reader.txn.id(), deep=deep)
        assert len(commits) == 2


def test_a_finding_in_every_snapshot_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding is looked at again while others commit, but not for ever."""
    path = tmp_path / "index.lsq"
    with Index.create(path, 4, train_size=1 << 40, keep_vectors=None) as index:
        index.add(np.ones((1, 4)))
        found: list[int] = []

        def damaged(*_: Any) -> tuple[str, int]:
            found.append(len(index.add(np.ones((1, 4)))))
            return "a damaged page", 7

        monkeypatch.setattr(pages, "check_pages", damaged)
        monkeypatch.setattr(pages, "_PAUSE", 0)
        with Reading(index._env) as reader, pytest.raises(DamagedError, match="page 7: a damaged page; restore"):
            reader.file.check_pages(reader.txn)
        assert len(found) > 1
