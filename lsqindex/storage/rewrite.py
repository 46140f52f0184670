"""A compacted copy: only living rows, numbered anew, in a new file without free pages.

Both ``save(path)`` and ``compact()`` are this; they differ in whose place the new file takes. Ids keep their
order, so their sorted blocks are copied with rows renumbered, and nothing is sorted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import numpy as np

from ..errors import IndexExistsError, LsqIndexError, NotAnIndexError
from . import env as envs
from . import files, keys, sorted_ids
from .columns import CHUNK_ROWS, RowNumbers, Rows
from .env import Env, Reader, Wait
from .meta import Options
from .store import Store
from .writer import Writer

#: ``progress(rows done, rows in all)``
Progress = Callable[[int, int], None]

#: A transaction is committed when it has written about so much: LMDB keeps it in memory until then.
COMMIT_BYTES = 64 << 20


def save_copy(source: Reader, options: Options, path: str, wait: Wait, progress: Progress) -> None:
    """A compacted copy of the snapshot at ``path``, which may hold an index already: it is replaced."""
    with files.new_file(path) as new, contextlib.ExitStack() as stack:
        if os.path.lexists(path):
            target = _existing(path)
            stack.callback(target.close)
            held = stack.enter_context(target.write(wait))
            _fill(source, options, new, progress, held)
        else:
            _fill(source, options, new, progress, None)
            try:
                files.place(files.finish(new), os.path.realpath(path))
            except FileExistsError as error:
                raise IndexExistsError(f"{path}: a file was made there meanwhile; nothing was changed") from error


def compact(writer: Writer, options: Options, progress: Progress) -> None:
    """Put a compacted copy in the place of the file itself."""
    with files.new_file(writer.env.path) as new:
        _fill(writer, options, new, progress, writer)


def _existing(path: str) -> Env:
    try:
        return envs.open_env(path, readonly=False)
    except NotAnIndexError as error:
        raise IndexExistsError(f"{path}: is there and is not an index; it is left alone") from error


def _fill(source: Reader | Writer, options: Options, new: Env, progress: Progress, place_of: Writer | None) -> None:
    """Copy into ``new``; then take the place of the file that ``place_of`` holds, if given."""
    with new.write() as writer:
        copy_rows(source, options, writer, progress)
        if place_of is None:
            writer.commit()
            return
        if source is not place_of:
            place_of.begin()
        # The new file will go on from the old one's transaction number: it must not be ahead of it, and
        # LMDB's two meta pages take turns, so both numbers must be even, or both odd.
        while place_of.state.txn < writer.txn.id() or (place_of.state.txn - writer.txn.id()) % 2:
            place_of.commit(always=True)
            place_of.begin()
        writer.commit(place_of.state.txn)
    files.replace(files.finish(new), place_of)


def copy_rows(source: Reader | Writer, options: Options, writer: Writer, progress: Progress) -> None:
    """Everything of ``source`` into the open transaction of ``writer``, begun here and left open."""
    old = Store(source, options)
    writer.begin()
    for key in (keys.OPTIONS, keys.ENCODER):
        value = source.get(keys.META, key)
        if value is not None:
            writer.put(keys.META, key, bytes(value))
    state = writer.state
    for name in ("next_id", "generation", "code_size", "blocked"):
        setattr(state, name, getattr(source.state, name))
    new = Store(writer, options)
    living = old.living()
    columns = list(zip(old.columns(), new.columns(), strict=True))
    row_bytes = sum(max(16, column.width) for column, _ in columns)
    step = max(1, COMMIT_BYTES // row_bytes // CHUNK_ROWS) * CHUNK_ROWS
    for first in range(0, len(living), step):
        part = living[first : first + step]

        def operation(writer: Writer, first: int = first, part: RowNumbers = part) -> None:
            for from_column, to_column in columns:
                to_column.append(writer, first, Rows(from_column, source).gather(part))
            writer.state.rows = writer.state.stored = writer.state.count = first + len(part)

        writer.run(operation)
        progress(first + len(part), len(living))
        if first + step < len(living):
            writer.commit()
            writer.begin()
    writer.run(lambda writer: _copy_sorted(source, writer, living))


def _copy_sorted(source: Reader | Writer, writer: Writer, living: RowNumbers) -> None:
    """The blocks of sorted ids, with new row numbers and full blocks."""
    held: list[RowNumbers] = []
    key = keys.sorted_prefix()
    names: list[tuple[bytes, RowNumbers]] = []
    for name, rows in sorted_ids.blocks(source):
        at = np.searchsorted(living, rows)
        if len(rows) and (at.max() >= len(living) or (living[at] != rows).any()):
            raise LsqIndexError("sorted ids: a row that is deleted; check() tells more")
        names.append((name, at.astype(np.uint32)))
    # Small neighbours become one block; its key stays the first one's.
    size = 0
    for name, rows in names:
        if held and size + len(rows) > sorted_ids.BLOCK_IDS:
            writer.put(keys.IDS, key, sorted_ids.encode(np.concatenate(held)))
            held, key, size = [], name, 0
        held.append(rows)
        size += len(rows)
    if held:
        writer.put(keys.IDS, key, sorted_ids.encode(np.concatenate(held)))
