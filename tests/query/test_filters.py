"""Filters over payloads: every operator against a plain reading of each payload, with and without indexed fields."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import os
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lsqindex import Index, MultiIndex
from lsqindex._inputs.filters import read_filter
from lsqindex._storage.format import columns, payload_columns
from lsqindex.errors import FilterError, IdError

LONG = os.environ.get("LSQINDEX_LONG") == "1"

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
    max_examples=5_000 if LONG else 250,
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


# -- operators, one by one --------------------------------------------------------------------------

STORED: list[Any] = [
    {"a": 1},
    {"a": 1.0},
    {"a": True},
    {"a": "1"},
    {"a": None},
    {"a": [1, "x"]},
    {"a": {"b": 5}},
    {},
    None,
    {"a": math.nan},
    {"a.b": 5},
]


class Text(str):
    """A text that does not say what it is."""

    def __repr__(self) -> str:
        return "Text(…)"

    __str__ = __repr__


class Hashed(dict[Any, Any]):
    """A mapping that can be the key of another."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 1


class Number(enum.IntEnum):
    ONE = 1

    def __repr__(self) -> str:
        return "Number"


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ({}, range(11)),
        ({"a": 1}, [0, 1, 5]),
        ({"a": True}, [2]),
        ({"a": "1"}, [3]),
        ({"a": None}, [4]),
        ({"a": {"$eq": [1, "x"]}}, [5]),
        ({"a": {"$eq": (1, "x")}}, [5]),
        ({"a": {"$eq": {"b": 5}}}, [6]),
        ({"a": {"$ne": 1}}, [2, 3, 4, 6, 7, 8, 9, 10]),
        ({"a": {"$in": [True, "1"]}}, [2, 3]),
        ({"a": {"$in": []}}, []),
        ({"a": {"$nin": []}}, range(11)),
        ({"a": {"$in": np.array([1, 7])}}, [0, 1, 5]),
        ({"a": {"$in": [np.int64(1), np.str_("1")]}}, [0, 1, 3, 5]),
        ({"a": {"$in": {np.float32(1)}}}, [0, 1, 5]),
        ({"a": {"$in": [np.bool_(True)]}}, [2]),
        ({"a": {"$in": [np.array([1, 2]), np.array([3, 4])]}}, []),
        ({"a": {"$in": [(1, "x")]}}, [5]),
        ({"a": {"$in": np.array([np.int64(1), "1"], object)}}, [0, 1, 3, 5]),
        ({"a": {"$in": np.array([np.True_], object)}}, [2]),
        ({"a": np.longdouble(1)}, [0, 1, 5]),
        ({"a": np.array(1)}, [0, 1, 5]),
        ({"a": {"$eq": [True, "x"]}}, []),
        ({"a": {"$eq": {"b": np.array(5)}}}, [6]),
        ({"a": {"$eq": {"b": True}}}, []),
        ({"a": {"$in": [{"b": 5}, [1, "x"], None]}}, [4, 5, 6]),
        ({"a": Text("1")}, [3]),
        ({"a": Number.ONE}, [0, 1, 5]),
        ({Text("a"): {"$in": [Number.ONE, Text("1")]}}, [0, 1, 3, 5]),
        ({"a": np.int64(1)}, [0, 1, 5]),
        ({"a": {"$in": range(3)}}, [0, 1, 5]),
        ({"a": {"$in": {1: "x", "1": "y"}.keys()}}, [0, 1, 3, 5]),
        ({"a": {"$nin": [1, "1", None]}}, [2, 6, 7, 8, 9, 10]),
        ({"a": {"$gt": 0}}, [0, 1]),
        ({"a": {"$gte": 1, "$lte": 1}}, [0, 1]),
        ({"a": {"$lt": 1}}, []),
        ({"a": {"$lte": "1"}}, [3]),
        ({"a": {"$gt": math.nan}}, []),
        ({"a": math.nan}, []),
        ({"a": {"$exists": True}}, [0, 1, 2, 3, 4, 5, 6, 9]),
        ({"a": {"$exists": False}}, [7, 8, 10]),
        ({"a": {"$not": {"$exists": True}}}, [7, 8, 10]),
        ({"a": {"$not": {"$gt": 0}}}, [2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ({"a": {"$not": 1}}, [2, 3, 4, 6, 7, 8, 9, 10]),
        ({"a.b": 5}, [6, 10]),
        ({"a.b.c": {"$exists": True}}, []),
        ({"$or": [{"a": 1}, {"a": None}]}, [0, 1, 4, 5]),
        ({"$and": [{"a": {"$gt": 0}}, {"a": {"$ne": 1}}]}, []),
        ({"$not": {"$or": [{"a": {"$exists": True}}, {"a.b": 5}]}}, [7, 8]),
        ({"$ids": [3, 4, 99]}, [3, 4]),
        ({"$ids": [3, 4], "a": "1"}, [3]),
        ({"$not": {"$ids": [3, 4]}, "a": {"$exists": False}}, [7, 8, 10]),
        ({"$or": [{"$ids": [8]}, {"a": "1"}, {"o": {"$exists": True}}]}, [3, 8]),
        ({"unknown": 1}, []),
        ({"unknown": {"$ne": 1}}, range(11)),
    ],
)
@pytest.mark.parametrize("indexed", [(), ("a",), ("a", "a.b"), ("unknown",)])
def test_an_operator(filter: Any, wanted: Any, indexed: tuple[str, ...]) -> None:
    with Index(1, fields=indexed, keep_vectors=None) as index:
        index.add(np.zeros((11, 1)), payloads=STORED)
        assert index.ids(filter).tolist() == list(wanted)


