"""Pipelines with the retriever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.types import FilterPolicy

from haystack_integrations.components.retrievers.lsqindex import LsqEmbeddingRetriever
from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

from .given import Embedder, Make, embed, filled


def asking(store: LsqDocumentStore, **settings: Any) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("embedder", Embedder())
    pipeline.add_component("retriever", LsqEmbeddingRetriever(store, **settings))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    return pipeline


def ask(pipeline: Pipeline, text: str, **retriever: Any) -> list[Document]:
    documents: list[Document] = pipeline.run({"embedder": {"text": text}, "retriever": retriever})["retriever"][
        "documents"
    ]
    return documents


def test_pipeline(document_store: LsqDocumentStore) -> None:
    pipeline = asking(filled(document_store), top_k=3)
    found = ask(pipeline, "late train")
    assert [one.content for one in found[:2]] == ["a late train", "the train is late, late"]
    assert len(found) == 3 and len(ask(pipeline, "late train", top_k=1)) == 1
    assert found[0].score == pytest.approx(1) and found[0].embedding is None
    assert ask(asking(document_store, return_embedding=True), "ice")[0].embedding == embed("ice on the lake")
    run_async = LsqEmbeddingRetriever(document_store, top_k=3).run_async(query_embedding=embed("late train"))
    assert asyncio.run(run_async)["documents"] == found


@pytest.mark.parametrize(
    "policy, years", [(FilterPolicy.REPLACE, {1999, 2020}), (FilterPolicy.MERGE, {2020}), ("merge", {2020})]
)
def test_filter_policies(document_store: LsqDocumentStore, policy: Any, years: set[int]) -> None:
    since = {"field": "meta.year", "operator": ">=", "value": 2020}
    short = {"field": "content", "operator": "in", "value": ["ice on the lake", "a late train"]}
    pipeline = asking(filled(document_store), filters=since, filter_policy=policy)
    assert {one.meta["year"] for one in ask(pipeline, "train")} == {2020, 2021, 2022}
    assert {one.meta["year"] for one in ask(pipeline, "train", filters=short)} == years


def test_pipeline_as_yaml(make: Make) -> None:
    filters = {"field": "meta.year", "operator": ">", "value": 2000}
    store = filled(make(embedding_dim=6, fields=["year"], train_size=500, rerank=50, bits=64, keep_vectors="int8"))
    retriever = LsqEmbeddingRetriever(store, filters=filters, top_k=2, filter_policy=FilterPolicy.MERGE)
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    text = pipeline.dumps()
    assert "type: haystack_integrations.document_stores.lsqindex.LsqDocumentStore" in text
    assert "type: haystack_integrations.components.retrievers.lsqindex.LsqEmbeddingRetriever" in text
    loaded = Pipeline.loads(text)
    assert loaded.dumps() == text
    again = loaded.get_component("retriever")
    assert type(again) is LsqEmbeddingRetriever and type(again.document_store) is LsqDocumentStore
    asked = {"retriever": {"query_embedding": embed("late train")}}
    assert loaded.run(asked) == pipeline.run(asked)
    assert len(loaded.run(asked)["retriever"]["documents"]) == 2
