"""LlamaIndex: the checks of its own SimpleVectorStore, its filters, files, and an index from documents to answers.

LlamaIndex's tests are neither in its wheel nor in its source archive, so that those of its SimpleVectorStore
(``test_simple.py``, 27 tests) are told again here, as ``test_simple_*``: the same nodes, calls and expectations. Each
is run on its own store, too, which shows that they are told rightly.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage import storage_context
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn, node_to_metadata_dict
from numpy.typing import NDArray

from lsqindex import Index, LsqIndexError
from lsqindex.errors import FilterError, IndexMissingError, NotAnIndexError, ParameterError, VectorError
from lsqindex.hosts.llama_index import LsqVectorStore

Op = FilterOperator
ROOT = Path(__file__).parents[1]


def where(key: str, operator: FilterOperator = Op.EQ, value: Any = None) -> MetadataFilter:
    return MetadataFilter(key=key, operator=operator, value=value)


def filters(*parts: Any, condition: FilterCondition | None = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(parts), condition=condition)


def ask(
    store: BasePydanticVectorStore, embedding: Sequence[float], top: int = 1, **more: Any
) -> VectorStoreQueryResult:
    return store.query(VectorStoreQuery(query_embedding=list(embedding), similarity_top_k=top, **more))


# -- LlamaIndex's own checks of SimpleVectorStore -------------------------------------------------

A, B, C = "AF3BE6C4-5F43-4D74-B075-6B0E07900DE8", "7D9CD555-846C-445C-A9DD-F8924A01411D", "452D24AB-F185-414C-A352"


def three_nodes() -> list[TextNode]:
    """Of weight 1 and rank a, of weight 2 and rank c, of weight 3 and rank c."""
    told: list[tuple[str, list[float], float, str, list[str], str]] = [
        (A, [1.0, 0.0], 1.0, "a", ["medium", "high"], "6FTR78Yun"),
        (B, [0.0, 1.0], 2.0, "c", ["medium"], "6FTR78Ygl"),
        (C, [1.0, 1.0], 3.0, "c", ["low", "medium", "high"], "6FTR78Ztl"),
    ]
    return [
        TextNode(
            text="lorem ipsum",
            id_=name,
            embedding=embedding,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"test-{i}")},
            metadata={"weight": weight, "rank": rank, "quality": quality, "identifier": identifier},
        )
        for i, (name, embedding, weight, rank, quality, identifier) in enumerate(told)
    ]


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


# -- filters, beside LlamaIndex's own reading of them ---------------------------------------------

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


# -- nodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        TextNode(
            text="a lake",
            metadata={"list": ["a", 1], "inner": {"x": None}, "": 1, "doc_id": "its own", "n": 1.5},
            relationships={
                NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", metadata={"a": 1}),
                NodeRelationship.CHILD: [RelatedNodeInfo(node_id="x"), RelatedNodeInfo(node_id="y")],
            },
            start_char_idx=3,
            end_char_idx=9,
            excluded_llm_metadata_keys=["n"],
            metadata_separator=" | ",
        ),
        Node(text_resource=MediaResource(text="many"), image_resource=MediaResource(path="a.png")),
        ImageNode(text="a picture", image="aGVsbG8=", image_path="a.png"),
        IndexNode(text="a pointer", index_id="i", obj=TextNode(text="to this")),
        Document(text="a document", metadata={"a": 1}),
    ],
    ids=lambda node: type(node).__name__,
)
def test_nodes_come_back_as_they_were(node: BaseNode) -> None:
    store = LsqVectorStore()
    store.add([node.model_copy(update={"embedding": [1.0, 2.0]})])
    for found in (store.get_nodes([node.node_id]), ask(store, [1, 2]).nodes or []):
        assert list(found) == [node]
        assert type(found[0]) is type(node)


def test_add_replaces() -> None:
    store = LsqVectorStore()
    first, second = TextNode(id_="a", text="1", embedding=[1, 0]), TextNode(id_="a", text="2", embedding=[0, 1])
    assert store.add([]) == []
    assert store.client is None
    assert store.add([first, second, second]) == ["a", "a", "a"]
    assert ask(store, [0, 1]).similarities == [1.0]
    store.add([first])
    assert [node.get_content() for node in store.get_nodes()] == ["1"]
    assert len(store.client or []) == 1


def test_get_and_delete_nodes() -> None:
    store = LsqVectorStore()
    assert store.get_nodes() == []
    store.delete("absent")
    store.delete_nodes(["absent"])
    store.clear()
    store.add(three_nodes())
    rank_c = filters(where("rank", value="c"))
    assert [node.node_id for node in store.get_nodes([C, "absent", A, C])] == [C, A, C]
    assert [node.node_id for node in store.get_nodes([A, C], rank_c)] == [C]
    store.delete_nodes()
    store.delete_nodes([])
    store.delete_nodes([A], rank_c)
    store.delete("None")
    assert len(store.get_nodes()) == 3
    store.delete_nodes(filters=rank_c)
    assert [node.node_id for node in store.get_nodes()] == [A]
    store.clear()
    assert store.get_nodes() == []
    store.add(three_nodes())
    assert ask(store, [1, 1]).ids == [C]


def test_nodes_that_are_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LsqVectorStore(tmp_path / "store"), LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    payloads = Index.payloads

    def late(self: Index, ids: Any) -> Any:
        other.delete("test-1")
        return payloads(self, ids)

    monkeypatch.setattr(Index, "payloads", late)
    assert [node.node_id for node in store.get_nodes([C, B, A])] == [C, A]


async def test_async() -> None:
    store = LsqVectorStore()
    assert await store.async_add(three_nodes()) == [A, B, C]
    await store.adelete("test-0")
    assert [node.node_id for node in await store.aget_nodes([C, A])] == [C]
    await store.adelete_nodes([B])
    found = await store.aquery(VectorStoreQuery(query_embedding=[1, 1], similarity_top_k=3))
    assert found.ids == [C]
    await store.aclear()
    assert await store.aget_nodes() == []


async def test_the_loop_goes_on_while_nodes_are_added(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store", train_size=500, bits=32)
    adding = asyncio.create_task(store.async_add(unit_nodes(1500, 32)[0]))
    turns = 0
    while not adding.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert len(adding.result()) == 1500 and turns > 20


def test_nodes_that_no_longer_match_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LsqVectorStore(tmp_path / "store"), LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    delete = Index.delete

    def late(self: Index, ids: Any) -> int:
        other.add([TextNode(id_=A, embedding=[1.0, 0.0], metadata={"rank": "z"})])
        return delete(self, ids)

    monkeypatch.setattr(Index, "delete", late)
    store.delete_nodes(filters=filters(where("rank", value="a")))
    store.delete("test-0")
    assert {node.node_id for node in store.get_nodes()} == {A, B, C}


def test_mmr_when_a_node_is_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LsqVectorStore(tmp_path / "store"), LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    get = Index.get

    def late(self: Index, ids: Any) -> Any:
        other.delete_nodes([C])
        return get(self, ids)

    monkeypatch.setattr(Index, "get", late)
    assert sorted(ask(store, [1, 1], 3, mode=VectorStoreQueryMode.MMR).ids or []) == sorted([A, B])


def test_nothing_is_lost_of_what_is_added_while_a_store_is_persisted(tmp_path: Path) -> None:
    for turn in range(5):
        store, stop = LsqVectorStore(), threading.Event()
        store.add([TextNode(id_="0", embedding=[1.0, 0.0])])

        def add(store: LsqVectorStore = store, stop: threading.Event = stop) -> list[str]:
            added = ["0"]
            while not stop.is_set():
                added += store.add([TextNode(id_=f"{len(added)}", embedding=[1.0, 0.0])])
                assert ask(store, [1, 0], 1).ids
            return added

        with ThreadPoolExecutor() as pool:
            done = pool.submit(add)
            time.sleep(0.01)
            store.persist(str(tmp_path / f"{turn}"))
            time.sleep(0.01)
            stop.set()
        again = LsqVectorStore(tmp_path / f"{turn}")
        assert {node.node_id for node in again.get_nodes()} == set(done.result())


# -- queries --------------------------------------------------------------------------------------


def unit_nodes(n: int, dim: int, seed: int = 0) -> tuple[list[TextNode], NDArray[np.float32]]:
    vectors = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return [
        TextNode(id_=str(i), text=f"text {i}", embedding=vector, metadata={"tenth": i % 10})
        for i, vector in enumerate(vectors.tolist())
    ], vectors


@pytest.mark.parametrize("mode", [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR])
def test_answers_are_those_of_simple_vector_store(mode: VectorStoreQueryMode) -> None:
    nodes, vectors = unit_nodes(80, 8)
    ours, theirs = LsqVectorStore(keep_vectors="float32"), SimpleVectorStore()
    for store in (ours, theirs):
        store.add(nodes)
        store.delete_nodes(["3", "4"])
    for query in (-vectors[:10]).tolist():
        for threshold in (None, 0.2, 0.9):
            asked = VectorStoreQuery(query_embedding=query, similarity_top_k=7, mode=mode, mmr_threshold=threshold)
            found, expected = ours.query(asked), theirs.query(asked, mmr_threshold=threshold)
            assert found.ids == expected.ids
            np.testing.assert_allclose(found.similarities or [], expected.similarities or [], atol=1e-6)
            assert [node.node_id for node in found.nodes or []] == found.ids


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("cosine", [("a", 1.0), ("b", 0.6)]), ("ip", [("b", 6.0), ("a", 2.0)]), ("l2", [("a", -1.0), ("b", -(17**0.5))])],
)
def test_scores(metric: str, expected: list[tuple[str, float]]) -> None:
    store = LsqVectorStore(metric=metric)
    store.add([TextNode(id_="a", text="", embedding=[1, 0]), TextNode(id_="b", text="", embedding=[3, 4])])
    found = ask(store, [2, 0], 5)
    assert found.ids == [name for name, _ in expected]
    assert found.similarities == pytest.approx([score for _, score in expected], abs=1e-3)
    assert all(type(score) is float for score in found.similarities or [])


def test_mmr_chooses_from_the_nearest() -> None:
    nodes, vectors = unit_nodes(300, 8)
    store = LsqVectorStore()
    store.add(nodes)
    asked = VectorStoreQuery(
        query_embedding=vectors[0].tolist(), similarity_top_k=5, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.1
    )
    nearest = ask(store, vectors[0], 10).ids or []
    assert set(store.query(asked, mmr_prefetch_k=10).ids or []) < set(nearest)
    assert not set(store.query(asked).ids or []) <= set(nearest)
    asked.filters = filters(where("tenth", value=11))
    assert store.query(asked).ids == []


def test_trained(tmp_path: Path) -> None:
    nodes, vectors = unit_nodes(4000, 32)
    store = LsqVectorStore(tmp_path / "store", train_size=2000, bits=64, fields=["tenth"])
    for first in range(0, 4000, 800):
        store.add(nodes[first : first + 800])
    index = store.client
    assert index is not None
    assert index.is_trained
    assert index.check() == []
    queries = np.random.default_rng(1).standard_normal((50, 32))
    lengths = np.linalg.norm(vectors, axis=1)
    for asked, allowed in ((None, np.arange(4000)), (filters(where("tenth", value=3)), np.arange(3, 4000, 10))):
        found = 0
        for query in queries:
            nearest = allowed[np.argsort(-(vectors[allowed] @ query) / lengths[allowed])[:10]]
            ids = ask(store, query, 10, filters=asked).ids or []
            assert len(ids) == 10
            found += len(set(ids) & {str(i) for i in nearest})
        assert found >= 0.95 * 500
    deep = store.query(VectorStoreQuery(query_embedding=queries[0].tolist(), similarity_top_k=3), rerank=4000)
    exact = np.argsort(-(vectors @ queries[0]) / lengths)[:3]
    assert deep.ids == [str(i) for i in exact]


def test_threads_make_one_index() -> None:
    store, start = LsqVectorStore(), threading.Barrier(8)
    nodes, _ = unit_nodes(80, 8)

    def add(part: list[TextNode]) -> None:
        start.wait()
        store.add(part)

    threads = [threading.Thread(target=add, args=(nodes[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.get_nodes()) == 80


# -- files ----------------------------------------------------------------------------------------


ELSEWHERE = """
import sys
from lsqindex.hosts.llama_index import LsqVectorStore

