"""Interrupts at any moment, batches that are left in odd ways, and errors that come after a commit.

The races are real: a process with a timer (tests/crash/interrupted.py), and threads. Whoever waits for a lock does so
with an end, so that what hangs fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index
from lsqindex._compiled.gate import Block, Gate, LockFile, Pass, locks
from lsqindex.errors import BusyError, ClosedError, StorageError
from tests.processes import environment
from tests.settings import LONG, ROOT
from tests.subsets.cells.counted import KINDS

from .waiting import StopError, free, in_thread

needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")


@needs_signals
@pytest.mark.parametrize("subset", ["multi-index", "cells"])
def test_interrupts_leave_nothing_behind(subset: str, tmp_path: Path) -> None:
    """The script fails if anything hangs, is locked, is lost or is half done."""
    script = ROOT / "tests" / "crash" / "interrupted.py"
    count = 10_000 if LONG else 150
    arguments = [str(tmp_path), str(count), "5", subset]
    done = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    print(summary)
    assert summary["interrupts"] >= count and not summary["descriptors left open"]
    assert subset != "cells" or all(summary["upkeep"].get(kind) for kind in KINDS)


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
