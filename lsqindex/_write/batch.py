"""Several changes as one transaction."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lmdb
from numpy.typing import ArrayLike

from .._compiled.gate import Block
from .._storage.format.meta import Options
from .._storage.lmdb.errors import lmdb_errors
from .._storage.lmdb.writer import Writer
from ..encoders.coder import Coder
from ..errors import BusyError, ClosedError, ForkedError
from . import add as loader
from . import retraining
from .delete import Deletion
from .payloads import PayloadChange

if TYPE_CHECKING:
    from typing_extensions import Self


class Batch(Block["Batch"]):
    """Several changes in one transaction.

    :meth:`Index.batch` creates it. Use it in a ``with`` block and in one thread. Nobody sees the changes, including
    searches of the same index, until the block ends. If the block raises an exception, none of them is made.

    Examples
    --------
    >>> from lsqindex import Index
    >>> index = Index(dim=2)
    >>> with index.batch() as batch:
    ...     _ = batch.add([[1, 2], [3, 4]], ids=[5, 6])
    ...     _ = batch.delete([5])
    >>> index.ids()
    array([6])
    """

    def __init__(
        self,
        begin: Callable[[Block[Any]], Writer],
        opened: Callable[[Writer], tuple[Options, Coder]],
        tidy: Callable[[Writer], None],
    ) -> None:
        super().__init__()
        self._begin_writing, self._opened, self._tidy = begin, opened, tidy
        self._writer: Writer | None = None
        self._owner = (0, 0)

    def _begin(self) -> Self:
        self._owner = (os.getpid(), threading.get_ident())
        self._writer = self._begin_writing(self)
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
        """Add an array of vectors, as :meth:`Index.add` does.

        Parameters
        ----------
        vectors, ids, payloads, upsert, threads
            As for :meth:`Index.add`; iterators are not accepted.

        Returns
        -------
        numpy.ndarray or list of str
            The ids of the vectors.

        Raises
        ------
        LsqIndexError
            As in :meth:`Index.add`. The batch then continues without this call.
        """
        writer = self._open()
        options, coder = self._opened(writer)
        addition = loader.Addition(options, vectors, ids, payloads, upsert=upsert, threads=threads)
        names = addition.named(writer.state.next_id)
        rows = addition.new_rows(names, *addition.encoded(coder))
        loader.insert(writer, rows, addition.options, coder, upsert=upsert, nested=True)
        return names

    def delete(self, ids: Any) -> int:
        """Delete vectors, as :meth:`Index.delete` does.

        Parameters
        ----------
        ids
            Ids, or a filter on payloads.

        Returns
        -------
        int
            How many vectors were deleted.
        """
        writer = self._open()
        options, _ = self._opened(writer)
        deletion = Deletion(options, ids)
        deletion.apply(writer, [deletion], nested=True)
        deleted: int = deletion.result
        return deleted

    def set_payloads(self, ids: Any, payloads: Any) -> None:
        """Replace payloads, as :meth:`Index.set_payloads` does.

        No other writer runs during the batch, so payloads that you read in it are still current.

        Parameters
        ----------
        ids
            Ids of existing vectors.
        payloads
            One mapping or None per id.

        Raises
        ------
        UnknownIdError
            If an id does not exist. The batch then continues without this call.

        Examples
        --------
        >>> from lsqindex import Index
        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2]], payloads=[{"seen": 1}, {"seen": 5}])
        >>> with index.batch() as batch:
        ...     batch.set_payloads([0, 1], [{"seen": own["seen"] + 1} for own in index.payloads([0, 1])])
        >>> index.payloads([0, 1])
        [{'seen': 2}, {'seen': 6}]
        """
        writer = self._open()
        PayloadChange(self._opened(writer)[0], ids, payloads).write(writer, nested=True)

    def _end(self, error: BaseException | None) -> None:
        writer = self._open()
        self._writer = None
        with lmdb_errors(writer.env.path):
            if isinstance(error, lmdb.Error):
                raise error
        if error is None:
            added = writer.rows_added
            writer.commit()
            retraining.after_batch(writer, self._opened, added)
            self._tidy(writer)

    def _open(self) -> Writer:
        pid, thread = self._owner
        if self._writer is None:
            raise ClosedError("the batch is not open; use it inside its block: with index.batch() as batch")
        if pid != os.getpid():
            raise ForkedError("a batch belongs to the process that started it; start another one in this process")
        if not self.entered:
            raise ClosedError("the batch was undone because its thread ended before the block; start another one")
        if thread != threading.get_ident():
            raise BusyError(
                "a batch belongs to the thread that started it, and is undone if another thread leaves it; "
                "start one in this thread"
            )
        return self._writer
