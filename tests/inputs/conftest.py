"""What tests of payloads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index

from .stored_payloads import DIM


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Index]]:
    """Makes an index, in memory or in a file, and looks at it when all is done."""
    made: list[Index] = []

    def create(**options: Any) -> Index:
        in_memory = request.param == "memory"
        made.append(Index(DIM, **options) if in_memory else Index.create(tmp_path / "index.lsq", DIM, **options))
        return made[-1]

    yield create
    for index in made:
        assert index.check() == []
        index.close()
