"""Haystack's own suites for document stores."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing import document_store as suite
from haystack.testing import document_store_async as async_suite

import haystack_integrations.components.retrievers.lsqindex as retrievers
import haystack_integrations.document_stores.lsqindex as document_stores
from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

from .given import Make


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
