"""What is refused, and how."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from haystack import Document
from haystack.document_stores.errors import DocumentStoreError
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_integrations.components.retrievers.lsqindex import LsqEmbeddingRetriever
from haystack_integrations.document_stores.lsqindex import LsqDocumentStore
from lsqindex import Index

from .given import Make


def test_errors_are_haystacks(make: Make, tmp_path: Path) -> None:
    store = make()
    with pytest.raises(DocumentStoreError, match="it is empty"):
        store.write_documents([Document(embedding=[])])
    store.write_documents([Document(id="x", embedding=[1.0, 0.0])])
    for document in (
        Document(embedding=[1.0, float("nan")]),
        Document(embedding=[1e300, 1.0]),
        Document(meta={"when": datetime(2020, 1, 1)}),
        Document(id="x" * 1000),
    ):
        with pytest.raises(DocumentStoreError):
            store.write_documents([Document(id="y"), document])
    with pytest.raises(DocumentStoreError):
        store.update_by_filter({}, {"set": {1, 2}})
    with pytest.raises(DocumentStoreError):
        store.embedding_retrieval([1.0, 0.0], top_k=0)
    assert store.count_documents() == 1 and store.filter_documents()[0].meta == {}
    with pytest.raises(DocumentStoreError, match="directory"):
        LsqDocumentStore(tmp_path / "absent" / "documents.lsq").write_documents([Document()])
    with pytest.raises(DocumentStoreError, match="metric"):
        make(metric="l2").count_documents()
    Index.create(tmp_path / "other.lsq", 2).close()
    with pytest.raises(DocumentStoreError, match="not one of documents"):
        LsqDocumentStore(tmp_path / "other.lsq").count_documents()
    with pytest.raises(ValueError, match="fields"):
        make(fields="year")


def test_errors_of_the_retriever(document_store: LsqDocumentStore) -> None:
    with pytest.raises(TypeError):
        LsqEmbeddingRetriever(InMemoryDocumentStore())  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        LsqEmbeddingRetriever(document_store, top_k=0)
    with pytest.raises(ValueError):
        LsqEmbeddingRetriever(document_store, filter_policy="both")
