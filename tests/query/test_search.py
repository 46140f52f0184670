"""Searching through the public face: the progressive scan, threads, filters, re-ranking, symmetric distances.

The large index here has what the progressive scan wants: an encoder with a head, and more than 32,768 rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, Matches, make_encoder
from lsqindex._compiled import encoding as _kernels
from lsqindex._query.sources.codes import margin
from lsqindex.encoders import Encoder
from lsqindex.errors import ParameterError
from lsqindex.testing import reference

Metric = Literal["l2", "cosine", "ip"]
Vectors = NDArray[np.float32]

METRICS: tuple[Metric, ...] = ("l2", "cosine", "ip")
DIM, N = 64, 40_000


def clustered(n: int, seed: int, dim: int = DIM) -> Vectors:
    """Vectors around three hundred centres; what a dimension holds falls with its number."""
    sizes = np.arange(1, dim + 1) ** -0.5
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(77).standard_normal((300, dim))
    near = centres[rng.integers(0, len(centres), n)] + 0.5 * rng.standard_normal((n, dim))
    return (near * sizes).astype(np.float32)


def unit(vectors: Vectors) -> Vectors:
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    out: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return out


def prepared(vectors: Vectors, metric: Metric) -> Vectors:
    """As an encoder sees them."""
    return unit(vectors) if metric == "cosine" else vectors


@cache
def data() -> Vectors:
    return clustered(N, 0)


@cache
def trained(metric: Metric) -> Encoder:
    """An encoder with a head: without one nothing here would be progressive."""
    encoder = make_encoder("lsq", bits=256, iterations=3).fit(prepared(data()[:8000], metric))
    layout = encoder.layout
    assert 0 < layout.head < layout.code_size
    assert all(margin(layout, layout.head, k, N) is not None for k in (1, 10, 100))
    assert margin(layout, layout.head, 1000, N) is None
    return encoder


@cache
def filled(metric: Metric) -> Index:
    """All of ``data`` under its row numbers; no test changes it."""
    index = Index(DIM, metric=metric, encoder=trained(metric), keep_vectors=None)
    index.add(data())
    return index


def queries_like(kind: str, n: int) -> Vectors:
    rng = np.random.default_rng(5)
    if kind == "the data":
        return clustered(n, 6)
    if kind == "stored ones":
        return data()[rng.integers(0, N, n)]
    if kind == "zeros":
        return np.zeros((n, DIM), np.float32)
    away = {"random directions": 1.0, "far away": 1e2, "very far away": 1e4, "near nothing": 1e-2}[kind]
    return (away * rng.standard_normal((n, DIM))).astype(np.float32)


def exact(queries: Any, vectors: Any, metric: str) -> NDArray[np.float64]:
    """All distances in float64, shape (nq, n); a vector of zeros has a cosine of 0."""
    left, right = np.asarray(queries, np.float64), np.asarray(vectors, np.float64)
    products: NDArray[np.float64] = left @ right.T
    own, squares = np.square(left).sum(axis=1)[:, None], np.square(right).sum(axis=1)
    if metric == "l2":
        away: NDArray[np.float64] = np.maximum(own - 2 * products + squares, 0)
        return away
    if metric == "ip":
        return -products
    norms = np.sqrt(own * squares)
    cosines: NDArray[np.float64] = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return 1 - cosines


def shared(found: Matches, other: Any) -> NDArray[np.float64]:
    """For each query the share of ids that two answers have in common."""
    names = other.ids if isinstance(other, Matches) else other
    return np.array([len(set(a) & set(b)) / len(b) for a, b in zip(found.ids.tolist(), names.tolist(), strict=True)])


def assert_equal(found: Matches, other: Matches) -> None:
    """The same ids, and distances of the same bits."""
    assert found.ids.tolist() == other.ids.tolist()
    assert found.distances.view(np.uint32).tolist() == other.distances.view(np.uint32).tolist()


def assert_ordered(found: Matches) -> None:
    """By distance and then by id, none twice."""
    for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True):
        pairs = list(zip(distances, ids, strict=True))
        assert pairs == sorted(pairs)
        assert len(set(ids)) == len(ids)


def assert_taken_from(found: Matches, all_of_them: Matches) -> None:
    """Distances of what was found have the bits that the whole scan gives the same id."""
    for ids, distances, names, known in zip(*found, *all_of_them, strict=True):
        of = dict(zip(names.tolist(), known.view(np.uint32).tolist(), strict=True))
        assert [of[name] for name in ids.tolist()] == distances.view(np.uint32).tolist()


def on_every_level(act: Callable[[], Matches]) -> list[Matches]:
    before = _kernels.simd_level()
    try:
        found = []
        for level in _kernels.simd_levels():
            _kernels.use_simd(level)
            found.append(act())
        return found
    finally:
        _kernels.use_simd(before)


# -- the progressive scan ---------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["the data", "stored ones", "far away", "very far away"])
def test_the_progressive_scan_loses_less_than_half_a_point(kind: str, metric: Metric) -> None:
    index, queries = filled(metric), queries_like(kind, 400)
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
        Index(DIM, metric=metric, encoder=trained(metric), keep_vectors=None),
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
    index, names = Index(DIM, encoder=trained("l2"), ids="str", keep_vectors=None), [f"{i:05}" for i in range(N)]
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
    index = Index(DIM, metric=request.param, encoder=trained(request.param), keep_vectors=None)
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
    fresh = Index(DIM, metric=index.metric, encoder=trained(index.metric), keep_vectors=None)
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


# -- re-ranking -----------------------------------------------------------------------------------------


def assert_nearest_of(
    found: Matches, queries: Vectors, best: NDArray[np.int64], vectors: Vectors, metric: Metric, k: int
) -> None:
    """The k nearest of ``best`` (a row for each query) by exact distance, as far as float32 can tell them apart."""
    for query, ids, distances, names in zip(queries, found.ids, found.distances, best, strict=True):
        near = exact(query[None], vectors[names], metric)[0]
        of = dict(zip(names.tolist(), near.tolist(), strict=True))
        slack = 2e-5 * float(np.abs(near).max() + 1)
        np.testing.assert_allclose(distances, [of[name] for name in ids.tolist()], rtol=1e-4, atol=slack)
        np.testing.assert_allclose(distances, np.sort(near)[:k], rtol=1e-4, atol=slack)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("keep", ["float16", "float32", "int8"])
def test_rerank_orders_by_the_vectors_that_are_kept(keep: Any, metric: Metric) -> None:
    n, dim, k = 3000, 24, 10
    vectors = clustered(n, 12, dim)
    index = Index(dim, metric=metric, encoder="lsq", bits=40, iterations=2, keep_vectors=keep, train_size=1000)
    index.add(vectors)
    assert index.is_trained
    queries, kept = clustered(20, 13, dim), index.get(np.arange(n))
    assert np.abs(kept - vectors).max() < {"float16": 5e-3, "float32": 1e-9, "int8": 5e-2}[keep]
    for rerank in (1, 5, k, 60, n, n + 1000):
        # Of fewer than k nothing could be told apart from the others: all k are ordered again.
        best = index.search(queries, min(max(k, rerank), n), rerank=0).ids
        found = index.search(queries, k, rerank=rerank)
        assert_ordered(found)
        assert_nearest_of(found, queries, best, kept, metric, k)
        assert_equal(index.search(queries, k, rerank=rerank, threads=3), found)
    for found in on_every_level(lambda: index.search(queries, k, rerank=60)):
        assert_equal(found, index.search(queries, k, rerank=60))
    few, many = np.arange(0, n, 40), np.arange(0, n, 2)
    for allowed in (few, many):
        best = index.search(queries, 50, rerank=0, filter=allowed).ids
        assert_nearest_of(index.search(queries, k, rerank=50, filter=allowed), queries, best, kept, metric, k)
    far = index.search(queries, n + 5, rerank=7)
    assert (far.ids[:, n:] == -1).all()
    assert_nearest_of(Matches(far.ids[:, :n], far.distances[:, :n]), queries, far.ids[:, :n], kept, metric, n)
    index.close()


def test_rerank_after_the_progressive_scan() -> None:
    index = Index(DIM, encoder=trained("l2"), keep_vectors="float32")
    index.add(data())
    queries = queries_like("the data", 100)
    near = np.argpartition(exact(queries, data(), "l2"), 10, axis=1)[:, :10]
    for allowed in (None, np.arange(0, 35_000)):
        found, whole = (index.search(queries, 10, rerank=100, filter=allowed, progressive=how) for how in (True, False))
        assert_ordered(found)
        best = index.search(queries, 100, rerank=0, filter=allowed).ids
        assert_nearest_of(found, queries, best, data(), "l2", 10)
        assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005
    assert shared(index.search(queries, 10, rerank=100), near).mean() > 0.99
    index.close()


SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 40, "iterations": 2}),
    "lsq of 3 levels": ("lsq", {"bits": 48, "levels": 3, "iterations": 2}),
    "lsq of 4 levels": ("lsq", {"bits": 50, "levels": 4, "iterations": 2}),
    "lsq of 16 levels": ("lsq", {"bits": 72, "levels": 16, "iterations": 2}),
    "lsq as published": ("lsq", {"bits": 36, "levels": 4, "refine": 0, "iterations": 3}),
    "lsq without a scalar": ("lsq", {"bits": 40, "scalar": None, "iterations": 2}),
    "itq": ("itq", {"bits": 13, "iterations": 3}),
    "okmeans": ("okmeans", {"bits": 14, "iterations": 3}),
    "lsh": ("lsh", {"bits": 37}),
    "pq by nibbles": ("pq", {"bits": 20, "field_bits": 4}),
    "pq by bytes": ("pq", {"bits": 24, "field_bits": 8}),
    "pq of 3 bits": ("pq", {"bits": 15, "field_bits": 3}),
    "ckmeans": ("ckmeans", {"bits": 20, "field_bits": 4, "rotations": 2}),
    "kmeans": ("kmeans", {"bits": 6}),
}
SMALL_DIM, SMALL_N = 16, 700


@cache
def small(name: str, metric: Metric) -> tuple[Index, Encoder, Vectors]:
    kind, parameters = SMALL[name]
    vectors = clustered(SMALL_N, 14, SMALL_DIM)
    encoder = make_encoder(kind, **parameters).fit(prepared(vectors, metric))
    index = Index(SMALL_DIM, metric=metric, encoder=encoder, keep_vectors=None)
    index.add(vectors)
    return index, encoder, vectors


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
    n, dim = 500, 20
    vectors, queries = clustered(n, 17, dim), clustered(6, 18, dim)
    encoder = make_encoder("lsq", bits=bits, levels=levels, refine=32, iterations=1).fit(vectors)
    assert encoder.code_size == -(-encoder.layout.code_bits // 8) <= -(-bits // 8)
    codes = encoder.encode(vectors)
    for metric in METRICS:
        index = Index(dim, metric=metric, encoder=encoder, keep_vectors=None)
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


# -- while another thread writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["memory", "file"])
def test_an_answer_is_of_one_committed_state(where: str, tmp_path: Any) -> None:
    """Each commit puts five vectors at a place where there is nothing else and takes away the five before."""
    place, rounds = np.full(DIM, 3, np.float32), 60
    index = (
        Index(DIM, encoder=trained("l2"), keep_vectors=None)
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
    index, queries = filled(metric), queries_like(kind, 400)
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
    index = Index(DIM, encoder=trained("l2"), keep_vectors=None)
    index.add(vectors)
    queries = queries_like("the data", 300)
    near = np.argpartition(exact(queries, vectors, "l2"), 10, axis=1)[:, :10]
    found, whole = (index.search(queries, 10, progressive=how) for how in (True, False))
    assert shared(found, near).mean() >= shared(whole, near).mean() - 0.005
    index.close()


def test_rows_in_the_order_of_a_dimension_lose_less_than_half_a_point() -> None:
    vectors = data()[np.argsort(data()[:, 0])]
    index = Index(DIM, encoder=trained("l2"), keep_vectors=None)
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
    index = Index(DIM, bits=bits, iterations=2, train_size=5000, keep_vectors=None)
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
    index = Index(DIM, bits=256, iterations=2, keep_vectors=None)
    index.add(vectors)
    assert index.is_trained
    near = np.argpartition(exact(queries, vectors, "l2"), 10, axis=1)[:, :10]
    assert shared(index.search(queries, 10), near).mean() > 0.3
    index.close()
