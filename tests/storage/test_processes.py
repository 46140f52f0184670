"""Several processes and threads on one index: readers beside a writer, writers in turn, growth, replacement, forks.

All of it happens in processes of its own (tests/crash/child.py), which are told step by step what to do, so that
a crash or a deadlock is a failed test and not the end of all tests. Steps are ordered by what processes say, never
by the clock; where one must *not* go on, a short look can only miss a fault, not invent one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lsqindex
from lsqindex import Index
from lsqindex._storage.lmdb import reader as readers
from lsqindex.errors import BusyError, DamagedError, ForkedError, ParameterError

LONG = os.environ.get("LSQINDEX_LONG") == "1"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

#: A process that says nothing for so long hangs.
PATIENCE = 120

PRELUDE = """
import collections, gc, multiprocessing, os, pickle, resource, signal, sys, threading, time
import numpy as np
import lsqindex, lsqindex._write.add, lsqindex._storage.lmdb.engine, lsqindex._storage.rewrite
from lsqindex import Index
from lsqindex.errors import *
rng = np.random.default_rng(os.getpid())
"""


class FailedError(Exception):
    """An exception in the process: its name and message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Child:
    """A process that does what it is told."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[1] / "crash" / "child.py")],
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": str(Path(lsqindex.__file__).parents[1]),
                "PYTHONFAULTHANDLER": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.run(PRELUDE)

    def start(self, code: str, **values: Any) -> None:
        """Send statements; ``answer`` waits for what they give."""
        request = {"code": textwrap.dedent(code), "values": {name: _plain(value) for name, value in values.items()}}
        self._send(json.dumps(request))

    def go_on(self) -> None:
        """What ``hear`` in the process waits for."""
        self._send("")

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing came yet: the process is at work, or waits."""
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], seconds)[0]

    def answer(self) -> Any:
        """The next thing it says."""
        if self.is_silent(PATIENCE):
            self._process.send_signal(signal.SIGABRT)  # it writes where it is to stderr
            self._process.wait()
            pytest.fail("the process hangs")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the process died: {self._process.wait()}")
        said = json.loads(line)
        if "error" in said:
            raise FailedError(said["error"], said["message"])
        return said.get("value", said.get("told"))

    def run(self, code: str, **values: Any) -> Any:
        self.start(code, **values)
        return self.answer()

    def fails(self, code: str, **values: Any) -> str:
        """The name of the exception that statements end in."""
        with pytest.raises(FailedError) as caught:
            self.run(code, **values)
        return caught.value.name

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # it ends by itself, unless it waits for a lock
        self.kill()
        self._process.stdout.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        data = memoryview(line.encode() + b"\n")
        while data:
            data = data[self._process.stdin.write(data) :]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


@pytest.fixture
def child() -> Iterator[Callable[[], Child]]:
    with contextlib.ExitStack() as stack:

        def make() -> Child:
            made = Child()
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index of dimension 2 that never trains itself, with vectors (0, 0) to (9, 0)."""
    file = tmp_path / "index.lsq"
    with Index.create(file, 2, train_size=1 << 40, keep_vectors=None) as index:
        index.add(np.stack([np.arange(10), np.zeros(10)], axis=1))
    return file


OPEN = "index = Index.open(path)"


def sound(path: Path, ids: Any) -> None:
    """The index holds these ids, and nothing is wrong with it."""
    with Index.open(path, read_only=True) as index:
        assert index.check() == []
        assert index.ids().tolist() == sorted(ids)


# -- readers beside a writer --------------------------------------------------------------------------


@pytest.mark.parametrize("compacting", [False, True])
def test_each_search_sees_one_committed_state(child: Callable[[], Child], tmp_path: Path, compacting: bool) -> None:
    path, stop = tmp_path / "index.lsq", tmp_path / "stop"
    writer, readers = child(), [child() for _ in range(3)]
    # All vectors are (version, 0), replaced in one transaction: two distances in one answer are a mixed state.
    writer.run(
        """
        index = Index.create(path, 2, train_size=1 << 40)
        index.add(np.zeros((50, 2)), np.arange(50))
        """,
        path=path,
    )
    writer.start(
        """
        version = 0
        while not os.path.exists(stop):
            version += 1
            vectors = np.tile([version, 0.0], (50, 1))
            if version % 2:
                index.add(vectors, np.arange(50), upsert=True)
            else:
                with index.batch() as batch:
                    batch.delete(np.arange(25))
                    batch.add(vectors[25:], np.arange(25, 50), upsert=True)
                    batch.add(vectors[:25], np.arange(25))
            if compacting and version % 7 == 0:
                index.compact()
        result = version
        """,
        stop=stop,
        compacting=compacting,
    )
    for reader in readers:
        reader.start(
            """
            index = Index.open(path, read_only=True)
            seen = [0]
            for number in range(rounds):
                if number % 2:
                    hits = index.search([0.0, 0.0], k=60)
                    found, ids = np.sqrt(hits.distances[:50]), hits.ids
                    assert ids[:50].tolist() == list(range(50)) and (ids[50:] == -1).all(), ids
                else:
                    found = index.get(np.arange(50))[:, 0]
                assert len(set(found.tolist())) == 1, found
                assert found[0] >= seen[-1], (found[0], seen[-1])
                seen.append(float(found[0]))
            result = len(set(seen))
            """,
            path=path,
            rounds=2000 if LONG else 300,
        )
    states = [reader.answer() for reader in readers]
    stop.touch()
    assert writer.answer() > 0
    assert max(states) > 2, "the readers saw no change"
    sound(path, range(50))


class Overtaken:
    """A transaction as LMDB gives it when two commits came while it began: their pages, and the number from before."""

    def __init__(self, txn: Any) -> None:
        self._txn = txn

    def id(self) -> int:
        return int(self._txn.id()) - 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


@pytest.mark.parametrize("times", [1, 5, 10**9])
def test_a_reader_that_two_commits_overtake_takes_another_snapshot(
    times: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    reader = readers.Reader

    def overtaken(own: Any, file: Any, place: Any) -> readers.Reader:
        begun.append(1)
        late: Any = SimpleNamespace(txn=Overtaken(place.txn), share=place.share)
        return reader(own, file, late if len(begun) <= times else place)

    with Index.open(path) as index:
        index.add([[1.0, 1.0]], [100])
        monkeypatch.setattr(readers, "Reader", overtaken)
        if times < 10:
            assert 100 in index
            assert len(begun) > times
        else:  # it is damage after all
            with pytest.raises(DamagedError, match="transaction"):
                index.search([1, 1], k=1)


def test_readers_follow_a_map_that_another_process_grows(child: Callable[[], Child], path: Path) -> None:
    reader, writer, third = child(), child(), child()
    small = "lsqindex._storage.lmdb.engine.INITIAL_MAP = 1 << 17\n"
    for one in (reader, writer, third):
        one.run(small + OPEN, path=path)
    for round in range(1, 5):
        first = 1000 * round**2
        writer.run("index.add(np.full((len(ids), 2), 7.0), ids)", ids=list(range(first, first + 2000 * round)))
        assert reader.run("result = len(index), len(index.search([7, 0], k=5).ids), index.check()")[2] == []
        # The third one has the old map as well, and writes into the new one.
        third.run("index.add([[1.0, 1.0]], [one])", one=100 + round)
        assert reader.run("result = one in index, int(index.search([1, 1], k=1).ids[0])", one=100 + round) == [
            True,
            101,
        ]
    with Index.open(path) as index:
        assert index.check() == []
        assert {*range(10), *range(101, 105)} <= set(index.ids().tolist())
        assert path.stat().st_size > 1 << 17


def test_two_processes_grow_the_map_in_turn(child: Callable[[], Child], path: Path) -> None:
    pair = [child(), child()]
    for one in pair:
        one.run("lsqindex._storage.lmdb.engine.INITIAL_MAP = 1 << 17\n" + OPEN, path=path)
    for turn in range(8):
        first = 100 + 1000 * turn
        grown = pair[turn % 2].run(
            """
            index.add(np.full((1000, 2), first), np.arange(first, first + 1000))
            result = index._env.moved
            """,
            first=first,
        )
    assert grown > 1, "the map never moved"
    sound(path, [*range(10), *range(100, 8100)])


# -- posting lists ----------------------------------------------------------------------------------------

LISTED = """
def vectors(n, seed):
    return np.random.default_rng(seed).standard_normal((n, 4)).astype(np.float32)

