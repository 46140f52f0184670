"""LMDB as we open it."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import time
from typing import Any

import lmdb

from ..._compiled.gate import File
from ..format import keys
from ..format.meta import State
from .errors import NO_ROOM, READERS, system_error

#: Address space of a new map; only what is used takes memory or disk.
INITIAL_MAP = 1 << 30
_LOCK_BYTES = 64 * READERS + 4096
#: What LMDB's binding says of a file that it has open; how often, and after how many seconds, to ask again.
_ALREADY_OPEN = "is already open in this process"
_TRIES, _PAUSE = 100, 0.002


def create(path: str) -> None:
    """An LMDB file with our databases, empty; nobody else knows of it yet."""
    env = _open(path, subdir=False, lib_version=0, map_size=1 << 20, max_dbs=16, sync=False, lock=False)
    try:
        with env.begin(write=True) as txn:
            for name in keys.DATABASES:
                env.open_db(name, txn=txn)
            txn.put(keys.STATE, State(txn=txn.id(), code_size=1).to_record(), db=env.open_db(keys.META, txn=txn))
    finally:
        env.close()


def open_file(path: str, size: int, *, readonly: bool, sync: bool, lock: bool) -> tuple[Any, bool]:
    """An LMDB environment of a file that is there, of ``size`` bytes now; and whether its readers are protected."""
    options: dict[str, Any] = {
        "subdir": False,
        "lib_version": 0,
        "create": False,
        "max_dbs": 16,
        "max_readers": READERS,
        "map_size": max(INITIAL_MAP, round_up(size if readonly else 2 * size, 4096)),
        "sync": sync,
        "metasync": sync,
        "meminit": False,
        "readahead": True,
        "readonly": readonly,
    }
    if lock:
        lock = _make_lock_file(path, readonly)
    return _open(path, lock=lock, **options), lock


def _open(path: str, **options: Any) -> Any:
    """``lmdb.open``; again, where it takes a new file for one that another thread is closing.

    It knows open files by their inodes, and forgets one only after its file is closed: by then a new file may have
    the same number. (``env.py`` never opens a file twice.)
    """
    for _ in range(_TRIES):
        try:
            return lmdb.open(path, **options)
        except lmdb.Error as error:
            if _ALREADY_OPEN not in str(error):
                raise
            time.sleep(_PAUSE)
    return lmdb.open(path, **options)


#: Files that were open in the parent when this process was forked, as py-lmdb knows them.
_inherited: set[Any] = set()


def abandon(env: Any, path: str) -> None:
    """In a forked child: never touch an environment of the parent again, and let this process open the file by itself.

    LMDB does not allow a child to use an environment of its parent. Closing it is no way out: py-lmdb would free the
    parent's places in the shared table of readers, and wait for threads that do not exist here. So the object stays
    in memory until the process ends, even if everybody forgets it.
    """
    if env is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(env))
    # py-lmdb refuses to open a file twice in one process. It knows its files by device and inode, and still takes those
    # of the parent for open. Their keys get the number of this process, so that the rule holds within this process.
    try:
        envid: Any = importlib.import_module("lmdb._envid")
        if not _inherited:
            known = envid.env_keys

            def env_keys(path: Any, subdir: Any) -> tuple[Any, ...]:
                return tuple((key, os.getpid()) if key in _inherited else key for key in known(path, subdir))

            envid.env_keys = env_keys
        _inherited.update(envid._file_key(name) for name in (path, path + "-lock"))
    except (ImportError, AttributeError):
        pass  # another py-lmdb, which may not have that rule; if it has, opening the file says so


def _make_lock_file(path: str, readonly: bool) -> bool:
    """Make room for LMDB's lock file, which it maps without asking; False where there is none, and no writers either.

    (Nobody in this process has it open: closing a second descriptor would drop LMDB's locks.)
    """
    name = path + "-lock"
    new = not os.path.exists(name)
    try:
        file = File(name, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        # Read-only media, or a directory of others.
        if readonly and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return False
        raise system_error(error, path) from error
    try:
        with file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fd, 0, _LOCK_BYTES)
    except OSError as error:
        if error.errno in NO_ROOM:
            if new:
                os.unlink(name)
            if not (new and readonly):
                raise system_error(error, path) from error
            return False
    return True


def round_up(size: int, page: int) -> int:
    """``size`` in whole pages."""
    return (size + page - 1) // page * page
