"""The writing side of an environment: a transaction that survives a full map."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import lmdb

from ..._compiled.gate import Pass, Transaction
from ..._compiled.records import overflow_sound
from ...errors import BusyError, DamagedError, LsqIndexError, StorageError
from ..format import keys
from ..format.meta import FORMAT, State
from ..format.records import REMEDY
from ..format.upgrade import upgrade
from . import growth
from .env import Env
from .errors import lmdb_errors, translated
from .opening import UpgradedError
from .reader import read_state

Result = TypeVar("Result")
#: What a write transaction does; done again, whole, when the map had to grow.
Operation = Callable[["Writer"], Result]

_TRIES = 20

#: A transaction is committed when it has written about so much: LMDB keeps it in memory until then.
COMMIT_BYTES = 64 << 20


class Writer(Transaction):
    """A write transaction, or several one after another, while all other writers wait.

    ``run`` does operations and remembers them: when the map is full, here or at commit, the transaction is
    rolled back, the map grown, and all of them done again. Changes are made in ``run`` and nowhere else.

    An operation that stops in the middle, at an error or an interrupt, leaves a transaction that can only be undone.
    """

    def __init__(self, env: Env, place: Pass) -> None:
        self.env = env
        #: Inside the gate while a transaction is open: the map may not move under it.
        self.place = place
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

    def begin(self, reserve: int = 0) -> None:
        """Begin a transaction that will write about ``reserve`` bytes."""
        self._begin(reserve)
        self._whole = True

    def _begin(self, reserve: int = 0) -> None:
        env, place = self.env, self.place
        for _ in range(_TRIES):
            place.enter()
            file, need = env.file, 0
            if file is None or not file.writable:  # since a fork, or opened again by a reader
                place.leave()
                env.reopen(writable=True)
                continue
            try:
                need = growth.lacks(file, reserve)
                if not need:
                    # The innermost transaction.
                    self.txn = place.begin(file.lmdb, write=True)
                    file.check_one_lock_file(self.txn)
                    self._before = read_state(file, self.txn, writing=True)
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
            raise StorageError(f"{env.path}: the map grows all the time")
        self.file, self.state, self.dbs = file, copy.copy(self._before), file.databases(self._before)
        self.clean = True
        self._log = []

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
            state, outer, kept = copy.copy(self.state), self.txn, False
            try:
                if nested:
                    self.txn = self.file.begin(write=True, parent=outer)
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
            return
        if self.state.format < FORMAT:
            self.run(upgrade)
        while True:
            self.state.txn = self.txn.id() if number is None else number
            try:
                if self.file.replaced():
                    raise StorageError(f"{self.env.path}: was replaced meanwhile; nothing was written, try again")
                record = self.state.to_record()
                with lmdb_errors(self.env.path):
                    self.put(keys.META, keys.STATE, record)
                    self.txn.commit()
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
        self._begin()
        if self.state.txn != base:
            self.abort()
            raise BusyError(f"{self.env.path}: another program wrote meanwhile; nothing was changed, try again")
        for operation in log:
            self._do(operation)

    def put(self, db: bytes, key: bytes, value: bytes) -> None:
        """Store a value."""
        old = self.get(db, key)
        self.guard(key, old)
        self.clean = False
        # LMDB overwrites a large value of this transaction in place and never shrinks its pages.
        if old is not None and len(old) != len(value):
            self.txn.delete(key, db=self.dbs[db])
        self.txn.put(key, value, db=self.dbs[db])

    def delete(self, db: bytes, key: bytes) -> None:
        """Remove a value."""
        self.guard(key, self.get(db, key))
        self.clean = False
        self.txn.delete(key, db=self.dbs[db])

    def guard(self, key: Any, value: Any) -> None:
        """DamagedError where LMDB would free other pages than those of ``value``, which is to go."""
        if value is not None and not overflow_sound(value, len(key), self.file.page_size):
            raise DamagedError(f"{self.env.path}: an overflow page is damaged; {REMEDY}")
