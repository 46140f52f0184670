"""Answers to queries, their scores, and maximal marginal relevance."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import (
    TextNode,
)
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from lsqindex.hosts.llama_index import LsqVectorStore

from .given import ask, filters, unit_nodes, where


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
