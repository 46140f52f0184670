"""The progressive scan loses next to nothing, also for rows and queries unlike those of the training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lsqindex import Index, Matches
from lsqindex.errors import ParameterError
from lsqindex.testing import reference

from .clustered import (
    DIM,
    METRICS,
    Metric,
    N,
    Vectors,
    assert_equal,
    assert_ordered,
    assert_taken_from,
    data,
    exact,
    filled,
    prepared,
    queries_like,
    shared,
    trained,
)

# -- the progressive scan ---------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["the data", "stored ones", "far away", "very far away"])
def test_the_progressive_scan_loses_less_than_half_a_point(kind: str, metric: Metric) -> None:
    index, queries = filled(metric), queries_like(kind, 200)
    near = np.argpartition(exact(queries, data(), metric), 10, axis=1)[:, :10]
    found, whole = (index.search(queries, 10, progressive=how) for how in (True, False))
    assert_ordered(found)
    assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005
    assert shared(found, whole).mean() > 0.98
    assert (found.ids == whole.ids).all(axis=1).mean() > 0.85


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["random directions", "near nothing", "zeros"])
def test_queries_unlike_the_data_lose_little(kind: str, metric: Metric) -> None:
    index, queries = filled(metric), queries_like(kind, 100)
    found, whole = (index.search(queries, 10, progressive=how) for how in (True, False))
    assert_ordered(found)
    assert shared(found, whole).mean() > 0.97


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("k", "nq"), [(1, 400), (100, 100)])
def test_however_many_are_wanted(k: int, nq: int, metric: Metric) -> None:
    index, queries = filled(metric), queries_like("the data", nq)
    found, whole = (index.search(queries, k, progressive=how) for how in (True, False))
    assert shared(found, whole).mean() > 0.98
    # Where they differ, the progressive one is the farther.
    assert (found.distances >= whole.distances).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1000, N, N + 7])
def test_where_many_are_wanted_all_of_every_row_is_read(k: int, metric: Metric) -> None:
    queries = queries_like("the data", 3)
    found, whole = (filled(metric).search(queries, k, progressive=how) for how in (True, False))
    assert_equal(found, whole)
    there = whole.ids[:, :N]
    assert all(sorted(row) == list(range(N)) for row in there.tolist()) == (k >= N)
    assert (whole.ids[:, N:] == -1).all()
    assert np.isinf(whole.distances[:, N:]).all()


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_those_of_the_whole_scan(metric: Metric) -> None:
    kinds = ("the data", "stored ones", "random directions", "far away", "near nothing", "zeros")
    queries = np.concatenate([queries_like(kind, 5) for kind in kinds])
    everything = filled(metric).search(queries, N, progressive=False)
    assert_ordered(everything)
    for k in (1, 10, 100):
        assert_taken_from(filled(metric).search(queries, k), everything)
        whole = filled(metric).search(queries, k, progressive=False)
        assert_equal(whole, Matches(everything.ids[:, :k], everything.distances[:, :k]))


@pytest.mark.parametrize("metric", METRICS)
def test_all_distances_are_those_of_the_reference(metric: Metric) -> None:
    encoder, queries = trained(metric), queries_like("the data", 4)
    codes, tables = encoder.encode(prepared(data(), metric), threads=2), encoder.tables(queries, metric)
    everything = filled(metric).search(queries, N, progressive=False)
    wanted = np.take_along_axis(reference.distances(codes, encoder.layout, tables), everything.ids, axis=1)
    size = float(np.abs(tables.values).max() + np.abs(tables.bias).max())
    np.testing.assert_allclose(everything.distances, wanted, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("progressive", ["no", "", None, 0, 1, 2.0, [], [False], np.array([True, False])])
def test_progressive_is_true_or_false(progressive: Any) -> None:
    with pytest.raises(ParameterError, match=r"progressive=.*True or False"):
        filled("l2").search(data()[:2], progressive=progressive)
    flags: list[Any] = [True, False, np.True_, np.False_]
    for flag in flags:
        assert filled("l2").search(data()[7], 1, progressive=flag).ids.tolist() == [7]


# -- rows and queries unlike those the encoder was trained on ------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["random directions", "near nothing"])
def test_queries_unlike_the_data_lose_less_than_half_a_point(kind: str, metric: Metric) -> None:
    index, queries = filled(metric), queries_like(kind, 200)
    near = np.argpartition(exact(queries, data(), metric), 10, axis=1)[:, :10]
    found, whole = (index.search(queries, 10, progressive=how) for how in (True, False))
    assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("kind", ["zeros", "short ones", "copies of one"])
def test_rows_of_another_kind_hide_no_neighbours(kind: str, share: float) -> None:
    vectors = data().copy()
    others = np.random.default_rng(20).random(N) < share
    kinds: dict[str, Vectors] = {
        "zeros": 0 * vectors,
        "short ones": vectors / np.float32(20),
        "copies of one": np.tile(vectors[:1], (N, 1)),
    }
    instead = kinds[kind]
    vectors[others] = instead[others]
    index = Index(DIM, encoder=trained("l2"), keep_vectors=None, subset=None)
    index.add(vectors)
    queries = queries_like("the data", 300)
    near = np.argpartition(exact(queries, vectors, "l2"), 10, axis=1)[:, :10]
    found, whole = (index.search(queries, 10, progressive=how) for how in (True, False))
    assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005
    index.close()


def test_rows_in_the_order_of_a_dimension_lose_less_than_half_a_point() -> None:
    vectors = data()[np.argsort(data()[:, 0])]
    index = Index(DIM, encoder=trained("l2"), keep_vectors=None, subset=None)
    index.add(vectors)
    queries = queries_like("the data", 400)
    near = np.argpartition(exact(queries, vectors, "l2"), 10, axis=1)[:, :10]
    found, whole = (index.search(queries, 10, progressive=how) for how in (True, False))
    assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005
    index.close()


def test_a_query_so_far_away_that_rows_are_equally_far_gets_them_by_id() -> None:
    queries = 1e6 * queries_like("random directions", 100)
    found, whole = (filled("l2").search(queries, 10, progressive=how) for how in (True, False))
    assert (np.diff(whole.distances, axis=1) == 0).mean() > 0.5
    assert_equal(found, whole)


@pytest.mark.parametrize("times", [3, 5, 100])
@pytest.mark.parametrize("bits", [128, 256])
def test_rows_longer_than_those_of_the_training_are_not_near(bits: int, times: float) -> None:
    vectors, queries = data()[:5000], queries_like("the data", 100)
    index = Index(DIM, bits=bits, iterations=2, train_size=5000, keep_vectors=None, subset=None)
    index.add(vectors)
    assert index.is_trained
    longer = vectors[:20] * np.float32(times)
    ids = index.add(longer)
    assert (exact(queries, longer, "l2").min(axis=1) > np.sort(exact(queries, vectors, "l2"), axis=1)[:, 9]).all()
    assert np.isin(index.search(queries, 10).ids, ids).mean() < 0.01
    index.close()


def test_vectors_of_very_different_lengths() -> None:
    lengths = np.exp(0.6 * np.random.default_rng(21).standard_normal((12_000, 1)))
    vectors, queries = (data()[:12_000] * lengths).astype(np.float32), queries_like("the data", 100)
    index = Index(DIM, bits=256, iterations=2, keep_vectors=None, subset=None)
    index.add(vectors)
    assert index.is_trained
    near = np.argpartition(exact(queries, vectors, "l2"), 10, axis=1)[:, :10]
    assert shared(index.search(queries, 10), near).mean() > 0.3
    index.close()
