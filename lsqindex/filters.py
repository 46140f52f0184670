"""Filters over payloads: a mapping, as Chroma, Pinecone and MongoDB have it, read into a tree of conditions.

    {"lang": "en", "year": {"$gte": 2020}}       all of these
    {"$or": [{…}, {…}]}, {"$and": […]}, {"$not": {…}}
    {"tags": {"$in": ["a", "b"]}}                a list has a value if one of its elements is that value

``$ne``, ``$nin`` and ``$not`` are plain negations: a row without the field has no value that could be equal, so they
let it through. Numbers are compared with numbers and strings with strings; a pair of different kinds is not equal, and
in no order. ``select.py`` finds the rows.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import FilterError
from .payloads import MISSING, value_at

_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_NEGATED = {"$ne": "$eq", "$nin": "$in"}
_OPERATORS = ("$eq", "$ne", *_ORDER, "$in", "$nin", "$exists", "$not")
_CONNECTIVES = ("$and", "$or", "$not", "$ids")
#: Of a whole number that a field is compared with: larger ones cannot even be printed.
_MOST_BITS = 4096


class Condition:
    """What a payload must be like. ``names``: the fields it looks at, "$ids" for ids."""

    names: frozenset[str]

    def matches(self, payload: Any) -> bool:
        """Whether a payload is so (None: there is none)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Field(Condition):
    """A field compared with something: $eq, $in, $gt, $gte, $lt, $lte or $exists."""

    name: str
    test: str
    operand: Any

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        """This field's."""
        return frozenset([self.name])

    def matches(self, payload: Any) -> bool:
        """Whether a payload has such a value."""
        return self.holds(value_at(payload, self.name))

    def holds(self, value: Any) -> bool:
        """Whether a value is such."""
        if self.test == "$exists":
            return (value is not MISSING) is self.operand
        if value is MISSING:
            return False
        if self.test in _ORDER:
            return comparable(value, self.operand) and bool(_ORDER[self.test](value, self.operand))
        wanted = self.operand if self.test == "$in" else (self.operand,)
        own = (value, *value) if isinstance(value, list) else (value,)
        return any(same(one, other) for one in own for other in wanted)


@dataclass(frozen=True)
class Ids(Condition):
    """Only these ids; of payloads it knows nothing."""

    ids: Any
    names = frozenset(["$ids"])


@dataclass(frozen=True)
class Every(Condition):
    """All of several; of none: anything."""

    parts: tuple[Condition, ...]

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        """Those of all parts."""
        return frozenset().union(*(part.names for part in self.parts))

    def matches(self, payload: Any) -> bool:
        """Whether all do."""
        return all(part.matches(payload) for part in self.parts)


@dataclass(frozen=True)
class Either(Condition):
    """One of several at least."""

    parts: tuple[Condition, ...]

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        """Those of all parts."""
        return frozenset().union(*(part.names for part in self.parts))

    def matches(self, payload: Any) -> bool:
        """Whether one does."""
        return any(part.matches(payload) for part in self.parts)


@dataclass(frozen=True)
class Not(Condition):
    """The contrary of another."""

    part: Condition

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        """Those of the other."""
        return self.part.names

    def matches(self, payload: Any) -> bool:
        """Whether the other does not."""
        return not self.part.matches(payload)


def order(test: str) -> Callable[[Any, Any], Any] | None:
    """The comparison of $gt, $gte, $lt and $lte; None of others."""
    return _ORDER.get(test)


def is_number(value: Any) -> bool:
    """Whether this is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def comparable(value: Any, other: Any) -> bool:
    """Whether these two have an order."""
    return (is_number(value) and is_number(other)) or (isinstance(value, str) and isinstance(other, str))


def same(value: Any, other: Any) -> bool:
    """Whether two values are equal: 1 and 1.0 are, 1 and True are not."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def read_filter(filter: Mapping[Any, Any], read_ids: Callable[[Any], Any]) -> Condition:
    """The condition that a filter says; FilterError where it says none. ``read_ids`` reads those of ``$ids``.

    >>> read_filter({"year": {"$gte": 2020}}, list)
    Field(name='year', test='$gte', operand=2020)
    """
    try:
        return _all_of(filter, read_ids)
    except RecursionError as error:
        raise FilterError("filter: too many filters inside each other; $and and $or take lists") from error


