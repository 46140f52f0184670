"""Haystack: its own suites for document stores, pipelines with the retriever, and what they leave out."""

from __future__ import annotations

import asyncio
import doctest
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from haystack import Document, Pipeline, component
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.testing import document_store as suite
from haystack.testing import document_store_async as async_suite
from haystack.utils.filters import document_matches_filter

import haystack_integrations.components.retrievers.lsqindex as retrievers
import haystack_integrations.document_stores.lsqindex as document_stores
from haystack_integrations.components.retrievers.lsqindex import LsqEmbeddingRetriever
from haystack_integrations.document_stores.lsqindex import LsqDocumentStore
from lsqindex import Index

Make = Callable[..., LsqDocumentStore]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda **options: LsqDocumentStore(tmp_path / "documents.lsq", **options)


@pytest.fixture
def document_store(make: Make) -> LsqDocumentStore:
    return make()


# -- Haystack's suites ----------------------------------------------------------------------------


class TestSuite(
    suite.DocumentStoreBaseExtendedTests,
    suite.CountDocumentsByFilterTest,
    suite.CountUniqueMetadataByFilterTest,
    suite.GetMetadataFieldsInfoTest,
    suite.GetMetadataFieldMinMaxTest,
    suite.GetMetadataFieldUniqueValuesTest,
):
    @pytest.fixture
    def document_store(self, make: Make) -> LsqDocumentStore:
        return make()

    def test_write_documents(self, document_store: LsqDocumentStore) -> None:
        """Without a policy: as FAIL."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        assert document_store.filter_documents() == [document]


class TestSuiteWithIndexedFields(TestSuite):
    """The same, with filters that are decided by numbers."""

    @pytest.fixture
    def document_store(self, make: Make) -> LsqDocumentStore:
        return make(fields=["meta.number", "date", "meta.chapter", "category", "year"])


class TestAsyncSuite(
    async_suite.CountDocumentsAsyncTest,
    async_suite.WriteDocumentsAsyncTest,
    async_suite.DeleteDocumentsAsyncTest,
    async_suite.DeleteAllAsyncTest,
    async_suite.DeleteByFilterAsyncTest,
    async_suite.UpdateByFilterAsyncTest,
    async_suite.FilterDocumentsAsyncTest,
    async_suite.CountDocumentsByFilterAsyncTest,
    async_suite.CountUniqueMetadataByFilterAsyncTest,
    async_suite.GetMetadataFieldsInfoAsyncTest,
    async_suite.GetMetadataFieldMinMaxAsyncTest,
    async_suite.GetMetadataFieldUniqueValuesAsyncTest,
):
    async def test_write_documents_async(self, document_store: LsqDocumentStore) -> None:
        """Without a policy: as FAIL."""
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
        assert await document_store.filter_documents_async() == [document]


def test_no_part_of_the_suites_is_left_out() -> None:
    for module, ours in ((suite, TestSuite), (async_suite, TestAsyncSuite)):
        theirs = [one for name, one in vars(module).items() if name.endswith("Test") and isinstance(one, type)]
        assert [one for one in theirs if not issubclass(ours, one)] == []


@pytest.mark.parametrize("module", [document_stores, retrievers])
def test_examples(module: Any) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0 and results.failed == 0


# -- documents ------------------------------------------------------------------------------------


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


# -- with and without embeddings ------------------------------------------------------------------


def test_dimensions_are_those_of_the_first_embedding(document_store: LsqDocumentStore) -> None:
    plain = [Document(content=f"without {i}") for i in range(3)]
    document_store.write_documents(plain)
    assert document_store.embedding_retrieval([1.0, 0.0, 0.0]) == []
    document_store.write_documents([Document(id="x", embedding=[1.0, 0.0, 0.0])])
    assert [one.id for one in document_store.embedding_retrieval([1.0, 0.0, 0.0])] == ["x"]
    assert document_store.filter_documents()[:3] == plain
    with pytest.raises(DocumentStoreError, match="2 numbers, and 3 are needed"):
        document_store.write_documents([Document(embedding=[1.0, 0.0])])
    with pytest.raises(DocumentStoreError, match="2 and 3 numbers"):
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


# -- filters --------------------------------------------------------------------------------------

FIELDS: dict[str, list[Any]] = {
    "meta.number": [1, 2, 2.5, -3, 10**15, None],
    "meta.text": ["x", "y", "", "2020", "2020-13-45", None],
    "meta.when": [
        "2020-01-01",
        "2020-01-01T00:00:00",
        "2020-01-01 12:00",
        "2020-01-01T00:00:00Z",
        "2020-01-01T02:00:00+02:00",
        "2020-01-01T00:00:00.000001+02:00",
        "1969-07-21T20:17:40",
        "9999-12-31T23:59:59-05:00",
        None,
    ],
    "meta.deep.list": [[1, 2], [2, 1], [], None],
    "content": ["x", "y", None],
}


def random_document(number: int, rng: random.Random) -> Document:
    meta: dict[str, Any] = {}
    for field in ("meta.number", "meta.text", "meta.when", "meta.deep.list"):
        *path, name = field.removeprefix("meta.").split(".")
        if rng.random() < 0.8:
            inner = meta.setdefault(path[0], {}) if path else meta
            inner[name] = rng.choice(FIELDS[field])
    embedding = [1.0, 2.0] if rng.random() < 0.5 else None
    return Document(id=str(number), content=rng.choice(FIELDS["content"]), meta=meta, embedding=embedding)


def random_filter(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    if depth and rng.random() < 0.6:
        conditions = [random_filter(rng, depth - 1) for _ in range(rng.randrange(4))]
        return {"operator": rng.choice(["AND", "OR", "NOT"]), "conditions": conditions}
    field = rng.choice([*FIELDS, "number", "id", "embedding", "meta.absent"])
    others: dict[str, list[Any]] = {"number": [1, 2], "id": ["1", "7", "x"], "embedding": [None]}
    values = {**FIELDS, **others}.get(field, [None, 1])
    ordered = [">", ">=", "<", "<="] if field in ("meta.number", "meta.when", "number") else []
    operator = rng.choice(["==", "!=", "in", "not in", *ordered])
    value = rng.choices(values, k=2) if operator in ("in", "not in") else rng.choice(values)
    return {"field": field, "operator": operator, "value": value}


@pytest.mark.parametrize("fields", [[], ["number", "meta.when", "meta.text", "content"]])
def test_filters_say_what_haystack_says(make: Make, fields: list[str]) -> None:
    """Compared with Haystack's own evaluation, document by document, on a thousand filters in all."""
    rng = random.Random(0)
    store = make(fields=fields)
    documents = [random_document(number, rng) for number in range(60)]
    store.write_documents(documents)
    for _ in range(500):
        filters = random_filter(rng)
        expected = [one.id for one in documents if document_matches_filter(filters, one)]
        assert [one.id for one in store.filter_documents(filters)] == expected, filters