for line in sys.stdin:
    what, path, *document = line.split()
    store = LsqVectorStore.from_persist_path(path)
    if what == "delete":
        store.delete(*document)
    print(*(node.node_id for node in store.get_nodes()), flush=True)
    store.close()
"""

Elsewhere = Callable[..., list[str]]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Does something in another process, and gives the ids that are there then."""
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def do(*words: object) -> list[str]:
            print(*words, file=stdin, flush=True)
            return stdout.readline().split()

        yield do
        stdin.close()


def test_another_process_sees_every_change(tmp_path: Path, elsewhere: Elsewhere) -> None:
    path = tmp_path / "store"
    store, early = LsqVectorStore(path), LsqVectorStore(path)
    store.add(three_nodes())
    assert elsewhere("look", path) == sorted([A, B, C])
    assert elsewhere("delete", path, "test-0") == sorted([B, C])
    assert ask(store, [1, 0], 3).ids == [C, B]
    assert ask(early, [1, 0], 3).ids == [C, B]


def test_persist(tmp_path: Path, elsewhere: Elsewhere) -> None:
    path, other = tmp_path / "deep" / "er" / "store", tmp_path / "copy"
    store = LsqVectorStore()
    store.add(three_nodes())
    store.persist(str(path))
    store.delete("test-0")  # in the file, as the store is it now
    assert elsewhere("look", path) == sorted([B, C])
    store.persist(str(other))
    store.delete("test-1")
    assert elsewhere("look", other) == sorted([B, C])
    assert elsewhere("look", path) == [C]
    other.unlink()
    other.write_text("{}")
    store.persist(str(other), fs=fsspec.filesystem("file"))
    assert elsewhere("look", other) == [C]


