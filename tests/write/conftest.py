"""What tests of writing share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lsqindex import Index

from .waiting import PATIENCE, VECTORS


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "one.lsq", 4, encoder="lsh", bits=16, wait=PATIENCE, keep_vectors=None) as made:
        made.add(VECTORS[:10])
        yield made
