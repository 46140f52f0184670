"""What tests of the file share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lsqindex import Index
from tests.damage.files import VARIANTS
from tests.processes import Child


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The sound file of a variant, made once."""
    directory = tmp_path_factory.mktemp("sound")

    @cache
    def make(variant: str) -> Path:
        path = directory / f"{variant}.lsq"
        VARIANTS[variant](path)
        with Index.open(path) as index:
            assert index.check() == []
        return path

    return make


@pytest.fixture
def child() -> Iterator[Callable[[], Child]]:
    with contextlib.ExitStack() as stack:

        def make() -> Child:
            made = Child()
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index of dimension 2 that never trains itself, with vectors (0, 0) to (9, 0)."""
    file = tmp_path / "index.lsq"
    with Index.create(file, 2, train_size=1 << 40, keep_vectors=None) as index:
        index.add(np.stack([np.arange(10), np.zeros(10)], axis=1))
    return file
