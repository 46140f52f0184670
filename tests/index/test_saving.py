"""Batches and the file: all or nothing; saved, compacted, copied, opened twice, closed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex.errors import BusyError, ClosedError, IdError, ReadOnlyError, StorageError, VectorError

from .expected import DIM, assert_codes, assert_holds, names_of, plain, random

# -- batches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
def test_a_batch_is_all_or_nothing(make: Callable[..., Index], kind: str) -> None:
    index, vectors, ids = make(ids=kind), random(5000), names_of(range(5000), kind)
    index.add(vectors[:100], ids=ids[:100])
    with index.batch() as batch:
        assert plain(batch.add(vectors[100:4500], ids=ids[100:4500])) == plain(ids[100:4500])
        assert batch.delete(ids[50:150]) == 100
        batch.add(vectors[:10] + 1, ids=ids[:10], upsert=True)
        assert_holds(index, ids[:100], vectors[:100])
    left = [*range(10, 50), *range(150, 4500)]
    now = np.concatenate([vectors[:10] + 1, vectors[left]])
    names = names_of([*range(10), *left], kind)
    assert_holds(index, names, now)
    with pytest.raises(ZeroDivisionError), index.batch() as batch:
        batch.delete(names)
        batch.add(vectors, ids=ids)
        raise ZeroDivisionError
    assert_holds(index, names, now)


def test_an_error_inside_a_batch_leaves_it_usable(make: Callable[..., Index]) -> None:
    index, vectors = make(), random(60)
    index.add(vectors[:10])
    with index.batch() as batch:
        batch.add(vectors[10:20])
        for ids in ([100, 100], [100, 3], [15, 100], [100, -1]):
            with pytest.raises(IdError):
                batch.add(vectors[:2], ids=ids)
        with pytest.raises(VectorError):
            batch.add(vectors[:2] * np.nan)
        assert batch.add(vectors[20:30]).tolist() == list(range(20, 30))
        assert batch.delete([5, 25, 100]) == 2
    left = [i for i in range(30) if i not in (5, 25)]
    assert_holds(index, left, vectors[left])


def test_a_batch_is_used_in_its_block_only(make: Callable[..., Index]) -> None:
    index = make()
    batch = index.batch()
    for use in (lambda: batch.add(random(1)), lambda: batch.delete([1])):
        with pytest.raises(ClosedError):
            use()
    with batch:
        batch.add(random(2))
        with pytest.raises(BusyError), index.batch():
            pass
        with pytest.raises(BusyError), batch:
            pass
        changes: list[Callable[[], object]] = [lambda: index.add(random(1)), lambda: index.delete([0]), index.train]
        for change in changes:
            with pytest.raises(BusyError, match="batch"):
                change()
    with pytest.raises(ClosedError):
        batch.add(random(1))
    assert len(index) == 2 and index.check() == []


@pytest.mark.parametrize("what", ["close", "save"])
def test_an_index_cannot_go_away_inside_its_batch(what: str, tmp_path: Path) -> None:
    index = Index(DIM, keep_vectors=None)
    with index.batch() as batch:
        batch.add(random(2))
        with pytest.raises(BusyError, match="batch"):
            index.close() if what == "close" else index.save(tmp_path / "index.lsq")
    assert len(index) == 2


def test_an_index_trains_itself_after_a_batch() -> None:
    index, vectors = Index(DIM, encoder="lsh", bits=24, train_size=100, keep_vectors=None), random(120)
    with index.batch() as batch:
        for i in range(0, 120, 40):
            batch.add(vectors[i : i + 40])
    assert index.is_trained
    assert_codes(index, np.arange(120), vectors)


# -- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("options", [{}, {"encoder": "lsh", "bits": 24, "train_size": 500}])
@pytest.mark.parametrize("staged", [False, True])
def test_save_and_compact(
    kind: Any, options: dict[str, Any], staged: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if staged:
        request.getfixturevalue("small_transactions")
    vectors, ids = random(9000), names_of(np.random.default_rng(5).permutation(9000), kind)
    path, copy = tmp_path / "index.lsq", tmp_path / "copy.lsq"
    with Index.create(path, DIM, ids=kind, keep_vectors="float32", **options) as index:
        index.add(vectors, ids=ids)
        index.save()
        for last in (900, 8100):
            index.delete(ids[:last])
            index.save(copy)
            assert index.path == str(path)
            with Index.open(copy, read_only=True) as other:
                assert_holds(other, ids[last:], vectors[last:])
                assert other.stats()["deleted"] == 0
        calls: list[tuple[int, int | None]] = []
        index.compact(progress=lambda done, total: calls.append((done, total)))
        assert calls[-1] == (900, 900)
        assert_holds(index, ids[8100:], vectors[8100:])
        index.add(vectors[:100], ids=ids[:100])
        names, now = [*plain(ids)[8100:], *plain(ids)[:100]], np.concatenate([vectors[8100:], vectors[:100]])
        assert_holds(index, names, now)
    with Index.open(path) as index:
        assert_holds(index, names, now)
    assert sorted(file.name for file in tmp_path.iterdir() if not file.name.endswith("-lock")) == [
        "copy.lsq",
        "index.lsq",
    ]


def test_compact_gives_the_space_back(tmp_path: Path) -> None:
    path, vectors = tmp_path / "index.lsq", random(81_280, 0, 16)
    with Index.create(path, 16, encoder="lsh", bits=64, train_size=1000, keep_vectors="float16") as index:
        index.add(vectors)
        full = path.stat().st_size
        index.delete(np.arange(73_152))
        index.compact()
        assert path.stat().st_size < full / 7
        assert index.stats()["file_bytes"] == path.stat().st_size
        assert_holds(index, np.arange(73_152, 81_280), vectors[73_152:].astype(np.float16))
        before = path.stat().st_size
        index.compact()
        assert path.stat().st_size == before, "there was nothing to give back"


def test_an_index_in_memory_becomes_the_file(tmp_path: Path) -> None:
    path, vectors = tmp_path / "index.lsq", random(200)
    index = Index(DIM, keep_vectors=None)
    index.add(vectors[:100])
    index.save(path)
    assert index.path == str(path)
    index.add(vectors[100:])
    index.save()
    assert_holds(index, np.arange(200), vectors)
    index.close()
    with Index.open(path) as index:
        assert_holds(index, np.arange(200), vectors)


def test_saving_over_another_index_replaces_it(tmp_path: Path) -> None:
    path, vectors = tmp_path / "index.lsq", random(100)
    old = Index.create(path, 3, keep_vectors=None)
    old.add(random(5, 0, 3))
    with Index(DIM, keep_vectors=None) as index:
        index.add(vectors)
        index.save(path)
        assert_holds(index, np.arange(100), vectors)
        with pytest.raises(StorageError, match="replaced"):
            old.search(np.zeros(3))
        old.close()
        assert_holds(index, np.arange(100), vectors)


def test_saving_to_its_own_path_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, vectors = tmp_path / "index.lsq", random(10)
    (tmp_path / "link.lsq").symlink_to(path)
    with Index.create(path, DIM, keep_vectors=None) as index:
        index.add(vectors)
        monkeypatch.chdir(tmp_path)
        for same in (path, "index.lsq", "./index.lsq", tmp_path / "link.lsq"):
            index.save(same)
        assert (tmp_path / "link.lsq").is_symlink()
        assert_holds(index, np.arange(10), vectors)


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory may change: the file is the same, and the same name elsewhere is another file."""
    vectors = random(10)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Index.create("index.lsq", DIM, keep_vectors=None) as index:
        monkeypatch.chdir(tmp_path / "elsewhere")
        index.add(vectors)
        index.save("index.lsq")
        assert (tmp_path / "elsewhere" / "index.lsq").exists()
        index.compact()
        assert_holds(index, np.arange(10), vectors)
    for file in (tmp_path / "index.lsq", tmp_path / "elsewhere" / "index.lsq"):
        with Index.open(file) as index:
            assert_holds(index, np.arange(10), vectors)


