"""Vectors into an index: checked, encoded, and written in transactions of bounded size.

A transaction lives in memory until it is committed, so what is large is written in several: rows that nobody
sees, then one last transaction that makes them all visible. Killed in between, the next writer finds the
index as it was and removes what was left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._compiled.gate import Change
from .._inputs.arguments import check_bool
from .._inputs.ids import Ids, new_ids
from .._inputs.options import thread_count
from .._inputs.payloads import read_payloads
from .._inputs.vectors import BLOCK_ROWS, Vectors, as_array, blocks, open_rows, read_rows
from .._query.stored import Joined, StoredVectors
from .._storage.format import keys
from .._storage.format.columns import CHUNK_ROWS, Column, rows_within
from .._storage.format.kept import to_bytes, width
from .._storage.format.meta import Options, Training, review_due
from .._storage.format.upgrade import upgrade
from .._storage.lmdb.writer import COMMIT_BYTES, Writer
from .._storage.store import LAST_AUTO_ID, NewRows, Store
from .._subsets import stored as subsets
from .._threads.pool import in_parallel
from ..encoders.base import Progress as FitProgress
from ..encoders.coder import PART_ROWS, Coder
from ..errors import DuplicateIdError, IdError, VectorError, add_note
from . import retraining
from .together import Checked, commit_together
from .training import discard, recode, switch, write_codes

#: ``progress(rows done, rows in all)``; None where the number is not known.
Progress = Callable[[int, int | None], None]

#: After an add of so many rows, what the transaction itself did not list is listed at once.
_SETTLED_ROWS = 4 * CHUNK_ROWS

#: An addition of more bytes is committed by itself.
_SMALL = 1 << 20


class Addition(Change):
    """Vectors to be added, with ids (None: the next numbers) and payloads: checked, but the vectors not read yet.

    What is not too large is encoded before the writer's turn comes: while one writes, others encode.
    """

    def __init__(
        self,
        options: Options,
        vectors: Any,
        ids: Any,
        payloads: Any,
        *,
        upsert: bool,
        threads: int | None,
        checked: Checked | None = None,
    ) -> None:
        self.options, self.rows, self._checked = options, open_rows(vectors, options.dim), checked
        #: How many there are.
        self.count = n = int(self.rows.shape[0])
        self.upsert = upsert if upsert is False else check_bool("upsert", upsert)
        self.threads = 1 if threads is None and n <= BLOCK_ROWS else thread_count(threads)
        self.payloads = None if payloads is None else read_payloads(payloads, n, options.fields)
        self.ids = None if ids is None and options.ids == "int" else new_ids(ids, options.ids, n)
        self._ahead: tuple[Coder, tuple[NDArray[np.uint8], Any]] | None = None
        #: Additions of one kind can be inserted as one.
        self.kind = (self.upsert, self.ids is None, self.payloads is None)

    def encode_ahead(self, coder: Coder) -> int:
        """Encode now what :func:`add` will need if the coder is still the same then; about how many bytes to write."""
        size = self.bytes(coder)
        self.apart = size > _SMALL
        if size <= COMMIT_BYTES:
            self._ahead = coder, self.encoded(coder)
        return size

    def bytes(self, coder: Coder) -> int:
        """About how much they take in the file; more than ``COMMIT_BYTES`` are too many for one transaction."""
        kept = self.options.keep_vectors
        size = self.count * (coder.code_size + (width(self.options.dim, kept) if kept else 0) + 32)
        for column in self.payloads or ():
            size += sum(map(len, column))
        return size

    def new_rows(self, ids: Ids, codes: NDArray[np.uint8], vectors: Any, first: int = 0) -> NewRows:
        """Rows with these codes and kept vectors, which are of the vectors from ``first`` on."""
        end = first + len(codes)
        payloads = None if self.payloads is None else [column[first:end] for column in self.payloads]
        return NewRows(ids[first:end], codes, vectors, payloads)

    def encoded(self, coder: Coder, first: int = 0, end: int | None = None) -> tuple[NDArray[np.uint8], Any]:
        """Codes, and vectors as they are kept, of some of them, or of all."""
        if end is None and self._ahead is not None and self._ahead[0] is coder:
            return self._ahead[1]
        block, kept = read_rows(self.rows, slice(first, end), first=first), self.options.keep_vectors
        return coder.encode(block, self.threads), None if kept is None else self._kept(block, kept, first)

    def _kept(self, block: Vectors, kept: str, first: int) -> NDArray[np.uint8]:
        """Vectors as they are kept."""
        if len(block) <= PART_ROWS:
            return to_bytes(block, kept, first)
        starts = range(0, len(block), PART_ROWS)
        parts = in_parallel(lambda at: to_bytes(block[at : at + PART_ROWS], kept, first + at), starts, self.threads)
        return np.concatenate(parts)

    def named(self, next_id: int) -> Ids:
        """Their ids."""
        if self.ids is not None:
            return self.ids
        if next_id + self.count > LAST_AUTO_ID:
            raise IdError("ids: there are no unused numbers left; pass ids")
        return np.arange(next_id, next_id + self.count, dtype=np.int64)

    def coder(self, writer: Writer) -> Coder:
        """The coder for the writer, which may be of another thread."""
        assert self._checked is not None
        return self._checked(writer, self.options)

    def ready(self, writer: Writer, added: int) -> bool:
        """Whether another thread can insert it after ``added`` other rows: the index does not train itself for it."""
        coder = self.coder(writer)
        if not coder.trained and writer.state.count + added + self.count >= self.options.train_size:
            return False
        if not coder.floats:
            coder.check_present()
        return True

    def apply(self, writer: Writer, group: Sequence[Addition], *, nested: bool) -> None:
        """Insert all of ``group``, of which this is the first, in the open transaction."""
        names, end = [], writer.state.next_id
        for addition in group:
            names.append(addition.named(end))
            end += addition.count
        rows = _joined(names, group, [addition.encoded(addition.coder(writer)) for addition in group])
        insert(writer, rows, self.options, self.coder(writer), upsert=self.upsert, nested=nested)
        for addition, ids in zip(group, names, strict=True):
            addition.result = ids

    def check(self) -> None:
        """Look at every vector, before anything is written."""
        for first, block in blocks(self.rows):
            if self.options.keep_vectors is not None:
                to_bytes(block, self.options.keep_vectors, first)


def _joined(names: list[Ids], group: Sequence[Addition], encoded: list[tuple[Any, Any]]) -> NewRows:
    """The rows of several additions as one; DuplicateIdError where two of them have an id in common."""
    ids: Ids = np.concatenate(names) if isinstance(names[0], np.ndarray) else [*chain(*names)]
    if len(np.unique(ids) if isinstance(ids, np.ndarray) else set(ids)) < len(ids):
        raise DuplicateIdError("ids: several threads add one id at the same time")
    codes = np.concatenate([codes for codes, _ in encoded])
    vectors = None if encoded[0][1] is None else np.concatenate([vectors for _, vectors in encoded])
    payloads = None
    if group[0].payloads is not None:
        columns = zip(*(addition.payloads or () for addition in group), strict=True)
        payloads = [[*chain(*parts)] for parts in columns]
    return NewRows(ids, codes, vectors, payloads)


def add(
    writer: Writer,
    addition: Addition,
    coder: Coder,
    report: Progress | None = None,
    training_progress: FitProgress | None = None,
) -> None:
    """Add in the open transaction, and commit; ``addition.result`` are the ids.

    Trains first, where enough vectors are there now.
    """
    options, old, training, n = addition.options, coder, None, addition.count
    due = not coder.trained and n > 0 and _count_after(writer, addition) >= options.train_size
    if not coder.present and (due or not coder.floats):
        coder.check_present()  # before the vectors are read
    large = addition.bytes(coder) > COMMIT_BYTES
    if due or large or report:
        addition.apart = True
    changes = writer.together.take(addition)
    if len(changes) > 1:
        commit_together(writer, addition, changes)
        return
    if due or large:
        addition.check()
    if due:
        stored = StoredVectors(Store(writer, options), coder)
        both = Joined(stored, addition.rows)
        coder, training = retraining.first_fit(writer, options, coder, both, n, training_progress)
        large = addition.bytes(coder) > COMMIT_BYTES
    addition.result = ids = addition.named(writer.state.next_id)
    if large:
        if not addition.upsert:
            Store(writer, options).refuse_known(ids)
        review = _add_large(writer, addition, ids, old, coder, training, report)
    else:
        codes, vectors = addition.encoded(coder)
        if due:
            recode(writer, options, old, coder, addition.threads, writer.state.count + n, training)
        insert(writer, NewRows(ids, codes, vectors, addition.payloads), options, coder, upsert=addition.upsert)
        review = review_due(writer, retraining.LOOK)
        if report is not None:
            report(n, n)  # before the commit: if it raises, nothing was added
        writer.commit()
    if due or n >= _SETTLED_ROWS:
        subsets.settle(writer)
    if review or writer.state.next_generation:
        retraining.after_add(writer, options, coder, addition.rows, addition.threads, n, look=review)


def _count_after(writer: Writer, addition: Addition) -> int:
    """How many vectors there will be."""
    count = writer.state.count + addition.count
    if addition.upsert and addition.ids is not None and count >= addition.options.train_size:
        count -= int((Store(writer, addition.options).rows_of(addition.ids) >= 0).sum())
    return count


def insert(
    writer: Writer, rows: NewRows, options: Options, coder: Coder | None = None, *, upsert: bool, nested: bool = False
) -> None:
    """Insert rows, with codes of ``coder``, in the open transaction; None: rows that are there are written again."""
    if coder is not None and writer.get(keys.META, keys.SUBSET) is not None:
        subsets.choose(writer, coder, len(rows.codes))
    if rows.payloads is not None:
        writer.run(upgrade)  # older formats have no place for them
    writer.run(partial(_insert, options, rows, upsert), nested=nested)


def _insert(options: Options, rows: NewRows, upsert: bool, writer: Writer) -> None:
    gone = Store(writer, options).insert(rows, upsert=upsert)
    if writer.get(keys.META, keys.SUBSET) is not None:
        subsets.follow(writer, len(rows.codes), gone)


def _add_large(
    writer: Writer,
    addition: Addition,
    ids: Ids,
    old: Coder,
    coder: Coder,
    training: Training | None,
    report: Progress | None,
) -> bool:
    """Stage rows, and codes where the index was trained for them, in several transactions; then show all in one.

    Whether it is time to look if the encoder still suits the vectors.
    """
    options, n, at = addition.options, addition.count, 0
    first = writer.state.rows
    each = addition.bytes(coder) // n
    step = rows_within(COMMIT_BYTES, each)
    try:
        if addition.payloads is not None:
            writer.run(upgrade)
        column = None if coder is old else write_codes(writer, options, old, coder, addition.threads)
        while at < n:
            end = min(n, at + step)
            part = addition.new_rows(ids, *addition.encoded(coder, at, end), at)
            writer.run(partial(_stage, options, first + at, part, column))
            writer.commit()
            writer.begin(step * each)
            at = end
            if report is not None:
                report(at, n)
        if column is not None:
            switch(writer, options, coder, column, writer.state.count + n, training)
        subsets.choose(writer, coder, n)
        writer.run(partial(_publish, options, ids, addition.upsert))
        review = review_due(writer, retraining.LOOK)
        writer.commit()
        return review
    except BaseException:
        discard(writer, options)
        raise


def _stage(options: Options, first: int, part: NewRows, column: Column | None, writer: Writer) -> None:
    Store(writer, options).stage(first, part, column)


def _publish(options: Options, ids: Ids, upsert: bool, writer: Writer) -> None:
    gone = Store(writer, options).publish(ids, upsert=upsert)
    subsets.follow(writer, len(ids), gone)


def check_alone(ids: Any, payloads: Any) -> None:
    """IdError where ids or payloads come beside an iterator, and not with its batches."""
    if ids is not None or payloads is not None:
        raise IdError(
            "ids and payloads: with an iterator they come with its batches, as pairs (vectors, ids) or triples "
            "(vectors, ids, payloads)"
        )


def add_batches(add: Callable[..., Ids], batches: Iterator[Any], kind: str, report: Progress | None) -> Ids:
    """Add the batches of an iterator, each by ``add(vectors, …)``, a transaction of its own; all ids."""
    given: list[Any] = []
    done = 0
    try:
        for number, batch in enumerate(batches):
            parts = batch if isinstance(batch, tuple) and len(batch) in (2, 3) else (batch,)
            rows = as_array(parts[0], what=f"vectors of batch {number}")
            if len(rows.shape) < 2 and rows.shape != (0,):
                one = "a tuple whose first element is one row" if len(parts) > 1 else "one row"
                raise VectorError(
                    f"vectors of batch {number}: an iterator must give batches of shape (n, dim), and this is "
                    f"{one}; a batch is a list or an array of rows, or a tuple (vectors, ids) or (vectors, ids, "
                    "payloads)"
                )
            own = add(rows, *parts[1:])
            given.append(own)
            done += len(own)
            if report is not None:
                report(done, None)
    except BaseException as error:
        if done:
            add_note(error, f"add(): the first {done} vectors were added before this, and stay in the index")
        raise
    if kind == "str":
        return [name for names in given for name in names]
    return np.concatenate([np.empty(0, np.int64), *given])
