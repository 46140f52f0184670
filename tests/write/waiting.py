"""Threads that must not hang, and whether an index is free."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from lsqindex import Index
from lsqindex._compiled.gate import locks
from tests.processes import run

#: Whoever waits so long hangs.
PATIENCE = 60
VECTORS = np.random.default_rng(0).standard_normal((600, 4)).astype(np.float32)


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
    run(code)
    index.compact()
    return len(index) == before + 3 and index.check() == [] and not locks and not index._env.gate.inside


class StopError(BaseException):
    """As KeyboardInterrupt: no Exception."""
