"""Who shares a file without knowing it: children of a fork, and processes that know the file by another name.

Everything runs in processes of its own, so that a crash or a hang is a failed test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index
from lsqindex.errors import LinkedError
from tests import processes
from tests.settings import LONG, needs_fork

needs_links = pytest.mark.skipif(os.name == "nt", reason="names of files are another matter on Windows")

PRELUDE = """
import gc, multiprocessing, os, sys, threading
import numpy as np
from lsqindex import Index
from lsqindex.errors import *

def forked(work, *arguments):
    # How `work` ended in a forked child: what it returned, 9 after an exception.
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = work(*arguments) or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(program: str, *arguments: Any) -> str:
    """What a process prints that runs ``program``; it must end well, and say nothing on stderr."""
    return processes.run(PRELUDE + program, *arguments, silent=True)


# -- fork -------------------------------------------------------------------------------------------------

SEARCHING = """
path, rounds = sys.argv[1], int(sys.argv[2])
index = Index.open(path)
index.search([3, 0])  # imports the encoder: a fork while a thread is importing leaves the lock of the module taken
stop, failed = threading.Event(), []

def searching():
    try:
        while not stop.is_set():
            assert {3, 4} <= set(index.search([3, 0], k=3).ids.tolist())
    except BaseException as error:
        failed.append(repr(error))

def adding():
    try:
        number = 1000
        while not stop.is_set():
            number += 1
            index.add([[number, 0]], [number])
            index.delete([number])
    except BaseException as error:
        failed.append(repr(error))

threads = [threading.Thread(target=target) for target in (searching, searching, adding)]
for thread in threads:
    thread.start()

def work(number):
    with Index.open(path) as own:
        assert {3, 4} <= set(own.search([3, 0], k=3).ids.tolist())
        own.add([[5, 5]], [number])
        assert number in own and own.delete([number]) == 1
        assert own.check() == []
    gc.collect()  # nothing of the parent's is closed here
    with Index.open(path, read_only=True) as own:
        assert number not in own
"""


@needs_fork
def test_a_child_opens_a_file_that_threads_of_its_parent_use(path: Path) -> None:
    assert run(
        SEARCHING
        + """
codes = [forked(work, 100 + number) for number in range(rounds)]
for number in range(rounds):
    process = multiprocessing.get_context("fork").Process(target=work, args=(500 + number,))
    process.start()
    process.join()
    codes.append(process.exitcode)
stop.set()
for thread in threads:
    thread.join()
assert not failed and set(codes) == {0}, (failed, codes)
assert index.check() == [] and index.ids().tolist() == list(range(10))
print("done")
""",
        path,
        50 if LONG else 6,
    )


@needs_fork
def test_a_child_of_a_child_opens_the_file_again(path: Path) -> None:
    run(
        SEARCHING
        + """
def nested(number):
    with Index.open(path) as own:
        with own.batch() as batch:  # in use again
            batch.add([[7, 7]], [number])
            assert forked(reading) == 0
        own.delete([number])

def reading():
    with Index.open(path, read_only=True) as own:
        assert {3, 4} <= set(own.search([3, 0], k=3).ids.tolist())

codes = [forked(nested, 100 + number) for number in range(rounds)]
stop.set()
for thread in threads:
    thread.join()
assert not failed and set(codes) == {0}, (failed, codes)
""",
        path,
        20 if LONG else 3,
    )


@needs_fork
def test_an_inherited_index_that_was_in_use_says_what_to_do(path: Path) -> None:
    run(
        """
index = Index.open(sys.argv[1], wait=0.1)

def work():
    try:
        len(index)
        return 1
    except ForkedError as error:
        assert "Index.open" in str(error)
    with Index.open(sys.argv[1], wait=False) as own:
        assert own.ids().tolist() == list(range(10))  # the committed state
        try:
            own.add([[1, 1]], [50])
            return 2
        except BusyError:
            return 0

with index.batch() as batch:
    batch.add([[10, 0]], [10])
    assert forked(work) == 0
    batch.add([[11, 0]], [11])
assert index.ids().tolist() == list(range(12)) and index.check() == []
""",
        path,
    )


