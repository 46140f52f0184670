"""An index of LlamaIndex on the store, from documents to answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline

from lsqindex.hosts.llama_index import LsqVectorStore

from .given import Op, filters, where

DOCUMENTS = {
    "lake": "a lake freezes from its edge",
    "train": "the train to the coast is late",
    "bread": "bread needs flour water and time",
    "ice": "ice on the lake breaks in spring",
}


class Words(BaseEmbedding):
    """Words, counted in 64 places; no model is needed."""

    def _get_text_embedding(self, text: str) -> list[float]:
        places = [0.0] * 64
        for word in text.split():
            places[sum(word.encode()) % 64] += 1
        return places

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def documents() -> list[Document]:
    return [
        Document(id_=name, text=text, metadata={"length": len(text)}, excluded_embed_metadata_keys=["length"])
        for name, text in DOCUMENTS.items()
    ]


def names(found: Sequence[Any]) -> list[str]:
    return [one.node.ref_doc_id for one in found]


def from_path(path: Path) -> VectorStoreIndex:
    return VectorStoreIndex.from_vector_store(LsqVectorStore(path), embed_model=Words())


@pytest.fixture
def filled(tmp_path: Path) -> VectorStoreIndex:
    context = StorageContext.from_defaults(vector_store=LsqVectorStore(tmp_path / "store"))
    return VectorStoreIndex.from_documents(documents(), storage_context=context, embed_model=Words())


def test_index_and_retriever(filled: VectorStoreIndex, tmp_path: Path) -> None:
    for index in (filled, from_path(tmp_path / "store")):
        found = index.as_retriever(similarity_top_k=2).retrieve("flour for bread")
        assert names(found)[0] == "bread"
        assert found[0].node.get_content() == DOCUMENTS["bread"]
        assert found[0].score > found[1].score
        long = filters(where("length", Op.GT, 31))
        assert names(index.as_retriever(similarity_top_k=9, filters=long).retrieve("lake")) == ["ice", "bread"]
        retriever = index.as_retriever(vector_store_query_mode="mmr", similarity_top_k=2)
        assert names(retriever.retrieve("the lake"))[0] in ("lake", "ice")
        assert names(index.as_retriever(doc_ids=["train"]).retrieve("the lake")) == ["train"]


def test_index_changes(filled: VectorStoreIndex, tmp_path: Path) -> None:
    filled.insert(Document(id_="cake", text="flour for a cake"))
    filled.delete_ref_doc("bread")
    index = from_path(tmp_path / "store")
    assert names(index.as_retriever(similarity_top_k=1).retrieve("flour")) == ["cake"]
    index.insert(Document(id_="star", text="hydrogen in stars"))
    assert names(filled.as_retriever(similarity_top_k=1).retrieve("hydrogen")) == ["star"]
    index.delete_nodes(
        [node.node_id for node in index.vector_store.get_nodes(filters=filters(where("length", Op.GT, 0)))]
    )
    assert sorted(node.ref_doc_id or "" for node in index.vector_store.get_nodes()) == ["cake", "star"]


async def test_index_async(filled: VectorStoreIndex) -> None:
    assert names(await filled.as_retriever(similarity_top_k=1).aretrieve("flour")) == ["bread"]


def test_storage_context(tmp_path: Path) -> None:
    context = StorageContext.from_defaults(vector_store=LsqVectorStore())
    VectorStoreIndex.from_documents(documents(), storage_context=context, embed_model=Words())
    context.persist(tmp_path / "context")
    loaded = StorageContext.from_defaults(
        persist_dir=str(tmp_path / "context"), vector_store=LsqVectorStore.from_persist_dir(str(tmp_path / "context"))
    )
    index = load_index_from_storage(loaded, embed_model=Words())
    assert names(index.as_retriever(similarity_top_k=1).retrieve("flour")) == ["bread"]
    stores = LsqVectorStore.from_namespaced_persist_dir(str(tmp_path / "context"))
    assert {name: len(store.get_nodes()) for name, store in stores.items()} == {"default": 4}


def test_ingestion_pipeline(tmp_path: Path) -> None:
    store = LsqVectorStore(tmp_path / "store")
    pipeline = IngestionPipeline(transformations=[Words()], vector_store=store)
    for _ in range(2):
        pipeline.run(documents=documents())
    assert sorted(node.node_id for node in store.get_nodes()) == sorted(DOCUMENTS)
