"""Several changes as one transaction."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import lmdb
from numpy.typing import ArrayLike

from .._compiled.gate import Block
from .._inputs.ids import once, read_ids
from .._storage.lmdb.errors import lmdb_errors
from .._storage.lmdb.writer import Writer
from .._storage.store import Store
from ..errors import BusyError, ClosedError, ForkedError
from . import add as loader
from .training import choose_tables

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..index import Index


class Batch(Block["Batch"]):
    """Made by :meth:`Index.batch`, used in a ``with`` block, in one thread.

    What it does is seen by nobody, searches of the same index included, until the block ends.
    """

    def __init__(self, index: Index) -> None:
        super().__init__()
        self._index = index
        self._writer: Writer | None = None
        self._owner = (0, 0)

    def _begin(self) -> Self:
        self._owner = (os.getpid(), threading.get_ident())
        self._writer = self._index._begin_writing(0, self)
        return self

    def add(
        self,
        vectors: ArrayLike,
        ids: Any = None,
        payloads: Any = None,
        *,
        upsert: bool = False,
        threads: int | None = None,
    ) -> Any:
        """As :meth:`Index.add`, of an array; after an error the batch goes on without it."""
        writer, index = self._open(), self._index
        addition = index._addition(vectors, ids, payloads, upsert, threads)
        names = addition.named(writer.state.next_id)
        coder = index._coder(writer)
        rows = addition.new_rows(names, *addition.encoded(coder))
        choose_tables(writer, coder, len(rows))
        loader.insert(writer, rows, addition.options, upsert=upsert, nested=True)
        return names

    def delete(self, ids: Any) -> int:
        """As :meth:`Index.delete`."""
        writer, index, options = self._open(), self._index, self._index._options
        allowed = index._allowed(ids) if isinstance(ids, Mapping) else once(read_ids(ids, options.ids, known=True))
        names = index._names_of(writer, allowed)
        return int(writer.run(lambda writer: Store(writer, options).delete(names), nested=True))

    def set_payloads(self, ids: Any, payloads: Any) -> None:
        """As :meth:`Index.set_payloads`. Nobody else writes meanwhile: what was read since the batch began still holds.

        >>> from lsqindex import Index
        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2]], payloads=[{"seen": 1}, {"seen": 5}])
        >>> with index.batch() as batch:
        ...     batch.set_payloads([0, 1], [{"seen": own["seen"] + 1} for own in index.payloads([0, 1])])
        >>> index.payloads([0, 1])
        [{'seen': 2}, {'seen': 6}]
        """
        self._index._payload_change(ids, payloads, nested=True)(self._open())

    def _end(self, error: BaseException | None) -> None:
        writer = self._open()
        self._writer = None
        with lmdb_errors(writer.env.path):
            if isinstance(error, lmdb.Error):
                raise error
        if error is None:
            added = writer.rows_added
            writer.commit()
            self._index._train_if_due(writer, added)

    def _open(self) -> Writer:
        pid, thread = self._owner
        if self._writer is None:
            raise ClosedError("the batch is over, or was not entered; use it in its block: with index.batch() as batch")
        if pid != os.getpid():
            raise ForkedError("a batch stays with the process that began it; begin another one in this process")
        if not self.entered:
            raise ClosedError("the batch was undone: its thread ended before it left the batch; begin another one")
        if thread != threading.get_ident():
            raise BusyError("a batch stays with the thread that began it; left by another thread it is undone")
        return self._writer
