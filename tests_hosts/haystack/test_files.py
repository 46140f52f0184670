"""Several stores, threads and processes of one file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy

from haystack_integrations.components.retrievers.lsqindex import LsqEmbeddingRetriever
from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

from .given import Make, embed, filled


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