def agree():
    # Where all buckets are looked into, a subset search is a scan.
    near = index.search(vectors(2, 9), 20, probes=1 << 17, candidates=10**6)
    scanned = index.search(vectors(2, 9), 20, strategy="scan")
    assert (near.ids == scanned.ids).all() and (near.distances == scanned.distances).all()
    return [index.stats()[name] for name in ("vectors", "listed", "fresh")]
"""


def test_readers_see_the_lists_of_one_committed_state(child: Callable[[], Child], tmp_path: Path) -> None:
    path, writer, reader = tmp_path / "index.lsq", child(), child()
    writer.run(
        LISTED
        + """
from lsqindex import MultiIndex
index = Index.create(path, 4, encoder="lsh", bits=16, subset=MultiIndex(bits=8), keep_vectors=None)
index.train(vectors(50, 0))
index.add(vectors(16_000, 1))
""",
        path=path,
    )
    reader.run(LISTED + "index = Index.open(path, read_only=True)", path=path)
    assert reader.run("result = agree()") == [16_000, 0, 16_000]
    steps = {
        "index.add(vectors(300, 2))": [16_300, 16_256, 44],
        "index.merge()": [16_300, 16_300, 0],
        "index.delete(range(4064))": [12_236, 12_236, 0],
        "index.add(vectors(60_000, 3))": [72_236, 60_960, 11_276],
        "index.set_subset(MultiIndex(bits=16))": [72_236, 72_236, 0],
        "index.compact()": [72_236, 72_236, 0],
        "index.set_subset(None); index.set_subset(MultiIndex(bits=4))": [72_236, 72_236, 0],
    }
    for step, wanted in steps.items():
        writer.run(step)
        assert reader.run("result = agree()") == wanted, step
        assert reader.run("result = index.check()") == []
    # A snapshot that is being read stays as it is, whatever is listed meanwhile.
    reader.start(
        """
        with index._reader() as snapshot:
            from lsqindex._subsets.multi_index import lists
            before = [(key, bytes(value)) for key, value in lists.entries(snapshot)]
            tell(len(before))
            hear()
            result = before == [(key, bytes(value)) for key, value in lists.entries(snapshot)]
        """
    )
    assert reader.answer() > 0
    writer.run(
        "index.add(vectors(20_000, 4)); index.set_subset(MultiIndex(bits=12)); index.delete(range(9000, 20_000))"
    )
    reader.go_on()
    assert reader.answer() is True
    assert reader.run("result = agree()[0], index.check()") == [72_236 + 20_000 - 11_000, []]


@pytest.mark.parametrize("name", ["format1-trained.lsq", "format1-untrained.lsq", "format2-tables.lsq"])
def test_a_file_that_another_process_brings_to_a_newer_format(
    child: Callable[[], Child], tmp_path: Path, name: str
) -> None:
    """Who has it open reads on, a snapshot from before, too; and writes, without a second upgrade."""
    path = tmp_path / name
    shutil.copyfile(Path(__file__).parents[1] / "fixtures" / name, path)
    writer, reader, snapshot = child(), child(), child()
    for one in (writer, reader, snapshot):
        one.run("index = Index.open(path)\nvectors = lambda n: np.ones((n, index.dim))", path=path)
    count = reader.run("result = len(index)")
    reader.run("with index.batch(): pass")  # open for writing, and nothing written
    snapshot.start(
        """
        with index._reader() as held:
            tell(held.state.format)
            hear()
            from lsqindex._storage.store import Store
            living = len(Store(held, index._options).living())
            result = held.state.format, sorted(name.decode() for name in held.dbs), living
        """
    )
    number = int(name[len("format")])
    assert snapshot.answer() == number
    assert writer.run("index.delete(index.ids()[:1]); result = index.stats()['format']") == 4
    snapshot.go_on()
    databases = ["codes", "ids", "meta", *["postings"] * (number > 1), "vectors"]
    assert snapshot.answer() == [number, databases, count]
    for one in (snapshot, reader):
        assert one.run("result = index.stats()['format'], len(index), index.check()") == [4, count - 1, []]
        assert one.run("result = len(index.search(vectors(1), 3).ids[0])") == 3
    # A writer that had it open before, and one after another.
    for one in (reader, snapshot, writer):
        one.run("index.delete(index.ids()[:1])")
    if number == 1:
        reader.run("index.set_subset('multi-index')")
    # Payloads begin in one process, and are there in the others.
    reader.run("index.set_payloads(index.ids()[:2], [{'lang': 'en'}, {}])")
    for one in (snapshot, writer):
        told = one.run("result = index.payloads(index.ids()[:3]), len(index.ids({'lang': 'en'})), index.check()")
        assert told == [[{"lang": "en"}, {}, None], 1, []]
    assert writer.run("result = index.check(), len(index), index.subset is not None") == [[], count - 4, True]


# -- a full map -----------------------------------------------------------------------------------------

GROWTH = """
def watch(frame, event, argument):
    # Who finds the map full: a put (run), or the commit? Or was it grown before (begin)?
    if event == "call" and frame.f_code.co_name in ("_replay", "grow"):
        callers[frame.f_back.f_code.co_name] += 1

