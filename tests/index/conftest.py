"""What tests of the public face share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index
from lsqindex._storage import rewrite
from lsqindex._write import add as loader
from lsqindex._write import training

from .expected import DIM
from .refusals import VECTORS, names


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Index]]:
    """Makes an index in memory, and one in a file."""
    made: list[Index] = []

    def build(dim: int = DIM, **options: Any) -> Index:
        if "encoder" not in options:
            options.setdefault("bits", 24)  # the default code would be larger than a vector, and never be made
        if request.param == "memory":
            made.append(Index(dim, **options))
        else:
            made.append(Index.create(tmp_path / f"index {len(made)}.lsq", dim, **options))
        return made[-1]

    yield build
    for index in made:
        index.close()


@pytest.fixture
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes several transactions with millions of vectors takes several with thousands."""
    for module in (loader, training, rewrite):
        monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 15)


@pytest.fixture(params=["int", "str"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["untrained", "trained"])
def index(request: pytest.FixtureRequest, kind: Any, tmp_path: Path) -> Iterator[Index]:
    """An index of sixty vectors with ids 0 … 59, or "0" … "59"."""
    size = 50 if request.param == "trained" else 10_000
    path = tmp_path / "index.lsq"
    with Index.create(path, 4, encoder="lsh", bits=32, train_size=size, ids=kind, keep_vectors="float16") as made:
        made.add(VECTORS, ids=names(range(60), kind))
        assert made.is_trained == (request.param == "trained")
        yield made