@needs_fork
def test_a_child_that_forgets_what_it_inherited_does_not_harm_its_parent(path: Path) -> None:
    """Collected as garbage, or at the end of the interpreter: the parent keeps its places in the table of readers."""
    run(
        """
path = sys.argv[1]
index, memory = Index.open(path), Index(2)
memory.add(np.arange(20).reshape(10, 2))
memory.search([0, 1])
index.search([3, 0])
inside, stop = threading.Event(), threading.Event()

def writing(index):
    with index.batch() as batch:
        batch.add([[10, 0]], [10])
        inside.set()
        stop.wait()

thread = threading.Thread(target=writing, args=(index,))
thread.start()
inside.wait()
for way in ("forget", "exit"):
    pid = os.fork()
    if pid == 0:
        del index, memory
        gc.collect()
        if way == "exit":
            thread = None
            sys.exit(0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert memory.search([0, 1], k=1).ids.tolist() == [0]
    assert index.search([3, 0], k=1).ids.tolist() == [3]
stop.set()
thread.join()
memory.add([[5, 5]])
assert memory.check() == index.check() == []
""",
        path,
    )


@needs_fork
def test_a_child_that_is_forked_while_its_parent_compacts_leaves_the_new_file_alone(path: Path) -> None:
    run(
        """
path = sys.argv[1]
index = Index.open(path)
parent, ended = os.getpid(), []

def progress(done, total):
    pid = os.fork()
    if pid == 0:
        raise KeyboardInterrupt  # the child leaves compact() by an exception
    ended.append(os.waitpid(pid, 0)[1])

try:
    index.compact(progress=progress)
except KeyboardInterrupt:
    os._exit(0 if os.getpid() != parent else 1)
assert ended and set(ended) == {0}
assert index.check() == [] and index.ids().tolist() == list(range(10))
index.add([[10, 0]], [10])
assert sorted(os.listdir(os.path.dirname(path))) == ["index.lsq", "index.lsq-lock"]
""",
        path,
    )


# -- names --------------------------------------------------------------------------------------------------

ADDING = """
path, first = sys.argv[1], int(sys.argv[2])
acknowledged = []
try:
    with Index.open(path) as index:
        for number in range(first, first + 30):
            index.add([[number, 1]], [number])
            acknowledged.append(number)
except LinkedError as error:
    print(error, file=sys.stdout)
print(acknowledged)
"""


@needs_links
@pytest.mark.parametrize("again", [False, True])
def test_a_file_with_two_names_is_read_and_not_written(path: Path, tmp_path: Path, again: bool) -> None:
    other = tmp_path / "other.lsq"
    os.link(path, other)
    for name in (path, other):
        said = run(ADDING, name, 100)
        assert "hard link" in said and "remove the other name" in said and said.endswith("[]")
        with Index.open(name, read_only=True) as index:
            assert index.search([3, 0], k=1).ids.tolist() == [3] and index.check() == []
    (path if again else other).unlink()
    assert run(ADDING, other if again else path, 100).startswith("[100, ")


@needs_links
def test_two_writers_by_two_names_lose_nothing_that_was_acknowledged(path: Path, tmp_path: Path) -> None:
    """The second name appears while the first writer is at work."""
    other = tmp_path / "other.lsq"
    run(
        """
path, other = sys.argv[1:]

def opened(name):
    # The other writer may be in the middle of its last commit: then opening says so.
    while True:
        try:
            return Index.open(name)
        except StorageError as error:
            assert "under another name; try again" in str(error), error

def adding(name, first, said):
    acknowledged = []
    with opened(name) as index:
        for number in range(first, first + 30):
            try:
                index.add([[number, 0]], [number])
                acknowledged.append(number)
            except LsqIndexError as error:
                assert "under another name" in str(error) or "hard link" in str(error), error
            if number == first:
                said.send("begun")
    said.send(acknowledged)

def start(name, first):
    heard, said = fork.Pipe(False)
    process = fork.Process(target=adding, args=(name, first, said))
    process.start()
    said.close()  # what is held here would not end when the process does
    assert heard.recv() == "begun"
    return process, heard

fork = multiprocessing.get_context("fork")
one = start(path, 100)
os.link(path, other)
two = start(other, 200)
acknowledged = [*one[1].recv(), *two[1].recv()]
one[0].join()
two[0].join()
os.unlink(other)
with Index.open(path) as index:
    assert index.check() == []
    assert set(acknowledged) | set(range(10)) == set(index.ids().tolist()), (acknowledged, index.ids())
    index.add([[300, 0]], [300])
""",
        path,
        other,
    )


