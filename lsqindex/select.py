"""The rows that a condition lets through, in a snapshot.

Fields that were declared as indexed are decided by numbers: each value is looked at once for a record that has it, and
rows are looked up in the table of answers. For others payloads are read and decided one by one, but only those that the
indexed fields have left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .filters import Condition, Either, Every, Field, Ids, Not, is_number, order
from .payloads import MISSING, unpack
from .snapshot import once
from .storage.columns import RowNumbers
from .storage.payload_columns import ABSENT, FieldColumn
from .storage.store import Store

#: Payloads that are read at a time.
_BLOCK = 256
#: Answers that are kept as long as nothing is written.
_KEPT = 8
#: Whole numbers up to here are float64's own.
_EXACT = 1 << 53


def select(store: Store, condition: Condition) -> RowNumbers:
    """The rows that are not deleted and have such a payload, ascending; a snapshot keeps the last few answers."""
    if "$ids" in condition.names:
        return _among(store, condition, store.living())
    # A tuple that is replaced as a whole: threads that meet here lose an answer at most.
    kept: list[tuple[tuple[str, RowNumbers], ...]] = once(store, "selected", lambda: [()])
    name = repr(condition)
    for other, rows in kept[0]:
        if other == name:
            return rows
    rows = _among(store, condition, store.living())
    rows.flags.writeable = False
    kept[0] = (*kept[0][1 - _KEPT :], (name, rows))
    return rows


def _among(store: Store, condition: Condition, rows: RowNumbers) -> RowNumbers:
    """Those of ``rows``."""
    fields = store.options.fields
    if not len(rows):
        return rows
    if not condition.names:
        return rows if condition.matches(None) else rows[:0]
    if isinstance(condition, Ids):
        found = store.rows_of(condition.ids)
        return rows[np.isin(rows, found[found >= 0])]
    if isinstance(condition, Field) and condition.name in fields:
        return rows[_indexed(store, fields.index(condition.name)).answers(condition, rows)]
    known = {*fields, "$ids"}
    if not condition.names & known:
        return rows[_by_payload(store, condition, rows)]
    if isinstance(condition, Not):
        return np.setdiff1d(rows, _among(store, condition.part, rows), assume_unique=True)
    assert isinstance(condition, Every | Either)
    # What can be decided by numbers comes first; the rest is asked of each payload that is left, once.
    slow = tuple(part for part in condition.parts if not part.names & known)
    quick = sorted((part for part in condition.parts if part.names & known), key=lambda part: len(part.names - known))
    parts = [*quick, *([type(condition)(slow)] if slow else [])]
    if isinstance(condition, Every):
        for part in parts:
            rows = _among(store, part, rows)
        return rows
    left, taken = rows, []
    for part in parts:
        taken.append(_among(store, part, left))
        left = np.setdiff1d(left, taken[-1], assume_unique=True)
    return np.sort(np.concatenate(taken))


def _by_payload(store: Store, condition: Condition, rows: RowNumbers) -> NDArray[np.bool_]:
    """Payload after payload."""
    column = store.payloads()
    if column is None:
        return np.full(len(rows), condition.matches(None))
    answers: list[bool] = []
    for first in range(0, len(rows), _BLOCK):
        packed = column.gather(rows[first : first + _BLOCK])
        answers += [condition.matches(unpack(payload)) for payload in packed]
    return np.array(answers, np.bool_)


def _indexed(store: Store, number: int) -> _Values:
    """The values of an indexed field, found once for a snapshot."""
    return once(store, ("field", number), lambda: _Values(store, number))


class _Values:
    """The values of a field in all records, one after another, and which of them each row has."""

    def __init__(self, store: Store, number: int) -> None:
        rows = store.field(number)
        column = rows.column
        assert isinstance(column, FieldColumn)
        self._stored = rows.numbers()
        self._numbers = np.full(len(self._stored), -1, np.int64)
        values: list[Any] = []
        at = 0
        for (count, payload), seen in zip(rows.payloads(), rows.counts.tolist(), strict=True):
            local, own = column.numbered(payload, count)
            here = local[:seen]
            self._numbers[at : at + seen] = np.where(here == ABSENT, -1, here.astype(np.int64) + len(values))
            values += own
            at += seen
        self._values = values
        kinds = np.fromiter((_kind(value) for value in values), np.uint8, len(values))
        self._others = np.flatnonzero(kinds == 0).tolist()
        self._number_at, self._text_at = np.flatnonzero(kinds == 1), np.flatnonzero(kinds == 2)
        self._floats = np.array([values[i] for i in self._number_at.tolist()], np.float64)
        self._texts = [values[i] for i in self._text_at.tolist()]

    def answers(self, field: Field, rows: RowNumbers) -> NDArray[np.bool_]:
        """Whether each of ``rows`` has such a value."""
        table, stored = self._table(field), self._stored
        if len(rows) == len(stored):
            return table[self._numbers]
        return table[self._numbers[rows if len(stored) == int(stored[-1]) + 1 else np.searchsorted(stored, rows)]]

    def _table(self, field: Field) -> NDArray[np.bool_]:
        """Whether each value is such; at the end, under -1, whether no value is."""
        table = np.zeros(len(self._values) + 1, np.bool_)
        table[-1] = field.holds(MISSING)
        if field.test == "$exists":
            table[:-1] = field.operand
            return table
        for i in self._others:
            table[i] = field.holds(self._values[i])
        compare = order(field.test)
        if compare is None:
            wanted = field.operand if field.test == "$in" else (field.operand,)
            table[self._number_at] = np.isin(self._floats, [float(one) for one in wanted if _is_float(one)])
            texts = {one for one in wanted if isinstance(one, str)}
            table[self._text_at] = [text in texts for text in self._texts] if texts else False
        elif isinstance(field.operand, str):
            table[self._text_at] = [compare(text, field.operand) for text in self._texts]
        elif _is_float(field.operand):
            table[self._number_at] = compare(self._floats, float(field.operand))
        else:
            table[self._number_at] = [compare(self._values[i], field.operand) for i in self._number_at.tolist()]
        return table


def _kind(value: Any) -> int:
    """1: a number that is a float64; 2: a string; 0: others, which are looked at one by one."""
    if isinstance(value, str):
        return 2
    return int(is_number(value) and (isinstance(value, float) or abs(value) <= _EXACT))


def _is_float(value: Any) -> bool:
    """Whether this is a number, and a float64 is equal to it."""
    try:
        return is_number(value) and float(value) == value
    except OverflowError:
        return False
