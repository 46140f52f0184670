"""The checks of LlamaIndex's own SimpleVectorStore, told again.

Its tests are neither in its wheel nor in its source archive, so those of its SimpleVectorStore (``test_simple.py``,
27 tests) stand here with the same nodes, calls and expectations. Each is run on its own store, too, which shows that
they are told rightly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.storage import storage_context
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
)

from lsqindex.hosts.llama_index import LsqVectorStore

from .given import A, B, C, Op, ask, filters, three_nodes, where


@pytest.fixture(params=[LsqVectorStore, SimpleVectorStore])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def three(kind: Any) -> Any:
    store = kind()
    store.add(three_nodes())
    return store


def test_simple_all_rows_by_similarity(three: Any) -> None:
    ids = ask(three, [1, 1], 3).ids
    assert ids is not None
    assert sorted(ids) == sorted([A, B, C])
    assert ids[0] == C


def test_simple_filter_with_several_matches(three: Any) -> None:
    assert ask(three, [1, 1], 3, filters=filters(where("rank", value="c"))).ids == [C, B]


def test_simple_filter_and_top_k(three: Any) -> None:
    assert ask(three, [1, 1], 1, filters=filters(where("rank", value="c"))).ids == [C]


def test_simple_filter_and_node_ids(three: Any) -> None:
    assert ask(three, [1, 1], 3, filters=filters(where("rank", value="c")), node_ids=[C]).ids == [C]


def test_simple_two_filters_with_one_match(three: Any) -> None:
    both = filters(where("rank", value="c"), where("weight", value=2.0))
    assert ask(three, [1, 1], filters=both).ids == [B]


def test_simple_filters_that_contradict(three: Any) -> None:
    assert ask(three, [1, 1], filters=filters(where("weight", value=2), where("weight", value=3))).ids == []


def test_simple_filter_on_an_unknown_field(three: Any) -> None:
    assert ask(three, [1, 1], filters=filters(where("unknown_field", value="c"))).ids == []


def test_simple_delete(three: Any) -> None:
    three.delete("test-1")
    assert ask(three, [1, 1], 2).ids == [C, A]


def test_simple_conditions(three: Any) -> None:
    parts = (where("rank", value="c"), where("weight", value=1.0))
    assert len(ask(three, [1, 1], 3, filters=filters(*parts, condition=FilterCondition.OR)).ids or []) == 3
    assert ask(three, [1, 1], 3, filters=filters(*parts, condition=FilterCondition.AND)).ids == []


def test_simple_not(three: Any) -> None:
    found = ask(three, [1, 1], 3, filters=filters(where("rank", value="a"), condition=FilterCondition.NOT))
    assert found.ids == [C, B]


#: One filter, and how many of the three nodes it lets through.
ONE_FILTER: list[tuple[str, FilterOperator, Any, int]] = [
    ("weight", Op.EQ, 1.0, 1),
    ("weight", Op.NE, 1.0, 2),
    ("weight", Op.GT, 1.5, 2),
    ("weight", Op.GTE, 1.0, 3),
    ("weight", Op.LT, 1.1, 1),
    ("weight", Op.LTE, 1.0, 1),
    ("rank", Op.IN, ["a", "c"], 3),
    ("rank", Op.NIN, ["c"], 1),
    ("quality", Op.CONTAINS, "high", 2),
    ("identifier", Op.TEXT_MATCH, "6FTR78Y", 2),
    ("quality", Op.ANY, ["high", "low"], 2),
    ("quality", Op.ALL, ["medium", "high"], 2),
    ("not_existed_key", Op.IS_EMPTY, None, 3),
]


@pytest.mark.parametrize(("key", "operator", "value", "count"), ONE_FILTER)
def test_simple_operator(three: Any, key: str, operator: FilterOperator, value: Any, count: int) -> None:
    assert len(ask(three, [1, 1], 3, filters=filters(where(key, operator, value))).ids or []) == count


def test_simple_clear(three: Any) -> None:
    three.clear()
    assert ask(three, [1, 1], 3).ids == []


def test_simple_delete_nodes(three: Any) -> None:
    three.delete_nodes([A, B])
    assert ask(three, [1, 1], 3).ids == [C]


@pytest.fixture
def persisted(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a context writes whose default store is this one; that of images is empty."""
    monkeypatch.setattr(storage_context, "SimpleVectorStore", kind)
    index = VectorStoreIndex.from_documents([Document(id_="1", text="1")], embed_model=MockEmbedding(embed_dim=1))
    index.storage_context.persist(str(tmp_path))
    return str(tmp_path)


def test_simple_from_persist_dir(kind: Any, persisted: str) -> None:
    store = kind.from_persist_dir(persist_dir=persisted)
    assert len(ask(store, [0.5], 5).ids or []) == 1


def test_simple_from_namespaced_persist_dir(kind: Any, persisted: str) -> None:
    stores = kind.from_namespaced_persist_dir(persist_dir=persisted)
    assert {name: len(ask(store, [0.5], 5).ids or []) for name, store in stores.items()} == {"default": 1, "image": 0}