@needs_links
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_second_lock_file_is_noticed_before_a_commit_is_lost(path: Path, commits: int) -> None:
    """Somebody removes the lock file while the index is open: as with a second name, two lock files are in use."""
    run(
        """
path, commits = sys.argv[1], int(sys.argv[2])
first = Index.open(path)
first.add([[10, 0]], [10])
os.unlink(path + "-lock")

def work():
    with Index.open(path) as own:
        for number in range(commits):
            own.add([[20 + number, 0]], [20 + number])

assert forked_late(work) == 0
try:
    first.add([[11, 0]], [11])
    raise AssertionError("a commit was undone")
except LsqIndexError as error:
    assert "another lock file" in str(error), repr(error)
first.close()
with Index.open(path) as index:
    index.add([[12, 0]], [12])
    assert index.ids().tolist() == [*range(11), 12, *range(20, 20 + commits)] and index.check() == []
""".replace(
            "forked_late(work)",
            "__import__('subprocess').call([sys.executable, '-c', 'import sys\\nfrom lsqindex import Index\\n"
            "with Index.open(sys.argv[1]) as own:\\n    for number in range(int(sys.argv[2])):\\n"
            "        own.add([[20 + number, 0]], [20 + number])', path, str(commits)])",
        ),
        path,
        commits,
    )


@needs_links
def test_two_names_in_one_process(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.lsq"
    os.link(path, other)
    with Index.open(path, read_only=True) as index:
        with pytest.raises(LinkedError, match=r"open in this process by another name, .*index\.lsq; use that name"):
            Index.open(other, read_only=True)
        assert len(index) == 10
    with Index.open(other, read_only=True) as index:
        assert len(index) == 10


@needs_links
def test_a_name_that_a_killed_maker_left_behind_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    """Killed between giving the new file its name and taking the passing one away."""
    path = tmp_path / "index.lsq"
    killed = """
from lsqindex._storage.lmdb import files
files._sync_directory = lambda path: os.kill(os.getpid(), 9)
Index.create(sys.argv[1], 2)
"""
    with pytest.raises(AssertionError):
        run(killed, path)
    assert path.stat().st_nlink == 2
    with Index.open(path) as index:
        index.add([[1, 1]])
    assert path.stat().st_nlink == 1


@needs_links
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_file_that_is_renamed_or_removed_while_it_is_open(path: Path, tmp_path: Path, commits: int) -> None:
    """As docs/durability.md says; what others do to the file under its new name is not taken for damage."""
    other = tmp_path / "other.lsq"
    run(
        """
import subprocess
path, other, commits = *sys.argv[1:3], sys.argv[3]
index = Index.open(path)
index.add([[10, 0]], [10])
os.rename(path, other)
assert index.search([3, 0], k=1).ids.tolist() == [3]
program = "import sys; from lsqindex import Index; index = Index.open(sys.argv[1])\\n" \
    "for number in range(int(sys.argv[2])): index.add([[20, 0]], [20 + number])"
assert subprocess.call([sys.executable, "-c", program, other, commits]) == 0
try:
    index.search([3, 0], k=1)
    raise AssertionError("nobody protects this reader")
except StorageError as error:
    assert "another name" in str(error), error
try:
    index.add([[30, 0]], [30])
    raise AssertionError("written")
except StorageError as error:
    assert "names" in str(error), error
except IndexMissingError:
    pass
index.close()
with Index.open(other) as index:
    os.unlink(other)
    assert index.search([3, 0], k=1).ids.tolist() == [3] and len(index) == 11 + int(commits)
    try:
        index.delete([1])
        raise AssertionError("written")
    except IndexMissingError:
        pass
""",
        path,
        other,
        commits,
    )


# -- the end of the interpreter -------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("where", ["builtins", "last import"])
def test_the_interpreter_ends_in_silence(path: Path, where: str, closed: bool) -> None:
    """Something may keep an index until nearly all modules are gone, as extension modules do."""
    keep = {
        "builtins": "import builtins; builtins.kept = kept",
        "last import": "import types; sys.modules['zzz'] = types.ModuleType('zzz'); sys.modules['zzz'].kept = kept",
    }[where]
    run(
        f"""
memory = Index(2)
memory.add([[1, 2]])
found = memory.search([1, 2])
file = Index.open(sys.argv[1])
batch = file.batch()
kept = [memory, memory._env, file, file._env, batch]
{keep}
if {closed}:
    memory.close()
    file.close()
del memory, file, batch, kept
# Modules whose names are taken away early, as happens when others hold references to them.
import lsqindex._storage.lmdb.env, lsqindex._storage.lmdb.registry, lsqindex.index
for module in (lsqindex._storage.lmdb.env, lsqindex._storage.lmdb.registry, lsqindex.index):
    for name in ("os", "contextlib", "threading", "lock", "registry", "close_env", "check_outside"):
        if hasattr(module, name):
            setattr(module, name, None)
""",
        path,
    )
