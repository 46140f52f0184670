"""The environment: one per file and process, shared by all who have the file open.

What LMDB asks of its users is answered in this package, and nowhere else:

- A process may open a file once: a registry by real path counts users (``registry.py``). A fork would share what must
  not be shared, so files are closed before it, or left to the parent (``forks.py``).
- The map has a size. When it is full, the transaction is rolled back, the map grown (``growth.py``), and everything
  the transaction did is done again (``writer.py``). Nobody in this process may be reading meanwhile: the gate.
- A file may be replaced as a whole (compact, save over it). Everyone notices by the file's identity, after the
  transaction began and before anything was read, and opens the new one (``reader.py``, ``opening.py``).
- Writers queue on a lock of the file, so that waiting can have an end (``locks.py``).
- All who use a file must share one lock file, which is found by the file's name. A file with a second name can be
  read, but not changed.

Ctrl-C may raise an exception between any two bytecodes, so everything that is taken here and given back later is held
by an object of ``cython_src/gate.pyx``, which says why nothing is ever left behind.
"""

from __future__ import annotations

import os

from ..._compiled.gate import Changes, Gate
from ...errors import BusyError, ClosedError, DamagedError
from ..format.records import REMEDY
from .errors import lmdb_errors
from .known import Known
from .opening import OpenFile, UpgradedError, open_file


class Env:
    """An open file and who is using it. Made by :mod:`registry`, with a name or without."""

    def __init__(self, path: str, *, sync: bool = True, memory: bool = False, private: bool = False) -> None:
        self.path = path
        self.memory = memory
        #: Nobody else can have it open: it needs no lock.
        self.private = memory or private
        self.pid = os.getpid()
        #: The users that the registry has given it to: a :class:`Lease` each.
        self.users = Gate()
        #: Whether the last of them is gone, for good.
        self.closed = False
        #: Inside: transactions, which the map must not move under. Alone: whoever moves it.
        self.gate = Gate()
        #: Alone: the thread that writes. And what others want to have written, which it may do for them.
        self.turn = Gate()
        self.changes = Changes()
        #: Raised whenever the path may lead to another file than before.
        self.opened = 0
        #: Raised whenever the map moves: all addresses known from before are void.
        self.moved = 0
        self.known = Known()
        self._sync = sync
        #: None while it is closed: before a fork, or after an interrupt. Whoever comes next opens it again.
        self.file: OpenFile | None = None
        #: A file is opened for reading until it is first written to.
        self.file = self._open(writable=self.private)

    def _open(self, *, writable: bool) -> OpenFile:
        return open_file(self.path, writable=writable, sync=self._sync, private=self.private, memory=self.memory)

    def reopen(self, *, writable: bool = False) -> None:
        """Open the file again: after it was replaced, after a fork, after a failed commit, or to write.

        If it is the same file as before, all that is known of it holds, but for addresses.
        """
        with self.gate.alone():
            if self.closed:
                raise ClosedError("the index is closed; Index.open opens it again")
            old, self.file = self.file, None
            known, self.known = self.known, Known()
            opened, self.opened = self.opened, self.opened + 1
            self.moved += 1
            # Only who holds the lock may open for writing.
            if old is None:
                self.file = self._open(writable=writable or self.private)
                return
            # Its number cannot be given to another file while it is open, so equal numbers mean the same file.
            with old.descriptor as descriptor:
                old.lmdb.close()
                file = self._open(writable=writable or self.private)
                if file.is_file(os.fstat(descriptor.fd)):
                    self.known, self.opened = known, opened
                self.file = file

    def forget(self) -> None:
        """Find, verify and decode everything again."""
        self.known = Known()
        self.moved += 1  # so that nobody uses the addresses that he kept

    def follow_upgrade(self, error: UpgradedError, *, writable: bool = False) -> None:
        """Open the file again, which another process has brought to a newer format."""
        self.reopen(writable=writable)
        if self.file is None or error.database not in self.file.dbs:
            raise DamagedError(f"{self.path}: the state has a newer format than the options; {REMEDY}")

    def check_outside(self) -> None:
        """BusyError where this thread is writing already: it would wait for itself."""
        if self.turn.mine:
            raise BusyError("this thread is in a batch of this index; use the batch, or leave it first")

    def close_file(self) -> None:
        """Let go of the file; nobody may be inside the gate."""
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def sync(self) -> None:
        """Everything committed is on the disk when this returns."""
        # What was never opened for writing has nothing to sync.
        with self.gate.enter(), lmdb_errors(self.path):
            if self.file is not None and self.file.writable:
                self.file.lmdb.sync(True)
