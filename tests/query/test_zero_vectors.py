"""Vectors of zeros under cosine, as rows and as queries; vectors and queries of extreme sizes under every metric."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, Matches, MultiIndex, available_encoders, make_encoder
from lsqindex.encoders.linalg import lengths
from lsqindex.encoders.zero_code import zero_code
from lsqindex.testing import reference

Vectors = NDArray[np.float32]
Metric = Literal["l2", "cosine", "ip"]

DIM, N = 32, 2000
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"rerank": 100})
PARAMETERS: dict[str, dict[str, Any]] = {
    "ckmeans": {"bits": 64, "field_bits": 4, "rotations": 5, "iterations": 3},
    "flat": {},
    "itq": {"bits": 32, "iterations": 10},
    "kmeans": {"bits": 8, "iterations": 5},
    "lsh": {"bits": 128},
    "lsq": {"bits": 96, "iterations": 4},
    "okmeans": {"bits": 32, "iterations": 10},
    "pq": {"bits": 64, "field_bits": 4, "iterations": 5},
}


@cache
def data() -> tuple[Vectors, Vectors]:
    """Rows and queries. The nearest rows of a query have a cosine of about 0.6, as texts have."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((60, DIM))
    rows, queries = (centres[rng.integers(0, 60, n)] + 1.2 * rng.standard_normal((n, DIM)) for n in (N, 100))
    return rows.astype(np.float32), queries.astype(np.float32)


def with_zeros(share: float) -> tuple[Vectors, NDArray[np.int64]]:
    """Rows, and which of them are zeros."""
    rows = data()[0].copy()
    zeros = np.sort(np.random.default_rng(1).choice(N, int(N * share), replace=False))
    rows[zeros] = 0
    return rows, zeros


def filled(rows: Vectors, encoder: str = "lsq", *, metric: Metric = "cosine", **options: Any) -> Index:
    options = {"keep_vectors": "float16", "train_size": len(rows), **PARAMETERS[encoder], **options}
    index = Index(rows.shape[1], metric=metric, encoder=encoder, **options)
    index.add(rows)
    assert index.is_trained
    return index


def brute(queries: Vectors, rows: Vectors, metric: Metric) -> NDArray[np.float64]:
    """All distances in float64."""
    left, right = queries.astype(np.float64), rows.astype(np.float64)
    if metric == "l2":
        apart: NDArray[np.float64] = np.square(left[:, None] - right).sum(axis=2)
        return apart
    products: NDArray[np.float64] = left @ right.T
    if metric == "ip":
        return -products
    norms = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)
    cosines: NDArray[np.float64] = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return 1 - cosines


def recall(found: Matches, distances: NDArray[np.float64]) -> float:
    """The share of the true nearest, or of rows as near as these, that were found."""
    k = found.ids.shape[1]
    limits = np.sort(distances, axis=1)[:, k - 1 : k]
    slack = 2e-3 * np.abs(limits) + 1e-3 * (distances.max() <= 2)
    return float((np.take_along_axis(distances, found.ids, axis=1) <= limits + slack).mean())


# -- rows --------------------------------------------------------------------------------------------


def test_every_encoder_is_tried() -> None:
    assert set(PARAMETERS) <= set(available_encoders())


@pytest.mark.parametrize("share", [0.01, 0.1])
@pytest.mark.parametrize("encoder", PARAMETERS)
def test_rows_of_zeros_do_not_win(encoder: str, share: float) -> None:
    rows, zeros = with_zeros(share)
    queries, index = data()[1], filled(rows, encoder)
    found = index.search(queries, 10)
    assert np.isin(found.ids, zeros).any(axis=1).mean() <= 0.03
    assert not np.isin(index.search(queries, 10, rerank=100).ids, zeros).any()
    # They crowd nobody out: as many of the nearest are found as without them.
    away = np.delete(rows, zeros, axis=0)
    plain = filled(away, encoder)
    distances = brute(queries, rows, "cosine")
    for options in OPTIONS:
        without = recall(plain.search(queries, 10, **options), brute(queries, away, "cosine"))
        assert recall(index.search(queries, 10, **options), distances) >= without - 0.04


