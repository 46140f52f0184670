"""One writer at a time: its turn among the threads of this process, and the lock of the file among processes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import lmdb

from ..._compiled.gate import Block, LockFile, Pass
from ...errors import BusyError, ReadOnlyError, StorageError
from .env import Env
from .errors import lmdb_errors, system_error
from .writer import Writer

try:
    import fcntl
except ImportError:  # Windows: writers wait in LMDB's own lock, without an end
    fcntl = None  # type: ignore[assignment]

#: How long to wait for another writer: True, no longer than it takes; False, not at all; or seconds.
Wait = bool | float


class Writing(Block[Writer]):
    """A ``with`` block that writes. Errors of LMDB leave it as ours."""

    def __init__(self, path: str | None, begin: Callable[[Block[Writer]], Writer]) -> None:
        super().__init__(begin)
        self._path = path or "in memory"

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, lmdb.Error):
            with lmdb_errors(self._path):
                raise error


def write(env: Env, wait: Wait = True) -> Writing:
    """The one writer of the file, in a ``with`` block: waits for its turn, as long as ``wait`` says."""
    return Writing(env.path, partial(take_turn, env, wait))


def take_turn(env: Env, wait: Wait, block: Block[Any]) -> Writer:
    """The one writer of the file, until ``block`` is left."""
    check_outside(env)
    end = None if wait is True else time.monotonic() + float(wait)
    if not block.hold(Pass(env.turn)).alone(None if wait is True else float(wait)):
        raise BusyError(f"{env.path}: another thread is writing; wait=True waits for it")
    if not (env.private or fcntl is None):
        _lock(env, block, end)
    file = env.file
    if file is None or not file.writable:
        if not os.access(env.path, os.W_OK):
            raise ReadOnlyError(f"{env.path}: the system does not let us write to it")
        env.reopen(writable=True)
    return Writer(env, block.hold(Pass(env.gate)))


def check_outside(env: Env) -> None:
    """BusyError where this thread is writing already: it would wait for itself."""
    if env.turn.mine:
        raise BusyError("this thread is in a batch of this index: use the batch, or leave it first")


def _lock(env: Env, block: Block[Any], end: float | None) -> None:
    """Hold the lock of the file that the path leads to until ``block`` is left; wait for it until ``end``."""
    while True:
        # A descriptor of its own: others may open the file again, or close it, meanwhile.
        try:
            held = LockFile(env.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise system_error(error, env.path) from error
        block.hold(held)
        _wait_for_lock(held.fd, env.path, end)
        file = env.file
        if file is not None and file.is_file(os.fstat(held.fd)) and not file.replaced():
            return
        held.leave()
        # Whoever replaced the file has left its lock behind.
        env.reopen()


def _wait_for_lock(fd: int, path: str, end: float | None) -> None:
    pause = 0.0005
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if end is None else fcntl.LOCK_NB))
            return
        except BlockingIOError:
            if end is not None and time.monotonic() >= end:
                raise BusyError(f"{path}: another process is writing; wait=True waits for it") from None
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                return  # no such locks on this file system: LMDB's own must do
            raise StorageError(f"{path}: cannot be locked ({error.strerror})") from error


def try_lock(fd: int) -> bool:
    """Take the lock of a file if nobody has it; True as well where there are no such locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
