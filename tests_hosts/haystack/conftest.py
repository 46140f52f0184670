"""The stores that tests of Haystack use."""

from __future__ import annotations

from pathlib import Path

import pytest

from haystack_integrations.document_stores.lsqindex import LsqDocumentStore

from .given import Make


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda **options: LsqDocumentStore(tmp_path / "documents.lsq", **options)


@pytest.fixture
def document_store(make: Make) -> LsqDocumentStore:
    return make()
