"""One writer at a time, whatever process or thread: the others wait, or are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lsqindex import Index
from lsqindex.errors import BusyError
from tests.processes import Child

from .programs import HOLD, OPEN, holds


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
    holds(path, [*range(10), 100, 200, 300, 400])


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
    holds(path, [*range(10), 100])


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
    holds(path, [*range(10), 200, 300])
