"""Payloads and fields that cannot be stored: errors that say why, and nothing changed."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex.errors import (
    DuplicateIdError,
    IdError,
    LsqIndexError,
    ParameterError,
    PayloadError,
    UnknownIdError,
    VectorError,
)

from .stored_payloads import DIM, vectors


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
BAD: dict[str, tuple[Any, str]] = {
    "a mapping": ({"a": 1}, "a sequence of mappings, one per vector, is needed, got dict"),
    "a string": ("ab", "a sequence of mappings, one per vector, is needed"),
    "a number": (5, "a sequence of mappings, one per vector, is needed"),
    "too few": ([{}], "2 are needed, one per vector .*got 1"),
    "too many": ([{}] * 3, "got 3"),
    "a list": ([{}, [1]], r"a mapping \(or None\) is needed, got \[1\] at 1"),
    "text": ([{}, "a"], "a mapping .* at 1"),
    "a name that is no string": ([{}, {1: 2}], "names must be strings, got 1 at 1"),
    "a set": ([{}, {"a": {1}}], "at 1: a set cannot be stored, but its list can; use None"),
    "an object": ([{}, {"a": [object()]}], "object cannot be stored"),
    "a date": ([{}, {"a": datetime(2026, 1, 1, tzinfo=timezone.utc)}], "datetime cannot be stored"),
    "a decimal": ([{}, {"a": Decimal(1)}], "Decimal cannot be stored"),
    "a complex number": ([{}, {"a": 1j}], "complex"),
    "a date of NumPy": ([{}, {"a": np.datetime64("2026-01-01")}], "date"),
    "a large int": ([{}, {"a": 2**64}], "64-bit int"),
    "a small int": ([{}, {"a": -(2**63) - 1}], "64-bit int"),
    "half a pair": ([{}, {"a": "\ud800"}], "surrogates"),
    "a name that is half a pair": ([{}, {"\ud800": 1}], "surrogates"),
    "a cycle": ([{}, {"a": CYCLE}], "recursion limit"),
    "too deep": ([{}, {"a": nested(3000)}], "recursion limit"),
    "a tuple as a name": ([{}, {"a": {(1, 2): 3}}], "at 1: could not be read again"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("fields", [(), ("a",)])
def test_what_cannot_be_stored_is_told_and_changes_nothing(
    case: str, fields: tuple[str, ...], make: Callable[..., Index]
) -> None:
    given, says = BAD[case]
    index = make(fields=fields)
    index.add(vectors(3), payloads=[{"a": 0}, None, {"a": 2}])
    before = index.stats()
    with index.batch() as batch:
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: batch.add(vectors(2), ids=[7, 8], payloads=given),
            lambda: batch.add(vectors(2), ids=[0, 1], payloads=given, upsert=True),
        )
        for attempt in attempts:
            with pytest.raises(PayloadError, match=says):
                attempt()
    for attempt in (
        lambda: index.add(vectors(2), payloads=given),
        lambda: index.add(vectors(2), ids=[0, 1], payloads=given, upsert=True),
        lambda: index.set_payloads([0, 1], given),
    ):
        with pytest.raises(PayloadError, match=says) as caught:
            attempt()
        assert isinstance(caught.value, LsqIndexError) and isinstance(caught.value, ValueError)
    assert index.payloads([0, 1, 2]) == [{"a": 0}, None, {"a": 2}] and index.stats() == before


def test_errors_of_set_payloads_change_nothing(make: Callable[..., Index]) -> None:
    index = make(fields=["a"])
    index.add(vectors(3), payloads=[{"a": 0}, None, {"a": 2}])
    with pytest.raises(UnknownIdError, match="7"):
        index.set_payloads([0, 7], [{"a": 5}] * 2)
    with pytest.raises(DuplicateIdError, match="more than once"):
        index.set_payloads([0, 0], [{"a": 5}] * 2)
    with pytest.raises(PayloadError, match="got dict"):
        index.set_payloads([0], {"a": 5})
    with pytest.raises(IdError):
        index.set_payloads("0", {"a": 5})
    assert index.payloads([0, 1, 2]) == [{"a": 0}, None, {"a": 2}]
    index.delete([0])
    with pytest.raises(UnknownIdError):
        index.set_payloads([0], [{}])


def test_an_add_that_fails_otherwise_leaves_no_payload(make: Callable[..., Index]) -> None:
    index = make()
    index.add(vectors(3))
    wrong = vectors(2)
    wrong[1, 1] = np.nan
    with pytest.raises(VectorError):
        index.add(wrong, payloads=[{"a": 1}] * 2)
    with pytest.raises(DuplicateIdError):
        index.add(vectors(2), ids=[9, 0], payloads=[{"a": 1}] * 2)
    assert index.stats()["payloads"] is False and index.payloads(range(3)) == [None] * 3


@pytest.mark.parametrize(
    "fields",
    ["lang", b"lang", 5, None, [""], ["$or"], [5], [None], ["a", "a"], ["\ud800"], [f"f{i}" for i in range(257)]],
    ids=lambda value: repr(value)[:20],
)
def test_fields_that_cannot_be(fields: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="fields"):
        Index(DIM, fields=fields, keep_vectors=None)
    with pytest.raises(ParameterError, match="fields"):
        Index.create(tmp_path / "never.lsq", DIM, fields=fields, keep_vectors=None)
    assert not (tmp_path / "never.lsq").exists()


def test_as_many_fields_as_there_can_be(make: Callable[..., Index]) -> None:
    names = [f"f{i}" for i in range(256)]
    index = make(fields=names)
    index.add(vectors(20), payloads=[dict.fromkeys(names[i:], i) for i in range(20)])
    assert index.stats()["fields"] == names
    assert index.ids({"f255": {"$gte": 18}, "f19": 19}).tolist() == [19]
    assert index.ids({"f3": {"$exists": True}}).tolist() == [0, 1, 2, 3]


class Header(dict[str, Any]):
    """A mapping that answers to names of any case, as those of HTTP headers do."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name.lower())


class Name(str, enum.Enum):
    LANG = "lang"


def test_indexed_values_are_those_that_are_stored(make: Callable[..., Index]) -> None:
    index = make(fields=["a", "A", Name.LANG], ids="str")
    assert index.stats()["fields"] == ["a", "A", "lang"]
    index.add(np.zeros((1, DIM)), ids=[Name.LANG], payloads=[Header(a=1, lang="en")])
    assert index.ids({"A": {"$exists": True}}) == [] and index.ids({"a": 1, Name.LANG: "en"}) == ["lang"]
    assert index.check() == []


def test_what_cannot_even_be_shown_is_refused_all_the_same(make: Callable[..., Index]) -> None:
    index = make()
    for payload in (10**5000, {10**5000: 1}, {"a": 10**5000}, {"a": memoryview(b"xyzw")[::2]}):
        with pytest.raises(PayloadError):
            index.add(np.zeros((1, DIM)), payloads=[payload])
    for use in (index.delete, index.get, index.payloads, lambda ids: index.ids({"$ids": ids})):
        with pytest.raises(IdError, match="does not fit into a signed 64-bit integer"):
            use([10**5000])
    with pytest.raises(ParameterError):
        Index(1, fields=[10**5000], keep_vectors=None)  # type: ignore[list-item]
    assert len(index) == 0
