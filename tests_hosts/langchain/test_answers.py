"""Answers, filters and relevance, beside LangChain's default store."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from lsqindex import LsqIndexError
from lsqindex.hosts.langchain import LsqVectorStore

from .given import CODED, DIGITS, DIGITS_EMBEDDING, FAKE, TEXTS, Looked, digits, ids


@pytest.mark.parametrize("options", [{}, CODED], ids=["exact", "coded"])
def test_answers_are_those_of_the_default_store(options: dict[str, Any]) -> None:
    ours = digits(**options)
    assert ours.index is not None
    assert ours.index.is_trained == bool(options)
    theirs = InMemoryVectorStore.from_texts(TEXTS[:-100], DIGITS_EMBEDDING, ids=TEXTS[:-100])
    found = 0
    for text in TEXTS[-100:]:
        ranked, expected = ours.similarity_search_with_score(text, 10), theirs.similarity_search_with_score(text, 10)
        found += len({document.id for document, _ in ranked} & {document.id for document, _ in expected})
        assert all(type(distance) is float for _, distance in ranked)
        np.testing.assert_allclose([1 - d for _, d in ranked], [s for _, s in expected], atol=2e-3)
    assert found >= 990


@pytest.mark.parametrize("options", [{}, CODED], ids=["exact", "coded"])
@pytest.mark.parametrize("lambda_mult", [0.0, 0.25, 0.5, 1.0])
def test_mmr_is_that_of_the_default_store(options: dict[str, Any], lambda_mult: float) -> None:
    ours = digits(keep_vectors="float32", **options)
    theirs = InMemoryVectorStore.from_texts(TEXTS[:-100], DIGITS_EMBEDDING, ids=TEXTS[:-100])
    asked: dict[str, Any] = {"k": 5, "fetch_k": 30, "lambda_mult": lambda_mult}
    for text in TEXTS[-20:]:
        expected = ids(theirs.max_marginal_relevance_search(text, **asked))
        assert ids(ours.max_marginal_relevance_search(text, **asked)) == expected
        vector = DIGITS_EMBEDDING.embed_query(text)
        assert ids(ours.max_marginal_relevance_search_by_vector(vector, **asked)) == expected


def test_mmr_of_few_documents_and_with_a_filter() -> None:
    store = digits()
    found = store.max_marginal_relevance_search(TEXTS[-1], k=8, fetch_k=2, filter={"label": 3})
    assert [document.metadata["label"] for document in found] == [3] * 8
    assert len(store.max_marginal_relevance_search(TEXTS[-1], k=5, filter={"$ids": ["7", "8"]})) == 2
    assert LsqVectorStore(FAKE).max_marginal_relevance_search("a") == []


def test_thousands_of_documents_train_the_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = DIGITS[rng.integers(len(DIGITS), size=12_100)]
    vectors = (vectors + rng.normal(0, 2, vectors.shape)).astype(np.float32)
    embedding, texts = Looked(vectors), [str(i) for i in range(12_000)]
    store = LsqVectorStore(embedding, tmp_path / "store.lsq", fields=["even"])
    metadatas = [{"even": i % 2 == 0} for i in range(12_000)]
    store.add_texts(texts[:6000], metadatas[:6000], ids=texts[:6000])
    assert store.index is not None
    assert not store.index.is_trained
    store.add_texts(texts[6000:], metadatas[6000:], ids=texts[6000:])
    assert store.index.is_trained
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = unit[-100:] @ unit[:12_000].T
    for condition, allowed in (None, np.arange(12_000)), ({"even": True}, np.arange(0, 12_000, 2)):
        best = allowed[np.argsort(-similarity[:, allowed], axis=1)[:, :10]]
        found = [
            ids(store.similarity_search_by_vector(query, 10, filter=condition)) for query in vectors[-100:].tolist()
        ]
        shared = [len(set(one) & {str(i) for i in other}) for one, other in zip(found, best, strict=True)]
        assert sum(shared) >= 0.95 * 1000
    assert store.index.check() == []


def test_documents_come_back_as_they_were(tmp_path: Path) -> None:
    metadata = {"a": None, "b": [1, 2.5, {"c": True}], "ü": "日本", "nested": {"x": {"y": -1}}, "bytes": b"\x00"}
    with LsqVectorStore(FAKE, tmp_path / "store.lsq") as store:
        store.add_documents([Document(id="1", page_content="a\n😀", metadata=metadata), Document(page_content="")])
        expected = Document(id="1", page_content="a\n😀", metadata=metadata)
        assert store.get_by_ids(["1"]) == store.similarity_search("a\n😀", k=1) == [expected]


def test_get_by_ids_in_their_order() -> None:
    store = digits()
    assert ids(store.get_by_ids(["7", "absent", "3", "x" * 5000, "7"])) == ["7", "3", "7"]
    assert store.get_by_ids([]) == []


def test_delete() -> None:
    store = digits()
    assert store.index is not None
    assert store.delete(["1", "absent", "2"])
    assert store.delete([])
    assert len(store.index) == len(DIGITS) - 102
    assert store.delete(filter={"label": {"$in": [0, 1]}})
    assert store.similarity_search(TEXTS[-1], filter={"label": 1}) == []
    assert len(store.similarity_search(TEXTS[-1], filter={"label": 2})) == 4
    with pytest.raises(LsqIndexError, match="not both"):
        store.delete(["1"], filter={"label": 2})
    with pytest.raises(TypeError):
        typo: dict[str, Any] = {"filters": {"label": 2}}
        store.delete(**typo)  # must not mean: everything
    assert store.delete()
    assert len(store.index) == 0
    assert store.similarity_search(TEXTS[-1]) == []
    store.add_texts(TEXTS[:3])
    assert len(store.index) == 3


def test_ids_that_are_not_given_are_made_up() -> None:
    store = LsqVectorStore(FAKE)
    given = store.add_texts(["a", "b", "c"], ids=["x", None, None])
    assert given[0] == "x"
    assert len({*given}) == 3
    assert [document.page_content for document in store.get_by_ids(given)] == ["a", "b", "c"]


def test_batches() -> None:
    embedding = Looked(DIGITS)
    store = LsqVectorStore(embedding)
    assert store.add_texts(iter(TEXTS[:25]), ids=TEXTS[:25], batch_size=10) == TEXTS[:25]
    assert embedding.asked == [10, 10, 5]
    assert ids(store.get_by_ids(TEXTS[:25])) == TEXTS[:25]
    assert store.add_texts([]) == []
    with pytest.raises(LsqIndexError, match="batch_size"):
        store.add_texts(TEXTS, batch_size=0)


FILTERS: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ({"lang": "en"}, lambda m: m["lang"] == "en"),
    ({"lang": "en", "year": {"$gte": 2020}}, lambda m: m["lang"] == "en" and m["year"] >= 2020),
    ({"year": {"$gt": 2015, "$lt": 2018}}, lambda m: 2015 < m["year"] < 2018),
    ({"$or": [{"lang": "vi"}, {"year": 2024}]}, lambda m: m["lang"] == "vi" or m["year"] == 2024),
    ({"$not": {"$and": [{"lang": "en"}, {"tags": "a"}]}}, lambda m: not (m["lang"] == "en" and "a" in m["tags"])),
    ({"tags": {"$in": ["b", "c"]}}, lambda m: bool({"b", "c"} & {*m["tags"]})),
    ({"page.number": {"$lte": 3}}, lambda m: m["page"]["number"] <= 3),
    ({"draft": {"$exists": True}}, lambda m: "draft" in m),
    ({"a.b": 1}, lambda m: m["a.b"] == 1),
    ({"text": "of the metadata"}, lambda m: m.get("text") == "of the metadata"),
]


@pytest.mark.parametrize("fields", [[], ["lang", "year", "tags", "page.number"]], ids=["plain", "declared"])
@pytest.mark.parametrize(("condition", "holds"), FILTERS, ids=[str(condition) for condition, _ in FILTERS])
def test_filters(fields: list[str], condition: dict[str, Any], holds: Callable[[dict[str, Any]], bool]) -> None:
    metadatas: list[dict[str, Any]] = [
        {
            "lang": ["en", "vi", "de"][i % 3],
            "year": 2010 + i % 16,
            "tags": ["a", "b", "c"][: i % 4],
            "page": {"number": i % 10},
            "a.b": i % 2,
            **({"draft": None} if i % 5 == 0 else {}),
            **({"text": "of the metadata"} if i % 7 == 0 else {}),
        }
        for i in range(200)
    ]
    store = LsqVectorStore.from_texts(TEXTS[:200], DIGITS_EMBEDDING, metadatas, ids=TEXTS[:200], fields=fields)
    assert store.index is not None
    assert store.index.stats()["fields"] == [f"metadata.{name}" for name in fields]
    expected = {text for text, metadata in zip(TEXTS, metadatas, strict=False) if holds(metadata)}
    assert 0 < len(expected) < 200
    assert {*ids(store.similarity_search("0", k=200, filter=condition))} == expected
    assert len(store.similarity_search("0", k=3, filter=condition)) == 3


def test_wrong_filters() -> None:
    store = digits()
    with pytest.raises(LsqIndexError, match="no function is called"):
        store.similarity_search("0", filter=lambda document: True)
    with pytest.raises(LsqIndexError, match=r"\$gte"):
        store.similarity_search("0", filter={"label": {"$gta": 3}})
    with pytest.raises(LsqIndexError, match=r"\$or"):
        store.similarity_search("0", filter={"$or": {"label": 3}})
    with pytest.raises(TypeError):
        store.similarity_search("0", fitler={"label": 3})


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_relevance_is_the_cosine_of_unit_vectors(metric: Any) -> None:
    angles = np.radians([0, 30, 60, 90, 180])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    store = LsqVectorStore.from_texts(TEXTS[:5], Looked(vectors), ids=TEXTS[:5], metric=metric)
    found = store.similarity_search_with_relevance_scores("0", k=5)
    assert ids([document for document, _ in found])[:3] == ["0", "1", "2"]
    scores = [score for _, score in found]
    assert scores == pytest.approx([1, math.sqrt(3) / 2, 0.5, 0, 0], abs=1e-6)
    assert len(store.similarity_search_with_relevance_scores("0", k=5, score_threshold=0.4)) == 3
    distances = [distance for _, distance in store.similarity_search_with_score("0", k=5)]
    assert distances == sorted(distances)


def test_own_relevance() -> None:
    store = LsqVectorStore(FAKE, relevance_score_fn=lambda distance: 0.25)
    assert store.similarity_search_with_relevance_scores("a") == []
    store.add_texts(["a"])
    assert [score for _, score in store.similarity_search_with_relevance_scores("a")] == [0.25]
