"""Adding, opening, asking first and deleting, in a file; every change is durable when its time is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, make_encoder
from lsqindex.encoders import Encoder

Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def encoder(vectors: Vectors) -> Encoder:
    return make_encoder("itq", bits=64).fit(vectors)


@pytest.fixture
def path(tmp_path: Path, vectors: Vectors, encoder: Encoder) -> Path:
    """A file of 10,000 vectors, closed."""
    with Index.create(tmp_path / "index.lsq", vectors.shape[1], encoder=encoder, keep_vectors="float16") as index:
        index.add(vectors[:10_000])
    return tmp_path / "index.lsq"


@pytest.fixture
def index(path: Path) -> Iterator[Index]:
    with Index.open(path) as index:
        yield index


def test_add_one(benchmark: Any, index: Index, vectors: Vectors) -> None:
    added = benchmark.pedantic(index.add, (vectors[:1],), rounds=100)
    assert len(added) == 1


def test_add_batch(benchmark: Any, index: Index, vectors: Vectors) -> None:
    added = benchmark.pedantic(index.add, (vectors[:1000],), {"threads": 1}, rounds=10)
    assert len(added) == 1000


def test_open(benchmark: Any, path: Path) -> None:
    def opened() -> int:
        with Index.open(path, read_only=True) as index:
            return len(index)

    assert benchmark(opened) == 10_000


def test_first_query(benchmark: Any, path: Path, vectors: Vectors) -> None:
    def closed() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (Index.open(path, read_only=True),), {}

    def ask(index: Index) -> int:
        with index:
            return int(index.search(vectors[7], k=10, rerank=50, threads=1).ids[0])

    assert benchmark.pedantic(ask, setup=closed, rounds=20) == 7


def test_delete(benchmark: Any, index: Index) -> None:
    blocks = itertools.count()

    def some() -> tuple[tuple[Any, ...], dict[str, Any]]:
        first = 100 * next(blocks)
        return (np.arange(first, first + 100),), {}

    assert benchmark.pedantic(index.delete, setup=some, rounds=20) == 100
