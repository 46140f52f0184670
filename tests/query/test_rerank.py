"""Re-ranking, symmetric distances, and codes of every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, Matches, make_encoder
from lsqindex.encoders import Encoder
from lsqindex.testing import reference

from .clustered import (
    DIM,
    METRICS,
    SMALL,
    SMALL_DIM,
    SMALL_N,
    Metric,
    Vectors,
    assert_equal,
    assert_ordered,
    clustered,
    data,
    exact,
    on_every_level,
    prepared,
    queries_like,
    shared,
    small,
    trained,
    unit,
)

# -- re-ranking -----------------------------------------------------------------------------------------


def by_code(index: Index, queries: Vectors, wide: int, **how: Any) -> NDArray[np.int64]:
    """The rows that may be among the ``wide`` candidates: rounded sums choose them, and may confuse the last two."""
    return index.search(queries, min(wide + 2, len(index)), rerank=0, **how).ids


def assert_nearest_of(
    found: Matches, queries: Vectors, best: NDArray[np.int64], vectors: Vectors, metric: Metric, k: int, wide: int
) -> None:
    """The k nearest of ``wide`` of ``best`` (a row for each query, nearest codes first) by exact distance."""
    for query, ids, distances, names in zip(queries, found.ids, found.distances, best, strict=True):
        names = names[names >= 0]
        near = exact(query[None], vectors[names], metric)[0]
        of = dict(zip(names.tolist(), near.tolist(), strict=True))
        slack = 2e-5 * float(np.abs(near).max() + 1)
        np.testing.assert_allclose(distances, [of[name] for name in ids.tolist()], rtol=1e-4, atol=slack)
        sure = np.sort(near if wide >= len(vectors) else near[: wide - 2])[:k]
        assert (distances[: len(sure)] <= sure + slack + 1e-4 * np.abs(sure)).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("keep", ["float16", "float32", "int8"])
def test_rerank_orders_by_the_vectors_that_are_kept(keep: Any, metric: Metric) -> None:
    n, dim, k = 3000, 24, 10
    vectors = clustered(n, 12, dim)
    index = Index(
        dim, metric=metric, encoder="lsq", bits=40, iterations=2, keep_vectors=keep, subset=None, train_size=1000
    )
    index.add(vectors)
    assert index.is_trained
    queries, kept = clustered(20, 13, dim), index.get(np.arange(n))
    assert np.abs(kept - vectors).max() < {"float16": 5e-3, "float32": 1e-9, "int8": 5e-2}[keep]
    for rerank in (1, 5, k, 60, n, n + 1000):
        # Of fewer than k nothing could be told apart from the others: all k are ordered again.
        wide = max(k, rerank)
        found = index.search(queries, k, rerank=rerank)
        assert_ordered(found)
        assert_nearest_of(found, queries, by_code(index, queries, wide), kept, metric, k, wide)
        assert_equal(index.search(queries, k, rerank=rerank, threads=3), found)
    for found in on_every_level(lambda: index.search(queries, k, rerank=60)):
        assert_equal(found, index.search(queries, k, rerank=60))
    few, many = np.arange(0, n, 40), np.arange(0, n, 2)
    for allowed in (few, many):
        best = by_code(index, queries, 50, filter=allowed)
        assert_nearest_of(index.search(queries, k, rerank=50, filter=allowed), queries, best, kept, metric, k, 50)
    far = index.search(queries, n + 5, rerank=7)
    assert (far.ids[:, n:] == -1).all()
    assert_nearest_of(Matches(far.ids[:, :n], far.distances[:, :n]), queries, far.ids[:, :n], kept, metric, n, n)
    index.close()


def test_rerank_after_the_progressive_scan() -> None:
    index = Index(DIM, encoder=trained("l2"), keep_vectors="float32", subset=None)
    index.add(data())
    queries = queries_like("the data", 100)
    near = np.argpartition(exact(queries, data(), "l2"), 10, axis=1)[:, :10]
    for allowed in (None, np.arange(0, 35_000)):
        found, whole = (index.search(queries, 10, rerank=100, filter=allowed, progressive=how) for how in (True, False))
        assert_ordered(found)
        assert_nearest_of(found, queries, by_code(index, queries, 100, filter=allowed), data(), "l2", 10, 100)
        assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005
    assert shared(index.search(queries, 10, rerank=100), near).mean() > 0.99
    index.close()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", SMALL)
def test_rerank_without_vectors_orders_by_the_asymmetric_distance(name: str, metric: Metric) -> None:
    index, encoder, _ = small(name, metric)
    queries, k = clustered(15, 15, SMALL_DIM), 10
    best = encoder.distances(metric)[0]
    by_best = index.search(queries, SMALL_N, distance=best)
    for rerank in (3, k, 40, SMALL_N, SMALL_N + 9):
        candidates = index.search(queries, max(k, rerank), distance="symmetric").ids
        found = index.search(queries, k, distance="symmetric", rerank=rerank)
        for ids, distances, names, all_ids, all_distances in zip(*found, candidates, *by_best, strict=True):
            inside = np.isin(all_ids, names)
            assert ids.tolist() == all_ids[inside][:k].tolist()
            assert distances.view(np.uint32).tolist() == all_distances[inside][:k].view(np.uint32).tolist()
        # The best distance already: there is nothing better to order by.
        assert_equal(index.search(queries, k, rerank=rerank), index.search(queries, k))


# -- symmetric distances (section 3.1 of the paper) --------------------------------------------------------


def symmetric(encoder: Encoder, queries: Vectors, vectors: Vectors, metric: Metric) -> NDArray[np.float64]:
    """As the paper writes it, for each kind of code: all distances, shape (nq, n)."""
    queries, vectors = prepared(queries, metric), prepared(vectors, metric)
    codes, own = encoder.encode(vectors), encoder.encode(queries)
    if metric == "ip":
        return -(encoder.decode(own).astype(np.float64) @ encoder.decode(codes).astype(np.float64).T)
    half = 0.5 if metric == "cosine" else 1.0
    scalars = encoder.layout.scalars
    theirs, mine = (encoder.layout.unpack(each)[:, scalars:].astype(np.int64) for each in (codes, own))
    if encoder.name in ("pq", "kmeans", "ckmeans"):
        # Σ_i L_i(c(u_i(x)), c(u_i(y))): one look-up a subspace in the table of distances between its centres.
        centres = encoder.state["centres"].astype(np.float64)
        out, edges = np.zeros((len(mine), len(theirs))), np.array_split(np.arange(centres.shape[1]), mine.shape[1])
        for i, part in enumerate(edges):
            book = centres[:, part]
            table = np.square(book[:, None] - book).sum(axis=2)
            out += table[mine[:, i][:, None], theirs[:, i]]
        return half * out
    if encoder.layout.binary:
        differ: NDArray[np.int64] = (theirs != mine[:, None]).sum(axis=2)
        return half * differ.astype(np.float64)
    # The distance between coded values, which are steps apart.
    levels = encoder.layout.levels[-1]
    values = [-1 + 2 * each / (levels - 1) for each in (theirs, mine)]
    steps = (values[0] - values[1][:, None]) / (2 / (levels - 1))
    between: NDArray[np.float64] = np.square(steps).sum(axis=2)
    return half * between


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", SMALL)
def test_symmetric_distances_are_those_of_the_paper(name: str, metric: Metric) -> None:
    index, encoder, vectors = small(name, metric)
    assert "symmetric" in encoder.distances(metric)
    queries = np.concatenate([clustered(10, 16, SMALL_DIM), vectors[:3]])
    found = index.search(queries, SMALL_N, distance="symmetric")
    assert_ordered(found)
    wanted = symmetric(encoder, queries, vectors, metric)
    assert len(np.unique(wanted.round(6))) > 5
    near = np.take_along_axis(wanted, found.ids, axis=1)
    np.testing.assert_allclose(found.distances, near, rtol=1e-4, atol=2e-5 * float(np.abs(wanted).max()))
    if metric == "l2":
        # A stored vector is nearest to itself: they have one code.
        np.testing.assert_allclose(found.distances[-3:, 0], 0, atol=2e-5 * float(wanted.max()))


# -- codes of every size ------------------------------------------------------------------------------------
SIZES = [
    *((2, bits) for bits in (64, 100, 333, 512, 1000, 2048)),
    *((3, bits) for bits in (64, 100, 333, 1024)),
    *((4, bits) for bits in (64, 333, 2048)),
    *((5, bits) for bits in (100, 333, 1024)),
    *((16, bits) for bits in (64, 100, 333, 2048)),
    *((256, bits) for bits in (64, 100, 333, 2048)),
]


@pytest.mark.parametrize(("levels", "bits"), SIZES)
def test_codes_of_every_size_and_number_of_levels(levels: int, bits: int) -> None:
    n, dim = 300, 20
    vectors, queries = clustered(n, 17, dim), clustered(6, 18, dim)
    encoder = make_encoder("lsq", bits=bits, levels=levels, refine=32, iterations=1).fit(vectors)
    assert encoder.code_size == -(-encoder.layout.code_bits // 8) <= -(-bits // 8)
    codes = encoder.encode(vectors)
    for metric in METRICS:
        index = Index(dim, metric=metric, encoder=encoder, keep_vectors=None, subset=None)
        index.add(vectors)
        own = codes if metric != "cosine" else encoder.encode(unit(vectors))
        for distance in encoder.distances(metric):
            tables = encoder.tables(queries, metric, distance)
            wanted = reference.distances(own, encoder.layout, tables)
            found = index.search(queries, n, distance=distance)
            assert_ordered(found)
            assert (np.sort(found.ids, axis=1) == np.arange(n)).all()
            size = float(np.abs(tables.values).max() + np.abs(tables.bias).max())
            near = np.take_along_axis(wanted, found.ids, axis=1)
            # In the order of the estimates, also where they are below zero.
            assert (np.diff(near, axis=1) >= -2e-5 * size).all()
            near = near if metric == "ip" else np.maximum(near, 0)
            np.testing.assert_allclose(found.distances, near, rtol=1e-4, atol=1e-5 * size)
            first = Matches(found.ids[:, :7], found.distances[:, :7])
            assert_equal(index.search(queries, 7, distance=distance), first)
        index.close()