callers = collections.Counter()
complaints = []
for pages in range(first, first + sizes):
    lsqindex._storage.lmdb.engine.INITIAL_MAP = 4096 * pages
    path = os.path.join(directory, f"{pages}.lsq")
    index = Index.create(path, 4, train_size=train_size, encoder="lsh", bits=32, keep_vectors="float32")
    model = {}

    def vectors(ids, version):
        model.update((int(id), version) for id in ids)
        return np.stack([np.full(len(ids), version), ids, np.zeros(len(ids)), np.ones(len(ids))], axis=1)

    sys.setprofile(watch)
    try:
        change(index, model, vectors)
    except BaseException as error:
        complaints.append((pages, repr(error)))
        raise
    finally:
        sys.setprofile(None)
    ids = np.array(sorted(model))
    right = index.ids().tolist() == ids.tolist() and (index.get(ids)[:, 0] == [model[int(id)] for id in ids]).all()
    if index.check() or not right:
        complaints.append((pages, index.check(), len(index), len(model)))
    index.close()
    with Index.open(path) as index:
        if index.check() or index.ids().tolist() != ids.tolist():
            complaints.append((pages, index.check(), "after opening it again"))
    os.unlink(path)
result = dict(callers), complaints
"""

CHANGES = {
    "adds": """
def change(index, model, vectors):
    for version in range(12):
        ids = np.arange(300 * version, 300 * version + 400)
        index.add(vectors(ids, version), ids, upsert=True)
""",
    "a batch": """
def change(index, model, vectors):
    index.add(vectors(np.arange(50), 1), np.arange(50))
    with index.batch() as batch:
        for version in range(2, 14):
            ids = np.arange(100 * version, 100 * version + 150)
            batch.add(vectors(ids, version), ids, upsert=True)
            gone = rng.choice(ids, 20, replace=False)
            batch.delete(gone)
            for id in gone.tolist():
                del model[id]
            try:
                batch.add(np.zeros((1, 4)), [int(ids[0]) if int(ids[0]) in model else int(min(model))])
            except DuplicateIdError:
                pass  # the batch goes on without it, in a replay too
""",
    "deletes and compact": """
def change(index, model, vectors):
    index.add(vectors(np.arange(5000), 1), np.arange(5000))
    for first in range(0, 5000, 1000):
        gone = np.arange(first, first + 900)
        index.delete(gone)
        for id in gone.tolist():
            del model[id]
    index.compact()
    index.add(vectors(np.arange(6000, 7000), 2), np.arange(6000, 7000))
""",
    "a large add": """
def change(index, model, vectors):
    lsqindex._write.add.COMMIT_BYTES = lsqindex._storage.rewrite.COMMIT_BYTES = 50_000
    index.add(vectors(np.arange(50), 1), np.arange(50))
    ids = np.arange(40, 9000)
    index.add(vectors(ids, 2), ids, upsert=True)
""",
    "training by a large add": """
def change(index, model, vectors):
    lsqindex._write.add.COMMIT_BYTES = lsqindex._storage.rewrite.COMMIT_BYTES = 20_000
    index.add(vectors(np.arange(500), 1), np.arange(500))
    ids = np.arange(500, 4000)
    index.add(vectors(ids, 2), ids)
    index.reencode("lsh", bits=64)
""",
    "save over itself": """
def change(index, model, vectors):
    index.add(vectors(np.arange(3000), 1), np.arange(3000))
    other = Index.open(index.path)
    memory = Index(4, train_size=1 << 40)
    index.save(index.path + ".copy")
    for _ in range(3):
        index.save(index.path + ".copy")
    with Index.open(index.path + ".copy") as copy:
        assert copy.check() == [] and len(copy) == 3000
    os.unlink(index.path + ".copy")
    other.close()
""",
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_lost_when_the_map_is_full(child: Callable[[], Child], tmp_path: Path, change: str) -> None:
    # One page more each time: the map is full at any put, and at commit.
    training = 600 if change == "training by a large add" else 1 << 40
    values = {"directory": tmp_path, "first": 14, "sizes": 80 if LONG else 16, "train_size": training}
    callers, complaints = child().run(CHANGES[change] + GROWTH, **values)
    assert complaints == []
    assert callers, "the map was never full"


def test_the_map_is_full_at_commit(child: Callable[[], Child], tmp_path: Path) -> None:
    values = {"directory": tmp_path, "first": 14, "sizes": 100, "train_size": 1 << 40}
    program = """
def change(index, model, vectors):
    for version in range(6):
        index.add(vectors(np.arange(40), version), np.arange(40), upsert=True)
"""
    callers, complaints = child().run(program + GROWTH, **values)
    assert complaints == []
    assert callers.get("commit"), "no map size made a commit fail: the test has lost its point"


# -- writers in turn ------------------------------------------------------------------------------------

HOLD = """
index = Index.open(path)
with index.batch() as batch:
    batch.add([[1.0, 1.0]], [100])
    tell()
    hear()
