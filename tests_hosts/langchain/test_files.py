"""Stores in files, and in several threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, LsqIndexError
from lsqindex.hosts.langchain import LsqVectorStore

from .given import DIGITS_EMBEDDING, FAKE, TEXTS, digits, ids

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
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
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
