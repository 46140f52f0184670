"""One index takes the place of another: memory becomes a file, a file another index. Nothing is lost on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage import rewrite
from lsqindex._storage.lmdb import opening
from lsqindex.errors import (
    BusyError,
    ClosedError,
    ParameterError,
    ReadOnlyError,
    ReplacedError,
    StorageError,
    UnknownIdError,
)


def in_threads(*actions: Callable[[], None]) -> Callable[[], None]:
    """Do these over and over until what is returned is called, which raises what one of them raised."""
    stop, errors = threading.Event(), []

    def over_and_over(action: Callable[[], None]) -> None:
        while not stop.is_set():
            try:
                action()
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=over_and_over, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()

    def end() -> None:
        stop.set()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    return end


# -- memory becomes a file --------------------------------------------------------------------------


def test_nothing_is_lost_of_what_is_added_while_memory_becomes_a_file(tmp_path: Path) -> None:
    for turn in range(8):
        index = Index(2, keep_vectors=None)
        given: list[int] = []

        def add(index: Index = index, given: list[int] = given) -> None:
            given.extend(index.add([[1.0, 0.0]]).tolist())

        def look(index: Index = index) -> None:
            assert len(index.search([1.0, 0.0], k=3).ids) == 3

        end = in_threads(add, add, look)
        time.sleep(0.01)
        index.save(tmp_path / f"{turn}.lsq")
        time.sleep(0.01)
        end()
        assert sorted(given) == index.ids().tolist()
        assert index.path is not None and index.check() == []
        index.close()
        with Index.open(tmp_path / f"{turn}.lsq", read_only=True) as again:
            assert again.ids().tolist() == sorted(given)


def test_an_add_between_the_copy_and_the_switch_waits_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = rewrite.save_copy
    with Index(1, keep_vectors=None) as index:
        index.add([[1.0]])
        late = threading.Thread(target=lambda: index.add([[2.0]]))

        def slow(*arguments: Any) -> None:
            copy(*arguments)
            late.start()
            time.sleep(0.05)

        monkeypatch.setattr(rewrite, "save_copy", slow)
        index.save(tmp_path / "file.lsq")
        late.join()
        assert index.ids().tolist() == [0, 1]
    with Index.open(tmp_path / "file.lsq") as index:
        assert index.ids().tolist() == [0, 1]


def test_two_threads_give_memory_a_file_and_both_files_are_whole(tmp_path: Path) -> None:
    index = Index(1, keep_vectors=None)
    index.add(np.zeros((100, 1)))
    paths = [tmp_path / f"{i}.lsq" for i in range(2)]
    threads = [threading.Thread(target=index.save, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert index.path in [str(path) for path in paths]
    index.close()
    for path in paths:
        with Index.open(path) as one:
            assert len(one) == 100 and one.check() == []


def test_a_new_file_that_is_taken_for_one_that_is_being_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB's binding knows open files by their inodes, and may meet one again before it has forgotten the old file."""
    real, refused = lmdb.open, 4

    def mistaken(path: str, **options: Any) -> Any:
        nonlocal refused
        refused -= 1
        if refused >= 0 and refused != 2:
            error = lmdb.Error(f"The environment '{path}' is already open in this process.")
            setattr(error, "code", 0)  # noqa: B010
            raise error
        return real(path, **options)

    monkeypatch.setattr(lmdb, "open", mistaken)
    with Index(1, keep_vectors=None) as index:
        assert index.add([[1.0]]).tolist() == [0]
    assert refused < 0
    refused = 1 << 30
    monkeypatch.setattr(opening, "_PAUSE", 0.0)
    with pytest.raises(StorageError, match="already open"):
        Index(1, keep_vectors=None)


def test_memory_in_a_batch_is_not_saved(tmp_path: Path) -> None:
    with Index(1, keep_vectors=None) as index, index.batch() as batch:
        batch.add([[1.0]])
        with pytest.raises(BusyError):
            index.save(tmp_path / "file.lsq")


# -- a file becomes another index -------------------------------------------------------------------


def wider(old: Index) -> Index:
    """The same ids and payloads, with one dimension more."""
    new = Index(old.dim + 1, fields=["n"], keep_vectors=None)
    names = old.ids()
    new.add(np.zeros((len(names), new.dim)), names, old.payloads(names))
    return new


