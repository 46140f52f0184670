"""The rows that a condition lets through, in a snapshot.

Fields that were declared as indexed are decided by their values (``field_values.py``). For others payloads are read and
decided one by one, but only those that the indexed fields have left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._inputs.filters import Condition, Either, Every, Field, Ids, Not
from .._inputs.payloads import unpack
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from .field_values import values_of
from .snapshot import once

Flags = NDArray[np.bool_]

#: Payloads that are read at a time: they may be large.
_BLOCK = 32
#: Answers that are kept as long as nothing is written.
_KEPT = 8


def select(store: Store, condition: Condition) -> RowNumbers:
    """The rows that are not deleted and have such a payload, ascending; a snapshot keeps the last few answers."""
    if "$ids" in condition.names:
        return _select(store, condition)
    # A tuple that is replaced as a whole: threads that meet here lose an answer at most.
    kept: list[tuple[tuple[str, RowNumbers], ...]] = once(store, "selected", lambda: [()])
    name = repr(condition)
    for other, rows in kept[0]:
        if other == name:
            return rows
    rows = _select(store, condition)
    rows.flags.writeable = False
    kept[0] = (*kept[0][1 - _KEPT :], (name, rows))
    return rows


def _select(store: Store, condition: Condition) -> RowNumbers:
    living = store.living()
    return living[_among(store, condition, living)]


def _among(store: Store, condition: Condition, rows: RowNumbers) -> Flags:
    """Whether each of ``rows`` is such."""
    fields = store.options.fields
    if not len(rows):
        return np.zeros(0, np.bool_)
    if not condition.names:
        return np.full(len(rows), condition.matches(None))
    if isinstance(condition, Ids):
        found = store.rows_of(condition.ids)
        return np.isin(rows, found[found >= 0])
    if isinstance(condition, Field) and condition.name in fields:
        return values_of(store, fields.index(condition.name)).answers(condition, rows)
    known = {*fields, "$ids"}
    if not condition.names & known:
        return _by_payload(store, condition, rows)
    if isinstance(condition, Not):
        return ~_among(store, condition.part, rows)
    assert isinstance(condition, Every | Either)
    # What can be decided by numbers comes first; the rest is asked of each payload that is left, once.
    slow = tuple(part for part in condition.parts if not part.names & known)
    quick = sorted((part for part in condition.parts if part.names & known), key=lambda part: len(part.names - known))
    every = isinstance(condition, Every)
    answers, left = np.full(len(rows), every), np.arange(len(rows))
    for part in [*quick, *([type(condition)(slow)] if slow else [])]:
        # Rows that one part lets through (of Either), or does not (of Every), are decided.
        decided = _among(store, part, rows[left]) ^ every
        answers[left[decided]] = not every
        left = left[~decided]
    return answers


def _by_payload(store: Store, condition: Condition, rows: RowNumbers) -> Flags:
    """Payload after payload."""
    column = store.payloads()
    if column is None:
        return np.full(len(rows), condition.matches(None))
    answers: list[bool] = []
    for first in range(0, len(rows), _BLOCK):
        packed = column.gather(rows[first : first + _BLOCK])
        answers += [condition.matches(unpack(payload)) for payload in packed]
    return np.array(answers, np.bool_)