"""


def test_a_second_writer_waits_or_is_told(child: Callable[[], Child], path: Path) -> None:
    holder, patient, hurried, timed = child(), child(), child(), child()
    holder.run(HOLD, path=path)
    patient.start(OPEN + "\nindex.add([[2.0, 2.0]], [200])", path=path)
    for one, wait in ((hurried, False), (timed, 0.2)):
        one.run("index = Index.open(path, wait=wait)", path=path, wait=wait)
        for change in ("index.add([[0, 1]])", "index.delete([1])", "index.compact()", "index.batch().__enter__()"):
            assert one.fails(change) == "BusyError"
        # Reading goes on meanwhile, and the busy one is unharmed.
        assert one.run("result = len(index)") == 10
    assert patient.is_silent()
    holder.go_on()
    holder.answer()
    patient.answer()
    hurried.run("index.add([[3, 3]], [300])")
    timed.run("index.add([[4, 4]], [400])")
    sound(path, [*range(10), 100, 200, 300, 400])


def test_waiting_may_take_for_ever(child: Callable[[], Child], path: Path) -> None:
    assert (
        child().run("with Index.open(path, wait=wait) as index: result = int(index.delete([3]))", path=path, wait=1e300)
        == 1
    )


def test_threads_queue_as_processes_do(path: Path) -> None:
    with Index.open(path) as index, Index.open(path, wait=False) as hurried, index.batch() as batch:
        batch.add([[1.0, 1.0]], [100])
        with pytest.raises(BusyError):
            hurried.add([[2.0, 2.0]])
        with pytest.raises(BusyError):
            index.add([[2.0, 2.0]])
    sound(path, [*range(10), 100])


def test_a_killed_writer_frees_the_lock_and_leaves_nothing(child: Callable[[], Child], path: Path) -> None:
    holder, other, waiting = child(), child(), child()
    other.run("index = Index.open(path, wait=False)", path=path)
    holder.run(HOLD, path=path)
    waiting.start(OPEN + "\nindex.add([[2.0, 2.0]], [200])", path=path)
    assert other.fails("index.delete([1])") == "BusyError"
    assert waiting.is_silent()
    holder.kill()
    waiting.answer()
    other.run("index.add([[3, 3]], [300])")
    sound(path, [*range(10), 200, 300])


# -- a file that is replaced ------------------------------------------------------------------------------

COMPACT = """
index = Index.open(path)
def progress(done, total):
    tell()
    hear()
index.compact(progress=progress)
"""


def test_readers_and_waiting_writers_follow_a_compacted_file(child: Callable[[], Child], path: Path) -> None:
    compacting, reader, waiting, timed = child(), child(), child(), child()
    reader.run("index = Index.open(path, read_only=True)", path=path)
    timed.run("index = Index.open(path, wait=600)", path=path)
    before = path.stat().st_ino
    compacting.run(COMPACT, path=path)
    waiting.start(OPEN + "\nindex.add([[20, 0]], [20])", path=path)
    timed.start("index.add([[21, 0]], [21])", path=path)
    assert waiting.is_silent() and timed.is_silent(0.01)
    assert reader.run("result = index.search([3, 0], k=1).ids.tolist()") == [3]
    compacting.go_on()
    compacting.answer()
    waiting.answer()
    timed.answer()
    assert path.stat().st_ino != before
    # Whoever had the old file writes to the new one, and everyone sees it.
    compacting.run("index.add([[22, 0]], [22])")
    reader.run("assert index.ids().tolist() == [*range(10), 20, 21, 22], index.ids()")
    timed.run("index.compact()")
    waiting.run("assert index.delete([20, 21]) == 2; assert len(index) == 11 and index.check() == []")
    assert reader.run("result = index.check(), len(index)") == [[], 11]
    sound(path, [*range(10), 22])


@pytest.mark.parametrize("event", ["the file is replaced", "a fork"])
def test_who_only_reads_never_waits_for_a_writer(child: Callable[[], Child], path: Path, event: str) -> None:
    """Not even one who has written before, and has to open the file again while another is writing."""
    if event == "a fork" and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    reader, writer = child(), child()
    reader.run(OPEN + "\nindex.add([[10, 0]], [10])", path=path)
    writer.run(OPEN, path=path)
    if event == "the file is replaced":
        writer.run("index.compact()")
    writer.run(HOLD.replace("index = Index.open(path)", ""))
    if event == "a fork":
        assert reader.run(FORK + "\nresult = forked(lambda: 0 if len(index) == 11 else 1)") == 0
    look = "result = index.search([10, 0], k=1).ids.tolist(), len(index), index.check()"
    assert reader.run(look) == [[10], 11, []]
    newcomer = child()
    assert newcomer.run(OPEN + "\n" + look, path=path) == [[10], 11, []]
    writer.go_on()
    writer.answer()
    assert reader.run("result = 100 in index") is True


def test_a_waiting_thread_has_the_lock_of_the_new_file(child: Callable[[], Child], path: Path) -> None:
    """Another thread of the waiting process follows to the new file first, and may not take the lock away."""
    for wait in ("True", "600.0"):
        compacting, threads, third = child(), child(), child()
        compacting.run(COMPACT, path=path)
        threads.start(
            f"""
            index = Index.open(path, wait={wait})
            stop, failed = threading.Event(), []
            def search():
                while not stop.is_set():
                    index.search([1, 0], k=1)
            searching = threading.Thread(target=search)
            searching.start()
            tell()
            try:
                with index.batch() as batch:
                    tell()
                    hear()
                    batch.add([[30, 0]], [30], upsert=True)
            finally:
                stop.set()
                searching.join()
            """,
            path=path,
        )
        threads.answer()
        assert threads.is_silent()
        compacting.go_on()
        compacting.answer()
        threads.answer()
        assert third.fails("index = Index.open(path, wait=False)\nindex.delete([1])", path=path) == "BusyError"
        threads.go_on()
        threads.answer()
        sound(path, [*range(10), 30])


def test_writes_and_compactions_of_many_processes_lose_nothing(child: Callable[[], Child], path: Path) -> None:
    workers = [child() for _ in range(3)]
    rounds = 60 if LONG else 12
    for number, worker in enumerate(workers):
        worker.start(
            """
            lsqindex._storage.lmdb.engine.INITIAL_MAP = 1 << 17
            index = Index.open(path)
            for round in range(rounds):
                first = 1000 + 100 * (rounds * number + round)
                index.add(np.full((60, 2), first), np.arange(first, first + 60))
                index.delete(np.arange(first, first + 20))
                if round % 3 == number:
                    index.compact()
                assert first + 30 in index and first not in index
            """,
            path=path,
            number=number,
            rounds=rounds,
        )
    for worker in workers:
        worker.answer()
    starts = range(1000, 1000 + 300 * rounds, 100)
    sound(path, [*range(10), *(start + place for start in starts for place in range(20, 60))])


def test_save_over_a_file_that_others_have_open(child: Callable[[], Child], path: Path, tmp_path: Path) -> None:
    saver, reader, writer, stranger = child(), child(), child(), child()
    target = tmp_path / "copy.lsq"
    saver.run(OPEN + "\nindex.save(target)", path=path, target=target)
    reader.run("index = Index.open(target, read_only=True)\nassert len(index) == 10", target=target)
    writer.run("index = Index.open(target)\nindex.add([[50, 0]], [50])", target=target)
    saver.run("index.add([[60, 0]], [60])\nindex.save(target)", target=target)
    # A copy of itself takes the place: everyone goes on with what is there now.
    assert reader.run("result = index.ids().tolist()") == [*range(10), 60]
    writer.run("index.add([[70, 0]], [70])")
    assert reader.run("result = index.ids().tolist(), index.check()") == [[*range(10), 60, 70], []]
    # Another index takes the place: those who had the old one are told, not misled.
    stranger.run("other = Index(3)\nother.add(np.ones((5, 3)))\nother.save(target)", target=target)
    assert reader.fails("index.search([1, 0])") == "ReplacedError"
    assert writer.fails("index.add([[1, 0]])") == "ReplacedError"
    assert reader.run("with Index.open(target) as new: result = len(new), new.dim, new.check()", target=target) == [
        5,
        3,
        [],
    ]
    sound(path, [*range(10), 60])


def test_save_waits_for_the_writer_of_its_target(child: Callable[[], Child], path: Path, tmp_path: Path) -> None:
    holder, saver, hurried = child(), child(), child()
    target = tmp_path / "copy.lsq"
    shutil.copy(path, target)
    holder.run(HOLD, path=target)
    assert hurried.fails("Index.open(path, wait=False).save(target)", path=path, target=target) == "BusyError"
    saver.start("Index.open(path).save(target)", path=path, target=target)
    assert saver.is_silent()
    holder.go_on()
    holder.answer()
    saver.answer()
    sound(target, range(10))


@needs_linux
def test_a_file_that_is_moved_away_during_a_batch_is_no_trap(
    child: Callable[[], Child], path: Path, tmp_path: Path
) -> None:
    """Someone restores a backup by hand: the batch fails or is in the file that is there, and nothing hangs."""
    one, backup = child(), tmp_path / "backup.lsq"
    shutil.copy(path, backup)
    one.run(
        """
        index = Index.open(path)
        try:
            with index.batch() as batch:
                batch.add([[1, 1]], [100])
                os.replace(backup, path)
                batch.add([[1, 1]], [101])
            committed = True
        except LsqIndexError:
            committed = False
        assert (100 in index, 101 in index) == (committed, committed), index.ids()
        index.add([[1, 1]], [102])
        assert 102 in index and index.check() == []
        """,
        path=path,
        backup=backup,
    )


# -- fork, spawn, pickle --------------------------------------------------------------------------------

FORK = """
def forked(work):
    # How `work` ended in a forked child: what it returned, 9 after an exception.
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@needs_fork
def test_a_forked_child_searches_and_writes_by_itself(child: Callable[[], Child], path: Path) -> None:
    child().run(
        FORK
        + """
index = Index.open(path)
index.add([[10, 0]], [10])
opened = index._env.file.lmdb

def work():
    assert index.search([10, 0], k=1).ids.tolist() == [10]
    assert index._env.file.lmdb is not opened
    index.add([[11, 0]], [11])
    with index.batch() as batch:
        batch.add([[12, 0]], [12])
        batch.delete([0])
    index.compact()
    index.add([[13, 0]], [13])
    assert len(index) == 13 and index.check() == []

for round in range(5):
    assert forked(work) == 0
    # The parent is unharmed, follows to the compacted file, and writes on.
    assert index.ids().tolist() == [*range(1, 14)], index.ids()
    index.delete([11, 12, 13])
    index.add([[0, 0]], [0])
    assert index.check() == []
""",
        path=path,
    )
    sound(path, range(11))


