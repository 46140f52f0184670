"""Filters over payloads: a mapping, as Chroma, Pinecone and MongoDB have it, read into a tree of conditions.

    {"lang": "en", "year": {"$gte": 2020}}       all of these
    {"$or": [{…}, {…}]}, {"$and": […]}, {"$not": {…}}
    {"tags": {"$in": ["a", "b"]}}                a list has a value if one of its elements is that value

``$ne``, ``$nin`` and ``$not`` are plain negations: a row without the field has no value that could be equal, so they
let it through. Numbers are compared with numbers and strings with strings; a pair of different kinds is not equal, and
in no order. What a field is compared with is turned into what a payload can hold, or refused, so that conditions are
plain data: equal where they look equal. ``select.py`` finds the rows.
"""

from __future__ import annotations

import difflib
import operator
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._threads.cached import cached_property
from ..errors import FilterError, shown
from .ids import read_ids
from .payloads import MISSING, value_at

#: The operators that compare, and how.
ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
#: Those of them that want more than the operand.
ABOVE = ("$gt", "$gte")
_NEGATED = {"$ne": "$eq", "$nin": "$in"}
_OPERATORS = ("$eq", "$ne", *ORDER, "$in", "$nin", "$exists", "$not")
_CONNECTIVES = ("$and", "$or", "$not", "$ids")
#: Of a whole number that a field is compared with: larger ones cannot even be printed.
_MOST_BITS = 4096
#: Filters inside filters, or lists and mappings inside what a field is compared with.
_DEEPEST = 64


class Condition(ABC):
    """What a row must be like."""

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The fields it looks at; "$ids" for ids."""

    @abstractmethod
    def matches(self, payload: Any) -> bool:
        """Whether a payload is so (None: there is none). Only for conditions that do not look at ids."""


@dataclass(frozen=True)
class Field(Condition):
    """A field compared with something: $eq, $in, $gt, $gte, $lt, $lte or $exists."""

    name: str
    test: str
    operand: Any

    @property
    def names(self) -> frozenset[str]:
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
        if self.test in ORDER:
            return comparable(value, self.operand) and bool(ORDER[self.test](value, self.operand))
        return self._is_wanted(value) or (isinstance(value, list) and any(map(self._is_wanted, value)))

    @property
    def wanted(self) -> tuple[Any, ...]:
        """Of $eq and $in: what a value may be equal to."""
        return tuple(self.operand) if self.test == "$in" else (self.operand,)

    @cached_property
    def _scalars(self) -> frozenset[tuple[bool, Any]]:
        """Those of ``wanted`` that can be looked up; True and 1 are equal to Python."""
        return frozenset((isinstance(one, bool), one) for one in self.wanted if not isinstance(one, list | dict))

    @cached_property
    def _others(self) -> list[Any]:
        return [one for one in self.wanted if isinstance(one, list | dict)]

    def _is_wanted(self, value: Any) -> bool:
        if isinstance(value, list | dict):
            return any(same(value, other) for other in self._others)
        # (NaN is equal to nothing; a set would find the very same one.)
        return (isinstance(value, bool), value) in self._scalars and value == value


@dataclass(frozen=True)
class Ids(Condition):
    """Only these ids."""

    ids: Any

    @property
    def names(self) -> frozenset[str]:
        """That it looks at ids."""
        return frozenset(["$ids"])

    def matches(self, payload: Any) -> bool:
        """No payload tells."""
        raise TypeError("a row has one of these ids or not, whatever its payload is")


@dataclass(frozen=True)
class Every(Condition):
    """All of several; of none: anything."""

    parts: tuple[Condition, ...]

    @property
    def names(self) -> frozenset[str]:
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
    def names(self) -> frozenset[str]:
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
    def names(self) -> frozenset[str]:
        """Those of the other."""
        return self.part.names

    def matches(self, payload: Any) -> bool:
        """Whether the other does not."""
        return not self.part.matches(payload)


def is_number(value: Any) -> bool:
    """Whether this is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def comparable(value: Any, other: Any) -> bool:
    """Whether these two have an order."""
    return (is_number(value) and is_number(other)) or (isinstance(value, str) and isinstance(other, str))


