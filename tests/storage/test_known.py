"""What is known of a file outlives becoming its writer: nothing is encoded or verified twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Cells, Index, register_encoder
from lsqindex._compiled import records as compiled
from lsqindex._query.search import Search
from lsqindex._storage.format.columns import CHUNK_ROWS, Column
from lsqindex._storage.lmdb import growth
from lsqindex._subsets.multi_index import postings
from lsqindex.encoders.lsh import LSH

VECTORS = np.random.default_rng(0).standard_normal((17_000, 8)).astype(np.float32)


@register_encoder("counting-lsh")
class CountingLSH(LSH):
    """An encoder that counts the vectors it has encoded."""

    encoded = 0

    def _encode(self, block: Any) -> Any:
        type(self).encoded += len(block)
        return super()._encode(block)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trained index with full chunks, posting lists and kept vectors, which nobody has open."""
    path = tmp_path / "index.lsq"
    with Index.create(path, 8, encoder="counting-lsh", bits=32, subset="multi-index", keep_vectors="float32") as index:
        index.train(VECTORS[:500]).add(VECTORS)
    return path


def test_the_first_add_encodes_its_vectors_once(path: Path) -> None:
    with Index.open(path) as index:
        for number in range(1, 3):
            CountingLSH.encoded = 0
            index.add(VECTORS[:100] + number)
            assert CountingLSH.encoded == 100


def test_an_add_after_the_file_was_replaced_encodes_again(path: Path) -> None:
    with Index.open(path) as index, Index.open(path) as other:
        assert len(index) == len(VECTORS)
        other.compact()  # by the same environment: this index learns of it when it reads
        CountingLSH.encoded = 0
        index.add(VECTORS[:100] + 1)
        assert CountingLSH.encoded == 100
        assert index.check() == []


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was verified: records that begin in the first chunk, which an add does not touch."""
    found: list[str] = []
    check, verify, decode = Column.check, compiled.verify, postings.decode

    def checked(column: Column, value: Any, first: int) -> Any:
        found.extend([column.what] * (first < CHUNK_ROWS))
        return check(column, value, first)

    def verified_all(addresses: Any, starts: Any, *others: Any) -> int:
        found.extend(["codes"] * int((starts < CHUNK_ROWS).sum()))
        return verify(addresses, starts, *others)

    def decoded(value: Any, header: Any, span: int) -> Any:
        found.extend(["postings"] * (header.first < CHUNK_ROWS))
        return decode(value, header, span)

    monkeypatch.setattr(Column, "check", checked)
    monkeypatch.setattr(compiled, "verify", verified_all)
    monkeypatch.setattr(postings, "decode", decoded)
    return found


def read_everything(index: Index) -> None:
    """Touch codes, ids, kept vectors and posting lists of the first chunk."""
    assert index.search(VECTORS[7], k=1, strategy="scan").ids[0] == 7
    assert index.search(VECTORS[7], k=1, strategy="subset").ids[0] == 7
    index.get(np.arange(CHUNK_ROWS))


def test_becoming_the_writer_forgets_no_verified_record(path: Path, verified: list[str]) -> None:
    with Index.open(path) as index:
        read_everything(index)
        assert {"codes", "ids", "vectors", "postings"} <= set(verified)
        verified.clear()
        opened = index._env.file
        index.add(VECTORS[:1] + 1, ids=[10**6])
        assert index._env.file is not opened  # it was opened again, for writing
        read_everything(index)
        assert not verified
        index._env.forget()
        read_everything(index)
        assert {"codes", "ids", "vectors", "postings"} <= set(verified)


def test_a_map_that_grows_forgets_no_verified_record(path: Path, verified: list[str]) -> None:
    with Index.open(path) as index:
        index.add(VECTORS[:1] + 1, ids=[10**6])
        read_everything(index)
        verified.clear()
        growth.grow(index._env)
        read_everything(index)
        assert not verified


def test_another_file_is_verified_anew(path: Path, verified: list[str]) -> None:
    with Index.open(path) as index:
        read_everything(index)
        index.compact()
        verified.clear()
        read_everything(index)
        assert {"codes", "ids", "vectors", "postings"} <= set(verified)


def test_a_search_goes_on_where_what_is_verified_was_forgotten_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As check() in another thread does it; a search of cells begins anew when it has verified something."""
    path = tmp_path / "index.lsq"
    with Index.create(path, 8, encoder="lsh", bits=32, subset=Cells(20), keep_vectors="float32") as index:
        index.train(VECTORS[:500]).add(VECTORS[:9_000])
        index.merge()
        wanted = index.search(VECTORS[:5], 10)
    touch, times = Search.touch, 0

    def forgetting(search: Search, rows: Any) -> None:
        nonlocal times
        times += 1
        assert times < 100, "the same records again and again"
        index._env.forget()
        touch(search, rows)

    with Index.open(path) as index:
        monkeypatch.setattr(Search, "touch", forgetting)
        assert index.search(VECTORS[:5], 10).ids.tolist() == wanted.ids.tolist() and times