def _all_of(filter: Mapping[Any, Any], read_ids: Callable[[Any], Any]) -> Condition:
    parts = []
    for name, operand in filter.items():
        if not isinstance(name, str):
            raise FilterError(f"filter: the name of a field is needed, got {name!r}")
        parts.append(_connected(name, operand, read_ids) if name.startswith("$") else _field(name, operand))
    return parts[0] if len(parts) == 1 else Every(tuple(parts))


def _connected(name: str, operand: Any, read_ids: Callable[[Any], Any]) -> Condition:
    if name == "$ids":
        return Ids(read_ids(operand))
    if name == "$not":
        if not isinstance(operand, Mapping):
            raise FilterError(f"filter: $not takes a filter, got {operand!r}")
        return Not(_all_of(operand, read_ids))
    if name not in _CONNECTIVES:
        raise FilterError(f"filter: {_unknown(name, _CONNECTIVES)}")
    if not isinstance(operand, Sequence) or not operand or not all(isinstance(part, Mapping) for part in operand):
        raise FilterError(f"filter: {name} takes a list of filters, got {operand!r}")
    parts = tuple(_all_of(part, read_ids) for part in operand)
    return Every(parts) if name == "$and" else Either(parts)


def _field(name: str, wanted: Any) -> Condition:
    if isinstance(wanted, list | tuple | set | frozenset | np.ndarray):
        raise FilterError(f"filter: {name}: one value is needed; {{'$in': […]}} takes several, {{'$eq': […]}} a list")
    if not isinstance(wanted, Mapping):
        return _test(name, "$eq", wanted)
    if not wanted:
        raise FilterError(f"filter: {name}: an operator is needed, one of {', '.join(_OPERATORS)}")
    parts = tuple(_test(name, test, operand) for test, operand in wanted.items())
    return parts[0] if len(parts) == 1 else Every(parts)


def _test(name: str, test: Any, operand: Any) -> Condition:
    if test == "$not":
        return Not(_field(name, operand))
    if test in _NEGATED:
        return Not(_test(name, _NEGATED[test], operand))
    operand = _plain(operand)
    if test == "$exists":
        if not isinstance(operand, bool):
            raise FilterError(f"filter: {name}: $exists takes True or False, got {operand!r}")
    elif test == "$in":
        if not isinstance(operand, list):
            raise FilterError(f"filter: {name}: $in and $nin take a list of values, got {operand!r}")
        operand = tuple(operand)
    elif test in _ORDER:
        if not is_number(operand) and not isinstance(operand, str):
            raise FilterError(f"filter: {name}: {test} takes a number or a string, got {operand!r}")
    elif test != "$eq":
        raise FilterError(f"filter: {name}: {_unknown(test, _OPERATORS)}")
    return Field(name, test, operand)


def _plain(operand: Any) -> Any:
    """As a stored payload has it: NumPy's numbers and arrays, tuples and sets as Python's numbers and lists."""
    if isinstance(operand, np.generic):
        return operand.item()
    if isinstance(operand, list | tuple | set | frozenset):
        return [_plain(one) for one in operand]
    if isinstance(operand, int) and operand.bit_length() > _MOST_BITS:
        raise FilterError(f"filter: a whole number of {operand.bit_length():,} bits; payloads have 64 at most")
    return operand.tolist() if isinstance(operand, np.ndarray) else operand


def _unknown(name: Any, there: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), there, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"no operator {name!r}; {hint}there are {', '.join(there)}, and a field of a field is named with a dot "
        "('meta.year')"
    )
