"""Reading: a snapshot of the file, held by a transaction for as long as a ``with`` block lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lmdb

from ..._compiled.gate import Block, Pass
from ...errors import DamagedError, StorageError
from ..format import keys
from ..format.meta import State
from ..format.records import REMEDY
from . import growth
from .env import Env
from .errors import READERS, lmdb_errors
from .opening import OpenFile, UpgradedError

_TRIES = 20


class Reader:
    """A snapshot: one committed state, and the transaction that holds it."""

    def __init__(self, env: Env, file: OpenFile, place: Pass) -> None:
        self.env = env
        self.file = file
        self.txn = place.txn
        #: Inside the gate; ``place.share()`` is for a thread that helps to read this snapshot.
        self.place = place
        self.state = read_state(env, file, self.txn)
        #: The databases of this snapshot: one from before an upgrade has fewer.
        self.dbs = file.databases(self.state)
        #: Addresses found in this snapshot stay valid in later ones (see columns.py).
        self.clean = True

    def get(self, db: bytes, key: bytes) -> Any:
        """The value, a view that lives as long as the transaction; None if there is none."""
        return self.txn.get(key, db=self.dbs[db])

    def cursor(self, db: bytes) -> Any:
        """A cursor of a database."""
        return self.txn.cursor(db=self.dbs[db])


class Reading(Block[Reader]):
    """A snapshot to read from, in a ``with`` block; nothing of it may be kept beyond. ``check`` sees it first."""

    def __init__(self, env: Env, check: Callable[[Reader], None] | None = None) -> None:
        self._env, self._check = env, check
        self._file: OpenFile | None = None

    def _begin(self) -> Reader:
        env, tries = self._env, _TRIES
        place = self._place = self.hold(Pass(env.gate))
        with lmdb_errors(env.path):
            while True:
                file = self._file = _begin(env, place)
                try:
                    reader = Reader(env, file, place)
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
            if self._file is not None:
                self._file.check_unchanged(self._place.txn)
        elif isinstance(error, lmdb.Error):
            with lmdb_errors(self._env.path):
                raise error


def _begin(env: Env, place: Pass) -> OpenFile:
    """Enter the gate and begin a transaction to read with, which ends when ``place`` leaves; the file it reads."""
    for _ in range(_TRIES):
        again: Callable[[], None] | None = None
        place.enter()
        file = env.file
        if file is not None:
            try:
                place.begin(file.lmdb)
                # (Who writes reads the file it writes to; the commit will notice.)
                if env.turn.mine or not file.replaced():
                    return file
                again = env.reopen
            except lmdb.MapResizedError:
                again = lambda: growth.follow(env)  # noqa: E731
            except lmdb.ReadersFullError:
                if not file.lmdb.reader_check():
                    raise StorageError(f"{env.path}: {READERS} transactions are reading already") from None
        else:
            again = env.reopen
        place.leave()
        if again is not None:
            again()
    raise StorageError(f"{env.path}: is being changed all the time")


class OvertakenError(DamagedError):
    """The state is of a later transaction than the snapshot's number.

    Damage, or two commits while a reader began: LMDB then gives it the pages of the second under the number from before
    the first. Another snapshot tells which.
    """


def read_state(env: Env, file: OpenFile, txn: Any, *, writing: bool = False) -> State:
    """The state of the snapshot; it must be of the very transaction that LMDB says was the last."""
    value = txn.get(keys.STATE, db=file.dbs[keys.META])
    if value is None:
        raise DamagedError(f"{env.path}: the state is missing; {REMEDY}")
    data, known = bytes(value), env.known.state
    state = known[1] if known and known[0] == data else State.from_record(data)
    if state.txn != txn.id() - writing:
        if file.linked and not writing:
            raise StorageError(f"{env.path}: the file was changed by another of its names; open it by one name only")
        if state.txn > txn.id():
            raise OvertakenError(
                f"{env.path}: the state is of transaction {state.txn}, and the lock file knows of {txn.id()}: another "
                "process uses the file with another lock file (close the index in all processes, and open it by one "
                f"name), or the file is damaged; {REMEDY}"
            )
        raise DamagedError(f"{env.path}: the state is of transaction {state.txn}, not {txn.id() - writing}; {REMEDY}")
    env.known.state = (data, state)
    return state