@needs_fork
@pytest.mark.parametrize("how", ["ends at once", "leaves the batch by an exception"])
def test_a_fork_inside_a_batch_leaves_the_batch_to_the_parent(child: Callable[[], Child], path: Path, how: str) -> None:
    child().run(
        """
        index = Index.open(path, wait=0.1)
        parent = os.getpid()

        def work(batch):
            for use in (lambda: batch.add([[1, 1]]), lambda: batch.delete([1])):
                try:
                    use()
                    return 1
                except (ForkedError, ClosedError):
                    pass
            try:
                assert index.ids().tolist() == list(range(10))  # the committed state
            except ForkedError:
                pass  # the parent is in the index, and the child cannot be
            try:
                index.delete([1])  # the parent is writing: the child may not
                return 2
            except (BusyError, ForkedError):
                return 0

        try:
            with index.batch() as batch:
                batch.add([[10, 0]], [10])
                pid = os.fork()
                if pid == 0:
                    if how == "ends at once":
                        os._exit(work(batch))
                    raise KeyboardInterrupt
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                batch.add([[11, 0]], [11])
        except BaseException:
            if os.getpid() == parent:
                raise
            code = 9
            try:
                gc.collect()
                code = work(batch)
            finally:
                os._exit(code)
        assert index.check() == [] and index.ids().tolist() == list(range(12))
        """,
        path=path,
        how=how,
    )
    sound(path, range(12))


@needs_fork
def test_a_fork_during_other_threads_work(child: Callable[[], Child], path: Path) -> None:
    child().run(
        FORK
        + """
index = Index.open(path)
stop, failed = threading.Event(), []

def searching():
    while not stop.is_set():
        if not {3, 4} <= set(index.search([3, 0], k=3).ids.tolist()):
            failed.append("search")

def adding():
    number = 100
    while not stop.is_set():
        number += 1
        index.add([[number, 0]], [number])
        index.delete([number])

threads = [threading.Thread(target=target) for target in (searching, searching, adding)]
for thread in threads:
    thread.start()

def work():
    try:
        assert index.search([5, 0], k=1).ids.tolist() == [5]
        index.add([[50, 0]], [50])
        assert index.delete([50]) == 1
        assert index.check() == []
    except ForkedError:
        return 1  # a thread of the parent was in the index at that moment

codes = [forked(work) for _ in range(rounds)]
stop.set()
for thread in threads:
    thread.join()
assert not failed and set(codes) <= {0, 1}, (failed, codes)
assert index.check() == []
# And when nobody is in it, the child can.
assert forked(work) == 0
""",
        path=path,
        rounds=100 if LONG else 20,
    )
    sound(path, range(10))


