"""Filters operator by operator, what is asked wrongly, and filtered searches."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._inputs.filters import read_filter
from lsqindex._storage.format import columns, payload_columns
from lsqindex.errors import FilterError, IdError

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
        ({"a": {}}, r"a: expected an operator, one of \$eq"),
        ({"a": [1, 2]}, r"a: expected one value; use \{'\$in'"),
        ({"a": np.array([1, 2])}, r"a: expected one value"),
        ({"a": {"$in": "abc"}}, r"a: \$in and \$nin take a list of values, got 'abc'"),
        ({"a": {"$nin": 5}}, r"\$in and \$nin take a list"),
        ({"a": {"$in": {"b": 1}}}, r"\$in and \$nin take a list"),
        ({"a": {"$gt": None}}, r"a: \$gt takes a number or a string, got None"),
        ({"a": {"$lte": True}}, r"\$lte takes a number or a string, got True"),
        ({"a": {"$lt": [1]}}, r"\$lt takes a number or a string"),
        ({"a": {"$exists": 1}}, r"\$exists takes True or False, got 1"),
        ({"a": {"$not": [1]}}, r"expected one value"),
        ({"a": {"$not": {}}}, r"expected an operator"),
        ({"$or": []}, r"\$or takes a list of filters, got \[\]"),
        ({"$or": {"a": 1}}, r"\$or takes a list of filters"),
        ({"$and": [{"a": 1}, 5]}, r"\$and takes a list of filters"),
        ({"$not": [{"a": 1}]}, r"\$not takes a filter"),
        ({"$nor": [{"a": 1}]}, r"no operator '\$nor'; did you mean \$or\?"),
        ({1: 2}, r"expected the name of a field, got 1"),
        ({"$or": [{"a": {"$near": 1}}]}, r"no operator '\$near'"),
        ({"a": datetime.date(2026, 1, 1)}, r"a: a payload cannot hold a date, so no row equals datetime.date"),
        ({"a": {"$ne": datetime.date(2026, 1, 1)}}, r"a payload cannot hold a date"),
        ({"a": {"$in": [decimal.Decimal(1)]}}, r"a payload cannot hold a Decimal"),
        ({"a": {"$eq": {"b": [1j]}}}, r"a payload cannot hold a complex"),
        ({"a": {"$eq": {(1, 2): 3}}}, r"a payload cannot hold a dict"),
        ({"a": {"$eq": {Hashed(): 3}}}, r"a payload cannot hold a dict"),
        ({"a": {"$in": b"ab"}}, r"\$in and \$nin take a list of values, got b'ab'"),
        ({"a": {"$gt": np.datetime64("2026-01-01")}}, r"a payload cannot hold a datetime64"),
        ({"a": {"$eq": nested(100, list)}}, r"nested at most 64 levels deep"),
        ({"a": {"$eq": nested(5_000, dict)}}, r"nested at most 64 levels deep"),
        ({"a": {"$gt": 10**5000}}, r"an int of 16,610 bits"),
        ({10**5000: 1}, r"expected the name of a field, got an int"),
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
            with pytest.raises(FilterError, match="nested at most 64 levels deep"):
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
    condition = read_filter({name: own for name, own in filter.items() if name != "$ids"}, "int")
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
