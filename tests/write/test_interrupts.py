"""Interrupts at any moment, batches that are left in odd ways, and errors that come after a commit.

The races are real: a process with a timer (tests/crash/interrupted.py), and threads. Whoever waits for a lock does so
with an end, so that what hangs fails.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lsqindex
from lsqindex import Index, MultiIndex
from lsqindex._compiled.gate import Block, Gate, LockFile, Pass, locks
from lsqindex._storage import rewrite
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex._storage.lmdb import env as envs
from lsqindex._storage.lmdb import registry
from lsqindex._subsets.multi_index import merge, postings
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex._write.batch import Batch
from lsqindex.errors import BusyError, ClosedError, DuplicateIdError, StorageError, VectorError

LONG = os.environ.get("LSQINDEX_LONG") == "1"
needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
#: Whoever waits so long hangs.
PATIENCE = 60

VECTORS = np.random.default_rng(0).standard_normal((600, 4)).astype(np.float32)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "one.lsq", 4, encoder="lsh", bits=16, wait=PATIENCE, keep_vectors=None) as made:
        made.add(VECTORS[:10])
        yield made


def in_thread(work: Callable[[], Any]) -> Any:
    """What ``work`` gives, or raises, in a thread that then ends."""
    given: list[Any] = []

    def run() -> None:
        try:
            given.append((work(), None))
        except BaseException as error:
            given.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert given, "the thread hangs"
    result, error = given[0]
    if error is not None:
        raise error
    return result


def free(index: Index) -> bool:
    """Whether this thread, another one and another process can write."""
    before = len(index)
    index.add([[1, 1, 1, 1]])
    in_thread(lambda: index.add([[1, 1, 1, 1]]))
    code = f"from lsqindex import Index; Index.open({index.path!r}, wait={PATIENCE}).add([[1, 1, 1, 1]])"
    root = str(Path(lsqindex.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": root})
    index.compact()
    return len(index) == before + 3 and index.check() == [] and not locks and not index._env.gate.inside


# -- interrupts -----------------------------------------------------------------------------------


@needs_signals
def test_interrupts_leave_nothing_behind(tmp_path: Path) -> None:
    """The script fails if anything hangs, is locked, is lost or is half done."""
    script = Path(__file__).parents[1] / "crash" / "interrupted.py"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(lsqindex.__file__).parents[1])}
    count = 10_000 if LONG else 250
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(count), "5"], env=environment, stdout=subprocess.PIPE
    )
    assert done.returncode == 0
    summary = json.loads(done.stdout)
    print(summary)
    assert summary["interrupts"] >= count and not summary["descriptors left open"]


class StopError(BaseException):
    """As KeyboardInterrupt: no Exception."""


def test_a_pass_that_is_lost_leaves() -> None:
    """An exception may strike before a with block is set up: then only the stack has the object."""
    gate = Gate()
    passing = gate.enter()
    assert gate.inside == 1
    del passing
    alone = gate.alone()
    assert not gate.inside and gate.mine
    del alone
    assert not gate.mine and in_thread(lambda: Pass(gate).alone(0))


def test_a_gate_is_open_after_waiting_to_be_alone_was_interrupted() -> None:
    gate = Gate()
    inside, go_on = threading.Event(), threading.Event()

    def stay() -> None:
        with gate.enter():
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()

    def strike(number: int, frame: Any) -> None:
        raise StopError

    before = signal.signal(signal.SIGINT, strike)
    try:
        # The main thread waits for the other one until the signal comes.
        waiting = threading.Thread(target=_interrupt_when, args=(lambda: gate.closed,))
        waiting.start()
        with pytest.raises(StopError):
            gate.alone()
        waiting.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert in_thread(lambda: gate.enter()) is not None  # newcomers are let in again
    assert not Pass(gate).alone(0.001)  # the first is still inside
    go_on.set()
    thread.join()
    assert Pass(gate).alone(0)


def _interrupt_when(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)


def test_being_alone_from_inside_is_an_error_and_not_a_hang() -> None:
    gate = Gate()
    with gate.enter(), pytest.raises(BusyError, match="still reading"):
        gate.alone()
    with gate.alone(), gate.enter(), gate.enter():
        assert gate.inside == 2
    assert not gate.inside and not gate.mine


def test_a_block_lets_go_whatever_its_beginning_and_end_do(tmp_path: Path) -> None:
    gate = Gate()

    def begin(block: Block[Any]) -> None:
        block.hold(Pass(gate)).enter()
        block.hold(LockFile(str(tmp_path), os.O_RDONLY))
        raise StopError

    with pytest.raises(StopError), Block(begin):
        pass
    assert not gate.inside and not locks

    class Failing(Block[None]):
        def _begin(self) -> None:
            self.hold(Pass(gate)).enter()

        def _end(self, error: BaseException | None) -> None:
            raise StopError

    block = Failing()
    with pytest.raises(StopError), block:
        with pytest.raises(BusyError, match="in use"):
            block.__enter__()
        assert in_thread(lambda: not Pass(gate).alone(0))
    assert Pass(gate).alone(0)


def test_a_helping_thread_keeps_a_snapshot_that_was_left(index: Index) -> None:
    gate = index._env.gate
    with index._reader() as reader:
        share = reader.place.share()
        share.__enter__()
    assert not Pass(gate).alone(0)  # the map must not move: somebody still reads it
    share.__exit__(None, None, None)
    assert Pass(gate).alone(0)
    with pytest.raises(ClosedError), reader.place.share():
        pass
    assert free(index)


def test_an_interrupted_operation_can_only_be_undone(index: Index) -> None:
    def stop(writer: Any) -> None:
        writer.state.count += 1
        raise StopError

    with index._writer() as writer:
        with pytest.raises(StopError):
            writer.run(stop)
        with pytest.raises(StorageError, match="interrupted"):
            writer.run(lambda writer: None)
        with pytest.raises(StorageError, match="interrupted"):
            writer.commit()
    assert len(index) == 10 and free(index)


def test_a_nested_operation_that_was_interrupted_is_undone_alone(index: Index) -> None:
    def stop(writer: Any) -> None:
        writer.state.count += 1
        raise StopError

    with index.batch() as batch:
        batch.add([[1, 2, 3, 4]], [100])
        with pytest.raises(StopError):
            batch._open().run(stop, nested=True)
    assert len(index) == 11 and 100 in index and free(index)


def test_closing_in_a_progress_function_is_refused(index: Index, tmp_path: Path) -> None:
    """The copy still reads the file."""
    with pytest.raises(BusyError, match="still reading"):
        index.save(tmp_path / "copy.lsq", progress=lambda done, total: index.close())
    assert len(index) == 10 and not (tmp_path / "copy.lsq").exists() and free(index)


# -- batches --------------------------------------------------------------------------------------


def begun(index: Index) -> Batch:
    batch = index.batch()
    batch.__enter__()
    batch.add([[1, 2, 3, 4]], [100])
    return batch


def test_a_batch_that_another_thread_leaves_is_undone(index: Index) -> None:
    batch = begun(index)
    with pytest.raises(BusyError, match="thread that began it"):
        in_thread(lambda: batch.__exit__(None, None, None))
    with pytest.raises(ClosedError):
        batch.add([[1, 2, 3, 4]])
    assert 100 not in index  # this thread came back, and has let go
    assert free(index)


def test_a_batch_whose_thread_has_ended_is_undone(index: Index) -> None:
    batch = in_thread(lambda: begun(index))
    assert free(index) and 100 not in index
    with pytest.raises(ClosedError, match="thread ended"):
        batch.add([[1, 2, 3, 4]])
    with pytest.raises(ClosedError, match="thread ended"):
        batch.__exit__(None, None, None)
    assert free(index)


def test_a_batch_left_by_another_thread_is_undone_when_its_own_ends(index: Index) -> None:
    ready, left = threading.Event(), threading.Event()
    batches: list[Batch] = []

    def work() -> None:
        batches.append(begun(index))
        ready.set()
        left.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with pytest.raises(BusyError, match="thread that began it"):
        batches[0].__exit__(None, None, None)
    with Index.open(str(index.path), wait=0.01) as other, pytest.raises(BusyError, match="another thread"):
        other.delete([0])
    left.set()
    thread.join()
    assert free(index) and 100 not in index


def test_a_batch_that_is_forgotten_is_undone(index: Index) -> None:
    begun(index)
    assert free(index) and 100 not in index

    def forgotten() -> Iterator[None]:
        with index.batch() as batch:
            batch.add([[1, 2, 3, 4]], [100])
            yield

    half_done = forgotten()
    next(half_done)
    del half_done
    assert free(index) and 100 not in index
    cycle: list[Any] = [begun(index)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert free(index) and 100 not in index


def test_a_batch_freed_by_another_thread_is_undone(index: Index) -> None:
    batches = [begun(index)]
    in_thread(batches.clear)
    assert 100 not in index and free(index)


def test_batches_can_be_used_again_and_not_twice_at_once(index: Index) -> None:
    batch = index.batch()
    for i in (100, 101):
        with batch:
            batch.add([[1, 2, 3, 4]], [i])
            with pytest.raises(BusyError, match="in use"):
                batch.__enter__()
    assert index.ids().tolist()[-2:] == [100, 101] and free(index)


# -- closing --------------------------------------------------------------------------------------


def test_threads_that_close_one_index_leave_others_of_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "one.lsq"
    Index.create(path, 4, keep_vectors=None).close()
    for _ in range(200 if LONG else 30):
        first, second = Index.open(path), Index.open(path)
        barrier = threading.Barrier(4)

        def close(index: Index = first, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            index.close()

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(second) == 0 and second._env.users.inside == 1
        with pytest.raises(ClosedError):
            len(first)
        second.close()
        assert not second._env.users.inside and str(path) not in registry.by_path


def test_closing_that_was_interrupted_can_be_done_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Any) -> None:
        raise StopError

    with Index.open(str(index.path)) as other:
        index.close()
        with monkeypatch.context() as patch:
            patch.setattr(envs.Env, "close_file", stop)
            with pytest.raises(StopError):
                other.close()
        with Index.open(str(index.path)) as third:  # finishes it
            assert third._env is not other._env and len(third) == 10
            other.close()
            assert len(third) == 10
    assert str(index.path) not in registry.by_path


def test_repr_never_fails(index: Index) -> None:
    assert "10 vectors of 4" in repr(index)
    assert repr(Index.__new__(Index)) == "<Index in memory, closed>"  # one whose making has failed
    with Index.open(str(index.path)) as other:
        index.replace(lambda old: Index(3, keep_vectors=None))
        assert "0 vectors of 3" in repr(index)
        assert repr(other) == f"<Index {other.path}: not readable, ReplacedError>"
    registry.close_env(index._env, index._lease)  # another thread is closing it, and has not said so yet
    assert repr(index) == f"<Index {index.path}, closed>"
    index.close()
    assert repr(index) == f"<Index {index.path}, closed>"


# -- errors after a commit ------------------------------------------------------------------------


class OwnError(Exception):
    """Of a progress function."""


def failing(*arguments: Any) -> None:
    raise OwnError


def another(old: Index) -> Index:
    other = Index(7, keep_vectors=None)
    other.add(np.ones((3, 7)))
    return other


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


CHANGES: dict[str, Callable[[Index, Path], Any]] = {
    "add": lambda index, copy: index.add(VECTORS[:3], progress=failing),
    "add iterator": lambda index, copy: index.add(iter([VECTORS[:3, :2]]), progress=failing),
    "upsert": lambda index, copy: index.add(VECTORS[5:6], [0], upsert=True, progress=failing),
    "train": lambda index, copy: index.train(VECTORS, progress=failing),
    "reencode": lambda index, copy: index.reencode("kmeans", bits=4, vectors=VECTORS, progress=failing),
    "set_subset": lambda index, copy: index.set_subset(MultiIndex(bits=4), progress=failing),
    "merge": lambda index, copy: index.merge(progress=failing),
    "save": lambda index, copy: index.save(copy, progress=failing),
    "compact": lambda index, copy: index.compact(progress=failing),
    "replace": lambda index, copy: index.replace(another, progress=failing),
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_is_changed_where_a_progress_function_raises(name: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "one.lsq", tmp_path / "copy.lsq"
    with Index.create(path, 4, encoder="itq", bits=4, keep_vectors="float32") as index:
        index.train(VECTORS).set_subset("multi-index").add(VECTORS[:10])
        before, place = {**index.stats(), "subset": repr(index.subset)}, path.stat().st_ino
        state = index._env.last_state
        with pytest.raises((OwnError, VectorError)) as caught:
            CHANGES[name](index, copy)
        assert not notes(caught.value)
        assert {**index.stats(), "subset": repr(index.subset)} == before
        assert index._env.last_state == state, "a transaction was committed"
        assert np.array_equal(index.get(index.ids()), VECTORS[:10])
        assert path.stat().st_ino == place and not copy.exists()
        assert free(index)


def test_a_large_add_whose_progress_function_raises_is_undone(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "COMMIT_BYTES", 1 << 12)
    done: list[int] = []

    def fails_at_last(so_far: int, total: int | None) -> None:
        done.append(so_far)
        if so_far == total:
            raise OwnError

    with pytest.raises(OwnError):
        index.add(VECTORS, progress=fails_at_last)
    assert len(done) > 1 and len(index) == 10 and free(index)


def test_an_error_within_an_iterator_tells_what_was_added(index: Index) -> None:
    with pytest.raises(DuplicateIdError) as caught:
        index.add(iter([(VECTORS[:3], [20, 21, 22]), (VECTORS[:2], [23, 24]), (VECTORS[:1], [20])]))
    assert "first 5 vectors were added" in notes(caught.value)
    with pytest.raises(OwnError) as failed:
        index.add(iter([VECTORS[:4], VECTORS[:4]]), progress=failing)
    assert "first 4 vectors were added" in notes(failed.value)
    assert len(index) == 19


def test_an_error_after_some_rows_were_listed_tells_how_many(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "UNIT_ROWS", CHUNK_ROWS)
    monkeypatch.setattr(postings, "SEGMENT_ROWS", CHUNK_ROWS)
    monkeypatch.setattr(merge, "_rows_at_once", lambda subset: 1)
    index.train(VECTORS).add(np.resize(VECTORS, (4 * CHUNK_ROWS, 4)))
    listed: list[int] = []

    def fails_at_third(so_far: int, total: int | None) -> None:
        listed.append(so_far)
        if len(listed) == 3:
            raise OwnError

    with pytest.raises(OwnError) as caught:
        index.set_subset("multi-index", progress=fails_at_third)
    assert f"{listed[1]} rows were listed" in notes(caught.value)
    assert index.stats()["listed"] == listed[1] and index.subset is not None
    index.merge()
    assert index.stats()["fresh"] == 0 and index.check() == []


def test_upkeep_that_fails_after_a_commit_is_no_error_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep: listing rows, compacting a small file, training after a batch."""
    with Index.create(tmp_path / "one.lsq", 4, encoder="kmeans", bits=4, train_size=300, keep_vectors=None) as index:
        for step, (module, name) in enumerate([(merge, "catch_up"), (training, "fit"), (rewrite, "compact")]):
            for error, told in ((StorageError("full"), ""), (OwnError(), "was committed")):
                count, ids = len(index), np.arange(1000 * step, 1000 * step + 290) + 300 * bool(told)

                def fails(*arguments: Any, error: BaseException = error, **others: Any) -> None:
                    raise error

                def change(ids: Any = ids) -> None:
                    with index.batch() as batch:
                        batch.add(VECTORS[:290], ids)

                with monkeypatch.context() as patch:
                    patch.setattr(module, name, fails)
                    try:
                        change()
                    except OwnError as caught:
                        assert told in notes(caught)
                assert len(index) == count + 290
        assert free(index)
