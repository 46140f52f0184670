"""Searches have one answer whatever the way: threads, slices, filters, deletes, writers beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, Matches
from lsqindex._query.sources.scan import margin

from .clustered import (
    DIM,
    METRICS,
    Metric,
    N,
    assert_equal,
    assert_taken_from,
    data,
    filled,
    on_every_level,
    queries_like,
    shared,
    trained,
)

# -- the same whatever the way ------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("progressive", [True, False])
@pytest.mark.parametrize("nq", [1, 9, 50, 300])
def test_any_number_of_threads(nq: int, progressive: bool, metric: Metric) -> None:
    """Few queries share the rows among threads, many are themselves shared out."""
    queries = np.concatenate([queries_like("the data", nq), queries_like("random directions", nq // 4)])
    first = filled(metric).search(queries, 10, progressive=progressive, threads=1)
    for threads in (2, 3, 7, None):
        assert_equal(filled(metric).search(queries, 10, progressive=progressive, threads=threads), first)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("progressive", [True, False])
def test_any_instruction_set(progressive: bool, metric: Metric) -> None:
    queries = np.concatenate([queries_like(kind, 11) for kind in ("the data", "random directions", "zeros")])
    first, *others = on_every_level(lambda: filled(metric).search(queries, 10, progressive=progressive, threads=1))
    for other in others:
        assert_equal(other, first)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("progressive", [True, False])
@pytest.mark.parametrize("step", [1, 4, 64])
def test_a_slice_of_a_batch(step: int, progressive: bool, metric: Metric) -> None:
    """Tables of a slice may round otherwise than in the batch (BLAS); where they do not, all bits are the same."""
    index, queries = filled(metric), queries_like("the data", 128)
    together, tables = index.search(queries, 10, progressive=progressive), trained(metric).tables(queries, metric)
    size = float(np.abs(tables.values).max() + np.abs(tables.bias).max())
    for first in range(0, 32 * step if step < 4 else 128, step):
        at = slice(first, first + step)
        found = index.search(queries[at], 10, progressive=progressive)
        own = trained(metric).tables(queries[at], metric)
        np.testing.assert_allclose(found.distances, together.distances[at], rtol=1e-4, atol=1e-5 * size)
        for i in range(step):
            values, bias = tables.values[first + i], tables.bias[first + i]
            if np.array_equal(own.values[i], values) and own.bias[i] == bias:
                both = (
                    Matches(answer.ids[row : row + 1], answer.distances[row : row + 1])
                    for answer, row in ((found, i), (together, first + i))
                )
                assert_equal(*both)


@pytest.mark.parametrize("metric", METRICS)
def test_one_add_or_many(metric: Metric) -> None:
    index, rng, first = (
        Index(DIM, metric=metric, encoder=trained(metric), keep_vectors=None, subset=None),
        np.random.default_rng(8),
        0,
    )
    while first < N:
        last = first + int(rng.choice([1, 31, 700, 4064, 6000]))
        index.add(data()[first:last])
        first = last
    queries = queries_like("the data", 200)
    assert_equal(index.search(queries, 10, progressive=False), filled(metric).search(queries, 10, progressive=False))
    # Other rows may be sampled: what the progressive scan loses may differ.
    assert shared(index.search(queries, 10), filled(metric).search(queries, 10)).mean() > 0.98
    index.close()


def test_ids_of_both_kinds() -> None:
    index, names = (
        Index(DIM, encoder=trained("l2"), ids="str", keep_vectors=None, subset=None),
        [f"{i:05}" for i in range(N)],
    )
    index.add(data(), ids=names)
    queries = queries_like("the data", 50)
    same: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {}), ({"progressive": False}, {"progressive": False})]
    same += [({"filter": np.arange(0, N, every)}, {"filter": names[::every]}) for every in (2, 40)]
    for of_numbers, of_names in same:
        by_number, by_name = filled("l2").search(queries, 10, **of_numbers), index.search(queries, 10, **of_names)
        assert_equal(Matches(np.array(by_name.ids.tolist(), np.int64), by_name.distances), by_number)
    index.close()


# -- deletes and filters --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=METRICS)
def thinned(request: pytest.FixtureRequest) -> Iterator[tuple[Index, NDArray[np.int64]]]:
    """An index some of whose rows are deleted, here and there and a chunk of them, and the ids that are left."""
    index = Index(DIM, metric=request.param, encoder=trained(request.param), keep_vectors=None, subset=None)
    index.add(data())
    gone = np.unique(np.concatenate([np.random.default_rng(9).integers(0, N, 4000), np.arange(8000, 9500)]))
    assert index.delete(gone) == len(gone)
    yield index, np.setdiff1d(np.arange(N), gone)
    index.close()


def test_deleted_rows_never_come(thinned: tuple[Index, NDArray[np.int64]]) -> None:
    index, left = thinned
    gone = np.setdiff1d(np.arange(N), left)
    queries = np.concatenate([data()[gone[:100]], queries_like("the data", 100)])
    kinds: list[dict[str, Any]] = [{}, {"progressive": False}, {"threads": 3}, {"filter": np.arange(N)}, {"rerank": 50}]
    for options in kinds:
        assert not np.isin(index.search(queries, 10, **options).ids, gone).any()
    # As if they had never been.
    fresh = Index(DIM, metric=index.metric, encoder=trained(index.metric), keep_vectors=None, subset=None)
    fresh.add(data()[left], ids=left)
    assert_equal(index.search(queries, 10, progressive=False), fresh.search(queries, 10, progressive=False))
    assert shared(index.search(queries, 10), fresh.search(queries, 10)).mean() > 0.98
    fresh.close()


def test_a_filter_gives_what_is_left_of_everything(thinned: tuple[Index, NDArray[np.int64]]) -> None:
    index, left = thinned
    gone, rng = np.setdiff1d(np.arange(N), left), np.random.default_rng(10)
    queries = np.concatenate([queries_like("the data", 8), queries_like("random directions", 4)])
    everything = index.search(queries, len(left), progressive=False)
    edge = -(-len(left) // 16)
    for size in (1, 5, 1000, edge - 1, edge, edge + 1, len(left) // 2, len(left)):
        allowed = rng.permutation(left)[:size]
        # Unknown and deleted ids, and ids twice, change nothing.
        names = rng.permutation(np.concatenate([allowed, allowed[:100], gone[:500], [N, 10**12, -5]]))
        for how in ("asymmetric", "symmetric"):
            whole = everything if how == "asymmetric" else index.search(queries, len(left), distance="symmetric")
            found = index.search(queries, 10, filter=names, distance=how, progressive=False)
            for ids, distances, all_ids, all_distances in zip(*found, *whole, strict=True):
                inside = np.isin(all_ids, allowed)
                wanted = all_ids[inside][:10].tolist()
                assert ids.tolist() == wanted + [-1] * (10 - len(wanted))
                bits = all_distances[inside][:10].view(np.uint32).tolist()
                assert distances[: len(wanted)].view(np.uint32).tolist() == bits
                assert np.isinf(distances[len(wanted) :]).all()
        # The progressive scan takes from the same.
        found = index.search(queries, 10, filter=names)
        assert np.isin(found.ids[found.ids >= 0], allowed).all()
        assert ((found.ids >= 0).sum(axis=1) == min(size, 10)).all()
        if size >= 10:
            assert_taken_from(found, everything)
    for nothing in ([], gone, [-1], [10**12]):
        found = index.search(queries, 3, filter=nothing)
        assert (found.ids == -1).all()
        assert np.isinf(found.distances).all()


def test_a_filter_of_most_rows_loses_little(thinned: tuple[Index, NDArray[np.int64]]) -> None:
    index, left = thinned
    allowed = np.random.default_rng(11).permutation(left)[:34_000]
    assert margin(trained(index.metric).layout, trained(index.metric).layout.head, 10, len(allowed)) is not None
    queries = queries_like("the data", 200)
    found, whole = (index.search(queries, 10, filter=allowed, progressive=how) for how in (True, False))
    assert shared(found, whole).mean() > 0.98
    assert_equal(index.search(queries, 10, filter=left), index.search(queries, 10))


# -- while another thread writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["memory", "file"])
def test_an_answer_is_of_one_committed_state(where: str, tmp_path: Any) -> None:
    """Each commit puts five vectors at a place where there is nothing else and takes away the five before."""
    place, rounds = np.full(DIM, 3, np.float32), 60
    index = (
        Index(DIM, encoder=trained("l2"), keep_vectors=None, subset=None)
        if where == "memory"
        else Index.create(tmp_path / "index.lsq", DIM, encoder=trained("l2"), keep_vectors=None)
    )
    index.add(data()[:36_000])
    five = place + 0.01 * np.random.default_rng(19).standard_normal((5, DIM)).astype(np.float32)
    index.add(five, ids=np.arange(5) + N)
    seen: list[list[int]] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def search(options: dict[str, Any]) -> None:
        try:
            while not done.is_set():
                seen.append(index.search(np.tile(place, (3, 1)), 5, **options).ids[0].tolist())
        except BaseException as error:
            errors.append(error)

    kinds: list[dict[str, Any]] = [
        {},
        {"progressive": False, "threads": 2},
        {"filter": np.arange(0, N + 5 * rounds + 5, 1)},
    ]
    threads = [threading.Thread(target=search, args=(options,)) for options in kinds]
    for thread in threads:
        thread.start()
    try:
        for i in range(1, rounds + 1):
            with index.batch() as batch:
                batch.delete(np.arange(5) + N + 5 * (i - 1))
                batch.add(five, ids=np.arange(5) + N + 5 * i)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert len(seen) > 3
    for ids in seen:
        group = (min(ids) - N) // 5
        assert sorted(ids) == list(range(N + 5 * group, N + 5 * group + 5))
    index.close()


# -- arguments ----------------------------------------------------------------------------------------------------


def test_no_queries_and_one() -> None:
    index = filled("l2")
    assert index.search(np.empty((0, DIM), np.float32), 3).ids.shape == (0, 3)
    for k in (1, 10):
        alone = index.search(queries_like("the data", 1)[0], k)
        assert alone.ids.shape == alone.distances.shape == (k,)
    numbers: dict[str, Any] = {"k": np.int32(1), "rerank": np.uint8(4), "threads": np.int64(2)}
    assert index.search(data()[5], **numbers).ids.tolist() == [5]
