"""Filters over metadata, beside LlamaIndex's own reading of them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.schema import (
    BaseNode,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn, node_to_metadata_dict

from lsqindex import Index
from lsqindex.hosts.llama_index import LsqVectorStore

from .given import A, B, C, Op, ask, filters, three_nodes, where

TEXTS: list[Any] = ["", "a", "b", "ab", "aB", "bab"]
NUMBERS: list[Any] = [-1, 0, 1, 2, 0.0, 0.5, 1.0, 2.5]
WORDS: list[Any] = [["a"], ["ab", "b"], ["a", "b", "ab"], [""], []]
COUNTS: list[Any] = [[1], [0, 2], [2.5, 1], [-1]]
KEYS = ["a", "b", "c", "a.b"]


def some_metadata(rng: random.Random) -> dict[str, Any]:
    kinds: list[list[Any]] = [TEXTS, TEXTS, NUMBERS, NUMBERS, [True, False], WORDS, COUNTS, [None]]
    return {key: rng.choice(rng.choice(kinds)) for key in KEYS if rng.random() < 0.8}


def some_value(rng: random.Random, operator: FilterOperator) -> Any:
    if operator in (Op.IN, Op.NIN, Op.ANY, Op.ALL):
        values: list[Any] = rng.choice([TEXTS, NUMBERS])
        return rng.sample(values, rng.randrange(4))
    if operator in (Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE):
        return rng.choice(TEXTS)
    if operator == Op.IS_EMPTY:
        return None
    if operator in (Op.EQ, Op.NE) and rng.random() < 0.2:
        return rng.choice([*WORDS[:3], *COUNTS, None])
    return rng.choice(rng.choice([TEXTS, NUMBERS]))


def some_filters(rng: random.Random, depth: int) -> MetadataFilters:
    parts: list[Any] = []
    for _ in range(rng.randrange(4)):
        if depth and rng.random() < 0.4:
            parts.append(some_filters(rng, depth - 1))
        else:
            operator = rng.choice(list(Op))
            parts.append(where(rng.choice(KEYS), operator, some_value(rng, operator)))
    return filters(*parts, condition=rng.choice([*FilterCondition, None]))


def plain(asked: MetadataFilter | MetadataFilters, node: BaseNode) -> bool:
    """LlamaIndex's reading of one filter; of nested ones, which it does not take, what the conditions' names say."""
    if isinstance(asked, MetadataFilters):
        answers = [plain(part, node) for part in asked.filters]
        if not answers or asked.condition in (None, FilterCondition.AND):
            return all(answers)
        return any(answers) == (asked.condition == FilterCondition.OR)
    metadata = node_to_metadata_dict(node)
    value = metadata.get(asked.key)
    if isinstance(value, bool) and asked.operator in (Op.GT, Op.GTE, Op.LT, Op.LTE):
        return False
    try:
        return build_metadata_filter_fn(lambda _: metadata, filters(asked))("")
    except TypeError:
        if asked.operator not in (Op.CONTAINS, Op.ANY, Op.ALL):
            return False
        return build_metadata_filter_fn(lambda _: {asked.key: [value]}, filters(asked))("")


def nodes_with(metadata: Sequence[dict[str, Any]]) -> list[TextNode]:
    return [TextNode(id_=f"{i:03}", text=str(i), embedding=[1.0, i], metadata=one) for i, one in enumerate(metadata)]


@pytest.fixture(params=[[], ["a", "b", "a.b"]], ids=["read", "indexed"])
def filtered(request: pytest.FixtureRequest) -> tuple[LsqVectorStore, list[TextNode]]:
    rng = random.Random(7)
    nodes = nodes_with([some_metadata(rng) for _ in range(150)])
    store = LsqVectorStore(fields=request.param)
    store.add(nodes)
    return store, nodes


def agree(store: LsqVectorStore, nodes: list[TextNode], asked: MetadataFilters) -> int:
    """How many nodes match, in a query and without one."""
    expected = [node.node_id for node in nodes if plain(asked, node)]
    assert [node.node_id for node in store.get_nodes(filters=asked)] == expected, asked
    assert sorted(ask(store, [1, 0], len(nodes), filters=asked).ids or []) == expected, asked
    return len(expected)


@pytest.mark.parametrize("operator", list(Op))
def test_operator(filtered: tuple[LsqVectorStore, list[TextNode]], operator: FilterOperator) -> None:
    rng = random.Random(operator.value)
    counts = {
        agree(*filtered, filters(where(rng.choice(KEYS), operator, some_value(rng, operator)))) for _ in range(40)
    }
    assert len(counts) > 3 or operator == Op.IS_EMPTY


@pytest.mark.parametrize("seed", range(4))
def test_nested_filters(filtered: tuple[LsqVectorStore, list[TextNode]], seed: int) -> None:
    rng = random.Random(seed)
    assert len({agree(*filtered, some_filters(rng, 3)) for _ in range(40)}) > 10


def test_filters_without_a_condition_let_all_through() -> None:
    store = LsqVectorStore()
    store.add(three_nodes())
    for condition in [*FilterCondition, None]:
        assert len(store.get_nodes(filters=filters(condition=condition))) == 3
    assert store.get_nodes(filters=filters(filters(), condition=FilterCondition.NOT)) == []


def test_only_what_the_rest_leaves_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = LsqVectorStore(fields=["n"])
    store.add(nodes_with([{"n": i, "word": f"word {i}"} for i in range(100)]))
    read: list[str] = []
    payloads = Index.payloads

    def noting(index: Index, ids: list[str]) -> Any:
        read.extend(ids)
        return payloads(index, ids)

    monkeypatch.setattr(Index, "payloads", noting)
    asked = filters(where("word", Op.TEXT_MATCH, "9"), where("n", Op.GTE, 88), where("n", Op.LT, 92))
    assert ask(store, [1, 90], 9, filters=asked, node_ids=["090", "091", "095"]).ids == ["090", "091"]
    assert read == ["090", "091"]


def test_filters_on_documents_types_and_inner_fields() -> None:
    store = LsqVectorStore()
    store.add(three_nodes())
    store.add([TextNode(id_="n", text="", embedding=[1, 0], metadata={"at": {"year": 2020}, "$x": 1, "flag": True})])
    for key in ("ref_doc_id", "doc_id", "document_id"):
        assert [node.node_id for node in store.get_nodes(filters=filters(where(key, value="test-1")))] == [B]
    assert len(store.get_nodes(filters=filters(where("_node_type", value="TextNode")))) == 4
    for key, value in (("at.year", 2020), ("$x", 1), ("flag", 1)):
        assert [node.node_id for node in store.get_nodes(filters=filters(where(key, value=value)))] == ["n"]


def test_dates_are_iso_strings() -> None:
    store = LsqVectorStore()
    store.add(nodes_with([{"on": datetime.date(2020, month, 1)} for month in range(1, 13)]))
    assert len(store.get_nodes(filters=filters(where("on", Op.GTE, "2020-10-01")))) == 3


def test_document_ids() -> None:
    store = LsqVectorStore()
    store.add(three_nodes())
    assert ask(store, [1, 1], 3, doc_ids=["test-0", "test-1"], node_ids=[A, C]).ids == [A]
    assert ask(store, [1, 1], 3, doc_ids=["absent"]).ids == []
    assert len(ask(store, [1, 1], 3, doc_ids=[], node_ids=[]).ids or []) == 3  # so asks an index of this store