def test_string_ids() -> None:
    with Index(1, ids="str", fields=["year"], keep_vectors=None) as index:
        index.add(np.zeros((3, 1)), ids=["x", "", "é"], payloads=[{"year": 1}, {"year": 2}, {"year": 3}])
        assert index.ids({"year": {"$gte": 2}}) == ["", "é"]
        assert index.ids({"$ids": ["é", "x", "?"], "year": {"$ne": 3}}) == ["x"]
        assert index.search([0], 2, filter={"year": {"$lt": 2}}).ids.tolist() == ["x", None]
        assert index.ids(["é", "x"]) == ["x", "é"]


# -- what is asked wrongly --------------------------------------------------------------------------


def nested(depth: int, kind: type) -> Any:
    """Lists or mappings inside each other."""
    inner: Any = 1
    for _ in range(depth):
        inner = [inner] if kind is list else {"x": inner}
    return inner


@pytest.mark.parametrize(
    ("filter", "says"),
    [
        ({"a": {"$equal": 1}}, r"a: no operator '\$equal'; did you mean \$eq\?"),
        ({"a": {"year": 1}}, r"no operator 'year'.*named with a dot"),
        ({"a": {}}, r"a: an operator is needed, one of \$eq"),
        ({"a": [1, 2]}, r"a: one value is needed; \{'\$in'"),
        ({"a": np.array([1, 2])}, r"a: one value is needed"),
        ({"a": {"$in": "abc"}}, r"a: \$in and \$nin take a list of values, got 'abc'"),
        ({"a": {"$nin": 5}}, r"\$in and \$nin take a list"),
        ({"a": {"$in": {"b": 1}}}, r"\$in and \$nin take a list"),
        ({"a": {"$gt": None}}, r"a: \$gt takes a number or a string, got None"),
        ({"a": {"$lte": True}}, r"\$lte takes a number or a string, got True"),
        ({"a": {"$lt": [1]}}, r"\$lt takes a number or a string"),
        ({"a": {"$exists": 1}}, r"\$exists takes True or False, got 1"),
        ({"a": {"$not": [1]}}, r"one value is needed"),
        ({"a": {"$not": {}}}, r"an operator is needed"),
        ({"$or": []}, r"\$or takes a list of filters, got \[\]"),
        ({"$or": {"a": 1}}, r"\$or takes a list of filters"),
        ({"$and": [{"a": 1}, 5]}, r"\$and takes a list of filters"),
        ({"$not": [{"a": 1}]}, r"\$not takes a filter"),
        ({"$nor": [{"a": 1}]}, r"no operator '\$nor'; did you mean \$or\?"),
        ({1: 2}, r"the name of a field is needed, got 1"),
        ({"$or": [{"a": {"$near": 1}}]}, r"no operator '\$near'"),
        ({"a": datetime.date(2026, 1, 1)}, r"a: no payload can hold a date, so nothing is equal to datetime.date"),
        ({"a": {"$ne": datetime.date(2026, 1, 1)}}, r"no payload can hold a date"),
        ({"a": {"$in": [decimal.Decimal(1)]}}, r"no payload can hold a Decimal"),
        ({"a": {"$eq": {"b": [1j]}}}, r"no payload can hold a complex"),
        ({"a": {"$eq": {(1, 2): 3}}}, r"no payload can hold a dict"),
        ({"a": {"$eq": {Hashed(): 3}}}, r"no payload can hold a dict"),
        ({"a": {"$in": b"ab"}}, r"\$in and \$nin take a list of values, got b'ab'"),
        ({"a": {"$gt": np.datetime64("2026-01-01")}}, r"no payload can hold a datetime64"),
        ({"a": {"$eq": nested(100, list)}}, r"more than 64 inside each other"),
        ({"a": {"$eq": nested(5_000, dict)}}, r"more than 64 inside each other"),
        ({"a": {"$gt": 10**5000}}, r"a whole number of 16,610 bits"),
        ({10**5000: 1}, r"the name of a field is needed, got an int"),
        ({"a": {10**5000: 1}}, r"no operator an int"),
        ({"$and": [10**5000]}, r"\$and takes a list of filters, got a list"),
        ({"$not": 10**5000}, r"\$not takes a filter, got an int"),
        ({"a": {"$exists": "x" * 10**6}}, r"got 'x{199}…$"),
    ],
)
def test_a_filter_that_means_nothing(filter: Any, says: str) -> None:
    with Index(1, fields=["a"], keep_vectors=None) as index:
        index.add([[1.0]], payloads=[{"a": 1}])
        for ask in (index.ids, lambda filter: index.search([1.0], filter=filter)):
            with pytest.raises(FilterError, match=says):
                ask(filter)
    assert issubclass(FilterError, ValueError)


