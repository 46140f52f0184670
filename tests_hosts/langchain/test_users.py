"""Retrievers, example selectors and indexing on top of the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.example_selectors import SemanticSimilarityExampleSelector
from langchain_core.indexing import InMemoryRecordManager, aindex, index

from lsqindex.hosts.langchain import LsqVectorStore

from .given import DIGITS_EMBEDDING, FAKE, TEXTS, OnlyAsync, digits, ids


async def test_async_embeddings(tmp_path: Path) -> None:
    """Embeddings that are async alone are enough; several calls may run at once."""
    embedding = OnlyAsync(FAKE)
    texts = ["a", "b", "c", "d"]
    store = await LsqVectorStore.afrom_texts(texts, embedding, ids=texts, path=tmp_path / "store.lsq")
    await asyncio.gather(*(store.aadd_texts([f"{i}"], ids=[f"{i}"]) for i in range(10)))
    assert ids(await store.asimilarity_search("c", k=1)) == ["c"]
    assert ids(await store.amax_marginal_relevance_search("7", k=1)) == ["7"]
    assert (await store.asimilarity_search_with_score("7", k=1))[0][1] == pytest.approx(0, abs=1e-3)
    assert (await store.asimilarity_search_with_relevance_scores("7", k=1))[0][1] == pytest.approx(1, abs=1e-3)
    assert ids(await store.as_retriever(search_kwargs={"k": 1}).ainvoke("3")) == ["3"]
    assert len(await store.aget_by_ids([*texts, *map(str, range(10))])) == 14
    assert await store.adelete()
    assert await store.asimilarity_search("c") == []


def test_retrievers() -> None:
    store = digits()
    query = TEXTS[-1]
    plain = store.as_retriever(search_kwargs={"k": 3, "filter": {"label": 8}, "rerank": 20})
    assert plain.tags == ["LsqVectorStore", "Looked"]
    assert ids(plain.invoke(query)) == ids(store.similarity_search(query, 3, filter={"label": 8}))
    mmr = store.as_retriever(search_type="mmr", search_kwargs={"k": 3, "fetch_k": 50, "lambda_mult": 0.1})
    assert ids(mmr.invoke(query)) == ids(store.max_marginal_relevance_search(query, 3, 50, 0.1))
    near = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.9, "k": 50})
    scored = store.similarity_search_with_relevance_scores(query, 50)
    assert ids(near.invoke(query)) == [document.id for document, score in scored if score >= 0.9]
    near.add_documents([Document(id="new", page_content=query)])
    assert ids(plain.vectorstore.similarity_search(query, 1)) == ["new"]


def test_example_selector(tmp_path: Path) -> None:
    examples = [{"input": "happy", "output": "sad"}, {"input": "tall", "output": "short"}]
    selector = SemanticSimilarityExampleSelector.from_examples(
        examples, FAKE, LsqVectorStore, k=1, input_keys=["input"], path=tmp_path / "examples.lsq"
    )
    assert selector.select_examples({"input": "tall"}) == [examples[1]]


def test_indexing(tmp_path: Path) -> None:
    """LangChain's indexing keeps a store as its source is."""
    records = InMemoryRecordManager("digits")
    records.create_schema()
    store = LsqVectorStore(DIGITS_EMBEDDING, tmp_path / "store.lsq")
    source = [Document(page_content=text, metadata={"source": text}) for text in TEXTS[:30]]
    options: dict[str, Any] = {"cleanup": "full", "source_id_key": "source", "batch_size": 7, "key_encoder": "sha256"}
    assert index(source, records, store, **options)["num_added"] == 30
    assert index(source, records, store, **options)["num_skipped"] == 30
    outcome = index(source[10:], records, store, **options)
    assert (outcome["num_skipped"], outcome["num_deleted"]) == (20, 10)
    outcome = asyncio.run(aindex(source[:15], records, store, **options))
    assert (outcome["num_added"], outcome["num_deleted"]) == (10, 15)
    assert {document.page_content for document in store.similarity_search("0", k=50)} == {*TEXTS[:15]}
