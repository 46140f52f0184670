"""The values of an indexed field in a snapshot, and which rows have such as a condition wants.

    record   row ─▶ number ─▶ value    as it is stored; decoded once, as long as it stays as it is
    field    all records as one: arrays of hashes and numbers, which are compared as arrays
    answers  value ─▶ yes or no, and so row ─▶ yes or no

Each value is looked at once for a record that has it, not once for each row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._inputs.filters import ABOVE, ORDER, Field, is_number
from .._inputs.payloads import MISSING
from .._storage.format.columns import RowNumbers
from .._storage.format.payload_columns import ABSENT, FieldColumn
from .._storage.format.rows import Rows
from .._storage.lmdb.known import Slot
from .._threads.cached import cached_property

Flags = NDArray[np.bool_]
Places = NDArray[np.int64]

#: Whole numbers up to here are float64's own, and int64's from _LEAST to _MOST.
_EXACT = 1 << 53
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class _Record:
    """The values in one record, each once, and which of them each row has; -1: none."""

    def __init__(self, numbers: NDArray[np.uint16], values: list[Any]) -> None:
        self.numbers = np.where(numbers == ABSENT, -1, numbers.astype(np.int64))
        self.values = np.fromiter(values, object, len(values))
        # Equal values have equal hashes, whatever their kind; lists and mappings have none.
        others = [isinstance(value, list | dict) for value in values]
        hashes = (0 if other else hash(value) for value, other in zip(values, others, strict=True))
        self.hashes = np.fromiter(hashes, np.int64, len(values))
        self.others = np.flatnonzero(others)
        self.texts = np.flatnonzero([isinstance(value, str) for value in values])
        # Numbers by what holds them exactly: a float64, an int64, or Python alone.
        kinds = np.fromiter(map(_kind, values), np.uint8, len(values))
        self.floats, self.ints, self.large = (np.flatnonzero(kinds == kind) for kind in (1, 2, 3))


#: Records by their first row and checksum; and those of each indexed field.
_Decoded = dict[tuple[int, int], _Record]
_FIELDS: Slot[dict[int, _Decoded]] = Slot("decoded fields")


def _kind(value: Any) -> int:
    if not is_number(value):
        return 0
    return 1 if isinstance(value, float) or abs(value) <= _EXACT else 2 if _LEAST <= value <= _MOST else 3


def _records(rows: Rows, number: int) -> list[_Record]:
    """All records. What was decoded for an earlier snapshot, and is as it was, is not decoded again."""
    known, column = rows.source.env.known, rows.column
    assert isinstance(column, FieldColumn)
    rows.touch_all()
    fields = known.get(_FIELDS) or {}
    before = fields.get(number, {})
    found: _Decoded = {}
    for first, checksum in zip(rows.starts.tolist(), rows.checksums.tolist(), strict=True):
        record = before.get((first, checksum))
        found[first, checksum] = record or _Record(*column.numbered(*rows.payload(first)))
    known.keep(_FIELDS, {**fields, number: found})
    return list(found.values())


class Values:
    """The values in all records, one after another, and which of them each row has; -1: none."""

    def __init__(self, rows: Rows, number: int) -> None:
        self._stored, self._records = rows.numbers(), _records(rows, number)
        sizes = [len(record.values) for record in self._records]
        self._count = sum(sizes)
        self._firsts = np.cumsum([0, *sizes])[:-1].tolist()
        numbers = [np.empty(0, np.int64)]
        for record, first, seen in zip(self._records, self._firsts, rows.counts.tolist(), strict=True):
            own = record.numbers[:seen]  # it may have rows beyond those of the snapshot
            numbers.append(np.where(own < 0, -1, own + first))
        self._numbers = np.concatenate(numbers)

    def answers(self, field: Field, rows: RowNumbers) -> Flags:
        """Whether each of ``rows`` has such a value."""
        stored, numbers = self._stored, self._numbers
        if len(rows) < len(stored):
            numbers = numbers[rows if len(stored) == int(stored[-1]) + 1 else np.searchsorted(stored, rows)]
        found: Flags = self._table(field)[numbers]
        return found

    def _table(self, field: Field) -> Flags:
        """Whether each value is such; at the end, under -1, whether no value is."""
        table = np.zeros(self._count + 1, np.bool_)
        table[-1] = field.holds(MISSING)
        if field.test == "$exists":
            table[:-1] = field.operand
        elif field.test not in ORDER:
            # Hashes tell which may be equal. These are looked at, and lists and mappings.
            hashes = [hash(one) for one in field.wanted if not isinstance(one, list | dict)]
            may_be = np.flatnonzero(np.isin(self._hashes, np.array(hashes, np.int64)))
            self._look_at([*may_be.tolist(), *self._others], field, table)
        elif isinstance(field.operand, str):
            places, texts = self._texts
            # NumPy would turn a plain str into its own string type, which drops trailing NULs.
            table[places] = ORDER[field.test](texts, np.array(field.operand, object))
        else:
            places, floats = self._floats
            table[places] = _compared_floats(field.test, floats, field.operand)
            places, ints = self._ints
            table[places] = _compared_ints(field.test, ints, field.operand)
            self._look_at(self._large, field, table)
        return table

    def _look_at(self, places: list[int], field: Field, table: Flags) -> None:
        for place in places:
            table[place] = field.holds(self._values[place])

    # -- all records as one, made when it is asked for ------------------------------------------

    @cached_property
    def _values(self) -> NDArray[Any]:
        return np.concatenate([np.empty(0, object), *(record.values for record in self._records)])

    @cached_property
    def _hashes(self) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *(record.hashes for record in self._records)])

    @cached_property
    def _others(self) -> list[int]:
        others: list[int] = self._places([record.others for record in self._records]).tolist()
        return others

    @cached_property
    def _large(self) -> list[int]:
        large: list[int] = self._places([record.large for record in self._records]).tolist()
        return large

    @cached_property
    def _texts(self) -> tuple[Places, NDArray[Any]]:
        places = self._places([record.texts for record in self._records])
        return places, self._values[places]

    @cached_property
    def _floats(self) -> tuple[Places, NDArray[np.float64]]:
        places = self._places([record.floats for record in self._records])
        return places, self._values[places].astype(np.float64)

    @cached_property
    def _ints(self) -> tuple[Places, NDArray[np.int64]]:
        places = self._places([record.ints for record in self._records])
        return places, self._values[places].astype(np.int64)

    def _places(self, own: list[NDArray[np.intp]]) -> Places:
        """Places in records as places among all."""
        parts = [places + first for places, first in zip(own, self._firsts, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *parts])


# -- comparing as Python does: exactly -------------------------------------------------------------


def _compared_floats(test: str, floats: NDArray[np.float64], operand: Any) -> Flags:
    try:
        near = float(operand)
    except OverflowError:
        near = math.inf if operand > 0 else -math.inf
    if near == operand or math.isnan(near):
        return np.asarray(ORDER[test](floats, near))
    # No float64 is equal to the operand: what is above it is above the last one below it.
    below = near if near < operand else math.nextafter(near, -math.inf)
    return np.asarray(floats > below if test in ABOVE else floats <= below)


def _compared_ints(test: str, ints: NDArray[np.int64], operand: Any) -> Flags:
    if isinstance(operand, float) and not math.isfinite(operand):
        return np.full(len(ints), operand == (-math.inf if test in ABOVE else math.inf))
    bound = math.floor(operand) if test in ("$gt", "$lte") else math.ceil(operand)
    if _LEAST <= bound <= _MOST:
        return np.asarray(ORDER[test](ints, bound))
    return np.full(len(ints), (bound < 0) == (test in ABOVE))
