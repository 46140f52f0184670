"""LMDB as we open it, and its errors as ours."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import Any

import lmdb

from .._gate import File
from ..errors import DamagedError, DiskFullError, LsqIndexError, NotAnIndexError, StorageError
from . import keys
from .meta import State
from .records import REMEDY

#: Address space of a new map; only what is used takes memory or disk.
INITIAL_MAP = 1 << 30
#: Transactions that may read at once, in all processes; 64 bytes each in the lock file, and a page for the rest.
READERS = 1022
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
    try:
        if lock:
            lock = _make_lock_file(path, readonly)
        return _open(path, lock=lock, **options), lock
    except lmdb.Error as error:
        raise translated(error, path) from error


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
        if error.errno in _NO_ROOM:
            if new:
                os.unlink(name)
            if not (new and readonly):
                raise system_error(error, path) from error
            return False
    return True


def round_up(size: int, page: int) -> int:
    """``size`` in whole pages."""
    return (size + page - 1) // page * page


class errors:  # noqa: N801 - used like a function
    """LMDB's errors as ours, in a ``with`` block; a full map is the writer's own business."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, lmdb.Error) and not isinstance(error, lmdb.MapFullError):
            raise translated(error, self._path) from error


def translated(error: lmdb.Error, path: str) -> LsqIndexError:
    """One of LMDB's errors as ours."""
    if error.code in _NO_ROOM:
        return _full(error.code, path)
    # LMDB calls a write that was cut short, as the last one on a full disk is, an input/output error.
    if error.code == errno.EIO and _no_room(path):
        return _full(errno.ENOSPC, path)
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.BadTxnError | lmdb.PanicError):
        return DamagedError(f"{path}: LMDB says {error}; {REMEDY}")
    if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError):
        return NotAnIndexError(f"{path}: not an index ({error})")
    return StorageError(error.code or 0, f"{path}: {error}")


def system_error(error: OSError, path: str) -> LsqIndexError:
    """One of the system's errors as ours."""
    if error.errno in _NO_ROOM:
        return _full(error.errno, path)
    return StorageError(error.errno or 0, f"{path}: {error.strerror}")


def _no_room(path: str) -> bool:
    """Whether the disk, or what this process may write to a file, is about full."""
    with contextlib.suppress(OSError, ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY and os.path.getsize(path) + _LITTLE > limit:
            return True
    with contextlib.suppress(OSError, AttributeError):
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize < _LITTLE
    return False


def _full(code: int, path: str) -> DiskFullError:
    return DiskFullError(
        code, f"{path}: no room left for what was to be written ({os.strerror(code)}); make room, try again"
    )


_LITTLE = 16 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