def test_the_same_file_twice_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, vectors = tmp_path / "index.lsq", random(9000)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.lsq").symlink_to("index.lsq")
    with (
        Index.create(path, DIM, keep_vectors="float32", encoder="lsh", bits=24, train_size=4000) as first,
        Index.open("index.lsq") as second,
        Index.open(tmp_path / "link.lsq", read_only=True) as third,
    ):
        everyone = (first, second, third)
        first.add(vectors[:3000])
        for index in everyone:
            assert_holds(index, np.arange(3000), vectors[:3000])
        second.add(vectors[3000:])
        assert first.is_trained and third.encoder.name == "lsh"
        second.reencode("flat")
        first.delete(np.arange(6000))
        second.compact()
        for index in everyone:
            assert_holds(index, np.arange(6000, 9000), vectors[6000:])
        with pytest.raises(ReadOnlyError):
            third.add(vectors[:1])
        first.close()
        for index in (second, third):
            assert_holds(index, np.arange(6000, 9000), vectors[6000:])
        with pytest.raises(ClosedError):
            len(first)


def test_a_writer_joins_a_reader(tmp_path: Path) -> None:
    """The file was opened read-only first; who opens it later may write all the same."""
    path, vectors = tmp_path / "index.lsq", random(50)
    Index.create(path, DIM, keep_vectors=None).close()
    with Index.open(path, read_only=True) as reader, Index.open(path) as writer:
        assert len(reader) == 0
        writer.add(vectors)
        assert_holds(reader, np.arange(50), vectors)


