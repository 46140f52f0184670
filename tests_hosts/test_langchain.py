"""LangChain: its standard tests of a vector store, files, filters; retrievers, selectors and indexing on top of it."""

from __future__ import annotations

import asyncio
import copy
import datetime
import math
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.example_selectors import SemanticSimilarityExampleSelector
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from lsqindex import Index, LsqIndexError
from lsqindex.hosts.langchain import LsqVectorStore

Vectors = NDArray[np.float32]


class TestInMemory(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[LsqVectorStore]:
        with LsqVectorStore(self.get_embeddings()) as store:
            yield store


class TestInAFile(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[LsqVectorStore]:
        with LsqVectorStore(self.get_embeddings(), tmp_path / "store.lsq") as store:
            yield store


class Looked(Embeddings):
    """Texts are numbers: of rows of an array that has their vectors. Counts what it is asked for."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.asked: list[int] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(len(texts))
        return [self.vectors[int(text)].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class OnlyAsync(Embeddings):
    """Cannot be asked but by those who wait."""

    def __init__(self, inner: Embeddings) -> None:
        self.inner = inner

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.inner.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return self.inner.embed_query(text)


FAKE = DeterministicFakeEmbedding(size=16)
DIGITS: Vectors = load_digits().data.astype(np.float32)
DIGITS_EMBEDDING = Looked(DIGITS)
TEXTS = [str(i) for i in range(len(DIGITS))]
#: Codes, not vectors, are searched from 500 documents on.
CODED: dict[str, Any] = {"train_size": 500, "bits": 128}


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def digits(**options: Any) -> LsqVectorStore:
    """All digits but the last hundred, which are for queries."""
    metadatas = [{"label": int(label)} for label in load_digits().target[:-100]]
    return LsqVectorStore.from_texts(TEXTS[:-100], DIGITS_EMBEDDING, metadatas, ids=TEXTS[:-100], **options)


# -- answers ------------------------------------------------------------------------------------


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


# -- filters ------------------------------------------------------------------------------------

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


# -- relevance ----------------------------------------------------------------------------------


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


# -- files --------------------------------------------------------------------------------------

ELSEWHERE = """
import sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from lsqindex.hosts.langchain import LsqVectorStore

with LsqVectorStore(DeterministicFakeEmbedding(size=16), sys.argv[1]) as store:
    found = store.similarity_search("a lake", k=1, filter={"year": {"$gte": 2020}})
    print(found[0].id, found[0].page_content, found[0].metadata)
    store.add_texts(["from elsewhere"], ids=["elsewhere"])
"""


def test_another_process_reads_and_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.lsq"
    with LsqVectorStore(FAKE, path, fields=["year"]) as store:
        store.add_texts(["a lake", "a train"], [{"year": 1999}, {"year": 2020}], ids=["lake", "train"])
        command = [sys.executable, "-c", ELSEWHERE, str(path)]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        assert told.stdout == "train a train {'year': 2020}\n"
        assert ids(store.similarity_search("from elsewhere", k=1)) == ["elsewhere"]


def test_changes_are_in_the_file_when_they_return(tmp_path: Path) -> None:
    store = LsqVectorStore(FAKE, tmp_path / "store.lsq")
    store.add_texts(["a", "b", "c"], ids=["a", "b", "c"])
    store.delete(["b"])
    shutil.copy(tmp_path / "store.lsq", tmp_path / "seen by another")
    with LsqVectorStore(FAKE, tmp_path / "seen by another", read_only=True) as seen:
        assert ids(seen.get_by_ids(["a", "b", "c"])) == ["a", "c"]
        with pytest.raises(PermissionError):
            seen.add_texts(["d"])


def test_the_file_is_made_by_the_first_texts(tmp_path: Path) -> None:
    path = tmp_path / "store.lsq"
    early, store = LsqVectorStore(FAKE, path), LsqVectorStore(FAKE, path)
    assert store.similarity_search("a") == store.get_by_ids(["a"]) == []
    assert store.add_texts([]) == []
    assert store.delete()
    assert store.index is None
    assert not path.exists()
    store.add_texts(["a"], ids=["a"])
    assert path.exists()
    assert ids(early.similarity_search("a")) == ["a"]


def test_a_store_in_memory_becomes_a_file(tmp_path: Path) -> None:
    store = digits()
    assert store.index is not None
    store.index.save(tmp_path / "store.lsq")
    store.add_texts(["0"], ids=["added later"])
    with LsqVectorStore(DIGITS_EMBEDDING, tmp_path / "store.lsq") as other:
        assert ids(other.get_by_ids(["0", "added later"])) == ["0", "added later"]


def test_several_make_the_file_at_once(tmp_path: Path) -> None:
    for attempt in range(10):
        path, start = tmp_path / f"{attempt}.lsq", threading.Barrier(4)
        shared = LsqVectorStore(FAKE, path)
        stores = [shared, shared, LsqVectorStore(FAKE, path), LsqVectorStore(FAKE, path)]

        def add(number: int, stores: Any = stores, start: Any = start) -> None:
            start.wait()
            stores[number].add_texts([f"text {number}"], ids=[str(number)])

        threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for store in stores:
            assert len(store.get_by_ids(["0", "1", "2", "3"])) == 4


def test_several_threads_use_a_store_in_memory() -> None:
    store, start = LsqVectorStore(DIGITS_EMBEDDING), threading.Barrier(4)

    def add(first: int) -> None:
        start.wait()
        for number in range(first, first + 20):
            store.add_texts([str(number)], ids=[str(number)])

    threads = [threading.Thread(target=add, args=(20 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.get_by_ids(TEXTS[:80])) == 80


def test_documents_that_are_deleted_while_they_are_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "store.lsq"
    store = digits(path=path)
    done = threading.Event()

    def change() -> None:
        with LsqVectorStore(DIGITS_EMBEDDING, path) as other:
            while not done.is_set():
                other.delete(TEXTS[:-110])
                other.add_texts(TEXTS[:-110], ids=TEXTS[:-110])

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for text in TEXTS[-100:]:
            assert len(store.max_marginal_relevance_search(text)) == 4
            assert len(store.get_by_ids(TEXTS)) in (10, len(TEXTS) - 100)
    finally:
        done.set()
        changing.join()


def test_a_file_keeps_its_metric(tmp_path: Path) -> None:
    path = tmp_path / "store.lsq"
    LsqVectorStore.from_texts(["a"], FAKE, path=path, metric="l2", encoder="flat", ids=["a"]).close()
    with LsqVectorStore(FAKE, path) as store:
        assert store.index is not None
        assert (store.index.metric, store.index.encoder.name) == ("l2", "flat")
    with LsqVectorStore(FAKE, path, metric="l2") as store:
        store.add_texts(["b"], ids=["b"])
    with pytest.raises(LsqIndexError, match="'l2', and metric='cosine'"):
        LsqVectorStore(FAKE, path, metric="cosine")
    with LsqVectorStore.from_texts(["c"], FAKE, path=path, ids=["c"]) as store:
        assert len(store.get_by_ids(["a", "b", "c"])) == 3


def test_files_that_are_no_stores(tmp_path: Path) -> None:
    with Index.create(tmp_path / "numbers.lsq", dim=16):
        pass
    with pytest.raises(LsqIndexError, match="ids are numbers"):
        LsqVectorStore(FAKE, tmp_path / "numbers.lsq")
    (tmp_path / "other").write_text("no index")
    with pytest.raises(LsqIndexError):
        LsqVectorStore(FAKE, tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        LsqVectorStore(FAKE, tmp_path / "absent", read_only=True)
    with Index.create(tmp_path / "bare.lsq", dim=16, ids="str") as bare:
        bare.add(np.eye(16)[:1], ["x"])
    with LsqVectorStore(FAKE, tmp_path / "bare.lsq", metric="l2") as store, pytest.raises(LsqIndexError, match="'x'"):
        store.similarity_search("a")


# -- errors -------------------------------------------------------------------------------------


def test_wrong_arguments_cost_no_embedding() -> None:
    embedding = Looked(DIGITS)
    store = LsqVectorStore(embedding)
    with pytest.raises(ValueError, match="metadatas: 2 are needed"):
        store.add_texts(TEXTS[:2], [{}])
    with pytest.raises(ValueError, match="ids: 2 are needed"):
        store.add_texts(TEXTS[:2], ids=["a"])
    with pytest.raises(LsqIndexError, match=r"a datetime cannot be stored, but its isoformat\(\) can"):
        store.add_texts(TEXTS[:2], [{}, {"when": datetime.datetime(2020, 1, 1)}])
    with pytest.raises(LsqIndexError, match="at most"):
        store.add_texts(TEXTS[:2], ids=["a", "b" * 1000])
    assert embedding.asked == []


@pytest.mark.parametrize("batch_size", [None, 1])
def test_of_texts_under_one_id_the_last_counts(batch_size: int | None) -> None:
    embedding = Looked(DIGITS)
    store = LsqVectorStore(embedding)
    assert store.add_texts(TEXTS[:3], ids=["x", "y", "x"], batch_size=batch_size) == ["x", "y", "x"]
    assert sum(embedding.asked) == 2
    assert [found.page_content for found in store.get_by_ids(["x", "y"])] == [TEXTS[2], TEXTS[1]]


def test_after_an_error_nothing_is_changed(tmp_path: Path) -> None:
    store = digits(path=tmp_path / "store.lsq")
    assert store.index is not None
    before = len(store.index)
    with pytest.raises(LsqIndexError, match="datetime"):
        store.add_texts(["1", "2"], [{}, {"when": datetime.datetime(2020, 1, 1)}], ids=["x", "y"])
    with LsqVectorStore(FAKE, tmp_path / "store.lsq") as other:  # of another dimension
        with pytest.raises(LsqIndexError, match="64"):
            other.add_texts(["1"], ids=["x"])
        with pytest.raises(LsqIndexError, match="64"):
            other.similarity_search("1")
    assert len(store.index) == before
    assert store.get_by_ids(["x", "y"]) == []


def test_wrong_options() -> None:
    with pytest.raises(LsqIndexError, match="bits"):
        LsqVectorStore.from_texts(["a"], FAKE, bits=-1)
    with pytest.raises(LsqIndexError, match="fields"):
        LsqVectorStore(FAKE, fields="source")
    with pytest.raises(LsqIndexError, match="metric"):
        LsqVectorStore.from_texts(["a"], FAKE, metric="manhattan")


def test_copies_and_pickles(tmp_path: Path) -> None:
    store = LsqVectorStore(FAKE, tmp_path / "store.lsq")
    retriever = copy.deepcopy(store.as_retriever())
    for own in (copy.deepcopy(store), pickle.loads(pickle.dumps(store)), retriever.vectorstore):
        own.add_texts(["a"], ids=["x"])
        assert [found.id for found in store.similarity_search("a")] == ["x"]
        store.delete(["x"])
    memory = LsqVectorStore(FAKE)
    assert copy.deepcopy(memory).similarity_search("a") == []
    memory.add_texts(["a"])
    with pytest.raises(LsqIndexError, match="in memory"):
        pickle.dumps(memory)


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    for field in ("embedding.dtype", "ref_doc_id", "year"):
        with Index.create(tmp_path / f"{field}.lsq", dim=16, metric="cosine", ids="str", fields=[field]) as other:
            other.add(np.eye(16)[:1], ["x"], [{"text": "a"}])
        with pytest.raises(LsqIndexError, match="another program"):
            LsqVectorStore(FAKE, tmp_path / f"{field}.lsq")


def test_what_no_longer_matches_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted is decided when it is deleted, not before."""
    store, other = (LsqVectorStore(FAKE, tmp_path / "store.lsq") for _ in range(2))
    store.add_texts(["a", "b"], [{"old": True}, {"old": True}], ids=["a", "b"])
    delete = Index.delete

    def late(self: Index, ids: Any) -> int:
        other.add_texts(["a"], [{"old": False}], ids=["a"])
        return delete(self, ids)

    monkeypatch.setattr(Index, "delete", late)
    store.delete(filter={"old": True})
    assert [found.id for found in store.get_by_ids(["a", "b"])] == ["a"]


def test_closed(tmp_path: Path) -> None:
    for store in (LsqVectorStore(FAKE), LsqVectorStore.from_texts(["a"], FAKE, path=tmp_path / "store.lsq")):
        store.close()
        store.close()
        with pytest.raises(LsqIndexError, match="closed"):
            store.add_texts(["a"])
        with pytest.raises(LsqIndexError, match="closed"):
            store.similarity_search("a")


# -- those who use vector stores ----------------------------------------------------------------


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