@needs_fork
def test_an_index_in_memory_stays_with_its_process(child: Callable[[], Child]) -> None:
    child().run(
        FORK
        + """
index = Index(2)
index.add(np.arange(20).reshape(10, 2))

def work():
    uses = (lambda: index.search([0, 1]), lambda: index.add([[1, 1]]), lambda: index.delete([1]), lambda: len(index),
            lambda: index.get([1]), lambda: index.ids(), lambda: index.check(), lambda: index.batch().__enter__())
    for number, use in enumerate(uses):
        try:
            use()
            return 10 + number
        except ForkedError:
            pass
    index.close()
    return 0

code = forked(work)
assert code == 0, code
assert index.search([0, 1], k=1).ids.tolist() == [0] and index.check() == [] and len(index) == 10
index.add([[5, 5]])
"""
    )


@needs_fork
def test_a_forked_child_does_not_take_another_index_for_its_own(child: Callable[[], Child], path: Path) -> None:
    assert (
        child().run(
            FORK
            + """
index = Index.open(path)
os.unlink(path)
Index.create(path, 3).close()

def work():
    try:
        index.search([1, 0])
        return 1
    except StorageError:
        return 0

result = forked(work)
""",
            path=path,
        )
        == 0
    )


@pytest.mark.parametrize("method", ["spawn", *(["fork"] if hasattr(os, "fork") else [])])
def test_an_index_may_be_passed_to_workers(path: Path, method: str, tmp_path: Path) -> None:
    program = f"""
import multiprocessing, sys
import numpy as np
from lsqindex import Index

def work(index, number):
    assert index.search([number, 0], k=1).ids.tolist() == [number]
    index.add([[number, 5]], [100 + number])
    return len(index)

if __name__ == "__main__":
    index = Index.open(sys.argv[1])
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        pool.starmap(work, [(index, number) for number in range(10)])
    assert index.ids().tolist() == [*range(10), *range(100, 110)] and index.check() == []
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(lsqindex.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    sound(path, [*range(10), *range(100, 110)])


def test_pickling_keeps_path_and_mode_and_refuses_memory(child: Callable[[], Child], path: Path) -> None:
    child().run(
        """
        with Index.open(path, read_only=True, wait=0.5) as index, pickle.loads(pickle.dumps(index)) as again:
            assert again.ids().tolist() == list(range(10))
            try:
                again.add([[1, 1]])
                raise AssertionError("read-only was forgotten")
            except ReadOnlyError:
                pass
        for made, expected in ((Index(2), ParameterError), (index, ClosedError)):
            try:
                pickle.dumps(made)
                raise AssertionError("pickled")
            except expected:
                pass
        """,
        path=path,
    )


def test_a_relative_path_keeps_its_meaning(child: Callable[[], Child], tmp_path: Path) -> None:
    one = child()
    one.run(
        """
        os.chdir(directory)
        index = Index.create("index.lsq", 2)
        index.add([[1, 0]])
        os.mkdir("below")
        os.chdir("below")
        index.save("index.lsq")
        with Index.open("index.lsq") as copy:
            copy.add([[2, 0]])
            assert len(copy) == 2 and len(index) == 1
        os.unlink("index.lsq")
        with pickle.loads(pickle.dumps(index)) as again:
            assert len(again) == 1
        """,
        directory=tmp_path,
    )
    if hasattr(os, "fork"):
        assert one.run(FORK + "\nresult = forked(lambda: 0 if len(index) == 1 else 1)") == 0


# -- threads ----------------------------------------------------------------------------------------------

THREADS = """
lsqindex._storage.lmdb.engine.INITIAL_MAP = 1 << 16
index = Index.open(path)
stop, failed = threading.Event(), []

def guarded(work):
    def run():
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failed.append(repr(error))
            stop.set()
    return run

def searching():
    hits = index.search([[3, 0], [7, 0]], k=1)
    assert hits.ids.tolist() == [[3], [7]] and (hits.distances == 0).all(), hits
    kept.append((hits, index.get(np.arange(10))))

kept = collections.deque(maxlen=50)
threads = [threading.Thread(target=guarded(searching)) for _ in range(6)]
"""


def test_many_threads_search_while_one_adds_grows_and_compacts(child: Callable[[], Child], path: Path) -> None:
    moved = child().run(
        THREADS
        + """
for thread in threads:
    thread.start()
for round in range(rounds):
    first = 1000 * (round + 1)
    index.add(np.full((300, 2), first), np.arange(first, first + 300))
    if round % 3 == 1:
        index.delete(np.arange(first, first + 300))
        index.compact()
    if round % 5 == 2:
        assert index.check() == []
    if stop.is_set():
        break
stop.set()
for thread in threads:
    thread.join()
assert not failed, failed
result = index._env.moved
# What was found is still there after growth, compactions, and the end.
index.close()
for hits, vectors in kept:
    assert hits.ids.tolist() == [[3], [7]] and (vectors[:, 0] == np.arange(10)).all()
