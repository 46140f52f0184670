"""A compacted copy: only living rows, numbered anew, in a new file without free pages.

Both ``save(path)`` and ``compact()`` are this; they differ in whose place the new file takes. Ids keep their
order, so their sorted blocks are copied with rows renumbered, and nothing is sorted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace as replace_fields
from functools import partial
from typing import Protocol

import numpy as np

from ..errors import Committed, DamagedError, IndexExistsError, NotAnIndexError, StorageError
from .format import keys, large_payloads, records, sorted_ids
from .format.columns import Column, RowNumbers, rows_within
from .format.meta import Options, read_training
from .format.records import REMEDY
from .format.rows import Rows
from .lmdb import files
from .lmdb.env import Env
from .lmdb.errors import lmdb_errors
from .lmdb.growth import file_size, free_bytes
from .lmdb.reader import Reader, Reading
from .lmdb.registry import close_env, open_env
from .lmdb.writer import COMMIT_BYTES, Wait, Writer, write
from .store import Store

#: ``progress(rows done, rows in all)``
Progress = Callable[[int, int], None]


class Derived(Protocol):
    """What is derived from the rows of a copy, and built again there: a subset structure."""

    def to_record(self) -> bytes:
        """Its configuration, as stored."""

    def catch_up(self, writer: Writer, *, everything: bool) -> None:
        """Build it from all rows, and commit."""


#: The subset structure that a copy of a snapshot gets.
Choice = Callable[[Reader | Writer], Derived | None]

#: What counts as a small file, and what is not worth the trouble.
_SMALL, _SLACK = 16 << 20, 64 << 10


def save_copy(
    snapshot: Callable[[], AbstractContextManager[Reader]],
    options: Options,
    path: str,
    wait: Wait,
    progress: Progress | None,
    choose: Choice,
) -> None:
    """A compacted copy of a snapshot at ``path``, which may hold an index already: it is replaced."""
    with files.new_file(path) as new:
        with snapshot() as source:
            derived = choose(source)
            _copy(source, options, new, progress, derived)
        _list_all(new, derived)
        # The snapshot is left by now: whoever waits for us must not be waited for.
        if not os.path.lexists(path):
            try:
                files.place(files.finish(new), os.path.realpath(path))
            except FileExistsError as error:
                raise IndexExistsError(
                    f"{path}: another process has created the file; nothing was changed, try again to replace it"
                ) from error
            return
        try:
            lease = open_env(path)
        except NotAnIndexError as error:
            raise IndexExistsError(
                f"{path}: the file exists, is not an index, and was not changed; save to another path"
            ) from error
        try:
            with write(lease.env, wait) as held, lmdb_errors(path):
                held.begin()
                _replace(new, held)
        finally:
            close_env(lease.env, lease)


def compact(writer: Writer, options: Options, progress: Progress | None, choose: Choice) -> None:
    """Put a compacted copy in the place of the file itself."""
    with files.new_file(writer.env.path) as new:
        derived = choose(writer)
        _copy(writer, options, new, progress, derived)
        _list_all(new, derived)
        _replace(new, writer)


def replace(
    writer: Writer,
    snapshot: Callable[[], AbstractContextManager[Reader]],
    options: Options,
    progress: Progress | None,
    choose: Choice,
) -> None:
    """Put a compacted copy of a snapshot of another index in the place of the file that ``writer`` holds."""
    with files.new_file(writer.env.path) as new:
        with snapshot() as source:
            derived = choose(source)
            _copy(source, options, new, progress, derived)
        _list_all(new, derived)
        _replace(new, writer)


def tidy_small(writer: Writer, options: Options, choose: Choice) -> None:
    """Compact a small file that is nearly half empty, after rows were moved in it.

    A moved chunk needs pages in a row, which a small file that is updated for ever runs out of: without this it would
    hold two or three times what it needs. In a large one the same few megabytes do not count, and it is left alone.
    """
    if not writer.moved_rows or writer.env.memory or writer.state.next_generation:
        return  # (a copy would begin again to rewrite codes for a new encoder, and again before that is done)
    writer.moved_rows = False
    # What the caller asked for is durable by now: a disk without room for a copy must not make it look undone.
    with Committed("the change was committed"):
        writer.begin()
        size = file_size(writer)
        used = size - free_bytes(writer)
        if used <= _SMALL and size > 1.6 * used + _SLACK:
            compact(writer, options, None, choose)
    writer.abort()


def _replace(new: Env, held: Writer) -> None:
    """Let a whole new file take the place of the one that ``held`` holds.

    It will go on from the old one's transaction number, so it must not be ahead of it; and as LMDB's two meta
    pages take turns, both numbers must be even, or both odd.
    """
    with write(new) as writer:
        writer.begin()
        while held.state.txn < writer.txn.id() or (held.state.txn - writer.txn.id()) % 2:
            held.commit(always=True)
            held.begin()
        writer.commit(held.state.txn)
    files.replace(files.finish(new), held)


def _copy(
    source: Reader | Writer, options: Options, new: Env, progress: Progress | None, derived: Derived | None
) -> None:
    """Everything of ``source``, committed to ``new``; rows have other numbers there, so nothing is listed yet."""
    old = Store(source, options)
    living = old.living()
    step = rows_within(COMMIT_BYTES, old.row_bytes())
    with write(new) as writer:
        writer.begin()
        writer.run(lambda writer: _copy_meta(source, options, derived, writer))
        for first in range(0, len(living), step):
            part = living[first : first + step]
            writer.run(partial(_copy_rows, source, old.columns(), first, part))
            writer.commit()
            writer.begin()
            if progress is not None:
                progress(first + len(part), len(living))
        writer.run(lambda writer: _copy_sorted(source, old.ids(), writer, living))
        writer.commit()
    with Reading(new) as reader:
        if reader.state.count != source.state.count or reader.get(keys.META, keys.OPTIONS) is None:
            raise StorageError(
                f"{new.path}: the copy is incomplete, and nothing was changed; check() tells what is damaged"
            )


def _list_all(new: Env, derived: Derived | None) -> None:
    """Build the subset structure of a copy from its codes."""
    if derived is not None:
        with write(new) as writer:
            writer.begin()
            derived.catch_up(writer, everything=True)


def _copy_meta(source: Reader | Writer, options: Options, derived: Derived | None, writer: Writer) -> None:
    writer.put(keys.META, keys.OPTIONS, options.to_record())
    writer.put(keys.META, keys.ENCODER, bytes(source.get(keys.META, keys.ENCODER)))
    if derived is not None:
        writer.put(keys.META, keys.SUBSET, derived.to_record())
    for name in ("next_id", "generation", "code_size", "head", "payloads", "next_large"):
        setattr(writer.state, name, getattr(source.state, name))
    _copy_training(source, writer)


def _copy_training(source: Reader | Writer, writer: Writer) -> None:
    """The records of automatic training. A copy has the next encoder, but none of the codes it has written so far."""
    moved = source.state.count - source.state.rows  # rows are numbered anew
    for key in (keys.TRAINING, keys.NEXT_TRAINING):
        training = read_training(source, key)
        if training is not None:
            writer.put(keys.META, key, replace_fields(training, reviewed=max(0, training.reviewed + moved)).to_record())
    if source.state.next_generation:
        value = source.get(keys.META, keys.NEXT_ENCODER)
        if value is None:
            raise DamagedError(f"next encoder: missing, although codes are being rewritten by it; {REMEDY}")
        writer.put(keys.META, keys.NEXT_ENCODER, bytes(value))
        for name in ("next_generation", "next_size", "next_head"):
            setattr(writer.state, name, getattr(source.state, name))


def _copy_rows(source: Reader | Writer, columns: list[Column], first: int, rows: RowNumbers, writer: Writer) -> None:
    for column in columns:
        values = Rows(column, source).gather(rows)
        if column.kind == records.PAYLOADS and source.state.large:
            large_payloads.copy(source, writer, values)
        column.append(writer, first, values)
    writer.state.rows = writer.state.stored = writer.state.count = first + len(rows)


def _copy_sorted(source: Reader | Writer, ids: Rows, writer: Writer, living: RowNumbers) -> None:
    """The blocks of sorted ids, with new row numbers, all of them full."""
    held = np.empty(0, np.uint32)
    key = keys.SORTED
    for _, rows in sorted_ids.blocks(source):
        at = np.searchsorted(living, rows)
        if len(rows) and (at.max() >= len(living) or (living[at] != rows).any()):
            raise DamagedError(f"sorted ids: they name a deleted row; {REMEDY}")
        held = np.concatenate([held, rows])
        while len(held) > sorted_ids.BLOCK_IDS:
            full, held = held[: sorted_ids.BLOCK_IDS], held[sorted_ids.BLOCK_IDS :]
            writer.put(keys.IDS, key, sorted_ids.encode(np.searchsorted(living, full).astype(np.uint32)))
            key = sorted_ids.key_of(ids.gather(held[:1]))
    if len(held):
        writer.put(keys.IDS, key, sorted_ids.encode(np.searchsorted(living, held).astype(np.uint32)))
