"""The public face of an index, against brute force in NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, Matches, make_encoder
from lsqindex._storage import rewrite
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex.errors import BusyError, ClosedError, DuplicateIdError, IdError, ReadOnlyError, StorageError, VectorError
from lsqindex.testing import reference

LONG = os.environ.get("LSQINDEX_LONG") == "1"
METRICS = ("l2", "cosine", "ip")
DIM = 6
#: Never trains by itself.
UNTRAINED = 10**9
#: Every built-in encoder, with parameters that fit ``DIM`` dimensions and some hundred vectors.
ENCODERS: dict[str, dict[str, Any]] = {
    "lsq": {"bits": 24, "iterations": 2},
    "itq": {"bits": 6, "iterations": 3},
    "ckmeans": {"bits": 12, "field_bits": 4, "rotations": 2},
    "okmeans": {"bits": 5, "iterations": 3},
    "pq": {"bits": 12, "field_bits": 4},
    "kmeans": {"bits": 5},
    "lsh": {"bits": 21},
    "flat": {},
}

Vectors = NDArray[np.float32]


def random(n: int, seed: int = 0, dim: int = DIM) -> Vectors:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def names_of(numbers: Any, kind: str) -> Any:
    """Ids of a kind; strings sort otherwise than their numbers."""
    values = np.asarray(numbers, np.int64)
    return values if kind == "int" else [f"id {number}" for number in values.tolist()]


def plain(ids: Any) -> list[Any]:
    return cast(list[Any], ids.tolist()) if isinstance(ids, np.ndarray) else list(ids)


def exact(queries: Any, vectors: Any, metric: str) -> Any:
    """All distances in float64, shape (nq, n)."""
    left, right = np.atleast_2d(np.asarray(queries, np.float64)), np.asarray(vectors, np.float64)
    if metric == "l2":
        return np.square(left[:, None] - right).sum(axis=2)
    products = left @ right.T
    if metric == "ip":
        return -products
    return 1 - products / np.sqrt(np.square(left).sum(axis=1)[:, None] * np.square(right).sum(axis=1))


def assert_found(found: Matches, queries: Any, vectors: Any, ids: Any, metric: str, k: int, rtol: float = 1e-5) -> None:
    """The right ids in the right order, ties by id, the rest padded."""
    names = plain(ids)
    near = exact(queries, vectors, metric).astype(np.float32)
    nothing = [None] if found.ids.dtype == object else [-1]
    shape = (k,) if np.ndim(queries) == 1 else (len(queries), k)
    assert found.ids.shape == found.distances.shape == shape
    assert found.distances.dtype == np.float32
    rows = zip(np.atleast_2d(found.ids).tolist(), np.atleast_2d(found.distances), near, strict=True)
    for got, distances, row in rows:
        order = sorted(range(len(names)), key=lambda i: (row[i], names[i]))[:k]
        assert got == [names[i] for i in order] + nothing * (k - len(order))
        wanted = np.full(k, np.inf)
        wanted[: len(order)] = row[order]
        np.testing.assert_allclose(distances, wanted, rtol=rtol, atol=1e-6)


def assert_holds(index: Index, ids: Any, vectors: Any) -> None:
    """Exactly these vectors, by every way to see them, for an index that can tell them exactly."""
    assert index.check() == []
    assert len(index) == len(vectors)
    assert plain(index.ids()) == sorted(plain(ids))
    assert np.array_equal(index.get(ids), np.asarray(vectors, np.float32).reshape(-1, index.dim))
    assert all(name in index for name in plain(ids)[:10])
    if len(vectors):
        some = np.asarray(vectors, np.float32)[[0, -1]] + np.float32(0.01)
        assert_found(index.search(some, 7, rerank=len(vectors)), some, vectors, ids, index.metric, 7, rtol=1e-4)


def codes_of(index: Index, vectors: Vectors) -> NDArray[np.uint8]:
    """Codes made anew, as the index makes them."""
    if index.metric == "cosine":
        vectors = (vectors / np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))[:, None]).astype(np.float32)
    return index.encoder.encode(vectors)


def assert_codes(index: Index, ids: Any, vectors: Vectors) -> None:
    """The stored codes are those of these vectors: by reconstruction, and by distances off the codes."""
    assert index.check() == []
    assert plain(index.ids()) == sorted(plain(ids))
    encoder, codes = index.encoder, codes_of(index, vectors)
    if index.stats()["keep_vectors"] is None:
        assert np.array_equal(index.get(ids), encoder.decode(codes))
    queries = random(3, 99, index.dim)
    near = np.sort(reference.distances(codes, encoder.layout, encoder.tables(queries, index.metric)), axis=1)
    k = min(20, len(codes))
    np.testing.assert_allclose(index.search(queries, k, rerank=0).distances, near[:, :k], rtol=1e-4, atol=1e-4)


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


# -- untrained: exact -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("keep", [None, "float16", "float32"])
@pytest.mark.parametrize("metric", METRICS)
def test_untrained_search_is_exact(make: Callable[..., Index], metric: str, keep: Any, kind: str) -> None:
    index, vectors, ids = make(metric=metric, keep_vectors=keep, ids=kind), random(300), names_of(range(300), kind)
    assert plain(index.add(vectors, ids=ids)) == plain(ids)
    assert not index.is_trained
    queries = random(9, 1)
    assert_found(index.search(queries), queries, vectors, ids, metric, 10)
    assert_found(index.search(queries, 400, rerank=5), queries, vectors, ids, metric, 400)
    assert np.array_equal(index.get(ids), vectors), "not rounded to float16 before training"
    assert index.check() == []


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("dim", [1, 2, 1000])
@pytest.mark.parametrize("kind", ["int", "str"])
def test_few_vectors_and_padding(kind: str, dim: int, n: int, metric: str) -> None:
    with Index(dim, metric=metric, ids=kind, keep_vectors=None) as index:  # type: ignore[arg-type]
        vectors, ids = random(n, 0, dim), names_of(range(n), kind)
        index.add(vectors, ids=ids)
        query = random(1, 5, dim)[0]
        found = index.search(query, k=3)
        assert_found(found, query, vectors, ids, metric, 3)
        assert found.ids.tolist()[n:] == [None if kind == "str" else -1] * (3 - n)
        assert np.isinf(found.distances[n:]).all()
        assert len(list(found.items())) == n
        assert index.search(query[None], k=3).ids.shape == (1, 3)
        assert index.search(np.empty((0, dim)), k=3).ids.shape == (0, 3)
        assert len(index) == n and index.check() == []
        assert index.get(ids).shape == (n, dim)


def test_a_vector_of_zeros_has_no_direction() -> None:
    index = Index(2, metric="cosine", keep_vectors=None)
    index.add([[0, 0], [1, 0], [-1, 0]])
    assert index.search([1, 0], 3).ids.tolist() == [1, 0, 2]
    assert index.search([1, 0], 3).distances.tolist() == [0, 1, 2]
    assert index.search([0, 0], 3).ids.tolist() == [0, 1, 2]


def test_every_input_has_the_meaning_of_its_numbers() -> None:
    rows = np.random.default_rng(3).integers(0, 2, (40, DIM))
    wide = np.zeros((80, 2 * DIM))
    wide[::2, ::2] = rows
    frozen = rows.astype(np.float32)
    frozen.flags.writeable = False
    inputs: list[Any] = [rows.astype(kind) for kind in ("f2", "f4", "f8", "i1", "u1", "i8", "u8", "?", ">f4", ">i2")]
    inputs += [np.asfortranarray(rows, np.float32), wide[::2, ::2], frozen, rows.tolist(), rows[::-1][::-1]]
    for given in inputs:
        index = Index(DIM, keep_vectors=None)
        index.add(given)
        assert_holds(index, np.arange(40), rows)
        assert_found(index.search(given), rows.astype(np.float32), rows, np.arange(40), "l2", 10)
        assert_found(index.search(given[3], 4), rows[3], rows, np.arange(40), "l2", 4)


def test_memory_mapped_input(tmp_path: Path) -> None:
    vectors = random(5000)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    with Index.create(tmp_path / "index.lsq", DIM, keep_vectors=None) as index:
        index.add(mapped, ids=np.arange(5000)[::-1])
        assert_holds(index, np.arange(5000)[::-1], vectors)
        assert_found(index.search(mapped[:3], 2), vectors[:3], vectors, np.arange(5000)[::-1], "l2", 2)


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("options", [{}, {"encoder": "flat"}, {"encoder": "lsh", "bits": 8, "train_size": 20}])
def test_equal_distances_come_by_id(options: dict[str, Any], kind: Any) -> None:
    index = Index(2, ids=kind, **options)
    vectors = np.repeat([[0.0, 1.0], [3.0, 4.0], [0.0, 1.0]], 40, axis=0)
    ids = names_of(np.random.default_rng(0).permutation(120), kind)
    index.add(vectors, ids=ids)
    same = sorted(plain(ids)[:40] + plain(ids)[80:])
    for k in (1, 5, 80):
        assert index.search([0, 1], k).ids.tolist() == same[:k]


def test_fewer_are_the_beginning_of_more() -> None:
    """Distances that differ in float64 and not in float32 are equal, whatever k is."""
    index = Index(2, keep_vectors=None)
    index.add([[1, 1.1e-5], [1, 1e-5], [1, 1.2e-5]], ids=[2, 5, 1])
    all_of_them = index.search([0, 0], 3).ids.tolist()
    assert all_of_them == [1, 2, 5]
    for k in (1, 2):
        assert index.search([0, 0], k).ids.tolist() == all_of_them[:k]


@pytest.mark.parametrize("encoder", ["lsq", "lsh", "flat"])
@pytest.mark.parametrize("metric", METRICS)
def test_a_query_alone_and_in_a_batch_has_one_answer(metric: Any, encoder: str) -> None:
    index = Index(DIM, metric=metric, encoder=encoder, train_size=500, **ENCODERS[encoder])
    index.add(random(900))
    queries = random(150, 1)
    together = index.search(queries, 15)
    for query, ids, distances in zip(queries, *together, strict=True):
        alone = index.search(query, 15)
        assert alone.ids.tolist() == ids.tolist()
        np.testing.assert_allclose(alone.distances, distances, rtol=1e-4, atol=1e-5)


# -- trained ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("keep", [None, "float16", "float32"])
@pytest.mark.parametrize("metric", METRICS)
def test_an_index_trains_itself_when_enough_is_there(
    make: Callable[..., Index], metric: str, keep: Any, kind: str
) -> None:
    index = make(metric=metric, keep_vectors=keep, ids=kind, encoder="lsh", bits=40, train_size=200)
    vectors, ids = random(700), names_of(np.random.default_rng(1).permutation(700), kind)
    for first, last in ((0, 100), (100, 199), (199, 200), (200, 201), (201, 700)):
        index.add(vectors[first:last], ids=ids[first:last])
        assert index.is_trained == (last >= 200)
        if last < 200:
            assert_holds(index, ids[:last], vectors[:last])
        else:
            again = index.stats()["training"]["vectors"] > 200  # as it grew: codes are then made of what is kept
            coded = vectors[:last].astype(keep).astype(np.float32) if keep and again else vectors[:last]
            assert_codes(index, ids[:last], coded)
    if keep == "float32":
        assert_holds(index, ids, vectors)
    elif keep == "float16":
        assert_holds(index, ids, vectors.astype(np.float16))


@pytest.mark.parametrize("keep", ["float16", "float32"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ENCODERS)
def test_rerank_of_all_is_exact_for_every_encoder(name: str, metric: Any, keep: Any) -> None:
    index = Index(DIM, metric=metric, encoder=name, keep_vectors=keep, train_size=100, **ENCODERS[name])
    vectors = random(400).astype(keep).astype(np.float32)
    ids = np.random.default_rng(2).permutation(400)
    index.add(vectors, ids=ids)
    assert index.is_trained
    queries = random(5, 4)
    for rerank in (400, 1000):
        assert_found(index.search(queries, 12, rerank=rerank), queries, vectors, ids, metric, 12, rtol=1e-4)
    some = ids[::3]
    found = index.search(queries, 12, rerank=400, filter=some)
    assert_found(found, queries, vectors[::3], some, metric, 12, rtol=1e-4)
    assert index.check() == []


def test_rerank_reorders_the_best_only() -> None:
    index = Index(DIM, encoder="lsh", bits=16, keep_vectors="float32", train_size=100)
    vectors = random(400)
    index.add(vectors)
    query = random(1, 9)[0]
    best = index.search(query, 30, rerank=0).ids
    again = index.search(query, 10, rerank=30)
    assert_found(again, query, vectors[best], best, "l2", 10, rtol=1e-4)


def test_rerank_without_vectors_is_by_the_asymmetric_distance() -> None:
    index = Index(DIM, encoder="lsh", bits=16, train_size=100, keep_vectors=None)
    index.add(random(400))
    query = random(1, 9)[0]
    wanted = index.search(query, 10, distance="asymmetric")
    found = index.search(query, 10, distance="symmetric", rerank=400)
    assert found.ids.tolist() == wanted.ids.tolist()
    np.testing.assert_allclose(found.distances, wanted.distances, rtol=1e-5)


def test_symmetric_distance_is_that_of_the_codes() -> None:
    index = Index(DIM, encoder="lsh", bits=16, train_size=100, keep_vectors=None)
    vectors = random(400)
    index.add(vectors)
    query = random(1, 9)
    codes = np.unpackbits(index.encoder.encode(np.concatenate([query, vectors])), axis=1)
    hamming = np.sort((codes[1:] != codes[0]).sum(axis=1))
    assert index.search(query[0], 20, distance="symmetric").distances.tolist() == hamming[:20].tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_train_on_a_filled_index_and_on_an_empty_one(make: Callable[..., Index], metric: str) -> None:
    options: dict[str, Any] = {"metric": metric, "encoder": "itq", "bits": 5, "iterations": 3}
    filled, empty, vectors = make(**options), make(**options), random(300)
    filled.add(vectors)
    assert filled.train() is filled
    empty.train(vectors)
    assert empty.is_trained and len(empty) == 0 and empty.check() == []
    empty.add(vectors)
    for index in (filled, empty):
        assert_codes(index, np.arange(300), vectors)
    queries = random(4, 5)
    for left, right in zip(filled.search(queries), empty.search(queries), strict=True):
        assert np.array_equal(left, right), "the same sample gives the same encoder"


def test_train_on_a_sample_of_its_own() -> None:
    index, vectors = Index(DIM, encoder="lsh", bits=24, keep_vectors=None), random(300)
    index.add(vectors[:50])
    index.train(vectors[100:] + 5)
    assert np.allclose(index.encoder.state["mean"], (vectors[100:] + 5).mean(axis=0), atol=1e-2)
    assert_codes(index, np.arange(50), vectors[:50])


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("metric", METRICS)
def test_reencode_to_every_encoder_and_back(
    metric: Any, kind: Any, staged: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if staged:
        request.getfixturevalue("small_transactions")
    vectors, ids = random(4500), names_of(np.random.default_rng(1).permutation(4500), kind)
    path = tmp_path / "index.lsq"
    with Index.create(path, DIM, metric=metric, keep_vectors="float32", ids=kind) as index:
        index.add(vectors, ids=ids)
        index.delete(ids[:100])
        names = list(ENCODERS) if LONG or (metric, kind) == ("l2", "int") else ["lsh", "flat", "kmeans"]
        for name in [*names, "lsh"]:
            assert index.reencode(name, **ENCODERS[name]) is index
            assert index.encoder.name == name and index.stats()["code_bytes"] == index.encoder.code_size
            assert_holds(index, ids[100:], vectors[100:])
            if name != "flat":
                assert_codes(index, ids[100:], vectors[100:])
    with Index.open(path) as index:
        assert_codes(index, ids[100:], vectors[100:])


def test_an_untrained_index_without_kept_vectors_can_change_its_encoder() -> None:
    index, vectors = Index(DIM, keep_vectors=None), random(300)
    index.add(vectors)
    index.reencode("flat")
    assert index.is_trained
    assert_holds(index, np.arange(300), vectors)
    index.reencode("pq", **ENCODERS["pq"])
    assert_codes(index, np.arange(300), vectors)


def test_a_fitted_encoder_is_used_as_it_is(make: Callable[..., Index]) -> None:
    vectors = random(300)
    encoder = make_encoder("lsh", bits=30, seed=7).fit(vectors + 1)
    index = make(encoder=encoder, keep_vectors=None)
    assert index.is_trained and index.encoder.config == encoder.config
    index.add(vectors[:5])
    assert np.array_equal(index.get(np.arange(5)), encoder.decode(encoder.encode(vectors[:5])))
    other = make(encoder="flat", keep_vectors=None)
    other.add(vectors)
    other.reencode(encoder)
    assert np.array_equal(other.get(np.arange(300)), encoder.decode(encoder.encode(vectors)))
    assert index.check() == other.check() == []


def test_an_encoder_that_is_not_fitted_is_not_touched() -> None:
    encoder = make_encoder("lsh", bits=30)
    index = Index(DIM, encoder=encoder, train_size=10, keep_vectors=None)
    index.add(random(20))
    assert index.is_trained and not encoder.is_fitted


@pytest.mark.parametrize("data", [np.zeros((60, DIM)), np.ones((60, DIM)), random(60) * 1e14, random(60) * 1e-30])
@pytest.mark.parametrize("name", ENCODERS)
def test_training_survives_odd_vectors(name: str, data: Vectors) -> None:
    for metric in METRICS:
        index = Index(DIM, encoder=name, metric=metric, train_size=50, **ENCODERS[name])  # type: ignore[arg-type]
        index.add(data)
        found = index.search(data[:2], 3)
        assert (found.ids >= 0).all() and np.isfinite(found.distances).all()
        assert index.check() == []


# -- filters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
def test_filter_by_ids(kind: Any) -> None:
    index, vectors, ids = Index(DIM, ids=kind, keep_vectors=None), random(200), names_of(range(200), kind)
    index.add(vectors, ids=ids)
    query = random(1, 6)[0]
    some = names_of([3, 150, 77, 3, 10**6], kind)
    chosen = [3, 150, 77]
    assert_found(index.search(query, 5, filter=some), query, vectors[chosen], names_of(chosen, kind), "l2", 5)
    one = names_of([42], kind)
    for single in (one, one[0]):
        assert_found(index.search(query, 2, filter=single), query, vectors[[42]], one, "l2", 2)
    empty: list[Any] = [[], np.array([]), names_of([10**6], kind)]
    for nothing in empty:
        found = index.search(query, 2, filter=nothing)
        assert found.ids.tolist() == [None if kind == "str" else -1] * 2


def test_what_a_padded_answer_names_can_be_deleted_and_filtered_by() -> None:
    index = Index(DIM, keep_vectors=None)
    index.add(random(3))
    found = index.search(random(1)[0], 5)
    assert -1 in found.ids
    assert index.search(random(1)[0], 5, filter=found.ids).ids.tolist() == found.ids.tolist()
    assert index.delete(found.ids) == 3


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


# -- looking ----------------------------------------------------------------------------------------


def test_get_one_and_many() -> None:
    index, vectors = Index(DIM, ids="str", keep_vectors=None), random(5)
    index.add(vectors, ids=list("abcde"))
    assert np.array_equal(index.get("c"), vectors[2]) and index.get("c").shape == (DIM,)
    assert np.array_equal(index.get(["c"]), vectors[[2]])
    assert np.array_equal(index.get(["e", "a", "a"]), vectors[[4, 0, 0]])
    assert np.array_equal(index.get(name for name in "db"), vectors[[3, 1]]), "two ids are two vectors"
    numbers = Index(DIM, keep_vectors=None)
    numbers.add(vectors)
    assert np.array_equal(numbers.get(3), vectors[3]) and np.array_equal(numbers.get(np.int64(3)), vectors[3])
    assert numbers.get([]).shape == (0, DIM)


def test_stats_and_repr(tmp_path: Path) -> None:
    path = tmp_path / "index.lsq"
    with Index.create(path, DIM, metric="ip", encoder="lsh", bits=24, keep_vectors="float16", train_size=10) as index:
        assert index.stats()["trained"] is False and index.stats()["code_bytes"] == 4 * DIM
        index.add(random(30))
        index.delete([3, 4])
        stats = index.stats()
        assert stats["path"] == str(path) == index.path
        assert (stats["vectors"], stats["deleted"], stats["dim"], stats["metric"]) == (28, 2, DIM, "ip")
        assert (stats["encoder"], stats["trained"], stats["code_bytes"], stats["train_size"]) == ("lsh", True, 3, 10)
        assert (stats["ids"], stats["keep_vectors"], stats["format"]) == ("int", "float16", 4)
        assert stats["file_bytes"] == path.stat().st_size and 0 <= stats["free_bytes"] < stats["file_bytes"]
        assert (index.dim, index.metric, index.encoder.name) == (DIM, "ip", "lsh")
        assert "28 vectors" in repr(index) and "LSH" in repr(index) and str(path) in repr(index)
    assert "closed" in repr(index)
    assert (
        "in memory" in repr(Index(3, keep_vectors=None))
        and Index(3, keep_vectors=None).path is None
        and Index(3, keep_vectors=None).stats()["path"] is None
    )


def test_in_with_things_that_are_no_ids() -> None:
    index = Index(DIM, keep_vectors=None)
    index.add(random(3))
    assert 2 in index and np.int64(2) in index
    others: list[Any] = [3, -1, 2.0, "2", None, True, [2], 2**80, (), {}, b"\x02"]
    for other in others:
        assert other not in index
    assert 2 not in Index(DIM, ids="str", keep_vectors=None)


def test_results_are_copies() -> None:
    index, vectors = Index(DIM, keep_vectors=None), random(50)
    index.add(vectors)
    found, got, ids = index.search(vectors[:3]), index.get([1, 2]), index.ids()
    before = [array.copy() for array in (*found, got, ids)]
    index.delete(ids)
    index.add(vectors + 1)
    index.close()
    for array, old in zip((*found, got, ids), before, strict=True):
        assert np.array_equal(array, old)


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
