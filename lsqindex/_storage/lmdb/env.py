"""The life of an LMDB environment: one per file and process, shared by all who have the file open.

What LMDB asks of its users is answered here, and nowhere else:

- A process may open a file once: a registry by real path counts users. A fork would share what must not be shared.
  So files that nobody is using are closed before it, and parent and child each open them again. Files that are in
  use stay with the parent: the child leaves them alone, and opens them anew when it is asked to.
- The map has a size. When it is full, the transaction is rolled back, the map grown, and everything the
  transaction did is done again (:class:`Writer`); growth by another process is followed. Nobody in this
  process may be reading meanwhile: the gate.
- A file may be replaced as a whole (compact, save over it). Everyone notices by the file's identity, after
  the transaction began and before anything was read, and opens the new one.
- Writers queue on a lock of the file, so that waiting can have an end.
- All who use a file must share one lock file, which is found by the file's name. A file with a second name can be
  read, but not changed.

Ctrl-C may raise an exception between any two bytecodes, so everything that is taken here and given back later is held
by an object of ``cython_src/gate.pyx``, which says why nothing is ever left behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import lmdb

from ..._compiled.gate import Block, File, Gate, LockFile, Pass, locks
from ...errors import (
    BusyError,
    ClosedError,
    DamagedError,
    ForkedError,
    IndexMissingError,
    LinkedError,
    NotAnIndexError,
    ReadOnlyError,
    StorageError,
)
from ..format import keys
from ..format.meta import FORMAT, OvertakenError, State, check_format, read_state
from ..format.records import REMEDY
from . import engine, names, pages
from .writer import UpgradedError, Writer

try:
    import fcntl
except ImportError:  # Windows: writers wait in LMDB's own lock, without an end
    fcntl = None  # type: ignore[assignment]

_TRIES = 20

#: How long to wait for another writer: True, no longer than it takes; False, not at all; or seconds.
Wait = bool | float


class Reader:
    """A snapshot: one committed state, and the transaction that holds it."""

    def __init__(self, env: Env, place: Pass) -> None:
        self.env = env
        self.txn = place.txn
        #: Inside the gate; ``place.share()`` is for a thread that helps to read this snapshot.
        self.place = place
        self.state = read_state(env, self.txn)
        #: The databases of this snapshot: one from before an upgrade has fewer.
        self.dbs = env.databases(self.state)
        #: Addresses found in this snapshot stay valid in later ones (see columns.py).
        self.clean = True

    def get(self, db: bytes, key: bytes) -> Any:
        """The value, a view that lives as long as the transaction; None if there is none."""
        return self.txn.get(key, db=self.dbs[db])

    def cursor(self, db: bytes) -> Any:
        """A cursor of a database."""
        return self.txn.cursor(db=self.dbs[db])


class Reading(Block[Reader]):
    """A ``with`` block that reads one snapshot. Every search passes here."""

    def __init__(self, env: Env, check: Callable[[Reader], None] | None) -> None:
        self._env, self._check = env, check

    def _begin(self) -> Reader:
        env, tries = self._env, _TRIES
        place = self._place = self.hold(Pass(env.gate))
        with engine.errors(env.path):
            while True:
                env.begin_read(place)
                try:
                    reader = Reader(env, place)
                    if self._check is not None:
                        self._check(reader)
                    return reader
                except UpgradedError as error:
                    place.leave()
                    env.follow_upgrade(error)
                except OvertakenError:
                    place.leave()
                    tries -= 1
                    if not tries:
                        raise

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self._env.check_unchanged(self._place.txn)
        elif isinstance(error, lmdb.Error):
            with engine.errors(self._env.path):
                raise error


class Writing(Block[Writer]):
    """A ``with`` block that writes. Errors of LMDB leave it as ours."""

    def __init__(self, path: str | None, begin: Callable[[Block[Writer]], Writer]) -> None:
        super().__init__(begin)
        self._path = path or "in memory"

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, lmdb.Error):
            with engine.errors(self._path):
                raise error


class Lease(Pass):
    """One user of an environment, counted until it leaves or is freed."""

    def __init__(self, env: Env) -> None:
        super().__init__(env.users)
        self.env = env
        self.enter()


class Env:
    """An open file. Made by :func:`open_env` and :func:`memory_env`."""

    def __init__(self, path: str, *, sync: bool = True, memory: bool = False, private: bool = False) -> None:
        self.path = path
        #: A file is opened for reading until it is first written to: opening it for writing takes LMDB's lock of the
        #: writer for a moment, and would wait for one.
        self.readonly = not (memory or private)
        self.memory = memory
        #: Nobody else can have it open: it needs no lock.
        self._private = memory or private
        self.pid = os.getpid()
        #: The users that :func:`open_env` has given it to: a :class:`Lease` each.
        self.users = Gate()
        #: Whether the last of them is gone, for good.
        self.closed = False
        #: Inside: transactions, which the map must not move under. Alone: whoever moves it.
        self.gate = Gate()
        #: Alone: the thread that writes.
        self.turn = Gate()
        #: Raised whenever the file is opened again: it may be another one.
        self.opened = 0
        #: Raised whenever the map moves: all addresses known from before are void.
        self.moved = 0
        #: The state read last, and its record: most transactions find the same.
        self.last_state: tuple[bytes, State] | None = None
        #: Per column: addresses of the last snapshot (columns.py keeps them here).
        self.columns: dict[Any, Any] = {}
        self._sync = sync
        self._asleep: Pass | None = None
        self._file: File | None = None
        self._identity = (0, 0)
        #: Whether LMDB has a lock file, where writers see who is reading.
        self._protected = True
        #: Whether the file has another name, where others use another lock file.
        self.linked = False
        self.dbs: dict[bytes, Any] = {}
        self.page_size = 0
        self.lmdb: Any = None
        with _registry_lock:
            _alive.add(self)
        self._open()

    # -- opening ------------------------------------------------------------------------------

    def _open(self) -> None:
        for _ in range(_TRIES):
            try:
                # (A pipe must not make us wait for its other end.)
                flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
                self._file = File(self.path, flags)
            except FileNotFoundError as error:
                raise IndexMissingError(f"{self.path}: no such file; Index.create makes one") from error
            except OSError as error:
                raise engine.system_error(error, self.path) from error
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                self.close_files()
                raise NotAnIndexError(f"{self.path}: is not a regular file")
            try:
                status = os.fstat(self._fd)
                self._identity = (status.st_dev, status.st_ino)
                self.page_size = pages.read_metas(self._fd, self.path)[0].page_size
                self.lmdb, self._protected = engine.open_file(
                    self.path,
                    status.st_size,
                    readonly=self.readonly,
                    sync=self._sync,
                    lock=self.memory or not self._private,
                )
                # If the file was replaced while it was being opened, LMDB may have either one.
                if not self.replaced() and self._pages_checked():
                    self.dbs = self._open_databases()
                    return
            except lmdb.MapResizedError:
                pass  # another process has made the file larger than the map: open it again
            except lmdb.Error as error:
                self.close_files()
                raise engine.translated(error, self.path) from error
            except BaseException:
                self.close_files()
                raise
            self.close_files()
        raise StorageError(f"{self.path}: is being replaced all the time")

    def _pages_checked(self) -> bool:
        """Check LMDB's pages before it reads them; False if the file was replaced meanwhile."""
        with self.begin() as txn:
            if pages.check_snapshot(self._fd, self.path, txn.id()):
                return True
        # The new file shares the lock file, where LMDB has found the number of a transaction of the new one.
        if self.replaced():
            return False
        raise DamagedError(f"{self.path}: the lock file names a transaction that the file does not have; {REMEDY}")

    def check_pages(self, reader: Reader) -> None:
        """Look closely at LMDB's pages, those of a snapshot or of a later one; DamagedError if they are unsound."""
        pages.check_snapshot(self._fd, self.path, reader.txn.id(), deep=True)

    def _open_databases(self) -> dict[bytes, Any]:
        try:
            with self.begin() as txn:
                if keys.META not in {bytes(name) for name in txn.cursor().iternext(keys=True, values=False)}:
                    raise NotAnIndexError(f"{self.path}: an LMDB file of another program, not an index")
            meta = self.lmdb.open_db(keys.META, create=False)
            with self.begin() as txn:
                names = {bytes(name) for name in txn.cursor().iternext(keys=True, values=False)}
                options = txn.get(keys.OPTIONS, db=meta)
                number = FORMAT if options is None else int(check_format(options)["format"])
            wanted = keys.databases(number)
            if not names >= set(wanted):
                raise NotAnIndexError(f"{self.path}: an LMDB file of another program, not an index")
            return {name: self.lmdb.open_db(name, create=False) for name in wanted}
        except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
            raise NotAnIndexError(f"{self.path}: an LMDB file of another program, not an index ({error})") from error

    def databases(self, state: State) -> dict[bytes, Any]:
        """The databases of a snapshot; UpgradedError where it has more than were there when the file was opened."""
        wanted = keys.databases(state.format)
        if wanted[-1] not in self.dbs:
            raise UpgradedError(wanted[-1])
        return self.dbs if len(wanted) == len(self.dbs) else {name: self.dbs[name] for name in wanted}

    def follow_upgrade(self, error: UpgradedError, *, writable: bool = False) -> None:
        """Open the file again, which another process has brought to a newer format."""
        self.reopen(writable=writable)
        if error.database not in self.dbs:
            raise DamagedError(f"{self.path}: the state is of a newer format than the options; {REMEDY}")

    def begin(self, *, write: bool = False, parent: Any = None) -> Any:
        """A transaction of LMDB, outside of the gate or within another one."""
        return self.lmdb.begin(write=write, parent=parent, buffers=True)

    def check_one_lock_file(self, txn: Any) -> None:
        """Before a transaction writes: LinkedError where somebody may use this file with another lock file.

        Then neither would know of the other. LMDB counts transactions in the lock file. If the file has a newer one,
        the next commit would undo it.
        """
        if self._private:
            return
        if os.fstat(self._fd).st_nlink > 1:
            names.remove_dead(self.path, self._identity)
            if os.fstat(self._fd).st_nlink > 1:
                raise LinkedError(
                    f"{self.path}: the file has another name (a hard link), and can only be read; "
                    "remove the other name, or write to a copy (save(path), or cp)"
                )
        newest = max(meta.txn for meta in pages.read_metas(self._fd, self.path))
        if newest != txn.id() - 1:
            raise LinkedError(
                f"{self.path}: the file has transaction {newest}, and its lock file knows of {txn.id() - 1}: another "
                "process uses the file with another lock file (by another name, or this one was removed while the "
                "index was open); close the index in all processes, and open it by one name"
            )

    @property
    def _fd(self) -> int:
        return -1 if self._file is None else self._file.fd

    def replaced(self) -> bool:
        """Whether the path now leads to another file than the one that is open."""
        if self.memory:
            return False
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            # The name is gone. If the file has another one now, those who open it there do not know of us.
            self.linked = self._fd >= 0 and os.fstat(self._fd).st_nlink > 0
            return False
        except OSError as error:
            raise engine.system_error(error, self.path) from error
        self.linked = there.st_nlink > 1
        return not self.is_file(there)

    def is_file(self, status: os.stat_result) -> bool:
        """Whether this is the file of which the system gave ``status``."""
        return (status.st_dev, status.st_ino) == self._identity

    def close_files(self) -> None:
        """Let go of the file; nobody may be inside the gate."""
        self.dbs = {}  # first: whoever comes now, or after an interrupt in between, opens the file again
        if self.lmdb is not None:
            self.lmdb.close()
            self.lmdb = None
        if self._file is not None:
            self._file.leave()

    def reopen(self, *, writable: bool = False) -> None:
        """Open the file again: after it was replaced, after a fork, after a failed commit, or to write."""
        with self.gate.alone():
            if self.closed:
                raise ClosedError("the index is closed; Index.open opens it again")
            self.close_files()
            # Only who holds the lock may open for writing.
            self.readonly = not (writable or self._private)
            self.moved += 1
            self.opened += 1
            self.columns.clear()
            self._open()

    def close(self, lease: Lease | None = None) -> None:
        """One user less; the last one closes the file. Closing again, or from several threads at once, is no error."""
        if lease is not None:
            lease.leave()
        if self.users.inside:
            return
        # Not under the registry's lock: whoever is inside the gate may need that to get out.
        with self.gate.alone():
            with _registry_lock:
                if self.users.inside:  # somebody opened it meanwhile
                    return
                self.closed = True  # from here on nobody will: see open_env
            self.close_files()
            with _registry_lock:
                if _registry.get(self.path) is self:
                    del _registry[self.path]

    def __del__(self) -> None:
        # An index in memory that was saved to a file: the last reader lets go of it. (All others are closed by then.)
        # When the interpreter ends, modules may be gone already: this uses none of their names.
        try:
            if self._private:
                self.close_files()
        except Exception:
            return

    def sleep(self) -> bool:
        """Before a fork: close the file and let nobody in, if nobody is using it now."""
        if self.memory or self.gate.inside:
            return False
        place = Pass(self.gate)
        if not place.alone(0):
            return False
        self._asleep = place
        self.close_files()
        return True

    def wake(self, *, child: bool) -> None:
        """After a fork: whoever comes next opens the file again."""
        if child:
            self.pid = os.getpid()
            self.gate, self.turn = Gate(), Gate()
        self._asleep = None

    def abandon(self) -> None:
        """After a fork, in the child: the file was in use, and what is open stays with the parent."""
        engine.abandon(self.lmdb, self.path)
        self.dbs = {}
        self.lmdb, self._file = None, None

    # -- reading ------------------------------------------------------------------------------

    def read(self, check: Callable[[Reader], None] | None = None) -> Reading:
        """A snapshot to read from, in a ``with`` block; nothing of it may be kept beyond. ``check`` sees it first."""
        return Reading(self, check)

    def begin_read(self, place: Pass) -> None:
        """Enter the gate and begin a transaction to read with; it ends when ``place`` leaves."""
        for _ in range(_TRIES):
            again: Callable[[], None] | None = None
            place.enter()
            try:
                if self.dbs:
                    place.begin(self.lmdb)
                else:
                    again = self.reopen
            except lmdb.MapResizedError:
                again = self.follow_map
            except lmdb.ReadersFullError:
                if not self.lmdb.reader_check():
                    raise StorageError(f"{self.path}: {engine.READERS} transactions are reading already") from None
                again = _nothing
            # (Who writes reads the file it writes to; the commit will notice.)
            if again is None and not self.turn.mine and self.replaced():
                again = self.reopen
            if again is None:
                return
            place.leave()
            again()
        raise StorageError(f"{self.path}: is being changed all the time")

    def check_unchanged(self, txn: Any) -> None:
        """If no writer knows of this reader, what it has read is good only if nobody has written since."""
        if self._private or (self._protected and not self.linked):
            return
        if max(meta.txn for meta in pages.read_metas(self._fd, self.path)) != txn.id():
            why = "by another of its names" if self.linked else "and there is no lock file"
            raise StorageError(f"{self.path}: the file was changed while it was read, {why}; try again")

    def follow_map(self) -> None:
        """Take over the map size that another process chose."""
        with self.gate.alone():
            self.moved += 1
            if self.dbs:
                self.lmdb.set_mapsize(0)

    def lacks(self, room: int) -> int:
        """How large the map must be for ``room`` more bytes; 0 if it is."""
        info = self.lmdb.info()
        used = (info["last_pgno"] + 1) * self.page_size
        return engine.round_up(used + 2 * room, self.page_size) if used + room > info["map_size"] else 0

    def grow(self, least: int = 0) -> None:
        """Double the map, or more."""
        with self.gate.alone():
            self.moved += 1
            if self.dbs:
                self.lmdb.set_mapsize(max(2 * self.lmdb.info()["map_size"], least))

    def file_size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._fd).st_size

    def free_bytes(self, reader: Reader | Writer) -> int:
        """Bytes of the file that hold nothing now and are used next."""
        trees = [reader.txn.stat(db) for db in reader.dbs.values()] + [self.lmdb.stat()]
        used = sum(tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"] for tree in trees)
        return int(max(0, self.lmdb.info()["last_pgno"] - 1 - used) * trees[0]["psize"])

    def database_bytes(self, source: Reader | Writer, name: bytes) -> int:
        """Bytes of the file that a database takes."""
        if name not in source.dbs:
            return 0
        tree = source.txn.stat(source.dbs[name])
        return int((tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"]) * tree["psize"])

    def sync(self) -> None:
        """Everything committed is on the disk when this returns."""
        # What was never opened for writing has nothing to sync.
        with self.gate.enter(), engine.errors(self.path):
            if self.dbs and not self.readonly:
                self.lmdb.sync(True)

    # -- writing ------------------------------------------------------------------------------

    def write(self, wait: Wait = True) -> Writing:
        """The one writer of the file, in a ``with`` block: waits for its turn, as long as ``wait`` says."""
        return Writing(self.path, partial(self.take_turn, wait))

    def take_turn(self, wait: Wait, block: Block[Any]) -> Writer:
        """The one writer of the file, until ``block`` is left."""
        self.check_outside()
        end = None if wait is True else time.monotonic() + float(wait)
        if not block.hold(Pass(self.turn)).alone(None if wait is True else float(wait)):
            raise BusyError(f"{self.path}: another thread is writing; wait=True waits for it")
        if not (self._private or fcntl is None):
            self._lock(block, end)
        if self.readonly:
            self._become_writable()
        return Writer(self, block.hold(Pass(self.gate)))

    def check_outside(self) -> None:
        """BusyError where this thread is writing already: it would wait for itself."""
        if self.turn.mine:
            raise BusyError("this thread is in a batch of this index: use the batch, or leave it first")

    def _lock(self, block: Block[Any], end: float | None) -> None:
        """Hold the lock of the file that the path leads to until ``block`` is left; wait for it until ``end``."""
        while True:
            # A descriptor of its own: others may open the file again, or close it, meanwhile.
            try:
                file = LockFile(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise engine.system_error(error, self.path) from error
            block.hold(file)
            self._flock(file.fd, end)
            if self.is_file(os.fstat(file.fd)) and not self.replaced():
                return
            file.leave()
            # Whoever replaced the file has left its lock behind.
            self.reopen()

    def _become_writable(self) -> None:
        if not os.access(self.path, os.W_OK):
            raise ReadOnlyError(f"{self.path}: the system does not let us write to it")
        self.reopen(writable=True)

    def _flock(self, fd: int, end: float | None) -> None:
        pause = 0.0005
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if end is None else fcntl.LOCK_NB))
                return
            except BlockingIOError:
                if end is not None and time.monotonic() >= end:
                    raise BusyError(f"{self.path}: another process is writing; wait=True waits for it") from None
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                    return  # no such locks on this file system: LMDB's own must do
                raise StorageError(f"{self.path}: cannot be locked ({error.strerror})") from error


# -- one environment per file and process ---------------------------------------------------------

_registry: dict[str, Env] = {}
_registry_lock = threading.RLock()
_asleep: list[Env] = []
#: Every environment of this process, those without a name included.
_alive: weakref.WeakSet[Env] = weakref.WeakSet()


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


def open_env(path: str | os.PathLike[str], *, sync: bool = True) -> Lease:
    """A lease of the environment of that file, shared within the process; ``Env.close`` when done."""
    real = os.path.realpath(os.fspath(path))
    while True:
        with _registry_lock:
            env = _registry.get(real)
            if env is None:
                _check_other_names(real)
                env = _registry[real] = Env(real, sync=sync)
                return Lease(env)
            if not env.closed:
                if not os.path.lexists(real):  # it is open, but nobody will ever find it again
                    raise IndexMissingError(f"{path}: no such file; Index.create makes one")
                return Lease(env)
        env.close()  # or wait until whoever closes it has done so


def _check_other_names(path: str) -> None:
    """LinkedError where the file is open in this process by another name: LMDB would mix up the locks of the two."""
    try:
        status = os.stat(path)
    except OSError:
        return  # opening it tells why
    for env in _registry.values():
        if env.lmdb is not None and env.is_file(status):
            raise LinkedError(
                f"{path}: the file is open in this process by another name, {env.path}; use that name, or close it"
            )


def memory_env(build: Callable[[Env], None]) -> Lease:
    """A lease of an environment without a file: pages of anonymous memory, gone when it is closed."""
    with engine.system_errors(tempfile.gettempdir()):
        directory = tempfile.mkdtemp(prefix="lsqindex-")
    path = os.path.join(directory, "index")
    fd = -1
    try:
        with engine.errors(path), engine.system_errors(path):
            if hasattr(os, "memfd_create"):
                fd = os.memfd_create("lsqindex")
                os.symlink(f"/proc/self/fd/{fd}", path)
            engine.create(path)
            lease = Lease(Env(path, sync=False, memory=True))
    finally:
        if fd >= 0:
            os.close(fd)
        for name in (path, path + "-lock"):
            with contextlib.suppress(OSError):
                os.unlink(name)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    try:
        build(lease.env)
    except BaseException:
        lease.env.close(lease)
        raise
    return lease


def _nothing() -> None:
    """No cure is needed: try again."""


def _before_fork() -> None:
    _registry_lock.acquire()
    _asleep.extend(env for env in _registry.values() if env.sleep())


def _after_in_parent() -> None:
    for env in _asleep:
        env.wake(child=False)
    _asleep.clear()
    _registry_lock.release()


def _after_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()
    for env in list(_alive):
        if env in _asleep:
            env.wake(child=True)
        else:
            env.abandon()
            if _registry.get(env.path) is env:
                del _registry[env.path]
    _asleep.clear()
    for fd in locks:
        os.close(fd)
    locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def check_process(env: Env) -> None:
    """ForkedError where ``env`` belongs to the parent of this process."""
    if env.pid == os.getpid():
        return
    if env.memory:
        raise ForkedError("an index in memory stays with the process that made it: save(path) it, and open that here")
    raise ForkedError("the index was in use when this process was forked; open it again here, with Index.open")
