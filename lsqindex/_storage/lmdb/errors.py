"""Errors of LMDB and of the operating system, translated into those of the package."""

from __future__ import annotations

import contextlib
import errno
import os

import lmdb

from ..._compiled.gate import Translating
from ...errors import DamagedError, DiskFullError, IndexMissingError, LsqIndexError, NotAnIndexError, StorageError
from ..format.records import REMEDY

#: Transactions that may read at once, in all processes; 64 bytes each in the lock file, and a page for the rest.
READERS = 1022
#: What the system says when a disk, a quota or the size that a file may have is used up.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class lmdb_errors(Translating):  # noqa: N801 - used like a function
    """LMDB's errors as ours, in a ``with`` block; a full map is the writer's own business."""

    def _ours(self, error: BaseException) -> BaseException | None:
        if isinstance(error, lmdb.Error) and not isinstance(error, lmdb.MapFullError):
            return translated(error, self.path)
        return None


class system_errors(Translating):  # noqa: N801 - used like a function
    """The system's errors as ours, in a ``with`` block that calls nobody else's code."""

    def _ours(self, error: BaseException) -> BaseException | None:
        if isinstance(error, OSError) and not isinstance(error, LsqIndexError):
            return system_error(error, self.path)
        return None


def translated(error: lmdb.Error, path: str) -> LsqIndexError:
    """One of LMDB's errors as ours."""
    if error.code in NO_ROOM:
        return _full(error.code, path)
    # LMDB calls a write that was cut short, as the last one on a full disk is, an input/output error.
    if error.code == errno.EIO and _no_room(path):
        return _full(errno.ENOSPC, path)
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.BadTxnError | lmdb.PanicError):
        return DamagedError(f"{path}: LMDB reports {error}; {REMEDY}")
    if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError):
        return NotAnIndexError(f"{path}: not an index ({error})")
    if isinstance(error, lmdb.ReadersFullError):
        return StorageError(
            f"{path}: {READERS} transactions are reading the file, and no more are possible; "
            "read in fewer threads and processes at once"
        )
    return _refused(error.code or 0, path, str(error))


def system_error(error: OSError, path: str) -> LsqIndexError:
    """One of the system's errors as ours."""
    if error.errno in NO_ROOM:
        return _full(error.errno, path)
    if error.errno == errno.ENOENT:
        return IndexMissingError(f"{path}: the file does not exist, or was removed; Index.create makes one")
    return _refused(error.errno or 0, path, error.strerror or str(error))


def _refused(code: int, path: str, cause: str) -> StorageError:
    remedy = _REMEDIES.get(code)
    return StorageError(code, f"{path}: {cause}" + (f"; {remedy}" if remedy else ""))


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
    return DiskFullError(code, f"{path}: no space left to write ({os.strerror(code)}); free some space and try again")


_PERMISSIONS = "check the permissions of the file and its directory"
_REMEDIES = {
    errno.EMFILE: "close indexes or files that are not needed, or raise the limit of open files (ulimit -n)",
    errno.ENFILE: "too many files are open in the whole system; close some",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EROFS: "the file system is read-only; open the index with read_only=True",
    errno.ENOMEM: "free memory, or raise the limit of address space (ulimit -v)",
    errno.EIO: "the disk may be failing; check the system log, and save(path) to another disk",
    errno.ENOTDIR: "a part of the path is not a directory; check the path",
    errno.ELOOP: "symbolic links lead in a circle; check the path",
    errno.ENAMETOOLONG: "give it a shorter name",
}
_LITTLE = 16 << 20
