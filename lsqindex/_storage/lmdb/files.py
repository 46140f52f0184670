"""New files: made under a passing name, finished, and only then given their place."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from ..._compiled.gate import File, LockFile
from ..format import keys
from ..format.meta import State
from . import names, pages
from .env import Env
from .errors import lmdb_errors, system_error, system_errors
from .opening import open_lmdb
from .registry import close_env, make_env
from .writer import Writer


@contextlib.contextmanager
def new_file(path: str) -> Iterator[Env]:
    """An empty environment under a passing name beside ``path``; the block fills it and gives it its place.

    Its maker holds a lock on it, so that what a killed one left behind is known, and removed by the next.
    """
    maker = os.getpid()
    _remove_leftovers(path)
    passing, lock = _claim(path)
    env = None
    try:
        with lmdb_errors(path):
            create(passing)
        env = make_env(passing, sync=False, private=True)
        yield env
    finally:
        # (A child that was forked in the block leaves the file to its parent.)
        if os.getpid() == maker:
            if env is not None:
                close_env(env)
            _remove_locked(passing, lock)


def create(path: str) -> None:
    """An LMDB file with our databases, empty; nobody else knows of it yet."""
    env = open_lmdb(path, map_size=1 << 20, sync=False, lock=False)
    try:
        with env.begin(write=True) as txn:
            for name in keys.DATABASES:
                env.open_db(name, txn=txn)
            txn.put(keys.STATE, State(txn=txn.id(), code_size=1).to_record(), db=env.open_db(keys.META, txn=txn))
    finally:
        env.close()


def _claim(path: str) -> tuple[str, LockFile]:
    """A new, empty file: its name, and what holds its lock."""
    while True:
        passing = names.fresh(path)
        with system_errors(path):
            lock = LockFile(passing, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0))
            # Before it is locked, another process may take it for a leftover.
            if lock.lock(0) and os.path.exists(passing):
                return passing, lock
        lock.leave()


def _remove_leftovers(path: str) -> None:
    for passing in names.all_of(path):
        with contextlib.suppress(OSError), LockFile(passing, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)) as lock:
            if lock.lock(0):
                _remove_locked(passing, lock)


def finish(env: Env) -> str:
    """Put a new file on the disk and close it; its path."""
    env.sync()
    with env.gate.alone():
        env.close_file()
    with contextlib.suppress(OSError):
        os.unlink(env.path + "-lock")
    return env.path


def place(new: str, path: str) -> None:
    """Give a finished file its name, which must be free (IndexExistsError is the caller's)."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise system_error(error, path) from error
        # A file system without hard links.
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        with system_errors(path):
            os.rename(new, path)
    _sync_directory(path)


def replace(new: str, writer: Writer) -> None:
    """Put a finished file in the place of the one that ``writer`` holds.

    Both share one lock file, with LMDB's number of the last transaction, so the new file takes the old
    one's number. Then every moment is sound: who has the old file finds out, after it began a transaction,
    that the path leads elsewhere; who opens the path gets the old file or the new.
    """
    env = writer.env
    with system_errors(env.path):
        pages.set_txn(new, writer.state.txn)
        os.replace(new, env.path)
    _sync_directory(env.path)
    writer.abort()
    env.reopen()


def _sync_directory(path: str) -> None:
    # Not every system lets a directory be opened.
    with contextlib.suppress(OSError), File(os.path.dirname(path) or ".", os.O_RDONLY) as directory:
        os.fsync(directory.fd)


def _remove_locked(path: str, lock: LockFile) -> None:
    """Remove a file whose lock is held, and give the lock back."""
    if os.name == "nt":  # nothing that is open can be removed there: what others use stays
        lock.leave()
        with contextlib.suppress(PermissionError):
            _remove(path)
        return
    _remove(path)
    lock.leave()


def _remove(path: str) -> None:
    for name in (path, path + "-lock"):
        with contextlib.suppress(FileNotFoundError), system_errors(path):
            os.unlink(name)