""",
        path=path,
        rounds=100 if LONG else 20,
    )
    assert moved > 4, "the map never moved"


def test_threads_that_write_queue_up(child: Callable[[], Child], path: Path) -> None:
    child().run(
        """
        lsqindex._storage.lmdb.engine.INITIAL_MAP = 1 << 16
        indexes = [Index.open(path) for _ in range(4)]
        failed, taken = [], []

        def work(index, number):
            try:
                for round in range(15):
                    taken.extend(index.add(np.full((7, 2), number)).tolist())
                    with index.batch() as batch:
                        taken.extend(batch.add(np.full((3, 2), number)).tolist())
                    if round == 5 * number:
                        index.compact()
            except BaseException as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=work, args=(index, number)) for number, index in enumerate(indexes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert sorted(taken) == list(range(10, 610)), "ids were given twice, or not at all"
        """,
        path=path,
    )
    sound(path, range(610))


def test_close_while_others_work_is_a_closed_error(child: Callable[[], Child], tmp_path: Path) -> None:
    seen = child().run(
        """
        seen = collections.Counter()
        for round in range(rounds):
            index = Index.create(os.path.join(directory, f"{round}.lsq"), 2)
            index.add(np.ones((100, 2)))
            inside = threading.Barrier(9)

            def work(use):
                inside.wait()
                try:
                    while True:
                        use()
                except BaseException as error:
                    seen[type(error).__name__ + ("" if isinstance(error, ClosedError) else str(error))] += 1

            def batch():
                with index.batch() as batch:
                    batch.add([[1, 1]])

            uses = [lambda: index.search([1, 1]), lambda: index.search([1, 1]), lambda: index.add([[1, 1]]),
                    lambda: index.delete([3]), lambda: index.check(), lambda: index.stats(), lambda: index.save(),
                    batch]
            threads = [threading.Thread(target=work, args=(use,)) for use in uses]
            for thread in threads:
                thread.start()
            inside.wait()
            time.sleep(0.001 * (round % 20))
            index.close()
            for thread in threads:
                thread.join()
            with Index.open(os.path.join(directory, f"{round}.lsq")) as again:
                assert again.check() == []
        result = dict(seen)
        """,
        directory=tmp_path,
        rounds=200 if LONG else 30,
    )
    assert set(seen) == {"ClosedError"}, seen


@pytest.mark.parametrize("use", ["index.save(path + '.copy', progress=progress)", "index.compact(progress=progress)"])
def test_close_while_another_thread_copies(child: Callable[[], Child], path: Path, use: str) -> None:
    child().run(
        f"""
        index = Index.open(path)
        inside, closing = threading.Event(), threading.Event()
        said = []

        def progress(done, total):
            inside.set()
            closing.wait()
            time.sleep(0.05)  # the other one is in close() now, or will be

        def copy():
            try:
                {use}
            except LsqIndexError as error:
                said.append(error)

        thread = threading.Thread(target=copy)
        thread.start()
        inside.wait()
        closing.set()
        index.close()
        thread.join()
        """,
        path=path,
    )
    sound(path, range(10))


def test_two_threads_save_over_each_other(child: Callable[[], Child], path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.lsq"
    child().run(
        """
        one = Index.open(path)
        one.save(other)
        two = Index.open(other)
        failed = []

        def save(index, target):
            try:
                for _ in range(15):
                    index.save(target)
            except BaseException as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=save, args=pair) for pair in ((one, other), (two, path))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        """,
        path=path,
        other=other,
    )
    sound(path, range(10))
    sound(other, range(10))


# -- read-only places ---------------------------------------------------------------------------------------


@needs_linux
def test_a_read_only_directory(child: Callable[[], Child], path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        copy = directory / "index.lsq"
        shutil.copy(path, copy)
        copy.chmod(0o444)
        directory.chmod(0o555)
        try:
            # The system's administrator may write anywhere: become somebody else.
            child().run(
                """
                if os.geteuid() == 0:
                    os.setgid(65534)
                    os.setuid(65534)
                with Index.open(path, read_only=True) as index:
                    assert index.search([3, 0], k=1).ids.tolist() == [3] and index.check() == [] and len(index) == 10
                    try:
                        index.add([[1, 1]])
                        raise AssertionError("written")
                    except ReadOnlyError:
                        pass
                try:
                    with Index.open(path) as index:
                        index.add([[1, 1]])
                    raise AssertionError("written")
                except LsqIndexError as error:
                    assert isinstance(error, OSError), repr(error)
                with Index.open(path, read_only=True) as index, Index.open(path, read_only=False) as writable:
                    try:
                        writable.add([[1, 1]])
                        raise AssertionError("written")
                    except LsqIndexError as error:
                        assert isinstance(error, OSError), repr(error)
                    assert index.search([3, 0], k=1).ids.tolist() == [3]
                """,
                path=copy,
            )
        finally:
            directory.chmod(0o755)
        sound(copy, range(10))


def test_read_only_and_writable_share_a_process(child: Callable[[], Child], path: Path) -> None:
    child().run(
        """
        with Index.open(path, read_only=True) as reader, Index.open(path) as writer:
            writer.add([[10, 0]], [10])
            assert reader.search([10, 0], k=1).ids.tolist() == [10]
            try:
                reader.add([[1, 1]])
                raise AssertionError("written")
            except ReadOnlyError:
                pass
        """,
        path=path,
    )
    sound(path, range(11))


# -- a full disk --------------------------------------------------------------------------------------------

FULL = """
def full(change):
    # `change` until there is no room: a typed error, and the index is as before.
    for number in range(10000):
        before = index.ids()
        try:
            change(number)
        except DiskFullError as error:
            assert isinstance(error, OSError) and error.errno, error
            assert (index.ids() == before).all(), "half of a change"
            assert index.check() == []
            assert index.search([3, 0], k=1).ids.tolist() == [3]
            return number
    raise AssertionError("the disk is never full")

def add(number):
    index.add(rng.standard_normal((400, 2)) + 100, upsert=False)

def batch(number):
    with index.batch() as batch:
        for _ in range(5):
            batch.add(rng.standard_normal((200, 2)) + 100)
        batch.delete([number])
"""


@needs_linux
@pytest.mark.parametrize("change", ["add", "batch"])
def test_a_full_disk_by_a_limit_of_file_size(child: Callable[[], Child], path: Path, change: str) -> None:
    ids = child().run(
        FULL
        + f"""
index = Index.open(path)
index.delete([0])  # batches delete from here on
for more in (40_000, 100_000, 300_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + more, resource.RLIM_INFINITY))
    full({change} if {change == "add"} else (lambda number: batch(1000 + number)))
    # Neither does a copy find room, and it harms nothing.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    before = index.ids()
    for use in (index.compact, lambda: index.save(path + ".copy"), lambda: Index.create(path + ".new", 2)):
        try:
            use()
            raise AssertionError("written")
        except DiskFullError:
            pass
    assert sorted(os.listdir(os.path.dirname(path))) == ["index.lsq", "index.lsq-lock"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (index.ids() == before).all()
    index.add([[5, 5]])
    assert index.check() == []
result = index.ids().tolist()
""",
        path=path,
    )
    sound(path, ids)


@needs_linux
def test_a_full_disk_in_a_large_add_and_a_training(child: Callable[[], Child], tmp_path: Path) -> None:
    child().run(
        """
        lsqindex._write.add.COMMIT_BYTES = lsqindex._storage.rewrite.COMMIT_BYTES = 50_000
        index = Index.create(path, 64, encoder="lsh", bits=64, keep_vectors="float32", train_size=1 << 40)
        vectors = rng.standard_normal((30000, 64)).astype(np.float32)
        index.add(vectors[:6000])
        uses = [lambda: index.add(vectors[6000:]), lambda: index.reencode("lsh", bits=2000), lambda: index.compact()]
        for use in uses:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 400_000, resource.RLIM_INFINITY))
            if use is uses[2]:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            try:
                use()
                raise AssertionError("there was room")
            except DiskFullError:
                pass
            assert index.check() == [] and len(index) == 6000 and (index.get(np.arange(6000)) == vectors[:6000]).all()
            assert index.search(vectors[77], k=1, rerank=6000).ids.tolist() == [77]
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for use in uses:
            use()
            assert index.check() == []
        assert len(index) == 30000 and (index.get(np.arange(30000)) == vectors).all()
        """,
        path=tmp_path / "index.lsq",
    )


@needs_linux
def test_a_full_disk_while_rows_are_listed(child: Callable[[], Child], tmp_path: Path) -> None:
    """An add is done, for its lists may come later; what was asked to list says that it could not."""
    child().run(
        LISTED
        + """
