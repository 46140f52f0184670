"""New files: made under a passing name, finished, and only then given their place."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import lmdb

from . import engine, pages
from .env import Env
from .writer import Writer


@contextlib.contextmanager
def new_file(path: str) -> Iterator[Env]:
    """An empty environment under a passing name beside ``path``; the block fills it and gives it its place."""
    directory, name = os.path.split(os.path.realpath(path))
    passing = os.path.join(directory, f".{name}.{os.getpid()}.{threading.get_ident()}.new")
    env = None
    try:
        _remove(passing)
        try:
            engine.create(passing)
            env = Env(passing, readonly=False, sync=False)
        except lmdb.Error as error:
            raise engine.translated(error, path) from error
        yield env
    finally:
        if env is not None:
            env.close()
        _remove(passing)


def finish(env: Env) -> str:
    """Put a new file on the disk and close it; its path."""
    env.sync()
    with env.gate.alone():
        env.close_files()
    with contextlib.suppress(OSError):
        os.unlink(env.path + "-lock")
    return env.path


def place(new: str, path: str) -> None:
    """Give a finished file its name, which must be free (IndexExistsError is the caller's)."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.exists(path):
            raise FileExistsError(path) from None
        os.rename(new, path)
    _sync_directory(path)


def replace(new: str, writer: Writer) -> None:
    """Put a finished file in the place of the one that ``writer`` holds.

    Both share one lock file, with LMDB's number of the last transaction, so the new file takes the old
    one's number. Then every moment is sound: who has the old file finds out, after it began a transaction,
    that the path leads elsewhere; who opens the path gets the old file or the new.
    """
    env = writer.env
    pages.set_txn(new, writer.state.txn)
    os.replace(new, env.path)
    _sync_directory(env.path)
    writer.abort()
    env.reopen()


def _sync_directory(path: str) -> None:
    with contextlib.suppress(OSError):  # not every system lets a directory be opened
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _remove(path: str) -> None:
    for name in (path, path + "-lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