def make(path: Path, n: int = 3) -> Index:
    index = Index.create(path, 1, fields=["n"], keep_vectors=None)
    index.add(np.zeros((n, 1)), payloads=[{"n": i} for i in range(n)])
    return index


def test_a_file_becomes_another_index(tmp_path: Path) -> None:
    path = tmp_path / "file.lsq"
    with make(path) as index, Index.open(path) as other:
        index.replace(wider)
        assert (index.dim, len(index), index.payloads(2), index.check()) == (2, 3, {"n": 2}, [])
        assert index.ids({"n": {"$gt": 0}}).tolist() == [1, 2]
        assert index.add([[1.0, 2.0]]).tolist() == [3]
        for use in (lambda: len(other), lambda: other.add([[1.0]]), lambda: other.search([1.0])):
            with pytest.raises(ReplacedError, match="open it again"):
                use()
    with Index.open(path, read_only=True) as index:
        assert (index.dim, index.ids().tolist()) == (2, [0, 1, 2, 3])
        with pytest.raises(ReadOnlyError):
            index.replace(wider)


def test_what_others_add_meanwhile_is_in_the_old_index_or_refused(tmp_path: Path) -> None:
    """Who was told that something is stored finds it in the new index."""
    path = tmp_path / "file.lsq"
    for turn in range(5):
        path.unlink(missing_ok=True)
        index, other = make(path), Index.open(path)
        given: list[int] = []

        def add(other: Index = other, given: list[int] = given) -> None:
            try:
                given.extend(other.add([[0.0]], payloads=[{"n": -1}]).tolist())
            except ReplacedError:
                time.sleep(0.001)

        end = in_threads(add)
        time.sleep(0.005 * turn)
        index.replace(wider)
        end()
        assert index.ids().tolist() == [0, 1, 2, *given]
        assert index.ids({"n": -1}).tolist() == given
        index.close()
        other.close()


def test_when_making_the_other_index_fails_nothing_is_changed(tmp_path: Path) -> None:
    def fails(old: Index) -> Index:
        raise RuntimeError(f"{len(old)} are there")

    closed = Index(2, keep_vectors=None)
    closed.close()
    with make(tmp_path / "file.lsq") as index:
        before = (tmp_path / "file.lsq").read_bytes()
        with pytest.raises(RuntimeError, match="3 are there"):
            index.replace(fails)
        with pytest.raises(ParameterError, match="must return an Index, got NoneType"):
            index.replace(lambda old: None)  # type: ignore[arg-type, return-value]
        with pytest.raises(ClosedError):
            index.replace(lambda old: closed)
        with pytest.raises(ParameterError, match="this file itself"):
            index.replace(lambda old: old)
        with pytest.raises(BusyError):
            index.replace(lambda old: [old.add([[1.0]]), old][1])
        assert (tmp_path / "file.lsq").read_bytes() == before and len(index) == 3
        assert index.add([[1.0]]).tolist() == [3]
    with Index(1, keep_vectors=None) as memory, pytest.raises(ParameterError, match="has no file"):
        memory.replace(wider)


# -- payloads in a batch ----------------------------------------------------------------------------


def test_payloads_are_changed_by_what_they_were(tmp_path: Path) -> None:
    """Read and written in one batch: no other writer comes between."""
    path = tmp_path / "file.lsq"
    with make(path, 1) as index, Index.open(path) as other:

        def count(index: Index) -> None:
            with index.batch() as batch:
                batch.set_payloads([0], [{"n": index.payloads(0)["n"] + 1}])

        end = in_threads(lambda: count(index), lambda: count(other))
        time.sleep(0.2)
        end()
        counted = index.payloads(0)["n"]
        assert counted > 2 and index.ids({"n": counted}).tolist() == [0]
        with index.batch() as batch:
            batch.set_payloads(0, {"n": 7})
            batch.add([[5.0]], ids=[9], payloads=[{"n": 8}])
            batch.set_payloads([9], [None])
            with pytest.raises(UnknownIdError):
                batch.set_payloads([0, 77], [None, None])
        assert index.payloads([0, 9]) == [{"n": 7}, None]
        assert index.get(9).tolist() == [5.0] and index.check() == []
