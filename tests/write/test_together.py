"""Changes of several threads in one transaction: each as if it were alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format.meta import review_due
from lsqindex._write import add as adding
from lsqindex._write import together
from lsqindex.errors import BusyError, DamagedError, DuplicateIdError

from .waiting import PATIENCE, VECTORS, StopError

Work = Callable[[], Any]


class Waiting:
    """Threads that want to change an index while this one is writing; and what became of each."""

    def __init__(self, index: Index, *works: Work) -> None:
        self.outcomes: list[Any] = [None] * len(works)
        self._threads = []
        with index.batch():
            for number, work in enumerate(works):
                thread = threading.Thread(target=self._run, args=(number, work))
                thread.start()
                self._threads.append(thread)
                self._await(lambda number=number: len(index._env.changes) == number + 1)  # type: ignore[misc]
            self.before = transaction(index)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the thread hangs"

    def _run(self, number: int, work: Work) -> None:
        try:
            self.outcomes[number] = work()
        except BaseException as error:
            self.outcomes[number] = error

    def _await(self, there: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < end, "the change does not come"
            time.sleep(0.001)


def transaction(index: Index) -> int:
    with index._reader() as reader:
        return int(reader.state.txn)


def adder(index: Index, first: int, *ids: int, **options: Any) -> Work:
    count = max(1, len(ids))
    return lambda: index.add(VECTORS[first : first + count], list(ids) or None, **options)


def test_additions_of_many_threads_are_one_transaction(index: Index) -> None:
    done = Waiting(index, *(adder(index, 100 + i) for i in range(8)))
    assert sorted(np.concatenate(done.outcomes).tolist()) == list(range(10, 18))
    assert transaction(index) == done.before + 1
    assert len(index) == 18 and index.check() == [] and len(index._env.changes) == 0


@pytest.mark.parametrize("subset", ["cells", None])
def test_each_thread_gets_its_own_vectors_and_payloads(tmp_path: Path, subset: Any) -> None:
    with Index.create(tmp_path / "one.lsq", 4, ids="str", subset=subset, fields=["n"], train_size=10**6) as index:
        names = [f"id {i}" for i in range(6)]
        works = [
            lambda i=i: index.add(VECTORS[i : i + 1], [names[i]], payloads=[{"n": i}] if i != 3 else None)
            for i in range(6)
        ]
        done = Waiting(index, *works)
        assert done.outcomes == [[name] for name in names]
        assert transaction(index) == done.before + 1
        assert index.payloads(names) == [{"n": i} if i != 3 else None for i in range(6)]
        assert np.array_equal(index.get(names), VECTORS[:6])
        assert index.check() == []


def test_an_error_is_only_of_the_thread_that_caused_it(index: Index) -> None:
    works = adder(index, 100, 50), adder(index, 200, 3), adder(index, 300, 60), adder(index, 400, 50), adder(index, 500)
    done = Waiting(index, *works)
    assert [isinstance(one, DuplicateIdError) for one in done.outcomes] == [False, True, False, True, False]
    assert "ids: 3 " in str(done.outcomes[1]) and "ids: 50 " in str(done.outcomes[3])
    assert done.outcomes[4].tolist() == [61]
    assert transaction(index) == done.before + 1
    assert index.ids().tolist() == [*range(10), 50, 60, 61] and index.check() == []


def test_adds_upserts_and_deletes_keep_their_order(tmp_path: Path) -> None:
    with Index.create(tmp_path / "one.lsq", 4, keep_vectors="float32", wait=PATIENCE) as index:
        index.add(VECTORS[:10])
        done = Waiting(
            index,
            adder(index, 100, 20),
            lambda: index.delete([20, 3]),
            adder(index, 101, 20, upsert=True),
            adder(index, 102, 20, upsert=True),
            lambda: index.delete([77]),
            adder(index, 103, 3),
        )
        assert [done.outcomes[1], done.outcomes[4]] == [2, 0]
        assert transaction(index) == done.before + 1
        assert np.array_equal(index.get([20, 3]), VECTORS[[102, 103]])
        assert len(index) == 11 and index.check() == []


def test_if_the_file_fails_each_change_is_tried_alone(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    insert, calls = adding.insert, []

    def failing(writer: Any, rows: Any, *rest: Any, **options: Any) -> None:
        calls.append(len(rows.ids))
        insert(writer, rows, *rest, **options)
        if 101 in rows.ids:
            raise DamagedError("a page cannot be read")

    monkeypatch.setattr(adding, "insert", failing)
    done = Waiting(index, adder(index, 100, 100), adder(index, 200, 101), adder(index, 300, 102))
    assert isinstance(done.outcomes[1], DamagedError)
    assert [done.outcomes[0].tolist(), done.outcomes[2].tolist()] == [[100], [102]]
    assert calls == [3, 1, 1, 1]
    assert index.ids().tolist() == [*range(10), 100, 102] and index.check() == []


def test_an_interrupt_of_the_writing_thread_does_not_touch_the_others(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []

    def stop(*arguments: Any) -> bool:
        if not stopped:
            stopped.append(threading.get_ident())
            raise StopError
        return review_due(*arguments)

    monkeypatch.setattr(together, "review_due", stop)
    done = Waiting(index, *(adder(index, 100 + i) for i in range(5)))
    assert isinstance(done.outcomes[0], StopError)
    assert sorted(np.concatenate(done.outcomes[1:]).tolist()) == [10, 11, 12, 13]
    assert transaction(index) == done.before + 1 and index.check() == []


def test_who_has_waited_too_long_leaves_nothing_behind(index: Index) -> None:
    with Index.open(index.path or "", wait=0.05) as hasty:

        def waiting() -> Any:
            with pytest.raises(BusyError, match="another thread"):
                hasty.add(VECTORS[100:101])
            return len(index._env.changes)

        outcomes: list[int] = []
        with index.batch():
            thread = threading.Thread(target=lambda: outcomes.append(waiting()))
            thread.start()
            thread.join(PATIENCE)
        assert outcomes == [0]
        index.add(VECTORS[:1])
        assert len(index) == 11


def test_the_thread_with_which_there_are_enough_vectors_trains(tmp_path: Path) -> None:
    with Index.create(tmp_path / "one.lsq", 4, encoder="itq", bits=4, train_size=60, wait=PATIENCE) as index:
        index.add(VECTORS[:10])
        done = Waiting(index, *(lambda i=i: index.add(VECTORS[100 * i : 100 * i + 10]) for i in range(5)))
        assert index.stats()["trained"] and len(index) == 60
        assert sorted(np.concatenate(done.outcomes).tolist()) == list(range(10, 60))
        assert index.check() == []
