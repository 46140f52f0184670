"""Any filter over any payloads, against a plain reading of each payload, with and without indexed fields."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lsqindex import Index
from tests.settings import LONG

#: "m.n" is a field of a field; "o" is never indexed.
NAMES = ("a", "b", "m.n", "o")


# -- any filter over any payloads -------------------------------------------------------------------

#: Few characters, so that texts often are equal; NUL at the end is what NumPy's own strings drop.
texts = st.text("a\0é\U0001f600", max_size=3)
edges = st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0, float(2**53), 2.0**63, 2.0**64, math.inf, -math.inf, math.nan]),
    st.floats(),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    edges,
    st.integers(-(2**63), 2**64 - 1),
    floats,
    texts,
    texts.map(str.encode),
)
keys = st.sampled_from(["n", "k"]) | st.sampled_from([1, True, 1.0, b"n", None])
values = st.one_of(
    scalars,
    scalars,
    st.lists(scalars, max_size=3),
    st.dictionaries(keys, scalars, max_size=2),
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2)),
)
payloads = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["a", "b", "m", "o", "m.n"]), values, max_size=4), st.just({})
)
# A filter may ask for what no payload holds: whole numbers beyond 64 bits, half of a surrogate pair.
large = st.sampled_from([64, 70, 1300]).map(lambda bits: 2**bits) | st.sampled_from([-(2**63) - 1, -(2**70)])
asked_for = st.deferred(lambda: values) | large | st.just("a\ud800")
compared = st.one_of(st.integers(-3, 3), edges, large, floats, texts, st.just("a\ud800"))
tests = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne"]), asked_for),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(asked_for, max_size=12)),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), compared),
    st.tuples(st.just("$exists"), st.booleans()),
)
asked = tests.map(lambda test: dict([test])) | st.lists(tests, min_size=1, max_size=3).map(dict)
fields = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(scalars, asked, asked.map(lambda test: {"$not": test}), scalars.map(lambda value: {"$not": value})),
    min_size=1,
    max_size=3,
)
filters = st.recursive(
    fields | st.just({}) | st.lists(st.integers(0, 30), max_size=9).map(lambda ids: {"$ids": ids}),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$or": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$and": parts}),
        inner.map(lambda part: {"$not": part}),
        st.tuples(fields, inner).map(lambda two: {**two[0], "$or": [two[1]]}),
    ),
    max_leaves=6,
)


# -- a plain reading of docs/howto/filter.md, which shares nothing with the package -----------------
NOTHING = object()


def matches(filter: Any, payload: Any, name: int) -> bool:
    """Whether a filter lets the row of this payload and id through."""
    parts = []
    for key, operand in filter.items():
        if key == "$ids":
            parts.append(name in operand)
        elif key == "$not":
            parts.append(not matches(operand, payload, name))
        elif key in ("$and", "$or"):
            each = [matches(part, payload, name) for part in operand]
            parts.append(all(each) if key == "$and" else any(each))
        else:
            parts.append(holds(operand, value_of(payload, key)))
    return all(parts)


def value_of(payload: Any, name: str) -> Any:
    """The value of a field, or of a field of a field."""
    if not isinstance(payload, dict):
        return NOTHING
    if name in payload:
        return payload[name]
    first, dot, rest = name.partition(".")
    return value_of(payload.get(first), rest) if dot else NOTHING


def holds(condition: Any, value: Any) -> bool:
    """Whether a value is as all operators of a condition want it."""
    tests = condition if isinstance(condition, dict) else {"$eq": condition}
    return all(passes(operator, operand, value) for operator, operand in tests.items())


def passes(operator: str, operand: Any, value: Any) -> bool:
    """One operator."""
    if operator == "$not":
        return not holds(operand, value)
    if operator == "$exists":
        return (value is not NOTHING) is operand
    if operator in ("$ne", "$nin"):
        return not passes("$eq" if operator == "$ne" else "$in", operand, value)
    if value is NOTHING:
        return False
    if operator in ("$eq", "$in"):
        several = operand if operator == "$in" else [operand]
        own = [value, *value] if isinstance(value, list) else [value]
        return any(equal(one, other) for one in own for other in several)
    if kind(value) != kind(operand) or kind(value) not in ("number", "str"):
        return False
    return bool(
        {"$gt": value > operand, "$gte": value >= operand, "$lt": value < operand, "$lte": value <= operand}[operator]
    )


def kind(value: Any) -> str:
    """Values of different kinds are not equal, and in no order."""
    return "number" if type(value) in (int, float) else type(value).__name__


def equal(value: Any, other: Any) -> bool:
    """1 and 1.0 are, 1 and True are not, whether inside of lists and mappings or not."""
    if kind(value) != kind(other):
        return False
    if isinstance(value, list):
        return len(value) == len(other) and all(map(equal, value, other))
    if isinstance(value, dict):
        pairs = [(one, two) for one in value for two in other if equal(one, two)]
        return len(pairs) == len(value) == len(other) and all(equal(value[one], other[two]) for one, two in pairs)
    return bool(value == other)


def index_of(stored: list[Any], indexed: tuple[str, ...]) -> Index:
    """An index with these payloads; some of its rows are deleted, or replaced."""
    index = Index(1, fields=indexed, keep_vectors=None)
    index.add(np.zeros((len(stored) + 4, 1)), payloads=[*stored, *[{"a": 1, "b": "a"}] * 4])
    index.delete(range(len(stored), len(stored) + 4))
    index.add(np.zeros((1, 1)), ids=[0], payloads=stored[:1], upsert=True)
    return index


@settings(
    max_examples=5_000 if LONG else 60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
@given(stored=st.lists(payloads, min_size=1, max_size=25), filter=filters)
@example(stored=[{"a": math.nan}, {"a": [math.nan]}], filter={"a": {"$in": [math.nan] * 12}})
@example(stored=[{"a": 2**53 + 1}, {"a": float(2**53)}], filter={"a": {"$gt": 2**53}})
@example(stored=[{"a": True}, {"a": 1}, {"a": 1.0}], filter={"a": {"$in": [1]}})
@example(stored=[{"a": "a"}, {"a": "a\0"}, {"a": "a\0\0"}], filter={"a": {"$lte": "a\0"}})
@example(stored=[{"a": {1: 5}}, {"a": {True: 5}}], filter={"a": {"$eq": {1: 5}}})
def test_what_a_filter_finds_does_not_depend_on_what_is_indexed(stored: list[Any], filter: Any) -> None:
    read = [None if one is None else msgpack.unpackb(msgpack.packb(one), strict_map_key=False) for one in stored]
    wanted = [at for at, payload in enumerate(read) if matches(filter, payload, at)]
    for indexed in ((), ("a",), ("m.n", "b"), ("b", "m.n", "a")):
        with index_of(stored, indexed) as index:
            assert index.ids(filter).tolist() == wanted, indexed
            found = index.search([0.0], k=len(stored) + 2, filter=filter).ids.tolist()
            assert found == wanted + [-1] * (len(stored) + 2 - len(wanted))
