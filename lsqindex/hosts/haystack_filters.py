"""Haystack's filters as filters over payloads.

A payload has a document's fields under their own names, and beside its metadata the dates in it, as microseconds:

    {"content": …, "meta":  {"when": "1969-07-21T22:17:40+02:00", …},
                   "local": {"when": …},      what calendar and clock showed
                   "utc":   {"when": …}}      the moment, of dates with an offset

Haystack compares two dates as moments where both have an offset, and by calendar and clock where one has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from dateutil.parser import isoparse
from haystack.errors import FilterError

Filter = dict[str, Any]

#: A name that the payload of a document with an embedding has.
EMBEDDED = "embedding.dtype"

_NOTHING: Filter = {"$not": {}}
_ORDER = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_NEGATED = ("!=", "not in", "NOT")
_OPERATORS = ("==", "!=", *_ORDER, "in", "not in")
_LOGIC = ("AND", "OR", "NOT")

_DATE = re.compile(r"\d{4}-\d\d-\d\d([Tt ].*)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def on_payloads(filters: Mapping[str, Any] | None) -> Filter:
    """A filter of Haystack's as one of :meth:`lsqindex.Index.ids`; FilterError where it is none.

    >>> on_payloads({"field": "meta.year", "operator": ">=", "value": 2020})
    {'meta.year': {'$gte': 2020}}
    """
    return _condition(filters) if filters else {}


def payload_name(field: str) -> str:
    """Where the payload has a field of a document; what is not a field of documents is one of their metadata.

    >>> payload_name("meta.year"), payload_name("year"), payload_name("content")
    ('meta.year', 'meta.year', 'content')
    """
    if not isinstance(field, str):
        raise FilterError(f"field: a name is needed, got {field!r}")
    if field == "embedding":
        return EMBEDDED
    known = field.startswith("meta.") or field in ("meta", "content", "blob", "score", "sparse_embedding")
    return field if known else f"meta.{field}"


def indexed_names(field: str) -> list[str]:
    """All names that a filter on a field asks for: that of the field and, of one in metadata, those of its dates."""
    name = payload_name(field)
    return [name, *_date_names(name)] if name.startswith("meta.") else [name]


def dates(meta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The dates in metadata, by where they are: ``{"local": …, "utc": …}``.

    >>> dates({"when": "1970-01-02", "where": {"since": "1970-01-01T02:00+01:00"}})
    {'local': {'when': 86400000000, 'where': {'since': 7200000000}}, 'utc': {'where': {'since': 3600000000}}}
    """
    found: dict[str, dict[str, Any]] = {"local": {}, "utc": {}}
    for name, value in meta.items():
        if isinstance(value, Mapping):
            for kind, inner in dates(value).items():
                if inner:
                    found[kind][name] = inner
        elif (date := _read_date(value)) is not None:
            found["local"][name] = _shown(date)
            if date.utcoffset() is not None:
                found["utc"][name] = _moment(date)
    return found


def _condition(condition: Any) -> Filter:
    if not isinstance(condition, Mapping):
        raise FilterError(f"filters: a dictionary is needed, got {condition!r}")
    keys = ("operator", "value") if "field" in condition else ("operator", "conditions")
    for key in keys:
        if key not in condition:
            raise FilterError(f"filters: {key!r} is missing in {condition}")
    found = _comparison(condition) if "field" in condition else _logic(condition)
    return {"$not": found} if condition["operator"] in _NEGATED else found


def _logic(condition: Mapping[str, Any]) -> Filter:
    """Conditions together; NOT is the contrary of AND, made by the caller."""
    operator, conditions = condition["operator"], condition["conditions"]
    if operator not in _LOGIC:
        raise FilterError(f"filters: no operator {operator!r} of conditions; there are {', '.join(_LOGIC)}")
    if not isinstance(conditions, list):
        raise FilterError(f"filters: conditions: a list is needed, got {conditions!r}")
    parts = [_condition(part) for part in conditions]
    return {"$or": parts or [_NOTHING]} if operator == "OR" else {"$and": parts or [{}]}


def _comparison(condition: Mapping[str, Any]) -> Filter:
    """A field compared; != and not in are the contraries of == and in, made by the caller."""
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    if operator in ("==", "!="):
        return _equal(field, [value])
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"filters: {field}: {operator!r} takes a list, got {value!r}")
        return _equal(field, value)
    if operator not in _ORDER:
        raise FilterError(f"filters: {field}: no operator {operator!r}; there are {', '.join(_OPERATORS)}")
    return _ordered(field, operator, value)


def _equal(field: str, values: Sequence[Any]) -> Filter:
    """Equal to one of several; a field that is missing is equal to None."""
    if field == "id":
        return {"$ids": [value for value in values if isinstance(value, str)]}
    if field == "embedding" and any(value is not None for value in values):
        raise FilterError("filters: embedding: can be compared only with None")
    name = payload_name(field)
    parts: list[Filter] = [{name: {"$in": values}}]
    if any(value is None for value in values):
        parts.append({name: {"$exists": False}})
    parts += [_on_date(name, "$eq", date) for date in map(_read_date, values) if date is not None]
    return parts[0] if len(parts) == 1 else {"$or": parts}


def _ordered(field: str, operator: str, value: Any) -> Filter:
    if value is None:
        return _NOTHING
    date = _read_date(value)
    if date is not None:
        return _on_date(payload_name(field), _ORDER[operator], date)
    if isinstance(value, str | list):
        raise FilterError(f"filters: {field}: {operator!r} takes a number or a date of ISO 8601, got {value!r}")
    return {payload_name(field): {_ORDER[operator]: value}}


def _on_date(name: str, test: str, date: datetime) -> Filter:
    if not name.startswith("meta."):
        return _NOTHING
    local, utc = _date_names(name)
    shown: Filter = {local: {test: _shown(date)}}
    if date.utcoffset() is None:
        return shown
    return {"$or": [{utc: {test: _moment(date)}}, {utc: {"$exists": False}, **shown}]}


def _date_names(name: str) -> tuple[str, str]:
    path = name.removeprefix("meta.")
    return f"local.{path}", f"utc.{path}"


def _read_date(value: Any) -> datetime | None:
    """A date, whole and in the form of ISO 8601, with or without a time; None for everything else."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        date: datetime = isoparse(value)
    except (ValueError, OverflowError):
        return None
    return date


def _shown(date: datetime) -> int:
    return _moment(date.replace(tzinfo=timezone.utc))


def _moment(date: datetime) -> int:
    return (date - _EPOCH) // timedelta(microseconds=1)