@pytest.mark.parametrize("depth", [64, 65, 150, 300, 450, 5_000])
@pytest.mark.parametrize("kind", ["$not", "$and", "field"])
def test_filters_inside_each_other(depth: int, kind: str) -> None:
    filter: Any = {"$exists": True} if kind == "field" else {"a": 1}
    for _ in range(depth):
        filter = {"$and": [filter]} if kind == "$and" else {"$not": filter}
    with Index(1, fields=["a"], keep_vectors=None) as index:
        index.add([[1.0]], payloads=[{"a": 1}])
        if depth <= 64:
            assert index.ids({"a": filter} if kind == "field" else filter).tolist() == [0]
        else:
            with pytest.raises(FilterError, match="more than 64 inside each other"):
                index.ids({"a": filter} if kind == "field" else filter)


def test_what_a_filter_compares_with_is_told_apart_whatever_it_says_of_itself() -> None:
    """Answers are kept under the filter's text: one of a class with a repr of its own must not get another's."""
    for fields in ((), ("a",)):
        with Index(1, fields=fields, keep_vectors=None) as index:
            index.add(np.zeros((2, 1)), payloads=[{"a": "alice"}, {"a": "bob"}])
            assert index.ids({"a": Text("alice")}).tolist() == [0]
            assert index.delete({"a": Text("bob")}) == 1
            assert index.ids().tolist() == [0]


def test_ids_of_a_wrong_kind_in_a_filter() -> None:
    with Index(1, keep_vectors=None) as index, pytest.raises(IdError):
        index.ids({"$or": [{"$ids": ["a"]}, {"a": 1}]})


# -- searching --------------------------------------------------------------------------------------

ROWS = 6_000


@pytest.fixture(scope="module", params=["untrained", "scan", "subset"])
def filled(request: pytest.FixtureRequest) -> Any:
    """(index, vectors, payloads, how to search it): more than a chunk, deleted rows, a chunk that is gone."""
    rng = np.random.default_rng(5)
    options: dict[str, Any] = {"keep_vectors": "float32", "train_size": 500} if request.param != "untrained" else {}
    if request.param == "subset":
        options["subset"] = MultiIndex(bits=8)
    if options:
        options.update(encoder="lsh", bits=32)
    index = Index(8, fields=["year", "tag"], **options)
    vectors = rng.standard_normal((ROWS + 200, 8)).astype(np.float32)
    given = [
        None if i % 11 == 0 else {"year": int(rng.integers(1990, 2026)), "tag": ["x", f"t{i % 7}"], "free": i % 5}
        for i in range(ROWS + 200)
    ]
    index.add(vectors[:ROWS], payloads=given[:ROWS])
    if request.param == "subset":
        index.merge()
    index.delete(np.arange(0, 1_200))
    index.delete(np.arange(5_000, 5_050))
    index.add(vectors[ROWS:], payloads=given[ROWS:])
    assert index.stats()["deleted"] == 50  # the first chunk is gone: rows were moved
    how = {"strategy": "subset"} if request.param == "subset" else {}
    yield index, vectors, given, how
    assert index.check() == []
    index.close()


