"""Nodes: added, replaced, read and deleted, also while others change them."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from lsqindex import Index
from lsqindex.hosts.llama_index import LsqVectorStore

from .given import A, B, C, ask, filters, three_nodes, unit_nodes, where


@pytest.mark.parametrize(
    "node",
    [
        TextNode(
            text="a lake",
            metadata={"list": ["a", 1], "inner": {"x": None}, "": 1, "doc_id": "its own", "n": 1.5},
            relationships={
                NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", metadata={"a": 1}),
                NodeRelationship.CHILD: [RelatedNodeInfo(node_id="x"), RelatedNodeInfo(node_id="y")],
            },
            start_char_idx=3,
            end_char_idx=9,
            excluded_llm_metadata_keys=["n"],
            metadata_separator=" | ",
        ),
        Node(text_resource=MediaResource(text="many"), image_resource=MediaResource(path="a.png")),
        ImageNode(text="a picture", image="aGVsbG8=", image_path="a.png"),
        IndexNode(text="a pointer", index_id="i", obj=TextNode(text="to this")),
        Document(text="a document", metadata={"a": 1}),
    ],
    ids=lambda node: type(node).__name__,
)
def test_nodes_come_back_as_they_were(node: BaseNode) -> None:
    store = LsqVectorStore()
    store.add([node.model_copy(update={"embedding": [1.0, 2.0]})])
    for found in (store.get_nodes([node.node_id]), ask(store, [1, 2]).nodes or []):
        assert list(found) == [node]
        assert type(found[0]) is type(node)


def test_add_replaces() -> None:
    store = LsqVectorStore()
    first, second = TextNode(id_="a", text="1", embedding=[1, 0]), TextNode(id_="a", text="2", embedding=[0, 1])
    assert store.add([]) == []
    assert store.client is None
    assert store.add([first, second, second]) == ["a", "a", "a"]
    assert ask(store, [0, 1]).similarities == [1.0]
    store.add([first])
    assert [node.get_content() for node in store.get_nodes()] == ["1"]
    assert len(store.client or []) == 1


def test_get_and_delete_nodes() -> None:
    store = LsqVectorStore()
    assert store.get_nodes() == []
    store.delete("absent")
    store.delete_nodes(["absent"])
    store.clear()
    store.add(three_nodes())
    rank_c = filters(where("rank", value="c"))
    assert [node.node_id for node in store.get_nodes([C, "absent", A, C])] == [C, A, C]
    assert [node.node_id for node in store.get_nodes([A, C], rank_c)] == [C]
    store.delete_nodes()
    store.delete_nodes([])
    store.delete_nodes([A], rank_c)
    store.delete("None")
    assert len(store.get_nodes()) == 3
    store.delete_nodes(filters=rank_c)
    assert [node.node_id for node in store.get_nodes()] == [A]
    store.clear()
    assert store.get_nodes() == []
    store.add(three_nodes())
    assert ask(store, [1, 1]).ids == [C]


def test_nodes_that_are_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LsqVectorStore(tmp_path / "store"), LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    payloads = Index.payloads

    def late(self: Index, ids: Any) -> Any:
        other.delete("test-1")
        return payloads(self, ids)

    monkeypatch.setattr(Index, "payloads", late)
    assert [node.node_id for node in store.get_nodes([C, B, A])] == [C, A]


async def test_async() -> None:
    store = LsqVectorStore()
    assert await store.async_add(three_nodes()) == [A, B, C]
    await store.adelete("test-0")
    assert [node.node_id for node in await store.aget_nodes([C, A])] == [C]
    await store.adelete_nodes([B])
    found = await store.aquery(VectorStoreQuery(query_embedding=[1, 1], similarity_top_k=3))
    assert found.ids == [C]
    await store.aclear()
    assert await store.aget_nodes() == []


async def test_the_loop_goes_on_while_nodes_are_added(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store", train_size=500, bits=32)
    adding = asyncio.create_task(store.async_add(unit_nodes(1500, 32)[0]))
    turns = 0
    while not adding.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert len(adding.result()) == 1500 and turns > 20


def test_nodes_that_no_longer_match_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LsqVectorStore(tmp_path / "store"), LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    delete = Index.delete

    def late(self: Index, ids: Any) -> int:
        other.add([TextNode(id_=A, embedding=[1.0, 0.0], metadata={"rank": "z"})])
        return delete(self, ids)

    monkeypatch.setattr(Index, "delete", late)
    store.delete_nodes(filters=filters(where("rank", value="a")))
    store.delete("test-0")
    assert {node.node_id for node in store.get_nodes()} == {A, B, C}


def test_mmr_when_a_node_is_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LsqVectorStore(tmp_path / "store"), LsqVectorStore(tmp_path / "store")
    store.add(three_nodes())
    get = Index.get

    def late(self: Index, ids: Any) -> Any:
        other.delete_nodes([C])
        return get(self, ids)

    monkeypatch.setattr(Index, "get", late)
    assert sorted(ask(store, [1, 1], 3, mode=VectorStoreQueryMode.MMR).ids or []) == sorted([A, B])


def test_nothing_is_lost_of_what_is_added_while_a_store_is_persisted(tmp_path: Path) -> None:
    for turn in range(5):
        store, stop = LsqVectorStore(), threading.Event()
        store.add([TextNode(id_="0", embedding=[1.0, 0.0])])

        def add(store: LsqVectorStore = store, stop: threading.Event = stop) -> list[str]:
            added = ["0"]
            while not stop.is_set():
                added += store.add([TextNode(id_=f"{len(added)}", embedding=[1.0, 0.0])])
                assert ask(store, [1, 0], 1).ids
            return added

        with ThreadPoolExecutor() as pool:
            done = pool.submit(add)
            time.sleep(0.01)
            store.persist(str(tmp_path / f"{turn}"))
            time.sleep(0.01)
            stop.set()
        again = LsqVectorStore(tmp_path / f"{turn}")
        assert {node.node_id for node in again.get_nodes()} == set(done.result())
