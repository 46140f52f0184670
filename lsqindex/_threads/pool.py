"""Threads that work on the parts of one task: started once for the process, and kept for the next task.

The thread that has a task works on it, too, and others help. It never waits for a helper that has not begun: where all
are busy it does everything itself. So tasks within tasks cannot block each other, and there are never more threads than
the largest task asked for.

Nothing here takes a lock, because an exception may strike the main thread anywhere (``cython_src/gate.pyx``): what
threads share is changed by single calls of C code (``list.pop``, ``next``, ``dict.setdefault``, ``SimpleQueue``).
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from ..errors import ThreadsError

Part = TypeVar("Part")
Result = TypeVar("Result")

#: Makes a ``with`` block in which a helper works: what it reads stays where it is, even if the caller is interrupted.
Sharing: TypeAlias = Callable[[], AbstractContextManager[Any]]


def in_parallel(
    work: Callable[[Part], Result], parts: Sequence[Part], threads: int, share: Sharing = nullcontext
) -> list[Result]:
    """``work(part)`` of each part, by ``threads`` threads at most; the results in the order of the parts.

    After an error the rest is left. :class:`ThreadsError` when the system does not start another thread.
    """
    helpers = min(threads, len(parts)) - 1
    if helpers < 1:
        return [work(part) for part in parts]
    task = _Task(work, parts, helpers, share)
    for number in range(helpers):
        _start(number)
        _tasks.put(task)
    try:
        task.work_off()
    except BaseException:
        task.stop()
        raise
    task.wait()
    return task.results


class _Task(Generic[Part, Result]):
    """What is left to do, and what was done."""

    def __init__(self, work: Callable[[Part], Result], parts: Sequence[Part], helpers: int, share: Sharing) -> None:
        self._work, self._parts, self._share = work, parts, share
        self._next, self._stopped = count(), False
        self._results: dict[int, Result] = {}
        #: One for each helper that has not begun; and what became of those that have: an error, or None.
        self._tickets, self._helpers = [None] * helpers, helpers
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    @property
    def results(self) -> list[Result]:
        """Of all parts, in their order."""
        return [self._results[number] for number in range(len(self._parts))]

    def work_off(self) -> None:
        """Do one part after another, as long as there are any."""
        while not self._stopped and (number := next(self._next)) < len(self._parts):
            self._results[number] = self._work(self._parts[number])

    def help(self) -> None:
        """Work on it in another thread, if the caller has not finished it."""
        try:
            self._tickets.pop()
        except IndexError:
            return
        error: BaseException | None = None
        try:
            with self._share():
                self.work_off()
        except BaseException as raised:
            error, self._stopped = raised, True
        self._ended.put(error)

    def stop(self) -> None:
        """Let helpers begin no more parts."""
        self._stopped = True
        self._tickets.clear()

    def wait(self) -> None:
        """Wait for the helpers that have begun; raise the error of one that failed."""
        begun = self._helpers
        while self._tickets:
            try:
                self._tickets.pop()
            except IndexError:
                break
            begun -= 1
        errors = [self._ended.get() for _ in range(begun)]
        for error in errors:
            if error is not None:
                raise error


_Tasks: TypeAlias = "SimpleQueue[_Task[Any, Any] | None]"

#: What helpers wait for, None to end; and a sign of each that has ended.
_tasks: _Tasks = SimpleQueue()
_gone: SimpleQueue[None] = SimpleQueue()
#: The helpers that there are, by their numbers.
_helpers: dict[int, object] = {}


def _start(number: int) -> None:
    """Start the helper of that number, unless it is there."""
    token = object()
    if number in _helpers or _helpers.setdefault(number, token) is not token:
        return
    try:
        _thread.start_new_thread(_serve, (_tasks,))
    except RuntimeError as error:
        del _helpers[number]
        raise ThreadsError(
            f"a thread could not be started: {error}; use fewer threads (threads=1 needs none), "
            "or raise the limit of processes (ulimit -u)"
        ) from error


def _serve(tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        task.help()
    _gone.put(None)


def _end() -> None:
    """Let idle helpers end before the interpreter does: one that wakes up in its ruins complains."""
    for _ in _helpers:
        _tasks.put(None)
    for _ in _helpers:
        with contextlib.suppress(Empty):
            _gone.get(timeout=1)


atexit.register(_end)


def _after_in_child() -> None:
    """A fork copies the thread that forks, and no other."""
    global _tasks
    _tasks = SimpleQueue()
    _helpers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
