"""Batches that are left in odd ways, and indexes that are closed in others."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index
from lsqindex._storage.lmdb import env as envs
from lsqindex._storage.lmdb import registry
from lsqindex._write.batch import Batch
from lsqindex.errors import BusyError, ClosedError
from tests.settings import LONG

from .waiting import PATIENCE, StopError, free, in_thread

# -- batches --------------------------------------------------------------------------------------


def begun(index: Index) -> Batch:
    batch = index.batch()
    batch.__enter__()
    batch.add([[1, 2, 3, 4]], [100])
    return batch


def test_a_batch_that_another_thread_leaves_is_undone(index: Index) -> None:
    batch = begun(index)
    with pytest.raises(BusyError, match="thread that started it"):
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
    with pytest.raises(BusyError, match="thread that started it"):
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
