"""Reading: a snapshot of the file, held by a transaction for as long as a ``with`` block lasts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import lmdb

from ..._compiled.gate import Pass, ReadBlock, Reader
from ...errors import DamagedError, ForkedError, StorageError
from ..format import keys
from ..format.meta import State
from ..format.records import REMEDY
from . import growth
from .env import Env
from .errors import lmdb_errors, translated
from .opening import OpenFile, UpgradedError

__all__ = ["OvertakenError", "Reader", "Reading", "forked", "read_state"]

_TRIES = 20


class Reading(ReadBlock):
    """A snapshot to read from, in a ``with`` block; nothing of it may be kept beyond. ``check`` sees it first."""

    def _anew(self, check: Callable[[Reader], None] | None) -> Reader:
        env, place, tries = self.env, self.place, _TRIES
        if env.pid != os.getpid():
            raise forked(env)
        with lmdb_errors(env.path):
            while True:
                file = _begin(env, place)
                try:
                    state, dbs = read_state(file, place.txn)
                    reader = Reader(env, file, place, state, dbs)
                    if check is not None:
                        check(reader)
                    return reader
                except UpgradedError as error:
                    place.leave()
                    env.follow_upgrade(error)
                except OvertakenError:
                    place.leave()
                    tries -= 1
                    if not tries:
                        raise

    def _translated(self, error: lmdb.Error) -> BaseException:
        return error if isinstance(error, lmdb.MapFullError) else translated(error, self.env.path)


def forked(env: Env) -> ForkedError:
    """The error for an environment that belongs to the parent of this process."""
    if env.memory:
        return ForkedError("an index in memory belongs to the process that made it; save(path) it, and open that here")
    return ForkedError("the index was in use when this process was forked; Index.open(path) opens it here")


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
                    raise
        else:
            again = env.reopen
        place.leave()
        if again is not None:
            again()
    raise StorageError(
        f"{env.path}: other processes replaced the file repeatedly while it was being read; try again later"
    )


class OvertakenError(DamagedError):
    """The state is of a later transaction than the snapshot's number.

    Damage, or two commits while a reader began: LMDB then gives it the pages of the second under the number from before
    the first. Another snapshot tells which.
    """


def read_state(file: OpenFile, txn: Any, *, writing: bool = False) -> tuple[State, dict[bytes, Any]]:
    """The state of the snapshot, which must be of the very transaction that LMDB says was the last; its databases."""
    value = txn.get(keys.STATE, db=file.dbs[keys.META])
    if value is None:
        raise DamagedError(f"{file.path}: the state is missing; {REMEDY}")
    record, last = bytes(value), file.last_state
    state = last[1] if last and last[0] == record else State.from_record(record)
    if state.txn != txn.id() - writing:
        if file.linked and not writing:
            raise StorageError(
                f"{file.path}: the file was changed under another name (renamed, or a hard link); "
                "open it by one name only"
            )
        if state.txn > txn.id():
            raise OvertakenError(
                f"{file.path}: the state is of transaction {state.txn}, and the lock file knows of {txn.id()}: another "
                "process uses the file with another lock file (close the index in all processes, and open it by one "
                f"name), or the file is damaged; {REMEDY}"
            )
        raise DamagedError(
            f"{file.path}: the state belongs to transaction {state.txn}, not to {txn.id() - writing}; {REMEDY}"
        )
    dbs = file.databases(state)
    file.last_state = (record, state, dbs)
    return state, dbs
