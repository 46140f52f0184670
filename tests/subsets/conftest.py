"""What tests of subset structures share."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsqindex._storage import rewrite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.lsq"


@pytest.fixture
def untidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file in which chunks were given back is not compacted at once, as a large one is not."""
    monkeypatch.setattr(rewrite, "_SMALL", 0)