def test_persist_without_nodes(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    store = LsqVectorStore(metric="ip")
    store.persist(path)
    loaded = LsqVectorStore.from_persist_path(path, metric="ip")
    assert loaded.get_nodes() == []
    assert ask(loaded, [1, 1]).ids == []
    loaded.add(three_nodes())
    assert len(store.get_nodes()) == 3
    LsqVectorStore().persist(path)
    assert LsqVectorStore.from_persist_path(path).get_nodes() == []


@pytest.fixture
def remote() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/stores", recursive=True)


def test_persist_on_another_file_system(remote: Any, tmp_path: Path) -> None:
    path = "/stores/deep/default__vector_store.json"

    def load() -> LsqVectorStore:
        return LsqVectorStore.from_persist_dir("/stores/deep", fs=remote)

    LsqVectorStore().persist(path, fs=remote)
    assert load().get_nodes() == []
    store = load()
    store.add(three_nodes())
    assert load().get_nodes() == []
    store.persist(path, fs=remote)
    assert len(load().get_nodes()) == 3
    again = load()
    again.delete("test-0")
    store.delete("test-1")
    again.persist(path, fs=remote)
    assert {
        name: len(one.get_nodes()) for name, one in load().from_namespaced_persist_dir("/stores/deep", remote).items()
    } == {"default": 2}
    again.persist(str(tmp_path / "here"))
    again.delete("test-2")
    assert [node.node_id for node in LsqVectorStore(tmp_path / "here").get_nodes()] == [B]
    assert sorted(node.node_id for node in store.get_nodes()) == sorted([A, C])


def test_close_and_open_again(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    store.close()
    store.close()
    assert len(store.get_nodes()) == 3
    memory = LsqVectorStore()
    memory.add(three_nodes())
    memory.close()
    assert memory.get_nodes() == []


def test_pickle_and_dict(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store", rerank=50, bits=64)
    store.add(three_nodes())
    for other in (
        pickle.loads(pickle.dumps(store)),
        copy.deepcopy(store),
        LsqVectorStore.from_dict(store.to_dict()),
        LsqVectorStore.from_json(store.to_json()),
    ):
        assert (other.path, other.settings) == (store.path, {"rerank": 50, "bits": 64})
        assert ask(other, [1, 1]).ids == [C]
    memory = LsqVectorStore()
    assert pickle.loads(pickle.dumps(memory)).get_nodes() == []
    memory.add(three_nodes())
    with pytest.raises(ParameterError, match="pickled"):
        pickle.dumps(memory)


# -- errors ---------------------------------------------------------------------------------------


def test_wrong_nodes() -> None:
    store = LsqVectorStore()
    with pytest.raises(ValueError, match="embedding not set"):
        store.add([TextNode(text="")])
    with pytest.raises(VectorError, match="equal length"):
        store.add([TextNode(text="", embedding=[1, 2]), TextNode(text="", embedding=[1])])
    store.add(three_nodes())
    with pytest.raises(VectorError, match="2 dimensions"):
        store.add([TextNode(text="", embedding=[1, 2, 3])])
    with pytest.raises(LsqIndexError, match="64-bit"):
        store.add([TextNode(text="", embedding=[1, 2], metadata={"n": 1 << 70})])
    assert len(store.get_nodes()) == 3


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (where("a", Op.IN, "ab"), "a list of values"),
        (where("a", Op.ALL, 1), "a list of values"),
        (where("a", Op.TEXT_MATCH, 1), "a string"),
        (where("a", Op.CONTAINS, None), "a value"),
        (where("a", Op.GT, None), "a number or a string"),
        (where("a", Op.LTE, ["a"]), "a number or a string"),
    ],
)
def test_wrong_filters(asked: MetadataFilter, message: str) -> None:
    store = LsqVectorStore()
    store.add(three_nodes())
    with pytest.raises(FilterError, match=message):
        store.get_nodes(filters=filters(asked))


def test_wrong_queries() -> None:
    store = LsqVectorStore()
    with pytest.raises(ParameterError, match="'default' and 'mmr'"):
        ask(store, [1, 1], mode=VectorStoreQueryMode.HYBRID)
    with pytest.raises(ParameterError, match="query_embedding"):
        store.query(VectorStoreQuery(query_str="lorem"))
    store.add(three_nodes())
    with pytest.raises(VectorError, match="2 dimensions"):
        ask(store, [1, 1, 1])


def test_wrong_files_and_settings(tmp_path: Path) -> None:
    with pytest.raises(IndexMissingError, match="no store is there"):
        LsqVectorStore.from_persist_dir(str(tmp_path))
    with pytest.raises(IndexMissingError):
        LsqVectorStore.from_persist_path("/absent", fs=fsspec.filesystem("memory"))
    (tmp_path / "other").write_text("{}")
    with pytest.raises(NotAnIndexError):
        LsqVectorStore(tmp_path / "other")
    Index.create(tmp_path / "plain", dim=2).close()
    with pytest.raises(ParameterError, match="not one of LsqVectorStore"):
        LsqVectorStore(tmp_path / "plain")
    with pytest.raises(ParameterError, match="bits"):
        LsqVectorStore(bits=-1).add(three_nodes())
    with pytest.raises(ParameterError, match="unknown_setting"):
        LsqVectorStore(unknown_setting=1).add(three_nodes())


# -- from documents to answers --------------------------------------------------------------------

DOCUMENTS = {
    "lake": "a lake freezes from its edge",
    "train": "the train to the coast is late",
    "bread": "bread needs flour water and time",
    "ice": "ice on the lake breaks in spring",
}


class Words(BaseEmbedding):
    """Words, counted in 64 places; no model is needed."""

    def _get_text_embedding(self, text: str) -> list[float]:
        places = [0.0] * 64
        for word in text.split():
            places[sum(word.encode()) % 64] += 1
        return places

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def documents() -> list[Document]:
    return [
        Document(id_=name, text=text, metadata={"length": len(text)}, excluded_embed_metadata_keys=["length"])
        for name, text in DOCUMENTS.items()
    ]


def names(found: Sequence[Any]) -> list[str]:
    return [one.node.ref_doc_id for one in found]


def from_path(path: Path) -> VectorStoreIndex:
    return VectorStoreIndex.from_vector_store(LsqVectorStore(path), embed_model=Words())


@pytest.fixture
def filled(tmp_path: Path) -> VectorStoreIndex:
    context = StorageContext.from_defaults(vector_store=LsqVectorStore(tmp_path / "store"))
    return VectorStoreIndex.from_documents(documents(), storage_context=context, embed_model=Words())


def test_index_and_retriever(filled: VectorStoreIndex, tmp_path: Path) -> None:
    for index in (filled, from_path(tmp_path / "store")):
        found = index.as_retriever(similarity_top_k=2).retrieve("flour for bread")
        assert names(found)[0] == "bread"
        assert found[0].node.get_content() == DOCUMENTS["bread"]
        assert found[0].score > found[1].score
        long = filters(where("length", Op.GT, 31))
        assert names(index.as_retriever(similarity_top_k=9, filters=long).retrieve("lake")) == ["ice", "bread"]
        retriever = index.as_retriever(vector_store_query_mode="mmr", similarity_top_k=2)
        assert names(retriever.retrieve("the lake"))[0] in ("lake", "ice")
        assert names(index.as_retriever(doc_ids=["train"]).retrieve("the lake")) == ["train"]


def test_index_changes(filled: VectorStoreIndex, tmp_path: Path) -> None:
    filled.insert(Document(id_="cake", text="flour for a cake"))
    filled.delete_ref_doc("bread")
    index = from_path(tmp_path / "store")
    assert names(index.as_retriever(similarity_top_k=1).retrieve("flour")) == ["cake"]
    index.insert(Document(id_="star", text="hydrogen in stars"))
    assert names(filled.as_retriever(similarity_top_k=1).retrieve("hydrogen")) == ["star"]
    index.delete_nodes(
        [node.node_id for node in index.vector_store.get_nodes(filters=filters(where("length", Op.GT, 0)))]
    )
    assert sorted(node.ref_doc_id or "" for node in index.vector_store.get_nodes()) == ["cake", "star"]


async def test_index_async(filled: VectorStoreIndex) -> None:
    assert names(await filled.as_retriever(similarity_top_k=1).aretrieve("flour")) == ["bread"]


def test_storage_context(tmp_path: Path) -> None:
    context = StorageContext.from_defaults(vector_store=LsqVectorStore())
    VectorStoreIndex.from_documents(documents(), storage_context=context, embed_model=Words())
    context.persist(tmp_path / "context")
    loaded = StorageContext.from_defaults(
        persist_dir=str(tmp_path / "context"), vector_store=LsqVectorStore.from_persist_dir(str(tmp_path / "context"))
    )
    index = load_index_from_storage(loaded, embed_model=Words())
    assert names(index.as_retriever(similarity_top_k=1).retrieve("flour")) == ["bread"]
    stores = LsqVectorStore.from_namespaced_persist_dir(str(tmp_path / "context"))
    assert {name: len(store.get_nodes()) for name, store in stores.items()} == {"default": 4}


def test_ingestion_pipeline(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store")
    pipeline = IngestionPipeline(transformations=[Words()], vector_store=store)
    for _ in range(2):
        pipeline.run(documents=documents())
    assert sorted(node.node_id for node in store.get_nodes()) == sorted(DOCUMENTS)
