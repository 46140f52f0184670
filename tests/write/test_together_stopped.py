"""Many threads write at once, and the process is killed, or one of them interrupted, at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index

from .waiting import PATIENCE, VECTORS, free

THREADS = 6
#: Adds vectors in threads, each under an id of its own, and tells an id once it is durable.
PROGRAM = f"""
import itertools, os, sys, threading
import numpy as np
from lsqindex import Index
index = Index.open(sys.argv[1])
numbers = itertools.count(len(index))
def work():
    for name in numbers:
        index.add(np.full((1, 4), name), ids=[name])
        os.write(1, b"%d\\n" % name)
for _ in range({THREADS}):
    threading.Thread(target=work).start()
"""


def test_what_was_acknowledged_before_a_kill_is_there(tmp_path: Path) -> None:
    path, chance = tmp_path / "one.lsq", random.Random(0)
    Index.create(path, 4, encoder="lsh", bits=16, keep_vectors="float32", subset="cells", train_size=100).close()
    acknowledged: set[int] = set()
    for _ in range(3):
        before = len(acknowledged)
        with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 200)):
                acknowledged.add(int(process.stdout.readline()))
            process.kill()
            acknowledged.update(int(line) for line in process.stdout if line.endswith(b"\n"))
        assert len(acknowledged) > before
        with Index.open(path) as index:
            there = set(index.ids().tolist())
            assert acknowledged <= there and len(there) <= len(acknowledged) + THREADS
            assert index.check() == []
            names = np.array(sorted(there))
            assert np.array_equal(index.get(names), np.repeat(names[:, None], 4, axis=1))
        acknowledged = there


@pytest.fixture
def interrupts() -> Iterator[random.Random]:
    def strike(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    yield random.Random(0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(os.name == "nt", reason="needs a timer that sends signals")
def test_an_interrupt_in_one_thread_leaves_the_others_sound(index: Index, interrupts: random.Random) -> None:
    stop, failed, made = threading.Event(), [], []

    def work() -> None:
        try:
            while not stop.is_set():
                made.extend(index.add(VECTORS[:1]).tolist())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    interrupted = 0
    for _ in range(150):
        try:
            signal.setitimer(signal.ITIMER_REAL, interrupts.uniform(1e-5, 6e-3))
            index.add(VECTORS[1:2])
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the thread hangs"
    assert not failed and interrupted
    names = index.ids().tolist()
    assert set(made) <= set(names) and len(names) == len(set(names))
    assert len(made) + 10 <= len(index) <= len(made) + 10 + 150 and len(index._env.changes) == 0
    assert index.check() == [] and free(index)