def test_a_file_removed_and_made_again(tmp_path: Path) -> None:
    path, vectors = tmp_path / "index.lsq", random(50)
    old = Index.create(path, DIM, keep_vectors=None)
    old.add(vectors)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        old.add(vectors)
    with Index.create(path, DIM, keep_vectors=None) as new:
        new.add(vectors[:5])
        with pytest.raises(StorageError, match="replaced"):
            len(old)
        assert_holds(new, np.arange(5), vectors[:5])
    old.close()


def test_closing(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index.lsq", DIM, keep_vectors=None)
    with index:
        index.add(random(3))
    index.close()
    index.close()
    uses: list[Callable[[], object]] = [
        lambda: len(index),
        lambda: 1 in index,
        lambda: index.search(random(1)),
        lambda: index.add(random(1)),
        lambda: index.add(iter([])),
        lambda: index.delete([1]),
        lambda: index.get(1),
        lambda: index.is_trained,
        index.ids,
        index.stats,
        index.check,
        index.compact,
        index.train,
        index.save,
        index.__enter__,
        lambda: index.batch().__enter__(),
    ]
    for use in uses:
        with pytest.raises(ClosedError, match=r"Index\.open"):
            use()


def test_the_same_operations_give_the_same_answers(tmp_path: Path) -> None:
    answers = []
    for path in (tmp_path / "a.lsq", tmp_path / "b.lsq"):
        with Index.create(path, DIM, encoder="lsq", bits=24, iterations=2, train_size=1000, keep_vectors=None) as index:
            index.add(random(5000))
            index.delete(np.arange(0, 5000, 3))
            index.add(random(500, 1), ids=np.arange(500), upsert=True)
            answers.append(index.search(random(20, 2), 50))
            assert index.check() == []
    for left, right in zip(*answers, strict=True):
        assert np.array_equal(left, right)


NO_COPY = """
import os, resource, sys
import numpy as np
from lsqindex import Index
with Index.create(sys.argv[1], 16, encoder="lsh", bits=64, train_size=1000, keep_vectors="float32") as index:
    index.add(np.zeros((12_192, 16), np.float32))
    size = index.stats()["file_bytes"]
    # One more descriptor, for the writer's lock: none for the compacted copy that a small file would make of itself.
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert index.delete(np.arange(12_000)) == 12_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert len(index) == 192 and index.check() == []
    assert index.stats()["file_bytes"] >= size, "there was to be no copy"
"""


def test_a_durable_delete_does_not_fail_where_its_compaction_does(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    command = [sys.executable, "-c", NO_COPY, str(tmp_path / "index.lsq")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