def test_filters_take_datetimes(document_store: LsqDocumentStore) -> None:
    document_store.write_documents([Document(meta={"when": f"20{year}-01-01"}) for year in (19, 20, 21)])
    after = {"field": "meta.when", "operator": ">", "value": datetime(2019, 6, 1)}
    assert document_store.count_documents_by_filter(after) == 2


def test_a_list_has_its_elements(document_store: LsqDocumentStore) -> None:
    document_store.write_documents([Document(meta={"tags": ["a", "b"]}), Document(meta={"tags": ["c"]})])
    assert document_store.count_documents_by_filter({"field": "meta.tags", "operator": "in", "value": ["b", "x"]}) == 1
    assert document_store.count_documents_by_filter({"field": "meta.tags", "operator": "==", "value": "c"}) == 1
    assert document_store.count_documents_by_filter({"field": "meta.tags", "operator": "==", "value": ["a", "b"]}) == 1


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "meta.x", "operator": "~", "value": 1},
        {"field": "meta.x", "operator": ">", "value": True},
        {"field": "meta.x", "operator": ">", "value": {"a": 1}},
        {"field": 3, "operator": "==", "value": 1},
        {"field": "embedding", "operator": "==", "value": [1.0]},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": {"field": "meta.x"}},
        {"operator": "AND", "conditions": ["x"]},
        ["x"],
    ],
)
def test_filters_that_are_none(document_store: LsqDocumentStore, filters: Any) -> None:
    document_store.write_documents([Document(content="x", embedding=[1.0])])
    for ask in (document_store.filter_documents, document_store.delete_by_filter):
        with pytest.raises(FilterError):
            ask(filters)
    with pytest.raises(FilterError):
        document_store.embedding_retrieval([1.0], filters)
    assert document_store.count_documents() == 1