from lsqindex import MultiIndex
from lsqindex._subsets.multi_index import merge
merge.COMMIT_BYTES = 1
index = Index.create(path, 4, encoder="lsh", bits=16, subset=MultiIndex(bits=4), keep_vectors=None)
index.train(vectors(50, 0))
index.set_subset(None)
index.add(vectors(85_000, 1))
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 600_000, resource.RLIM_INFINITY))
try:
    index.set_subset(MultiIndex(bits=4))
    raise AssertionError("there was room")
except DiskFullError:
    pass
assert index.check() == [] and index.subset == MultiIndex(bits=4)
assert agree() == [85_000, 65_024, 19_976], agree()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
index.merge()
assert index.check() == [] and agree() == [85_000, 85_000, 0]
""",
        path=tmp_path / "index.lsq",
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    mount, directory = shutil.which("mount"), tmp_path / "disk"
    directory.mkdir()
    if mount is None or not sys.platform.startswith("linux"):
        pytest.skip("no tmpfs can be mounted here")
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_full_small_disk(small_disk: Path, child: Callable[[], Child]) -> None:
    one = child()
    one.run(
        FULL
        + """
index = Index.create(path, 2, train_size=1 << 40)
index.add(np.stack([np.arange(10), np.zeros(10)], axis=1))
with open(ballast, "wb") as file:
    file.write(bytes(300_000))
number = full(add)
before = index.ids()
for use in (index.compact, lambda: index.save(path + ".copy"), lambda: full(lambda number: batch(10**6))):
    try:
        use()
    except DiskFullError:
        pass
    assert index.check() == [] and (index.ids() == before[: len(index)]).all()
os.unlink(ballast)
for _ in range(3):
    index.add(rng.standard_normal((400, 2)) + 100)
assert index.check() == []
index.delete(np.arange(10, 10**6))
index.compact()
assert index.check() == [] and index.ids().tolist() == list(range(10))
index.close()
""",
        path=small_disk / "index.lsq",
        ballast=small_disk / "ballast",
    )
    sound(small_disk / "index.lsq", range(10))


def test_what_is_possible_on_a_full_disk(small_disk: Path, child: Callable[[], Child]) -> None:
    """As docs/howto/recover.md says: everything can be read; a few hundred kilobytes are enough to go on deleting."""
    child().run(
        """
        index = Index.create(path, 2, train_size=1 << 40)
        index.add(np.stack([np.arange(9000), np.zeros(9000)], axis=1))
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

        def refused(use):
            try:
                use()
                raise AssertionError("there was room")
            except DiskFullError:
                assert len(index) == 9000

        refused(lambda: index.delete([1]))  # no page of the file is free yet
        refused(lambda: index.add([[1, 1]]))
        refused(index.compact)
        assert index.search([3, 0], k=1).ids.tolist() == [3] and index.get([7]).tolist() == [[7, 0]]
        index.save(elsewhere)
        with Index.open(elsewhere, read_only=True) as copy:
            assert len(copy) == 9000 and copy.check() == []
        os.truncate(ballast, os.path.getsize(ballast) - 256 * 1024)
        for number in range(100):
            assert index.delete([number]) == 1
        assert index.delete(np.arange(100, 8000)) == 7900
        index.add([[1, 1]])  # into pages that deleting has freed
        assert len(index) == 1001 and index.check() == []
        """,
        path=small_disk / "index.lsq",
        ballast=small_disk / "ballast",
        elsewhere=small_disk.parent / "elsewhere.lsq",
    )


# -- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["int", "str"])
def test_results_outlive_the_index(child: Callable[[], Child], tmp_path: Path, ids: str) -> None:
    child().run(
        """
        lsqindex._storage.lmdb.engine.INITIAL_MAP = 1 << 16
        index = Index.create(path, 4, ids=kind, encoder="lsh", bits=32, keep_vectors="float16", train_size=1 << 40)
        vectors = rng.integers(-100, 100, (500, 4)).astype(np.float32)
        names = np.arange(500) if kind == "int" else [f"name {number:06}" for number in range(500)]
        index.add(vectors, names)
        results = []

        def look():
            results.append((index.search(vectors[:20], k=7, rerank=500), index.get(names), index.ids(), index.stats()))
            copies.append(pickle.loads(pickle.dumps(results[-1])))

        def same(found, copy):
            return ((found[0].ids == copy[0].ids).all() and (found[0].distances == copy[0].distances).all()
                    and (found[1] == copy[1]).all() and list(found[2]) == list(copy[2]) and found[3] == copy[3])

        copies = []
        look()
        for number in range(10):
            more = np.arange(1000 * number + 1000, 1000 * number + 1800)
            index.add(np.full((800, 4), 200), more if kind == "int" else [f"more {one}" for one in more])
            look()
        moved = index._env.moved
        index.train()
        look()
        index.add(vectors[::-1], names, upsert=True)
        index.compact()
        look()
        index.delete(names)
        index.compact()
        index.close()
        gc.collect()
        assert moved, "the map never moved"
        assert all(same(found, copy) for found, copy in zip(results, copies))
        for number, found in enumerate(results):
            assert (found[1] == (vectors if number < 12 else vectors[::-1])).all()
            found[0].ids[0, 0], found[0].distances[0, 0], found[1][0, 0] = (1 if kind == "int" else "x"), 2, 3
        """,
        path=tmp_path / "index.lsq",
        kind=ids,
    )


def test_typed_errors_are_what_they_say() -> None:
    assert issubclass(BusyError, TimeoutError) and issubclass(ForkedError, RuntimeError)
    assert issubclass(ParameterError, ValueError)