@pytest.mark.parametrize("encoder", PARAMETERS)
def test_rows_of_zeros_are_at_distance_1_where_the_ranking_is_exact(encoder: str) -> None:
    rows, zeros = with_zeros(0.05)
    queries = data()[1][:3]
    ranked = filled(rows, encoder).search(queries, N, rerank=N)
    untrained = Index(DIM, metric="cosine", keep_vectors=None)
    untrained.add(rows)
    for found in (ranked, untrained.search(queries, N)):
        for ids, distances in zip(found.ids, found.distances, strict=True):
            there = np.isin(ids, zeros)
            assert ids[there].tolist() == zeros.tolist(), "by id"
            assert (distances[there] == 1).all()


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("encoder", [name for name in PARAMETERS if name != "flat"])
def test_rows_of_zeros_take_no_place_of_candidates(encoder: str, kind: Any) -> None:
    """The worst case: queries in the direction of the very code that zeros have."""
    rows, zeros = with_zeros(0.4)
    names: Any = np.arange(N) if kind == "int" else [f"{i:05}" for i in range(N)]
    fitted = make_encoder(encoder, **PARAMETERS[encoder]).fit(data()[0] / lengths(data()[0]))
    index = Index(DIM, metric="cosine", ids=kind, encoder=fitted, keep_vectors="float16")
    index.add(rows, ids=names)
    plain = Index(DIM, metric="cosine", ids=kind, encoder=fitted, keep_vectors="float16")
    others = np.setdiff1d(np.arange(N), zeros)
    plain.add(rows[others], ids=names[others] if kind == "int" else [names[i] for i in others])
    queries = np.concatenate([fitted.decode(zero_code(fitted)[None]), data()[1][:4]])
    found, without = (some.search(queries, 20, rerank=50) for some in (index, plain))
    near = without.distances < 1
    assert near[1:].all()
    assert found.ids[near].tolist() == without.ids[near].tolist()
    assert found.distances[near].tolist() == without.distances[near].tolist()
    allowed = [names[int(i)] for i in (*zeros[:5][::-1], *others[:3])]
    some = index.search(queries, 20, rerank=50, filter=allowed)
    for ids, distances in zip(some.ids, some.distances, strict=True):
        there = distances == 1
        assert ids[there].tolist() == [names[int(i)] for i in zeros[:5]] and np.isinf(distances[8:]).all()


@pytest.mark.parametrize("encoder", ["lsq", "ckmeans"])
def test_codes_that_can_tell_say_about_1(encoder: str) -> None:
    rows, zeros = with_zeros(0.05)
    found = filled(rows, encoder, keep_vectors=None).search(data()[1], N)
    distances = found.distances[np.isin(found.ids, zeros)]
    assert abs(float(distances.mean()) - 1) < 0.15 and distances.min() > 0.45


def test_rows_of_zeros_have_no_part_in_training() -> None:
    rows, queries = data()
    mixed = np.zeros((2 * N, DIM), np.float32)
    mixed[::2] = rows
    index, plain = filled(mixed, keep_vectors=None), filled(rows, keep_vectors=None)
    found, without = index.search(queries, 10), plain.search(queries, 10)
    assert recall(found, brute(queries, mixed, "cosine")) >= recall(without, brute(queries, rows, "cosine")) - 0.04


def test_an_index_of_nothing_but_zeros_answers_by_id() -> None:
    index = filled(np.zeros((300, DIM), np.float32), "lsh")
    found = index.search(data()[1][:2], 5, rerank=300)
    assert found.ids.tolist() == [[0, 1, 2, 3, 4]] * 2 and (found.distances == 1).all()


def test_the_code_of_zeros_is_a_function_of_the_encoder() -> None:
    rows = data()[0] / lengths(data()[0])
    for name, parameters in PARAMETERS.items():
        if name == "flat":
            continue
        encoder = make_encoder(name, **parameters).fit(rows)
        code = zero_code(encoder)
        assert np.array_equal(zero_code(encoder), code)
        assert np.isfinite(reference.distances(code[None], encoder.layout, encoder.tables(rows[:5], "cosine"))).all()
        index = Index(DIM, metric="cosine", encoder=encoder, keep_vectors=None)
        index.add(np.zeros((1, DIM)))
        np.testing.assert_array_equal(index.get([0]), encoder.decode(code[None]))


def test_zeros_are_nothing_special_under_other_metrics() -> None:
    rows, zeros = with_zeros(0.05)
    metric: Metric
    for metric in ("l2", "ip"):
        index = filled(rows, keep_vectors=None, metric=metric)
        assert np.array_equal(index.get(zeros), index.encoder.decode(index.encoder.encode(rows[zeros])))


