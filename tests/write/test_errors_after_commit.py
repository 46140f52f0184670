"""Errors after a commit, and of progress functions: what is done and what is not is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._storage import rewrite
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex._subsets.multi_index import postings
from lsqindex._subsets.multi_index.structure import MultiIndexStructure
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex.errors import DuplicateIdError, StorageError, VectorError

from .waiting import VECTORS, free


class OwnError(Exception):
    """Of a progress function."""


def failing(*arguments: Any) -> None:
    raise OwnError


def another(old: Index) -> Index:
    other = Index(7, keep_vectors=None)
    other.add(np.ones((3, 7)))
    return other


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


CHANGES: dict[str, Callable[[Index, Path], Any]] = {
    "add": lambda index, copy: index.add(VECTORS[:3], progress=failing),
    "add iterator": lambda index, copy: index.add(iter([VECTORS[:3, :2]]), progress=failing),
    "upsert": lambda index, copy: index.add(VECTORS[5:6], [0], upsert=True, progress=failing),
    "train": lambda index, copy: index.train(VECTORS, progress=failing),
    "reencode": lambda index, copy: index.reencode("kmeans", bits=4, vectors=VECTORS, progress=failing),
    "set_subset": lambda index, copy: index.set_subset(MultiIndex(bits=4), progress=failing),
    "merge": lambda index, copy: index.merge(progress=failing),
    "save": lambda index, copy: index.save(copy, progress=failing),
    "compact": lambda index, copy: index.compact(progress=failing),
    "replace": lambda index, copy: index.replace(another, progress=failing),
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_is_changed_where_a_progress_function_raises(name: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "one.lsq", tmp_path / "copy.lsq"
    with Index.create(path, 4, encoder="itq", bits=4, keep_vectors="float32") as index:
        index.train(VECTORS).set_subset("multi-index").add(VECTORS[:10])
        before, place = {**index.stats(), "subset": repr(index.subset)}, path.stat().st_ino
        file = index._env.file
        assert file is not None
        state = file.last_state
        with pytest.raises((OwnError, VectorError)) as caught:
            CHANGES[name](index, copy)
        assert not notes(caught.value)
        assert {**index.stats(), "subset": repr(index.subset)} == before
        assert index._env.file is file and file.last_state == state, "a transaction was committed"
        assert np.array_equal(index.get(index.ids()), VECTORS[:10])
        assert path.stat().st_ino == place and not copy.exists()
        assert free(index)


def test_a_large_add_whose_progress_function_raises_is_undone(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "COMMIT_BYTES", 1 << 12)
    done: list[int] = []

    def fails_at_last(so_far: int, total: int | None) -> None:
        done.append(so_far)
        if so_far == total:
            raise OwnError

    with pytest.raises(OwnError):
        index.add(VECTORS, progress=fails_at_last)
    assert len(done) > 1 and len(index) == 10 and free(index)


def test_an_error_within_an_iterator_tells_what_was_added(index: Index) -> None:
    with pytest.raises(DuplicateIdError) as caught:
        index.add(iter([(VECTORS[:3], [20, 21, 22]), (VECTORS[:2], [23, 24]), (VECTORS[:1], [20])]))
    assert "first 5 vectors were added" in notes(caught.value)
    with pytest.raises(OwnError) as failed:
        index.add(iter([VECTORS[:4], VECTORS[:4]]), progress=failing)
    assert "first 4 vectors were added" in notes(failed.value)
    assert len(index) == 19


def test_an_error_after_some_rows_were_listed_tells_how_many(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "UNIT_ROWS", CHUNK_ROWS)
    monkeypatch.setattr(postings, "SEGMENT_ROWS", CHUNK_ROWS)
    monkeypatch.setattr(MultiIndexStructure, "_rows_at_once", lambda self: 1)
    index.train(VECTORS).add(np.resize(VECTORS, (4 * CHUNK_ROWS, 4)))
    listed: list[int] = []

    def fails_at_third(so_far: int, total: int | None) -> None:
        listed.append(so_far)
        if len(listed) == 3:
            raise OwnError

    with pytest.raises(OwnError) as caught:
        index.set_subset("multi-index", progress=fails_at_third)
    assert f"{listed[1]} rows were listed" in notes(caught.value)
    assert index.stats()["listed"] == listed[1] and index.subset is not None
    index.merge()
    assert index.stats()["fresh"] == 0 and index.check() == []


def test_upkeep_that_fails_after_a_commit_is_no_error_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep: listing rows, compacting a small file, training after a batch."""
    options: dict[str, Any] = {"encoder": "kmeans", "bits": 4, "train_size": 300, "keep_vectors": None}
    with Index.create(tmp_path / "one.lsq", 4, subset="multi-index", **options) as index:
        for step, (module, name) in enumerate(
            [(MultiIndexStructure, "catch_up"), (training, "fit"), (rewrite, "compact")]
        ):
            for error, told in ((StorageError("full"), ""), (OwnError(), "was committed")):
                count, ids = len(index), np.arange(1000 * step, 1000 * step + 290) + 300 * bool(told)

                def fails(*arguments: Any, error: BaseException = error, **others: Any) -> None:
                    raise error

                def change(ids: Any = ids) -> None:
                    with index.batch() as batch:
                        batch.add(VECTORS[:290], ids)

                with monkeypatch.context() as patch:
                    patch.setattr(module, name, fails)
                    try:
                        change()
                    except OwnError as caught:
                        assert told in notes(caught)
                assert len(index) == count + 290
        assert free(index)
