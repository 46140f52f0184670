"""What is refused, and what stays as it was."""

from __future__ import annotations

import copy
import datetime
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, LsqIndexError
from lsqindex.hosts.langchain import LsqVectorStore

from .given import DIGITS, FAKE, TEXTS, Looked, digits


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
