"""What is refused, and how."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from llama_index.core.schema import (
    TextNode,
)
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from lsqindex import Index, LsqIndexError
from lsqindex.errors import FilterError, IndexMissingError, NotAnIndexError, ParameterError, VectorError
from lsqindex.hosts.llama_index import LsqVectorStore

from .given import Op, ask, filters, three_nodes, where


def test_wrong_nodes() -> None:
    store = LsqVectorStore()
    with pytest.raises(ValueError, match="embedding not set"):
        store.add([TextNode(text="")])
    with pytest.raises(VectorError, match="equal length"):
        store.add([TextNode(text="", embedding=[1, 2]), TextNode(text="", embedding=[1])])
    store.add(three_nodes())
    with pytest.raises(VectorError, match="2 dimensions"):
        store.add([TextNode(text="", embedding=[1, 2, 3])])
    with pytest.raises(LsqIndexError, match="64-bit"):
        store.add([TextNode(text="", embedding=[1, 2], metadata={"n": 1 << 70})])
    assert len(store.get_nodes()) == 3


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (where("a", Op.IN, "ab"), "a list of values"),
        (where("a", Op.ALL, 1), "a list of values"),
        (where("a", Op.TEXT_MATCH, 1), "a string"),
        (where("a", Op.CONTAINS, None), "a value"),
        (where("a", Op.GT, None), "a number or a string"),
        (where("a", Op.LTE, ["a"]), "a number or a string"),
    ],
)
def test_wrong_filters(asked: MetadataFilter, message: str) -> None:
    store = LsqVectorStore()
    store.add(three_nodes())
    with pytest.raises(FilterError, match=message):
        store.get_nodes(filters=filters(asked))


def test_wrong_queries() -> None:
    store = LsqVectorStore()
    with pytest.raises(ParameterError, match="'default' and 'mmr'"):
        ask(store, [1, 1], mode=VectorStoreQueryMode.HYBRID)
    with pytest.raises(ParameterError, match="query_embedding"):
        store.query(VectorStoreQuery(query_str="lorem"))
    store.add(three_nodes())
    with pytest.raises(VectorError, match="2 dimensions"):
        ask(store, [1, 1, 1])


def test_wrong_files_and_settings(tmp_path: Path) -> None:
    with pytest.raises(IndexMissingError, match="there is no store"):
        LsqVectorStore.from_persist_dir(str(tmp_path))
    with pytest.raises(IndexMissingError):
        LsqVectorStore.from_persist_path("/absent", fs=fsspec.filesystem("memory"))
    (tmp_path / "other").write_text("{}")
    with pytest.raises(NotAnIndexError):
        LsqVectorStore(tmp_path / "other")
    Index.create(tmp_path / "plain", dim=2).close()
    with pytest.raises(ParameterError, match="not one of LsqVectorStore"):
        LsqVectorStore(tmp_path / "plain")
    with pytest.raises(ParameterError, match="bits"):
        LsqVectorStore(bits=-1).add(three_nodes())
    with pytest.raises(ParameterError, match="unknown_setting"):
        LsqVectorStore(unknown_setting=1).add(three_nodes())
