"""An index that is not trained is exact; filters by ids; looking without searching."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format.meta import FORMAT

from .expected import DIM, ENCODERS, METRICS, assert_found, assert_holds, names_of, plain, random

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
        assert (stats["ids"], stats["keep_vectors"], stats["format"]) == ("int", "float16", FORMAT)
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