# -- queries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("options", [{}, {"rerank": 50}, {"distance": "symmetric"}, {"strategy": "subset"}], ids=str)
def test_a_query_of_zeros_is_at_distance_1_from_every_row(kind: Any, options: dict[str, Any]) -> None:
    rows, queries = data()[0][:500], data()[1][:3].copy()
    queries[1] = 0
    names: Any = np.random.default_rng(2).permutation(500) if kind == "int" else [f"{i:03}" for i in range(500)][::-1]
    index = Index(DIM, metric="cosine", ids=kind, encoder="lsh", bits=64, train_size=300, keep_vectors="float16")
    index.set_subset(MultiIndex(bits=8))
    index.add(rows, ids=names)
    first = sorted(names.tolist() if kind == "int" else names)
    index.delete(first[1:3])
    left = [first[0], *first[3:]]
    found = index.search(queries, 10, **options)
    assert found.ids[1].tolist() == left[:10] and (found.distances[1] == 1).all()
    others = index.search(queries[[0, 2]], 10, **options)
    assert found.ids[[0, 2]].tolist() == others.ids.tolist()
    assert found.distances[[0, 2]].tolist() == others.distances.tolist()
    everything = index.search(np.zeros((2, DIM)), 600, **options)
    assert everything.ids[0].tolist()[:498] == left and (everything.distances[:, :498] == 1).all()
    assert np.isinf(everything.distances[:, 498:]).all()
    some = index.search(np.zeros(DIM), 3, filter=left[7:20][::-1], **options)
    assert some.ids.tolist() == left[7:10] and some.distances.tolist() == [1, 1, 1]


@pytest.mark.parametrize("encoder", PARAMETERS)
def test_the_length_of_a_query_does_not_change_its_answer(encoder: str) -> None:
    rows, queries = data()
    index = filled(rows[:1000], encoder)
    for options in OPTIONS:
        for size in (2.0**-100, 2.0**-60, 2.0**40):
            found, usual = (index.search(q, 10, **options) for q in (queries * np.float32(size), queries))
            assert found.ids.tolist() == usual.ids.tolist()
            np.testing.assert_allclose(found.distances, usual.distances, atol=1e-6)
        tiny = index.search(queries * np.float32(1e-40), 10, **options)  # five digits are left
        assert recall(tiny, brute(queries, rows[:1000], "cosine")) >= 0.9 * recall(
            usual, brute(queries, rows[:1000], "cosine")
        )


# -- sizes ---------------------------------------------------------------------------------------------

SIZES = (1e14, 1e9, 1e-6, 1e-12, 1e-20, 1e-30, 1e-38, 1e-41)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("size", SIZES)
def test_vectors_of_any_size_are_ranked_rightly(metric: Metric, size: float) -> None:
    """Untrained, and by kept vectors. Warnings are errors here; what float32 cannot tell apart is equal."""
    rows, queries = (some * np.float32(size) for some in data())
    rows, queries = rows[:600], queries[:20]
    distances = brute(queries, rows, metric).astype(np.float32).astype(np.float64)
    untrained = Index(DIM, metric=metric, keep_vectors=None)
    untrained.add(rows)
    assert recall(untrained.search(queries, 10), distances) == 1
    for encoder in ("lsq", "lsh", "pq"):
        for keep in ("float16", None):
            found = filled(rows, encoder, metric=metric, keep_vectors=keep).search(queries, 10, rerank=600)
            assert np.isfinite(found.distances).all()
            if keep:
                assert recall(found, distances) > 0.98


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("encoder", PARAMETERS)
def test_rows_of_all_sizes_together(encoder: str, metric: Metric) -> None:
    rng = np.random.default_rng(3)
    rows = (data()[0][:600] * 10.0 ** rng.uniform(-44, 14, (600, 1))).astype(np.float32)
    rows[7], rows[8:20] = 0, np.float32(2.0)
    queries = np.concatenate([data()[1][:5] * np.float32(size) for size in (1e14, 1.0, 1e-30)])
    found = filled(rows, encoder, metric=metric).search(queries, 10, rerank=600)
    assert np.isfinite(found.distances).all()
    assert recall(found, brute(queries, rows, metric).astype(np.float32).astype(np.float64)) > 0.97


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("encoder", PARAMETERS)
def test_constant_rows_tie_by_id(encoder: str, metric: Metric) -> None:
    index = filled(np.full((300, DIM), 3, np.float32), encoder, metric=metric)
    assert np.isfinite(index.search(data()[1][:2], 5).distances).all()
    assert index.search(data()[1][:2], 5, rerank=300).ids.tolist() == [[0, 1, 2, 3, 4]] * 2