@pytest.mark.parametrize(
    "filter",
    [
        {"year": 1999},
        {"year": {"$gte": 2020}, "tag": "t3"},
        {"tag": {"$in": ["t1", "t2"]}, "free": {"$lt": 2}},
        {"$or": [{"year": {"$lt": 1991}}, {"free": 3}]},
        {"year": {"$exists": False}},
        {"$not": {"tag": "x"}},
        {"free": 4, "$ids": list(range(1_000, 3_000))},
        {"year": 1990, "tag": "t1", "free": 1},
        {"year": {"$gt": 3000}},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 20])
def test_a_search_finds_k_wherever_k_rows_match(filled: Any, filter: Any, k: int) -> None:
    index, vectors, given, how = filled
    ids = index.ids()
    condition = read_filter({name: own for name, own in filter.items() if name != "$ids"}, list)
    some = set(filter.get("$ids", ids.tolist()))
    wanted = [name for name in ids.tolist() if name in some and condition.matches(given[name])]
    assert index.ids(filter).tolist() == wanted
    queries = vectors[:3] + np.float32(0.1)
    found = index.search(queries, k, filter=filter, with_payloads=True, **how)
    assert (found.ids >= 0).sum(axis=1).tolist() == [min(k, len(wanted))] * 3
    assert set(found.ids[found.ids >= 0].tolist()) <= set(wanted)
    assert found.payloads == [[given[name] if name >= 0 else None for name in row] for row in found.ids.tolist()]
    same = index.search(queries, k, filter=index.ids(filter), **how)
    assert np.array_equal(same.ids, found.ids) and np.array_equal(same.distances, found.distances)
    told = index.explain(queries, k, filter=filter, **how)
    assert np.array_equal(told.matches.ids, found.ids)


def test_values_of_a_field_are_those_of_the_snapshot() -> None:
    """They are found once for a snapshot, and must not outlive it."""
    with Index(1, fields=["a"], keep_vectors=None) as index:
        for step in range(5):
            index.add(np.zeros((20, 1)), payloads=[{"a": step}] * 20)
            assert [len(index.ids({"a": at})) for at in range(6)] == [20 * (at <= step) for at in range(6)]
        index.set_payloads(range(7), [{"a": 5}] * 7)
        assert (len(index.ids({"a": 0})), len(index.ids({"a": 5}))) == (13, 7)
        index.delete([0])
        assert (len(index.ids({"a": 5})), len(index.ids({"a": {"$ne": 5}}))) == (6, 93)


def test_a_record_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write changes the last records; the others are not read anew for the next filter."""
    decoded: list[int] = []
    numbered = payload_columns.FieldColumn.numbered

    def counted(self: Any, payload: Any, count: int) -> Any:
        decoded.append(count)
        return numbered(self, payload, count)

    n = 3 * columns.CHUNK_ROWS
    with Index(1, fields=["name"], keep_vectors=None) as index:
        index.add(np.zeros((n, 1)), payloads=[{"name": f"n{i}"} for i in range(n)])
        assert index.ids({"name": "n7"}).tolist() == [7]
        monkeypatch.setattr(payload_columns.FieldColumn, "numbered", counted)
        index.add(np.zeros((1, 1)), payloads=[{"name": "n7"}])
        assert index.ids({"name": "n7"}).tolist() == [7, n]
        assert sum(decoded) < columns.BLOCK_ROWS
        index.set_payloads([n], [{"name": "n8"}])
        assert index.ids({"name": {"$in": ["n7", "n8"]}}).tolist() == [7, 8, n]
        assert sum(decoded) < 4 * columns.BLOCK_ROWS


def test_many_different_values_of_a_field() -> None:
    """A value a row, in more than one full part."""
    n = columns.CHUNK_ROWS + 700
    with Index(1, fields=["name", "at"], keep_vectors=None) as index:
        index.add(np.zeros((n, 1)), payloads=[{"name": f"n{i}", "at": i / 2} for i in range(n)])
        assert index.ids({"name": f"n{n - 1}"}).tolist() == [n - 1]
        assert index.ids({"at": {"$lt": 1000}}).tolist() == list(range(2000))
        assert index.ids({"name": {"$in": ["n5", "n4070"]}, "at": {"$gt": 3}}).tolist() == [4070]
        assert index.check() == []
