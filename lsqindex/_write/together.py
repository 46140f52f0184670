"""Small changes of several threads, committed together: one transaction, one sync of the disk.

    thread A   add ──▶ has the turn ──▶ takes B and C ──▶ applies A, B, C ──▶ commits ──▶ wakes B and C
    thread B   add ──▶ waits ····················································▶ done
    thread C   delete ──▶ waits ·················································▶ done

Each is as if it were alone: applied as a whole or not at all, durable when its call returns, with its own result or
error. Additions that follow each other become one insert. If an id is there already, each of them is applied in a
nested transaction of its own, so that only the one at fault has the error. If anything else fails (the disk, the file,
an encoder), nothing is committed, and each change waits for its own turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from .._storage.format.meta import Options, review_due
from .._storage.lmdb.writer import Writer
from ..encoders.coder import Coder
from ..errors import IdError
from . import retraining

#: Gives the coder for a change by a writer; ReplacedError if the index is not one of these options any more.
Checked = Callable[[Writer, Options], Coder]


def commit_together(writer: Writer, own: Any, changes: Sequence[Any]) -> None:
    """Apply changes, of which ``own`` is this thread's, in the open transaction; and commit.

    They are those of ``add.py`` and ``delete.py``.
    """
    try:
        made = _apply(writer, own, changes)
    except Exception:
        writer.abort()
        for change in changes:
            change.apart, change.error = True, None
        writer.together.leave()
        writer.begin()
        made = writer.together.take(own)
        own.apply(writer, made, nested=False)
    added = [change for change in made if change.count]
    look = bool(added) and review_due(writer, retraining.LOOK)
    writer.commit()
    if added and (look or writer.state.next_generation):
        last, count = added[-1], sum(change.count for change in added)
        retraining.after_add(writer, last.options, last.coder(writer), last.rows, last.threads, count, look=look)


def _apply(writer: Writer, own: Any, changes: Sequence[Any]) -> list[Any]:
    """Apply changes in their order, each with its result or error; those that were made."""
    made: list[Any] = []
    added = 0
    for _, group in groupby(changes, key=lambda change: change.kind):
        ready = []
        for change in group:
            if change is own or change.ready(writer, added):
                ready.append(change)
                added += change.count
            else:
                writer.together.give_back(change)
        if ready:
            made += _attempt(writer, ready)
    return made


def _attempt(writer: Writer, group: list[Any]) -> list[Any]:
    """Apply changes of one kind in a nested transaction, or each in its own if that fails; those that were made."""
    try:
        group[0].apply(writer, group, nested=True)
        return group
    except IdError as error:
        if len(group) == 1:
            group[0].error = error
            return []
        return [made for change in group for made in _attempt(writer, [change])]
