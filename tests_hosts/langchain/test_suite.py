"""LangChain's standard tests of a vector store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

from lsqindex.hosts.langchain import LsqVectorStore


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
