"""Documents, with and without embeddings."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy

from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

from .given import Make


def test_documents_come_back_as_they_were(document_store: LsqDocumentStore) -> None:
    documents = [
        Document(
            content="text",
            blob=ByteStream(b"\x00\xff", {"page": 1}, "image/png"),
            meta={"a": {"b": [1, 2.5, None, "x"], "when": "2020-01-01T00:00:00Z"}, "none": None, "true": True},
            score=0.25,
            embedding=[1 / 3, 2 / 3, 1e-300],
            sparse_embedding=SparseEmbedding([1, 7], [0.1, 0.2]),
        ),
        Document(content="", embedding=np.array([0.1, 0.2, 0.3], np.float32)),
        Document(id="bare"),
    ]
    assert document_store.write_documents(documents) == 3
    assert document_store.filter_documents() == documents
    found = document_store.embedding_retrieval(documents[0].embedding)
    assert [one.id for one in found] == [documents[0].id, documents[1].id]
    assert found[0].score == pytest.approx(1) and found[0].embedding == documents[0].embedding


def test_order_is_that_of_writing(document_store: LsqDocumentStore) -> None:
    names = [str(number) for number in random.Random(0).sample(range(1000), 300)]
    for first in range(0, 300, 100):
        document_store.write_documents([Document(id=name) for name in names[first : first + 100]])
    assert [one.id for one in document_store.filter_documents()] == names
    document_store.write_documents([Document(id=names[0], content="new")], DuplicatePolicy.OVERWRITE)
    assert [one.id for one in document_store.filter_documents()] == [*names[1:], names[0]]
    document_store.update_by_filter({"field": "id", "operator": "==", "value": names[5]}, {"new": 1})
    assert [one.id for one in document_store.filter_documents()] == [*names[1:], names[0]]


def test_policies_within_one_call(document_store: LsqDocumentStore) -> None:
    twice = [Document(id="1", content="first"), Document(id="2"), Document(id="1", content="second")]
    with pytest.raises(DuplicateDocumentError):
        document_store.write_documents(twice)
    assert document_store.count_documents() == 0  # as a whole, or not at all
    assert document_store.write_documents(twice, DuplicatePolicy.SKIP) == 2
    assert document_store.filter_documents() == twice[:2]
    assert document_store.write_documents(twice, DuplicatePolicy.OVERWRITE) == 3
    assert document_store.filter_documents() == [twice[2], twice[1]]
    assert document_store.write_documents([]) == 0


def test_dimensions_are_those_of_the_first_embedding(document_store: LsqDocumentStore) -> None:
    plain = [Document(content=f"without {i}") for i in range(3)]
    document_store.write_documents(plain)
    assert document_store.embedding_retrieval([1.0, 0.0, 0.0]) == []
    document_store.write_documents([Document(id="x", embedding=[1.0, 0.0, 0.0])])
    assert [one.id for one in document_store.embedding_retrieval([1.0, 0.0, 0.0])] == ["x"]
    assert document_store.filter_documents()[:3] == plain
    with pytest.raises(DocumentStoreError, match="2 numbers, and 3 are needed"):
        document_store.write_documents([Document(embedding=[1.0, 0.0])])
    with pytest.raises(DocumentStoreError, match="2 numbers and some 3"):
        document_store.write_documents([Document(embedding=[1.0, 0.0]), Document(embedding=[1.0, 0.0, 0.0])])
    with pytest.raises(DocumentStoreError):
        document_store.embedding_retrieval([1.0, 0.0])
    document_store.delete_documents(["x"])
    document_store.write_documents([Document(id="y", embedding=[1.0, 0.0])])  # none of 3 is left
    assert [one.id for one in document_store.embedding_retrieval([1.0, 0.0])] == ["y"]
    assert document_store.count_documents() == 4


def test_dimensions_that_were_given(make: Make) -> None:
    store = make(embedding_dim=3)
    store.write_documents([Document(content="without")])
    with pytest.raises(DocumentStoreError, match="2 numbers, and 3 are needed"):
        store.write_documents([Document(embedding=[1.0, 0.0])])
    assert store.count_documents() == 1
    store.write_documents([Document(embedding=[1.0, 0.0, 0.0])])
    assert len(store.embedding_retrieval([1.0, 0.0, 0.0])) == 1
    store.close()
    other = make(embedding_dim=2)
    with pytest.raises(DocumentStoreError, match="2 numbers, and 3 are needed"):
        other.write_documents([Document(embedding=[1.0, 0.0])])
    assert other.count_documents() == 2


@pytest.mark.parametrize(
    "options",
    [{"encoder": "pq", "bits": 32}, {"encoder": "flat"}, {"encoder": "lsh", "bits": 32, "subset": "multi-index"}],
)
def test_options_wait_for_dimensions(make: Make, options: dict[str, Any]) -> None:
    store = make(**options)
    store.write_documents([Document(content="without")])
    store.write_documents([Document(id=str(i), embedding=np.eye(8)[i].tolist()) for i in range(8)])
    assert store.index.encoder.name == options.get("encoder", "lsq")
    assert store.embedding_retrieval(np.eye(8)[3].tolist(), top_k=1)[0].id == "3"


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_what_has_no_embedding_is_never_retrieved(make: Make, metric: str) -> None:
    """Even where zeros would be nearest; and k are found where k have embeddings."""
    store = make(metric=metric)
    embedded = [Document(id=f"with {i}", embedding=[-1.0, -float(i)]) for i in range(5)]
    store.write_documents([Document(id=f"without {i}") for i in range(50)])
    store.write_documents(embedded)
    found = store.embedding_retrieval([1.0, 0.0], top_k=5)
    assert {one.id for one in found} == {one.id for one in embedded}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    store.write_documents([Document(id="with 0", content="no more")], DuplicatePolicy.OVERWRITE)
    store.write_documents([Document(id="without 7", embedding=[1.0, 0.0])], DuplicatePolicy.OVERWRITE)
    assert {one.id for one in store.embedding_retrieval([1.0, 0.0], top_k=50)} == {
        "with 1",
        "with 2",
        "with 3",
        "with 4",
        "without 7",
    }
    assert store.embedding_retrieval([1.0, 0.0], top_k=1)[0].id == "without 7"


@pytest.mark.parametrize("metric, similarity", [("cosine", "cosine"), ("ip", "dot_product")])
def test_scores_are_those_of_the_store_in_memory(make: Make, metric: str, similarity: Any) -> None:
    numbers = np.random.default_rng(0).standard_normal((50, 8))
    documents = [Document(id=str(i), embedding=row.tolist()) for i, row in enumerate(numbers)]
    store, reference = make(metric=metric), InMemoryDocumentStore(embedding_similarity_function=similarity)
    store.write_documents(documents)
    reference.write_documents(documents)
    for query in numbers[:5].tolist():
        ours, theirs = store.embedding_retrieval(query, top_k=7), reference.embedding_retrieval(query, top_k=7)
        assert [one.id for one in ours] == [one.id for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], rel=1e-4)


def test_thousands_of_documents_and_training(make: Make) -> None:
    """Trained by the embeddings, not by zeros, whatever is written first; and again k are found."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 32))
    numbers = centres[rng.integers(20, size=3000)] + 0.4 * rng.standard_normal((3000, 32))
    store = make(embedding_dim=32, train_size=2000, bits=64, fields=["year"])
    store.write_documents([Document(id=f"plain {i}", meta={"year": 2000 + i % 20}) for i in range(2500)])
    assert not store.index.is_trained
    documents = [
        Document(id=str(i), content=f"text {i}", meta={"year": 2000 + i % 20}, embedding=row.tolist())
        for i, row in enumerate(numbers)
    ]
    for first in range(0, 3000, 1000):
        assert store.index.is_trained == (first > 1000)
        store.write_documents(documents[first : first + 1000])
    assert store.filter_documents()[2500:] == documents  # as they were, in spite of codes
    unit = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
    found = 0
    for at in range(0, 3000, 100):
        hits = store.embedding_retrieval(documents[at].embedding, top_k=10)
        exact = {str(i) for i in np.argsort(-(unit @ unit[at]))[:10]}
        found += len(exact & {hit.id for hit in hits})
    assert found >= 0.95 * 300
    few = {"field": "meta.year", "operator": "==", "value": 2007}
    hits = store.embedding_retrieval(documents[0].embedding, few, top_k=150)
    assert len(hits) == 150 and {hit.meta["year"] for hit in hits} == {2007}
    assert store.delete_by_filter(few) == 275
    assert store.embedding_retrieval(documents[0].embedding, few) == []
    assert store.count_documents() == 5225
    store.delete_all_documents(recreate_index=True)
    assert (store.count_documents(), store.index.is_trained) == (0, False)
