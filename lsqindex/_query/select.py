"""The rows that a condition lets through, in a snapshot.

Fields that were declared as indexed are decided by their values (``field_values.py``). For others payloads are read and
decided one by one, but only those that the indexed fields have left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._inputs.filters import Condition, Either, Every, Field, Ids, Not
from .._inputs.payloads import unpack
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from .._threads.cached import cached_property
from . import tuning
from .field_values import Values

if TYPE_CHECKING:
    from .._storage.lmdb.reader import Reader
    from .plan import Plan
    from .snapshot import Snapshot

Flags = NDArray[np.bool_]


class Selection:
    """The rows of a snapshot that a condition lets through, and what was planned for searches among them."""

    def __init__(self, condition: Condition, rows: RowNumbers) -> None:
        rows.flags.writeable = False
        self.condition, self.rows = condition, rows
        self.plans: dict[Any, Plan] = {}

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """A bit for each row up to the last."""
        return bits_of(self.rows)


def selected(snapshot: Snapshot, reader: Reader, condition: Condition) -> Selection:
    """The selection of a condition; a snapshot keeps the last few, for filters come again."""
    # A tuple that is replaced as a whole: threads that meet here lose a selection at most.
    for known in snapshot.selections:
        if known.condition is condition:
            return known
    found = Selection(condition, select(Store(reader, snapshot.options), condition, snapshot.fields))
    if "$ids" not in condition.names:
        snapshot.selections = (*snapshot.selections[1 - tuning.KEPT_FILTERS :], found)
    return found


def select(store: Store, condition: Condition, fields: dict[int, Values] | None = None) -> RowNumbers:
    """The rows that are not deleted and have such a payload, ascending; ``fields`` are values that are known."""
    if isinstance(condition, Ids):
        found = store.rows_of(condition.ids)
        return np.unique(found[found >= 0]).astype(np.uint32)
    living = store.living()
    return living[_Selecting(store, {} if fields is None else fields).among(condition, living)]


def bits_of(rows: RowNumbers) -> NDArray[np.uint8]:
    """A bit for each row up to the last of ``rows``, which ascend."""
    flags = np.zeros(int(rows[-1]) + 1 if len(rows) else 0, np.bool_)
    flags[rows] = True
    return np.packbits(flags, bitorder="little")


class _Selecting:
    """Decides which rows a condition lets through."""

    def __init__(self, store: Store, fields: dict[int, Values]) -> None:
        self._store, self._fields = store, fields

    def among(self, condition: Condition, rows: RowNumbers) -> Flags:
        """Whether each of ``rows`` is such."""
        names = self._store.options.fields
        if not len(rows):
            return np.zeros(0, np.bool_)
        if not condition.names:
            return np.full(len(rows), condition.matches(None))
        if isinstance(condition, Ids):
            found = self._store.rows_of(condition.ids)
            return np.isin(rows, found[found >= 0])
        if isinstance(condition, Field) and condition.name in names:
            return self._values(names.index(condition.name)).answers(condition, rows)
        known = {*names, "$ids"}
        if not condition.names & known:
            return self._by_payload(condition, rows)
        if isinstance(condition, Not):
            return ~self.among(condition.part, rows)
        assert isinstance(condition, Every | Either)
        # What can be decided by numbers comes first; the rest is asked of each payload that is left, once.
        slow = tuple(part for part in condition.parts if not part.names & known)
        quick = sorted(
            (part for part in condition.parts if part.names & known), key=lambda part: len(part.names - known)
        )
        every = isinstance(condition, Every)
        answers, left = np.full(len(rows), every), np.arange(len(rows))
        for part in [*quick, *([type(condition)(slow)] if slow else [])]:
            # Rows that one part lets through (of Either), or does not (of Every), are decided.
            decided = self.among(part, rows[left]) ^ every
            answers[left[decided]] = not every
            left = left[~decided]
        return answers

    def _values(self, number: int) -> Values:
        """The values of the field of that number, found once for a snapshot."""
        found = self._fields.get(number)
        if found is None:
            found = self._fields[number] = Values(self._store.field(number), number)
        return found

    def _by_payload(self, condition: Condition, rows: RowNumbers) -> Flags:
        """Payload after payload."""
        if not self._store.state.payloads:
            return np.full(len(rows), condition.matches(None))
        answers: list[bool] = []
        for first in range(0, len(rows), tuning.PAYLOADS_AT_ONCE):
            packed = self._store.payloads_of(rows[first : first + tuning.PAYLOADS_AT_ONCE])
            answers += [condition.matches(unpack(payload)) for payload in packed]
        return np.array(answers, np.bool_)
