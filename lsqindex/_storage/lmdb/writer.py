"""The one writer of a file: its turn among threads and processes, and transactions that survive a full map."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import lmdb

from ..._compiled.gate import Block, Change, Group, LockFile, Pass, WriteBlock, WriteTransaction, in_place, last_state
from ...errors import BusyError, LsqIndexError, ReadOnlyError, StorageError
from ..format import keys
from ..format.meta import FORMAT, State
from ..format.upgrade import upgrade
from . import growth
from .env import Env
from .errors import lmdb_errors, system_error, translated
from .opening import UpgradedError
from .reader import forked, read_state

Result = TypeVar("Result")
#: What a write transaction does; done again, whole, when the map had to grow.
Operation = Callable[["Writer"], Result]
#: How long to wait for another writer: True, no longer than it takes; False, not at all; or seconds.
Wait = bool | float

_TRIES = 20

#: A transaction is committed when it has written about so much: LMDB keeps it in memory until then.
COMMIT_BYTES = 64 << 20
#: For so much the map is grown before a transaction begins. If less does not fit, the transaction is done again.
_MUCH = 1 << 20


class Writing(WriteBlock["Writer"]):
    """A ``with`` block that writes. Errors of LMDB leave it as ours."""

    def _translated(self, error: lmdb.Error) -> BaseException:
        return error if isinstance(error, lmdb.MapFullError) else translated(error, self.path)


def write(env: Env, wait: Wait = True) -> Writing:
    """The one writer of the file, in a ``with`` block: waits for its turn, as long as ``wait`` says."""
    return Writing(env.path, partial(Writer, env, wait))


class Writer(WriteTransaction):
    """A write transaction, or several one after another, while all other writers wait.

    ``run`` does operations and remembers them: when the map is full, here or at commit, the transaction is
    rolled back, the map grown, and all of them done again. Changes are made in ``run`` and nowhere else.

    An operation that stops in the middle, at an error or an interrupt, leaves a transaction that can only be undone.
    """

    def __init__(self, env: Env, wait: Wait, block: Block[Any], change: Change | None = None) -> None:
        """Wait for the turn, as long as ``wait`` says; it lasts until ``block`` is left.

        There is no turn, and nothing to write, if another thread has committed ``change`` by then (``change.done``).
        """
        if env.pid != os.getpid():
            raise forked(env)
        if env.turn.mine:
            env.check_outside()
        seconds = None if wait is True else float(wait)
        end = None if seconds is None else time.monotonic() + seconds
        if change is not None:
            block.hold(change).wait_in(env.changes)
        if not block.hold(Pass(env.turn)).alone(seconds, change):
            if change is not None and change.done:
                return
            raise BusyError(f"{env.path}: another thread is writing; wait=True waits for it")
        if not env.private:
            _lock(env, block, end)
        file = env.file
        if file is None or not file.writable:
            if not os.access(env.path, os.W_OK):
                raise ReadOnlyError(f"{env.path}: no permission to write to the file; open it with read_only=True")
            env.reopen(writable=True)
        self.env = env
        #: Inside the gate while a transaction is open: the map may not move under it.
        self.place = block.hold(Pass(env.gate))
        #: What other threads want to have written, as far as this transaction does it.
        self.together = block.hold(Group(env.changes, env.turn))
        self.state = State()
        #: The databases of this transaction, one that it made among them.
        self.dbs = {}
        #: Whether rows were moved, so that space may be spare now.
        self.moved_rows = False
        #: False: this transaction has written, so addresses found in it are its own (columns.py).
        self.clean = True
        self._log: list[Operation[Any]] = []
        self._before = State()
        #: False while the transaction is not what its operations, all of them and each as a whole, make of it.
        self._whole = True

    def begin(self, reserve: int = 0, *, whole: bool = True) -> None:
        """Begin a transaction that will write about ``reserve`` bytes; it is not ``whole`` before all is done again."""
        env, place = self.env, self.place
        for _ in range(_TRIES):
            place.enter()
            file = env.file
            if file is None or not file.writable:  # since a fork, or opened again by a reader
                place.leave()
                env.reopen(writable=True)
                continue
            try:
                need = growth.lacks(file, reserve) if reserve > _MUCH else 0
                if not need:
                    # The innermost transaction.
                    self.txn = txn = place.begin(file.lmdb, write=True)
                    if not env.private and (file.linked or file.lmdb.info()["last_txnid"] != txn.id() - 1):
                        file.check_one_lock_file(txn)
                    found = last_state(file, txn, writing=True) or read_state(file, txn, writing=True)
                    break
            except lmdb.MapResizedError:
                place.leave()
                growth.follow(env)
                continue
            except UpgradedError as error:
                self.abort()
                env.follow_upgrade(error, writable=True)
                continue
            except lmdb.Error as error:
                self.abort()
                raise translated(error, env.path) from error
            except BaseException:
                self.abort()
                raise
            place.leave()
            growth.grow(env, need)
        else:
            raise StorageError(
                f"{env.path}: other processes filled the map repeatedly before this change; try again later"
            )
        self.file = file
        self._before, self.dbs = found
        self.state = copy.copy(self._before)
        self.clean = True
        self._log = []
        self._whole = whole

    def run(self, operation: Operation[Result], *, nested: bool = False) -> Result:
        """Do ``operation``. After an error in a nested one the transaction goes on as it was before."""
        if not self._whole:
            raise StorageError(f"{self.env.path}: the transaction was interrupted and can only be undone; begin again")
        self._whole = False
        result = self._do(operation, nested)
        self._whole = True
        return result

    def _do(self, operation: Operation[Result], nested: bool = False) -> Result:
        while True:
            state, outer, kept = copy.copy(self.state) if nested else self.state, self.txn, False
            try:
                if nested:
                    self.txn = self.file.lmdb.begin(write=True, parent=outer, buffers=True)
                    self.clean = False
                with lmdb_errors(self.env.path):
                    result = operation(self)
                kept = True
                if nested:
                    self.txn.commit()
                    self.txn = outer
                self._log.append(operation)
                return result
            except lmdb.MapFullError:
                self.txn = outer
                self._replay()
            except BaseException:
                if nested and not kept:
                    if self.txn is not outer:
                        self.txn.abort()
                    self.txn, self.state = outer, state
                    self._whole = True
                raise

    @property
    def rows_added(self) -> int:
        """How many row numbers this transaction has given out."""
        return self.state.rows - self._before.rows

    def commit(self, number: int | None = None, *, always: bool = False) -> None:
        """Make it durable; when this returns, it is. Where nothing was changed nothing is written, unless ``always``.

        ``number``: the transaction's number as the state tells it, where the file will replace another.
        """
        if not self._whole:
            self.abort()
            raise StorageError(f"{self.env.path}: the transaction was interrupted; nothing was written, try again")
        if self.clean and self.state == self._before and number is None and not always:
            self.abort()  # nothing was changed
            self.together.commit(None)
            return
        if self.state.format < FORMAT:
            self.run(upgrade)
        while True:
            self.state.txn = self.txn.id() if number is None else number
            try:
                if not in_place(self.file) and self.file.replaced():
                    raise StorageError(f"{self.env.path}: the file was replaced; nothing was written, try again")
                record = self.state.to_record()
                with lmdb_errors(self.env.path):
                    self.put(keys.META, keys.STATE, record)
                    self.together.commit(self.txn)
                self.file.dbs = self.dbs
                # What the next transaction finds, unless another process comes first.
                self.file.last_state = (record, copy.copy(self.state), self.dbs)
                self.abort()  # of the transaction nothing is left but its place
                return
            except lmdb.MapFullError:
                self._replay()
            except LsqIndexError:
                self.abort()
                # What LMDB thinks of itself after a failed write is not known: begin anew.
                if not self.env.memory:
                    self.env.reopen(writable=True)
                raise
            except BaseException:
                self.abort()
                raise

    def abort(self) -> None:
        """Undo everything since ``begin``."""
        self.txn = None
        self.place.leave()

    def _replay(self) -> None:
        log, base = self._log, self._before.txn
        self.abort()
        self._whole = False
        growth.grow(self.env)
        self.begin(whole=False)
        if self.state.txn != base:
            self.abort()
            raise BusyError(f"{self.env.path}: another program has written to the file; nothing was changed, try again")
        for operation in log:
            self._do(operation)

    def append(self, db: bytes, key: bytes, value: bytes) -> None:
        """Store a value behind all others of its database, whose pages are then full."""
        self.clean = False
        self.txn.put(key, value, append=True, db=self.dbs[db])


def _lock(env: Env, block: Block[Any], end: float | None) -> None:
    """Hold the lock of the file that the path leads to until ``block`` is left; wait for it until ``end``."""
    while True:
        # A descriptor of its own: others may open the file again, or close it, meanwhile.
        try:
            held = block.hold(LockFile(env.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
            locked = held.lock(end)
        except OSError as error:
            raise system_error(error, env.path) from error
        if not locked:
            raise BusyError(f"{env.path}: another process is writing; wait=True waits for it")
        file, status = env.file, os.fstat(held.fd)
        same = file is not None and (status.st_dev, status.st_ino) == file.identity
        if file is not None and same and (in_place(file) or not file.replaced()):
            return
        held.leave()
        # Whoever replaced the file has left its lock behind.
        env.reopen()
