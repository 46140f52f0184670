"""Threads that help: started once, kept, and never more than were asked for."""

from __future__ import annotations

import os
import threading
import time

import pytest

from lsqindex._threads import pool
from lsqindex._threads.pool import in_parallel


def test_results_come_in_the_order_of_the_parts() -> None:
    assert in_parallel(lambda n: n * n, range(100), 4) == [n * n for n in range(100)]
    assert in_parallel(lambda n: n, [], 4) == []


def test_no_more_threads_than_were_asked_for_and_these_are_kept() -> None:
    def slow(_: int) -> int:
        time.sleep(0.002)
        return threading.get_ident()

    in_parallel(slow, range(20), 3)
    before = len(pool._helpers)
    seen = {name for _ in range(5) for name in in_parallel(slow, range(12), 3)}
    assert len(pool._helpers) == before
    assert 1 <= len(seen) <= before + 1


def test_a_task_within_a_task_does_not_wait_for_ever() -> None:
    def outer(n: int) -> list[int]:
        return in_parallel(lambda m: n * m, range(5), 4)

    assert in_parallel(outer, range(6), 4) == [[n * m for m in range(5)] for n in range(6)]


@pytest.mark.parametrize("place", [0, 37, 99])
def test_an_error_is_raised_and_the_next_task_runs(place: int) -> None:
    def work(n: int) -> int:
        if n == place:
            raise ZeroDivisionError(n)
        return n

    with pytest.raises(ZeroDivisionError):
        in_parallel(work, range(100), 3)
    assert in_parallel(work, range(place), 3) == list(range(place))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_starts_threads_of_its_own() -> None:
    in_parallel(time.sleep, [0.001] * 4, 3)
    child = os.fork()
    if not child:
        fine = not pool._helpers and in_parallel(lambda n: n + 1, range(50), 3) == list(range(1, 51))
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
