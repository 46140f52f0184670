"""Adding, replacing, deleting: ids of every kind, iterators, sizes around the boundaries of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex.errors import DuplicateIdError, IdError, VectorError
from tests.settings import LONG

from .expected import DIM, UNTRAINED, Vectors, assert_codes, assert_holds, codes_of, names_of, plain, random

# -- adding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
def test_an_iterator_of_batches(make: Callable[..., Index], kind: str) -> None:
    index, vectors, ids = make(ids=kind), random(1000), names_of(range(1000), kind)
    calls: list[tuple[int, int | None]] = []
    batches = ((vectors[i : i + 300], ids[i : i + 300]) for i in range(0, 1000, 300))
    given = index.add(batches, progress=lambda done, total: calls.append((done, total)))
    assert plain(given) == plain(ids)
    assert calls == [(300, None), (600, None), (900, None), (1000, None)]
    assert_holds(index, ids, vectors)
    assert plain(index.add(iter([]))) == []


def test_an_iterator_of_batches_without_ids() -> None:
    index, vectors = Index(DIM, keep_vectors=None), random(100)
    index.add(vectors[:10], ids=np.arange(50, 60))
    assert index.add(vectors[i : i + 30] for i in range(10, 100, 30)).tolist() == list(range(60, 150))
    assert_holds(index, [*range(50, 60), *range(60, 150)], vectors)


def test_an_error_in_an_iterator_leaves_the_batches_before_it() -> None:
    index, vectors = Index(DIM, keep_vectors=None), random(90)
    broken = vectors.copy()
    broken[70] = np.nan
    with pytest.raises(VectorError):
        index.add(broken[i : i + 30] for i in (0, 30, 60))
    assert_holds(index, np.arange(60), vectors[:60])

    def stops() -> Iterator[Vectors]:
        yield vectors[60:]
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        index.add(stops())
    assert_holds(index, np.arange(90), vectors)


def test_progress_of_an_array() -> None:
    calls: list[tuple[int, int | None]] = []
    Index(DIM, keep_vectors=None).add(random(50), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (50, 50)


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("options", [{"train_size": UNTRAINED}, {"encoder": "lsh", "bits": 17, "train_size": 3000}])
@pytest.mark.parametrize("before", [0, 33, 2999, 4100] if LONG else [33, 2999])
def test_an_array_too_large_for_one_transaction(
    make: Callable[..., Index], before: int, options: dict[str, Any], kind: str, small_transactions: None
) -> None:
    index = make(keep_vectors="float32", ids=kind, **options)
    vectors, ids = random(9_500), names_of(np.random.default_rng(3).permutation(9_500), kind)
    index.add(vectors[:before], ids=ids[:before])
    calls: list[tuple[int, int | None]] = []
    index.add(vectors[before:], ids=ids[before:], progress=lambda done, total: calls.append((done, total)))
    assert len(calls) > 1 and calls == sorted(calls) and calls[-1] == (9_500 - before, 9_500 - before)
    assert_holds(index, ids, vectors)
    if index.is_trained:
        assert_codes(index, ids, vectors)
    replaced = np.arange(0, 9_500, 2)
    vectors[replaced] += 1
    again = [plain(ids)[i] for i in replaced.tolist()]
    index.add(vectors[replaced], ids=again, upsert=True)
    assert_holds(index, ids, vectors)


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("train_size", [2000, UNTRAINED])
@pytest.mark.parametrize("what", ["a bad vector", "a known id", "a broken progress"])
def test_a_large_add_that_fails_changes_nothing(
    make: Callable[..., Index], what: str, train_size: int, kind: str, small_transactions: None
) -> None:
    index = make(keep_vectors="float32", ids=kind, encoder="lsh", bits=9, train_size=train_size)
    vectors, ids = random(12_000), names_of(range(12_000), kind)
    index.add(vectors[:1500], ids=ids[:1500])
    bytes_before = index.stats()["file_bytes"] - index.stats()["free_bytes"]
    more, names = vectors[1500:].copy(), list(ids[1500:])

    def stop(done: int, total: int | None) -> None:
        if done > 5000:
            raise RuntimeError("stopped by the user")

    if what == "a bad vector":
        more[-3, 2] = np.inf
        with pytest.raises(VectorError, match="row 10497"):
            index.add(more, ids=names)
    elif what == "a known id":
        names[-1] = plain(ids)[700]
        with pytest.raises(DuplicateIdError):
            index.add(more, ids=names)
    else:
        with pytest.raises(RuntimeError, match="stopped by the user"):
            index.add(more, ids=names, progress=stop)
    assert not index.is_trained
    assert_holds(index, ids[:1500], vectors[:1500])
    stats = index.stats()
    assert stats["file_bytes"] - stats["free_bytes"] < bytes_before + 100_000, "what was staged is gone"
    index.add(vectors[1500:], ids=ids[1500:])
    assert_holds(index, ids, vectors)


def test_upsert_replaces_and_adds(make: Callable[..., Index]) -> None:
    index, vectors = make(keep_vectors="float32"), random(100)
    index.add(vectors)
    assert index.add(vectors[:20] + 1, ids=np.arange(90, 110), upsert=True).tolist() == list(range(90, 110))
    assert_holds(index, np.arange(110), np.concatenate([vectors[:90], vectors[:20] + 1]))
    assert index.stats()["deleted"] == 10


@pytest.mark.parametrize("kind", ["int", "str"])
def test_delete(make: Callable[..., Index], kind: str) -> None:
    index, vectors, ids = make(ids=kind), random(100), names_of(range(100), kind)
    index.add(vectors, ids=ids)
    assert index.delete(names_of([5, 5, 7, 999], kind)) == 2
    assert index.delete(names_of([5], kind)) == 0
    assert index.delete(names_of([9], kind)[0]) == 1
    assert index.delete([]) == 0
    left = [i for i in range(100) if i not in (5, 7, 9)]
    assert_holds(index, names_of(left, kind), vectors[left])
    assert all(name not in index for name in names_of([5, 7, 9, 999], kind))
    index.add(vectors[[7]] * 2, ids=names_of([7], kind))
    assert_holds(index, names_of([*left, 7], kind), np.concatenate([vectors[left], vectors[[7]] * 2]))
    assert index.delete(ids) == 98
    assert_holds(index, names_of([], kind), vectors[:0])
    assert index.search(vectors[0], 2).distances.tolist() == [np.inf, np.inf]
    index.add(vectors, ids=ids)
    assert_holds(index, ids, vectors)


def test_automatic_ids_go_on_after_all_others(tmp_path: Path) -> None:
    path, vectors = tmp_path / "index.lsq", random(30)
    with Index.create(path, DIM, keep_vectors=None) as index:
        assert index.add(vectors[:2]).tolist() == [0, 1]
        index.add(vectors[2:4], ids=[-7, 40])
        assert index.add(vectors[4:6]).tolist() == [41, 42]
        index.delete([42])
        assert index.add(vectors[6:7]).tolist() == [43], "an id is not given twice"
    with Index.open(path) as index:
        assert index.add(vectors[7:8]).tolist() == [44]
        index.delete(index.ids())
        index.compact()
        assert index.add(vectors[8:9]).tolist() == [45]
        with index.batch() as batch:
            assert batch.add(vectors[9:11]).tolist() == [46, 47]
            batch.add(vectors[11:12], ids=[90])
            assert batch.add(vectors[12:13]).tolist() == [91]
        with pytest.raises(RuntimeError), index.batch() as batch:
            assert batch.add(vectors[13:14]).tolist() == [92]
            raise RuntimeError
        assert index.add(vectors[14:15]).tolist() == [92]
        assert index.check() == []


def test_automatic_ids_never_meet_a_given_one() -> None:
    index, vectors = Index(DIM, keep_vectors=None), random(40)
    index.add(vectors[:2], ids=[1, 2**63 - 1])
    given = plain(index.add(vectors[2:5]))
    assert len({*given, 1, 2**63 - 1}) == 5
    assert index.check() == [] and len(index) == 5


def test_extreme_int_ids(make: Callable[..., Index]) -> None:
    ids = [-(2**63), -(2**63) + 1, -2, 0, 1, 2**31, 2**32, 2**53 + 1, 2**62 - 1, 2**62, 2**63 - 2, 2**63 - 1]
    index, vectors = make(), random(12)
    index.add(vectors[::-1], ids=ids[::-1])
    assert_holds(index, ids, vectors)
    assert index.delete([-(2**63), 2**63 - 1]) == 2
    assert_holds(index, ids[1:-1], vectors[1:-1])


@pytest.mark.parametrize("wide", [[2**32 - 1], [2**32], [-2], [2**63 - 1, -(2**63)]])
def test_large_and_negative_ids_among_small_ones(wide: list[int]) -> None:
    """Wherever they come: into a piece, a group or a part of small ids, and when a chunk is given back."""
    vectors, ids = random(9000, 0, 2), np.arange(9000)
    for place in (5, 500, 4000, 4064, 8999):
        index = Index(2, train_size=UNTRAINED, keep_vectors=None)
        names = ids.copy()
        names[place : place + len(wide)] = wide[: 9000 - place]
        for first, last in ((0, place), (place, place + 1), (place + 1, 9000)):
            index.add(vectors[first:last], ids=names[first:last])
        assert np.array_equal(index.get(names), vectors)
        assert index.ids().tolist() == sorted(names.tolist())
        index.delete(names[:place:3])
        left = np.concatenate([np.delete(np.arange(place), np.s_[::3]), np.arange(place, 9000)])
        assert_holds(index, names[left], vectors[left])


def test_str_ids_of_every_kind(make: Callable[..., Index]) -> None:
    ids = [
        "",
        "\0",
        "\0\0",
        "a",
        "a\0",
        "a\0b",
        "ab",
        "é",
        "e\u0301",
        "\U0001f600",
        "\uffff",
        "x" * 480,
        "語" * 160,
        " ",
    ]
    index, vectors = make(ids="str"), random(len(ids))
    index.add(vectors, ids=ids)
    assert_holds(index, ids, vectors)
    assert index.add(random(2), ids=np.array(["n 1", "n 2"])) == ["n 1", "n 2"]
    for long in ("x" * 481, "é" * 241):
        with pytest.raises(IdError):
            index.add(random(1), ids=[long])
        assert long not in index
    assert index.delete(["", "a\0", "n 1", "n 2"]) == 4
    left = [i for i, name in enumerate(ids) if name not in ("", "a\0")]
    assert_holds(index, [ids[i] for i in left], vectors[left])


# -- sizes around the boundaries of the file ---------------------------------------------------------
BOUNDARIES = [31, 32, 33, 511, 512, 513, 4063, 4064, 4065, 8128, 65_025]


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
@pytest.mark.parametrize("n", BOUNDARIES)
def test_sizes_around_the_boundaries(n: int, order: str, tmp_path: Path) -> None:
    ids = np.arange(n)
    if order == "falling":
        ids = ids[::-1].copy()
    elif order == "random":
        ids = np.random.default_rng(n).permutation(n)
    vectors = random(n, n, 2)
    with Index.create(tmp_path / "index.lsq", 2, encoder="lsh", bits=8, train_size=n, keep_vectors=None) as index:
        index.add(vectors[: n - 1], ids=ids[: n - 1])
        assert not index.is_trained
        index.add(vectors[n - 1 :], ids=ids[n - 1 :])
        assert_codes(index, ids, vectors)
        more = random(40, 1, 2)
        for i in range(40):
            index.add(more[i : i + 1], ids=[n + i])
        assert_codes(index, [*ids, *range(n, n + 40)], np.concatenate([vectors, more]))


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("bits", [8, 16, 24, 64, 264, 520])
def test_codes_of_every_size_survive_small_adds(bits: int, kind: Any) -> None:
    """Rows come in steps that end within, at and after pieces, groups and parts."""
    index = Index(20, encoder="lsh", bits=bits, train_size=20, ids=kind, keep_vectors=None)
    vectors, ids = random(9000, 0, 20), names_of(np.random.default_rng(0).permutation(9000), kind)
    at = 0
    for step in [20, 1, 1, 10, 31, 32, 33, 1, 500, 31, 1000, 2400, 1, 2, 3, 40, 4064, 800, 30]:
        index.add(vectors[at : at + step], ids=ids[at : at + step])
        at += step
        assert np.array_equal(index.get(ids[:at]), index.encoder.decode(codes_of(index, vectors[:at])))
    assert at == 9000
    assert_codes(index, ids, vectors)


#: 137 dimensions, kept in float32, would leave one row for the last part of a chunk: a small value, which moves.
@pytest.mark.parametrize(("dim", "keep", "n"), [(137, None, 4064), (145, "float16", 4064), (5000, "float32", 30)])
def test_wide_vectors_and_single_adds(dim: int, keep: Any, n: int, tmp_path: Path) -> None:
    vectors = random(n + 20, 0, dim).astype(np.float16).astype(np.float32)
    options: dict[str, Any] = {"train_size": UNTRAINED}
    if keep:
        options.update(encoder="pq", bits=4, field_bits=2)
    with Index.create(tmp_path / "index.lsq", dim, keep_vectors=keep, **options) as index:
        index.add(vectors[:n])
        if keep:
            index.train()
        for i in range(n, n + 20):
            index.add(vectors[i : i + 1])
            wanted = [0, n // 2, n - 2, n - 1, i]
            assert np.array_equal(index.get(wanted), vectors[wanted])
        assert_holds(index, np.arange(n + 20), vectors)


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("pattern", ["first", "last", "scattered"])
def test_chunks_are_given_back(pattern: str, kind: str, make: Callable[..., Index]) -> None:
    """A quarter of a full chunk deleted: its living rows move, and nothing else changes."""
    index = make(3, encoder="lsh", bits=12, train_size=100, keep_vectors="float32", ids=kind)
    n = 3 * 4064 + 100
    vectors, ids = random(n, 0, 3), names_of(np.random.default_rng(1).permutation(n), kind)
    index.add(vectors, ids=ids)
    gone = {"first": np.arange(1015), "last": np.arange(8128, 9143), "scattered": np.arange(0, 12_000, 4)}[pattern]
    living = np.setdiff1d(np.arange(n), gone)
    names = plain(ids)
    index.delete([names[i] for i in gone[:-1].tolist()])
    index.delete([names[gone[-1]]])
    index.delete([names[living[0]]])
    for _ in range(2):
        left = living[1:]
        assert_holds(index, [names[i] for i in left.tolist()], vectors[left])
        assert_codes(index, [names[i] for i in left.tolist()], vectors[left])
        vectors[left[:3000]] += 1
        index.add(vectors[left[:3000]], ids=[names[i] for i in left[:3000].tolist()], upsert=True)
    assert index.stats()["deleted"] < 4 * 4064 // 4


def test_many_updates_leave_a_small_file(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index.lsq", 4, encoder="lsh", bits=32, train_size=100, keep_vectors=None) as index:
        index.add(random(6000, 0, 4))
        sizes = []
        for turn in range(40):
            index.add(random(500, turn, 4), ids=np.arange(500), upsert=True)
            sizes.append((tmp_path / "index.lsq").stat().st_size)
        assert sizes[-1] <= 2 * sizes[5]
        assert index.check() == [] and len(index) == 6000