# -- pipelines ------------------------------------------------------------------------------------

WORDS = ("lake", "ice", "train", "late", "bread", "flour")


@component
class Embedder:
    """Words, counted."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": embed(text)}


def embed(text: str) -> list[float]:
    return [float(text.count(word)) for word in WORDS]


TEXTS = {"ice on the lake": 1999, "a late train": 2020, "bread needs flour": 2021, "the train is late, late": 2022}


def filled(store: LsqDocumentStore) -> LsqDocumentStore:
    writing = Pipeline()
    writing.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    documents = [Document(content=text, meta={"year": year}, embedding=embed(text)) for text, year in TEXTS.items()]
    assert writing.run({"writer": {"documents": documents}})["writer"]["documents_written"] == 4
    return store


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


# -- the file -------------------------------------------------------------------------------------


def test_yaml_and_documents_in_another_process(make: Make) -> None:
    """Nothing is imported there but Haystack."""
    pipeline = Pipeline()
    pipeline.add_component("retriever", LsqEmbeddingRetriever(filled(make()), top_k=1))
    code = f"""
import sys
from haystack import Pipeline
pipeline = Pipeline.loads(sys.stdin.read())
print(pipeline.run({{"retriever": {{"query_embedding": {embed("ice")}}}}})["retriever"]["documents"][0].content)
print(pipeline.get_component("retriever").document_store.count_documents())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=pipeline.dumps(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["ice on the lake", "4"]


def test_stores_of_one_file_see_each_other(make: Make) -> None:
    """Also where one makes the file anew, for the first embedding."""
    one, other = make(), make()
    assert other.count_documents() == 0
    one.write_documents([Document(id="plain")])
    assert other.count_documents() == 1
    one.write_documents([Document(id="a", embedding=[1.0, 0.0])])
    assert [hit.id for hit in other.embedding_retrieval([1.0, 0.0])] == ["a"]
    other.write_documents([Document(id="b", embedding=[0.0, 1.0])])
    assert one.count_documents() == 3
    other.delete_all_documents(recreate_index=True)
    assert one.count_documents() == 0
    one.write_documents([Document(id="c", embedding=[0.0, 1.0, 0.0])])
    assert [hit.id for hit in other.embedding_retrieval([0.0, 1.0, 0.0])] == ["c"]
    one.close()
    assert one.count_documents() == 1 and one.index.check() == []


def test_another_process_sees_what_is_made_anew(make: Make) -> None:
    store = make()
    store.write_documents([Document(id="plain")])
    code = """
import sys
from haystack_integrations.document_stores.lsqindex import LsqDocumentStore
store = LsqDocumentStore(sys.argv[1])
print(store.count_documents(), flush=True)
sys.stdin.readline()
print([hit.id for hit in store.embedding_retrieval([1.0, 0.0])], flush=True)
"""
    reader = subprocess.Popen(
        [sys.executable, "-c", code, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin is not None and reader.stdout is not None
    assert reader.stdout.readline() == "1\n"
    store.write_documents([Document(id="a", embedding=[1.0, 0.0])])
    rest, _ = reader.communicate("go\n")
    assert (rest, reader.returncode) == ("['a']\n", 0)


def test_readers_while_another_thread_deletes(document_store: LsqDocumentStore) -> None:
    document_store.write_documents([Document(id=str(i), embedding=[1.0, float(i)]) for i in range(100)])
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while document_store.count_documents():
                document_store.filter_documents()
                document_store.update_by_filter({}, {"seen": True})
                document_store.embedding_retrieval([1.0, 1.0])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for first in range(0, 100, 5):
        document_store.delete_documents([str(i) for i in range(first, first + 5)])
    for thread in threads:
        thread.join()
    assert failures == [] and document_store.count_documents() == 0


def test_first_embeddings_of_several_threads(document_store: LsqDocumentStore) -> None:
    """Each is ready to make the file anew; one does."""

    async def write() -> list[int]:
        writes = (Document(id=str(i), embedding=[1.0, float(i)]) for i in range(8))
        return await asyncio.gather(*(document_store.write_documents_async([document]) for document in writes))

    document_store.write_documents([Document(id="plain")])
    assert asyncio.run(write()) == [1] * 8
    assert document_store.count_documents() == 9
    assert len(document_store.embedding_retrieval([1.0, 1.0])) == 8


# -- errors ---------------------------------------------------------------------------------------


def test_errors_are_haystacks(make: Make, tmp_path: Path) -> None:
    store = make()
    with pytest.raises(DocumentStoreError, match="no numbers"):
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


# -- two stores of one file -----------------------------------------------------------------------


def test_the_first_embedding_loses_nothing_that_another_store_writes(make: Make, tmp_path: Path) -> None:
    for turn in range(6):
        (tmp_path / "documents.lsq").unlink(missing_ok=True)
        one, other, written = make(), make(), ["0"]
        one.write_documents([Document(id="0")])
        stop = threading.Event()

        def write(other: LsqDocumentStore = other, written: list[str] = written, stop: Any = stop) -> None:
            while not stop.is_set():
                other.write_documents([Document(id=f"{len(written)}")])
                written.append(f"{len(written)}")

        with ThreadPoolExecutor() as pool:
            done = pool.submit(write)
            time.sleep(0.01 * turn)
            one.write_documents([Document(id="embedded", embedding=[1.0, 0.0])])
            time.sleep(0.01)
            stop.set()
            done.result()
        for store in (one, other):
            assert {document.id for document in store.filter_documents()} == {*written, "embedded"}
            assert [found.id for found in store.embedding_retrieval([1.0, 0.0])] == ["embedded"]


def test_a_store_goes_on_when_another_makes_the_file_anew(make: Make) -> None:
    one, other = make(), make()
    one.write_documents([Document(id="a", embedding=[1.0, 0.0])])
    assert other.count_documents() == 1
    one.delete_all_documents(recreate_index=True)
    assert other.count_documents() == 0 and other.embedding_retrieval([1.0, 0.0]) == []
    other.write_documents([Document(id="b", embedding=[1.0, 0.0, 0.0])])
    assert [document.id for document in one.filter_documents()] == ["b"]


def test_an_update_does_not_bring_back_what_another_store_has_replaced(make: Make) -> None:
    one, other = make(), make()
    one.write_documents([Document(id="a", content="0", embedding=[1.0, 0.0], meta={"n": 0})])
    stop = threading.Event()

    def replace() -> int:
        number = 0
        while not stop.is_set():
            number += 1
            document = Document(id="a", content=f"{number}", embedding=[1.0, 0.0], meta={"n": number})
            other.write_documents([document], DuplicatePolicy.OVERWRITE)
            assert other.filter_documents()[0].content == f"{number}"
        return number

    with ThreadPoolExecutor() as pool:
        last = pool.submit(replace)
        for _ in range(20):
            assert one.update_by_filter({}, {"seen": True}) == 1
        stop.set()
    assert one.filter_documents()[0].meta["n"] == last.result()


def test_who_only_asks_makes_no_file(make: Make, tmp_path: Path) -> None:
    store = make(embedding_dim=4)
    assert store.count_documents() == 0 and store.filter_documents() == []
    assert store.embedding_retrieval([1.0, 0.0, 0.0, 0.0]) == [] and store.get_metadata_fields_info() == {}
    assert store.update_by_filter({}, {"a": 1}) == 0 and store.delete_by_filter({}) == 0
    store.delete_documents(["a"])
    store.delete_all_documents(recreate_index=True)
    assert not (tmp_path / "documents.lsq").exists()
    make(fields=["year"]).write_documents([Document(meta={"year": 1})])
    assert "meta.year" in store.index.stats()["fields"]


def test_a_duplicate_names_haystacks_policies(document_store: LsqDocumentStore) -> None:
    document_store.write_documents([Document(id="a")])
    with pytest.raises(DuplicateDocumentError, match=r"'a' is in the index already; DuplicatePolicy\.OVERWRITE"):
        document_store.write_documents([Document(id="a")])
