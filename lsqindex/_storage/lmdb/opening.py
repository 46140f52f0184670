"""Opening a file: everything that is checked before LMDB reads a page, and what is then open.

LMDB trusts its file, so its pages are checked first (``pages.py``). The path may lead to another file at any moment
(compact, save over it): a file that was replaced while it was being opened is opened again.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import Any

import lmdb

from ..._compiled.gate import File
from ...errors import DamagedError, IndexMissingError, LinkedError, NotAnIndexError, StorageError
from ..format import keys
from ..format.meta import FORMAT, State, check_format
from ..format.records import REMEDY
from . import names, pages
from .errors import NO_ROOM, READERS, system_error, translated

#: Address space of a new map; only what is used takes memory or disk.
INITIAL_MAP = 1 << 30
_LOCK_BYTES = 64 * READERS + 4096
_TRIES = 20
#: py-lmdb's message for a file that it has open; how often, and after how many seconds, to try again.
_ALREADY_OPEN = "is already open in this process"
_OPEN_TRIES, _PAUSE = 100, 0.002
#: (A pipe must not make us wait for its other end.)
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class UpgradedError(Exception):
    """Another process has brought the file to a newer format since it was opened here: open it again."""

    def __init__(self, database: bytes) -> None:
        super().__init__(database)
        #: What the file has since then.
        self.database = database


class OpenFile:
    """A file that is open: LMDB's environment, its databases, and a descriptor of our own. Freeing it closes it."""

    def __init__(self, path: str, *, writable: bool, sync: bool, private: bool, memory: bool) -> None:
        self.path = path
        #: Opening for writing takes LMDB's lock of the writer for a moment, and would wait for one.
        self.writable = writable
        #: Nobody else can have it open: it needs no lock.
        self.private = private
        #: It has no name, so nobody can replace it.
        self.unnamed = memory
        #: Whether the file has another name, where others use another lock file.
        self.linked = False
        self._sync = sync
        try:
            self.descriptor = File(path, _FLAGS)
        except FileNotFoundError as error:
            raise IndexMissingError(f"{path}: the file does not exist; Index.create makes one") from error
        except OSError as error:
            raise system_error(error, path) from error
        self.identity = (0, 0)
        self.page_size = 0
        #: LMDB's environment; and whether it has a lock file, where writers see who is reading.
        self.lmdb: Any = None
        self.protected = True
        self.dbs: dict[bytes, Any] = {}
        #: The state that was read last: its record, what it says, and its databases. Most transactions find the same.
        self.last_state: tuple[bytes, State, dict[bytes, Any]] | None = None

    def close(self) -> None:
        """Close the file; no transaction may be open."""
        if self.lmdb is not None:
            self.lmdb.close()
        self.descriptor.leave()

    def open(self) -> bool:
        """Check LMDB's pages and open the databases; False if the path led to another file meanwhile."""
        fd = self.descriptor.fd
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotAnIndexError(f"{self.path}: not a regular file; pass the path of an index")
        self.identity = (status.st_dev, status.st_ino)
        self.page_size = pages.read_metas(fd, self.path)[0].page_size
        self._open_lmdb(status.st_size)
        # If the file was replaced while it was being opened, LMDB may have either one.
        if self.replaced():
            return False
        with self.lmdb.begin(buffers=True) as txn:
            if not pages.check_snapshot(fd, self.path, txn.id()):
                # A new file shares the lock file, where LMDB has found the number of a transaction of the new one.
                if self.replaced():
                    return False
                raise DamagedError(f"{self.path}: the lock file has a newer transaction than the file; {REMEDY}")
        try:
            self._open_databases()
        except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
            raise NotAnIndexError(
                f"{self.path}: an LMDB file of another program ({error}); pass the path of an index"
            ) from error
        return True

    def _open_lmdb(self, size: int) -> None:
        """Open LMDB's environment of the file, which has ``size`` bytes now."""
        lock = self.unnamed or not self.private
        if lock:
            lock = self.protected = _make_lock_file(self.path, readonly=not self.writable)
        self.lmdb = open_lmdb(
            self.path,
            create=False,
            lock=lock,
            max_readers=READERS,
            map_size=max(INITIAL_MAP, -(-size // 4096) * 4096 * (2 if self.writable else 1)),
            sync=self._sync,
            metasync=self._sync,
            meminit=False,
            readonly=not self.writable,
        )

    def _open_databases(self) -> None:
        meta = self.lmdb.open_db(keys.META, create=False)
        with self.lmdb.begin(buffers=True) as txn:
            there = set(map(bytes, txn.cursor().iternext(keys=True, values=False)))
            options = txn.get(keys.OPTIONS, db=meta)
            number = FORMAT if options is None else int(check_format(options)["format"])
        for name in keys.DATABASES_OF[number]:
            if name not in there:
                raise NotAnIndexError(f"{self.path}: an LMDB file of another program; pass the path of an index")
            self.dbs[name] = self.lmdb.open_db(name, create=False)

    def databases(self, state: State) -> dict[bytes, Any]:
        """The databases of a snapshot; UpgradedError where it has more than were there when the file was opened."""
        wanted = keys.DATABASES_OF[state.format]
        if wanted[-1] not in self.dbs:
            raise UpgradedError(wanted[-1])
        return self.dbs if len(wanted) == len(self.dbs) else {name: self.dbs[name] for name in wanted}

    def is_file(self, status: os.stat_result) -> bool:
        """Whether this is the file of which the system gave ``status``."""
        return (status.st_dev, status.st_ino) == self.identity

    def replaced(self) -> bool:
        """Whether the path now leads to another file than the one that is open."""
        if self.unnamed:
            return False
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            # The name is gone. If the file has another one now, those who open it there do not know of us.
            self.linked = os.fstat(self.descriptor.fd).st_nlink > 0
            return False
        except OSError as error:
            raise system_error(error, self.path) from error
        self.linked = there.st_nlink > 1
        return (there.st_dev, there.st_ino) != self.identity

    def check_one_lock_file(self, txn: Any) -> None:
        """Before a transaction writes: LinkedError where somebody may use this file with another lock file.

        Then neither would know of the other. LMDB counts transactions in the lock file. If the file has a newer one,
        the next commit would undo it.
        """
        if self.private:
            return
        if os.fstat(self.descriptor.fd).st_nlink > 1:
            names.remove_dead(self.path, self.identity)
            if os.fstat(self.descriptor.fd).st_nlink > 1:
                raise LinkedError(
                    f"{self.path}: the file has another name (a hard link), and can only be read; "
                    "remove the other name, or write to a copy (save(path), or cp)"
                )
        newest = pages.newest_txn(self.descriptor.fd, self.path)
        if newest != txn.id() - 1:
            raise LinkedError(
                f"{self.path}: the file has transaction {newest}, and its lock file knows of {txn.id() - 1}: another "
                "process uses the file with another lock file (by another name, or this one was removed while the "
                "index was open); close the index in all processes, and open it by one name"
            )

    def check_unchanged(self, txn: Any) -> None:
        """If no writer knows of this reader, what it has read is good only if nobody has written since."""
        if self.private or (self.protected and not self.linked):
            return
        if pages.newest_txn(self.descriptor.fd, self.path) != txn.id():
            why = "under another name" if self.linked else "and there is no lock file"
            raise StorageError(f"{self.path}: the file was changed while it was read, {why}; try again")

    def check_pages(self, txn: Any) -> None:
        """Look closely at LMDB's pages, those of a snapshot or of a later one; DamagedError if they are unsound."""
        pages.check_snapshot(self.descriptor.fd, self.path, txn.id(), deep=True)


def open_file(path: str, *, writable: bool, sync: bool, private: bool, memory: bool) -> OpenFile:
    """The file at ``path``, checked; typed errors for what is not an index, is damaged or cannot be opened."""
    for _ in range(_TRIES):
        try:
            file = OpenFile(path, writable=writable, sync=sync, private=private, memory=memory)
            try:
                if file.open():
                    return file
            except BaseException:
                file.close()
                raise
            file.close()
        except lmdb.MapResizedError:
            pass  # another process has made the file larger than the map: open it again
        except lmdb.Error as error:
            raise translated(error, path) from error
    raise StorageError(
        f"{path}: other processes replaced the file repeatedly while it was being opened; try again later"
    )


def open_lmdb(path: str, **options: Any) -> Any:
    """``lmdb.open``, tried again while it takes a new file for one that another thread is closing.

    py-lmdb knows open files by their inodes, and forgets one only after its file is closed: by then a new file may have
    the same number. (``env.py`` never opens a file twice.)
    """
    for _ in range(_OPEN_TRIES):
        try:
            return lmdb.open(path, subdir=False, lib_version=0, max_dbs=16, **options)
        except lmdb.Error as error:
            if _ALREADY_OPEN not in str(error):
                raise
            time.sleep(_PAUSE)
    raise StorageError(f"{path}: {_ALREADY_OPEN}, by other code than this package; close it there")


def _make_lock_file(path: str, *, readonly: bool) -> bool:
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