def same(value: Any, other: Any) -> bool:
    """Whether two values are equal: 1 and 1.0 are, 1 and True are not, nor [1] and [True]."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return _keys(value) == _keys(other) and all(same(own, other[name]) for name, own in value.items())
    return bool(value == other)


def _keys(value: dict[Any, Any]) -> set[tuple[bool, Any]]:
    """The keys of a mapping; 1 and True are different here, although Python takes them for equal."""
    return {(isinstance(key, bool), key) for key in value}


def read_filter(filter: Any, kind: str) -> Condition:
    """The condition of a filter: a mapping over payload fields, or ids of this kind. FilterError where it is invalid.

    A filter that is like one of the last ones gives the same condition, whose rows an index may still know.

    >>> read_filter({"year": {"$gte": 2020}}, "int")
    Field(name='year', test='$gte', operand=2020)
    >>> read_filter([3, 1], "int")
    Ids(ids=array([3, 1]))
    """
    if not isinstance(filter, Mapping):
        return Ids(read_ids(filter, kind, known=True))
    try:
        # Equal bytes are of equal filters, their types included: 1, 1.0 and True differ.
        packed = pickle.dumps(filter)
    except Exception:  # it may hold anything; what is wrong with it is said below
        packed = b""
    condition = _known.get(packed)
    if condition is None:
        condition = _all_of(filter, kind, 0)
        if 0 < len(packed) <= _KNOWN_BYTES and "$ids" not in condition.names:
            if len(_known) >= _KNOWN:
                _known.clear()
            _known[packed] = condition
    return condition


#: The last filters that were read, at most so many, each of at most so many bytes.
_known: dict[bytes, Condition] = {}
_KNOWN, _KNOWN_BYTES = 256, 4096


def _all_of(filter: Mapping[Any, Any], kind: str, depth: int) -> Condition:
    _check_depth(depth)
    parts = []
    for name, operand in filter.items():
        if not isinstance(name, str):
            raise FilterError(f"filter: expected the name of a field, got {shown(name)}")
        name = str.__str__(name)
        known = name.startswith("$")
        parts.append(_connected(name, operand, kind, depth) if known else _field(name, operand, depth))
    return parts[0] if len(parts) == 1 else Every(tuple(parts))


def _connected(name: str, operand: Any, kind: str, depth: int) -> Condition:
    if name == "$ids":
        return Ids(read_ids(operand, kind, known=True))
    if name == "$not":
        if not isinstance(operand, Mapping):
            raise FilterError(f"filter: $not takes a filter, got {shown(operand)}")
        return Not(_all_of(operand, kind, depth + 1))
    if name not in _CONNECTIVES:
        raise FilterError(f"filter: {_unknown(name, _CONNECTIVES)}")
    if not isinstance(operand, Sequence) or not operand or not all(isinstance(part, Mapping) for part in operand):
        raise FilterError(f"filter: {name} takes a list of filters, got {shown(operand)}")
    parts = tuple(_all_of(part, kind, depth + 1) for part in operand)
    return Every(parts) if name == "$and" else _either(parts)


def _either(parts: Sequence[Condition]) -> Condition:
    """One of several; equalities of one field are one look-up."""
    wanted: dict[str, list[Any]] = {}
    others = []
    for part in parts:
        if isinstance(part, Field) and part.test in ("$eq", "$in"):
            wanted.setdefault(part.name, []).extend(part.wanted)
        else:
            others.append(part)
    together = (*(Field(name, "$in", tuple(values)) for name, values in wanted.items()), *others)
    return together[0] if len(together) == 1 else Either(together)


def _field(name: str, wanted: Any, depth: int) -> Condition:
    _check_depth(depth)
    if isinstance(wanted, list | tuple | set | frozenset) or (isinstance(wanted, np.ndarray) and wanted.ndim):
        raise FilterError(
            f"filter: {name}: expected one value; use {{'$in': […]}} for several, or {{'$eq': […]}} for a list"
        )
    if not isinstance(wanted, Mapping):
        return _test(name, "$eq", wanted, depth)
    if not wanted:
        raise FilterError(f"filter: {name}: expected an operator, one of {', '.join(_OPERATORS)}")
    parts = tuple(_test(name, test, operand, depth) for test, operand in wanted.items())
    return parts[0] if len(parts) == 1 else Every(parts)


def _test(name: str, test: Any, operand: Any, depth: int) -> Condition:
    if test == "$not":
        return Not(_field(name, operand, depth + 1))
    if test in _NEGATED:
        return Not(_test(name, _NEGATED[test], operand, depth))
    if test not in _OPERATORS:
        raise FilterError(f"filter: {name}: {_unknown(test, _OPERATORS)}")
    if test == "$in" and isinstance(operand, Iterable) and not isinstance(operand, _NO_LIST):
        operand = list(operand)  # of a range, a pandas Series, the keys of a mapping
    operand = _plain(name, operand, 0)
    if test == "$exists":
        if not isinstance(operand, bool):
            raise FilterError(f"filter: {name}: $exists takes True or False, got {shown(operand)}")
    elif test == "$in":
        if not isinstance(operand, list):
            raise FilterError(f"filter: {name}: $in and $nin take a list of values, got {shown(operand)}")
        operand = tuple(operand)
    elif test in ORDER and not is_number(operand) and not isinstance(operand, str):
        raise FilterError(f"filter: {name}: {test} takes a number or a string, got {shown(operand)}")
    return Field(name, str.__str__(test), operand)


def _plain(name: str, operand: Any, depth: int) -> Any:
    """As a stored payload has it; FilterError for what no payload can hold."""
    _check_depth(depth)
    if operand is None or isinstance(operand, bool):
        return operand
    if isinstance(operand, str):
        return str.__str__(operand)  # of a subclass the text, whatever it says of itself
    if isinstance(operand, bytes | bytearray | memoryview):
        return bytes(operand)
    if isinstance(operand, np.bool_):
        return bool(operand)
    if isinstance(operand, int | np.integer):
        number = int(operand)
        if number.bit_length() > _MOST_BITS:
            raise FilterError(
                f"filter: {name}: an int of {number.bit_length():,} bits, but payloads hold at most 64; "
                "use a float or a string"
            )
        return number
    if isinstance(operand, float | np.floating):
        return float(operand)
    if isinstance(operand, np.ndarray):
        operand = operand.tolist()
        return _plain(name, operand, depth + (not isinstance(operand, list)))  # (of an object array: anything)
    if isinstance(operand, list | tuple | set | frozenset):
        # (Plain already, as a long list of one kind often is.)
        return list(operand) if {*map(type, operand)} <= _PLAIN else [_plain(name, one, depth + 1) for one in operand]
    if isinstance(operand, Mapping) and not any(isinstance(key, tuple | frozenset | Mapping) for key in operand):
        return {_plain(name, key, depth + 1): _plain(name, one, depth + 1) for key, one in operand.items()}
    raise FilterError(
        f"filter: {name}: a payload cannot hold a {type(operand).__name__}, so no row equals {shown(operand)}; "
        "use None, bool, int, float, str, bytes, or lists and mappings of these"
    )


#: What can be iterated over, but is not a list of values.
_NO_LIST = (str, bytes, bytearray, memoryview, Mapping, np.ndarray)
_PLAIN = {str, float, bool, bytes, type(None)}


def _check_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise FilterError(f"filter: filters can be nested at most {_DEEPEST} levels deep; $and and $or take lists")


def _unknown(name: Any, there: Sequence[str]) -> str:
    told = shown(name)
    near = difflib.get_close_matches(told.strip("'"), there, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"no operator {told}; {hint}there are {', '.join(there)}, and a field of a field is named with a dot "
        "('meta.year')"
    )
