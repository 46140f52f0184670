"""LlamaIndex's metadata filters, told as filters of an index.

They mean what LlamaIndex's own ``SimpleVectorStore`` takes them to mean, and may be nested. A list is not equal to one
of its elements here: CONTAINS, ANY and ALL are for that. A filter's value cannot be a boolean; 1 and 0 stand for these.
Where LlamaIndex fails with a TypeError, a number and a string are in no order and do not match, and to CONTAINS, ANY
and ALL a number is a list of one. Booleans have no order either.

What is asked of the inside of a string (TEXT_MATCH, and CONTAINS of a string) is decided on the payloads that all the
rest of the filter has left; ids are then the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from ..errors import FilterError

Filter = dict[str, Any]

#: Of the rows that a filter lets through and that have a string under a name: the ids of those whose string is such.
Decide = Callable[[Filter, str, Callable[[str], bool]], list[str]]

EVERYTHING: Filter = {}
NOTHING: Filter = {"$not": EVERYTHING}

#: Where a payload has what LlamaIndex's stores let a filter ask for beside metadata.
_OWN = dict.fromkeys(("ref_doc_id", "doc_id", "document_id"), "ref_doc_id") | {"_node_type": "node.class_name"}

_ORDER = {FilterOperator.GT: "$gt", FilterOperator.GTE: "$gte", FilterOperator.LT: "$lt", FilterOperator.LTE: "$lte"}
_LISTED = (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
_TEXT = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
#: Those that may have to read payloads.
_READING = (*_TEXT, FilterOperator.CONTAINS, FilterOperator.ANY, FilterOperator.ALL)


def field_name(key: str) -> str:
    """Where a payload has what ``key`` of a node's metadata is."""
    return _OWN.get(key, f"metadata.{key}")


def translate(filters: MetadataFilters, decide: Decide, within: Filter = EVERYTHING) -> Filter:
    """The same as a filter of the index, for rows that ``within`` lets through."""
    every = filters.condition in (None, FilterCondition.AND)
    parts = []
    for one in sorted(filters.filters, key=_reads):
        nested = isinstance(one, MetadataFilters)
        parts.append(translate(one, decide, within) if nested else _one(one, decide, within))
        if every:
            within = {"$and": [within, parts[-1]]}
    if not parts:
        return EVERYTHING
    if every:
        return {"$and": parts}
    return {"$or": parts} if filters.condition == FilterCondition.OR else {"$not": {"$or": parts}}


def _reads(one: MetadataFilter | MetadataFilters) -> bool:
    return any(map(_reads, one.filters)) if isinstance(one, MetadataFilters) else one.operator in _READING


def _one(asked: MetadataFilter, decide: Decide, within: Filter) -> Filter:
    _check(asked)
    name, operator, value = field_name(asked.key), asked.operator, asked.value

    def has_text(test: Callable[[str], bool]) -> Filter:
        return {"$ids": decide({"$and": [within, {name: {"$gte": ""}}]}, name, test)}

    def contains(values: list[Any]) -> Filter:
        parts = [value for value in values if isinstance(value, str)]
        held = {name: {"$in": _with_booleans(values)}}
        return {"$or": [held, has_text(lambda text: any(part in text for part in parts))]} if parts else held

    if operator in _ORDER:
        return {name: {_ORDER[operator]: value}}
    if operator in _TEXT:
        if operator == FilterOperator.TEXT_MATCH:
            return has_text(lambda text: value in text)
        return has_text(lambda text: value.lower() in text.lower())
    if operator == FilterOperator.ALL:
        return {"$and": [contains([one]) for one in value]} if value else {"$not": _absent(name)}
    if operator in (FilterOperator.CONTAINS, FilterOperator.ANY):
        return contains(value if operator == FilterOperator.ANY else [value])
    if operator == FilterOperator.IS_EMPTY:
        return {"$or": [_absent(name), {name: {"$eq": []}}, _equal(name, [""])]}
    equal = _equal(name, value if operator in _LISTED else [value])
    return {"$not": equal} if operator in (FilterOperator.NE, FilterOperator.NIN) else equal


def _check(asked: MetadataFilter) -> None:
    what, value = f"filter: {asked.key} {asked.operator.value}", asked.value
    if asked.operator in _LISTED and not isinstance(value, list):
        raise FilterError(f"{what}: a list of values is needed, got {value!r}")
    if asked.operator in _TEXT and not isinstance(value, str):
        raise FilterError(f"{what}: a string is needed, got {value!r}")
    if asked.operator == FilterOperator.CONTAINS and value is None:
        raise FilterError(f"{what}: a value is needed, got None")


def _equal(name: str, values: list[Any]) -> Filter:
    """The field is one of ``values``. Only strings and numbers have an order, so $gte keeps lists of these out."""
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, int | float)]
    others = [*_with_booleans(numbers)[len(numbers) :], *(value for value in values if isinstance(value, list))]
    tests: list[Filter] = [{"$in": texts, "$gte": ""}, {"$in": numbers, "$gte": -math.inf}, {"$in": others}]
    parts = [{name: test} for test in tests if test["$in"]]
    return {"$or": parts} if parts else NOTHING


def _absent(name: str) -> Filter:
    return {"$or": [{name: {"$exists": False}}, {name: {"$eq": None}}]}


def _with_booleans(values: list[Any]) -> list[Any]:
    return [*values, *(bool(value) for value in values if value in (0, 1))]
