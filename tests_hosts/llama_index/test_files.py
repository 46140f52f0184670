"""Stores in files: other processes, persist, other file systems, pickles."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from lsqindex.errors import ParameterError
from lsqindex.hosts.llama_index import LsqVectorStore

from .given import ROOT, A, B, C, ask, three_nodes

ELSEWHERE = """
import sys
from lsqindex.hosts.llama_index import LsqVectorStore

for line in sys.stdin:
    what, path, *document = line.split()
    store = LsqVectorStore.from_persist_path(path)
    if what == "delete":
        store.delete(*document)
    print(*(node.node_id for node in store.get_nodes()), flush=True)
    store.close()
"""

Elsewhere = Callable[..., list[str]]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Does something in another process, and gives the ids that are there then."""
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def do(*words: object) -> list[str]:
            print(*words, file=stdin, flush=True)
            return stdout.readline().split()

        yield do
        stdin.close()


def test_another_process_sees_every_change(tmp_path: Path, elsewhere: Elsewhere) -> None:
    path = tmp_path / "store"
    store, early = LsqVectorStore(path), LsqVectorStore(path)
    store.add(three_nodes())
    assert elsewhere("look", path) == sorted([A, B, C])
    assert elsewhere("delete", path, "test-0") == sorted([B, C])
    assert ask(store, [1, 0], 3).ids == [C, B]
    assert ask(early, [1, 0], 3).ids == [C, B]


def test_persist(tmp_path: Path, elsewhere: Elsewhere) -> None:
    path, other = tmp_path / "deep" / "er" / "store", tmp_path / "copy"
    store = LsqVectorStore()
    store.add(three_nodes())
    store.persist(str(path))
    store.delete("test-0")  # in the file, as the store is it now
    assert elsewhere("look", path) == sorted([B, C])
    store.persist(str(other))
    store.delete("test-1")
    assert elsewhere("look", other) == sorted([B, C])
    assert elsewhere("look", path) == [C]
    other.unlink()
    other.write_text("{}")
    store.persist(str(other), fs=fsspec.filesystem("file"))
    assert elsewhere("look", other) == [C]


def test_persist_without_nodes(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    store = LsqVectorStore(metric="ip")
    store.persist(path)
    loaded = LsqVectorStore.from_persist_path(path, metric="ip")
    assert loaded.get_nodes() == []
    assert ask(loaded, [1, 1]).ids == []
    loaded.add(three_nodes())
    assert len(store.get_nodes()) == 3
    LsqVectorStore().persist(path)
    assert LsqVectorStore.from_persist_path(path).get_nodes() == []


@pytest.fixture
def remote() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/stores", recursive=True)


def test_persist_on_another_file_system(remote: Any, tmp_path: Path) -> None:
    path = "/stores/deep/default__vector_store.json"

    def load() -> LsqVectorStore:
        return LsqVectorStore.from_persist_dir("/stores/deep", fs=remote)

    LsqVectorStore().persist(path, fs=remote)
    assert load().get_nodes() == []
    store = load()
    store.add(three_nodes())
    assert load().get_nodes() == []
    store.persist(path, fs=remote)
    assert len(load().get_nodes()) == 3
    again = load()
    again.delete("test-0")
    store.delete("test-1")
    again.persist(path, fs=remote)
    assert {
        name: len(one.get_nodes()) for name, one in load().from_namespaced_persist_dir("/stores/deep", remote).items()
    } == {"default": 2}
    again.persist(str(tmp_path / "here"))
    again.delete("test-2")
    assert [node.node_id for node in LsqVectorStore(tmp_path / "here").get_nodes()] == [B]
    assert sorted(node.node_id for node in store.get_nodes()) == sorted([A, C])


def test_close_and_open_again(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    store.close()
    store.close()
    assert len(store.get_nodes()) == 3
    memory = LsqVectorStore()
    memory.add(three_nodes())
    memory.close()
    assert memory.get_nodes() == []


def test_pickle_and_dict(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store", rerank=50, bits=64)
    store.add(three_nodes())
    for other in (
        pickle.loads(pickle.dumps(store)),
        copy.deepcopy(store),
        LsqVectorStore.from_dict(store.to_dict()),
        LsqVectorStore.from_json(store.to_json()),
    ):
        assert (other.path, other.settings) == (store.path, {"rerank": 50, "bits": 64})
        assert ask(other, [1, 1]).ids == [C]
    memory = LsqVectorStore()
    assert pickle.loads(pickle.dumps(memory)).get_nodes() == []
    memory.add(three_nodes())
    with pytest.raises(ParameterError, match="pickled"):
        pickle.dumps(memory)
