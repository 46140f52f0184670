"""Searching cells: the recall that was asked for, with any metric, encoder, kind of kept vectors and filter."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from lsqindex import Cells, Index, make_encoder
from lsqindex.errors import ParameterError

Floats = NDArray[np.float32]


def digits() -> tuple[Floats, Floats]:
    """Rows and queries."""
    images = load_digits().data.astype(np.float32) + np.float32(0.01)
    some = np.random.default_rng(0).permutation(len(images))
    return images[some[:1600]], images[some[1600:]]


def made(metric: str = "l2", **options: object) -> Index:
    """An index of digits in 40 cells."""
    rows, _ = digits()
    settings = {"encoder": "lsq", "bits": 64, "subset": Cells(count=40), **options}
    index = Index(dim=64, metric=metric, **settings)  # type: ignore[arg-type]
    index.train(rows)
    if settings.get("ids") == "str":
        index.add(rows, ids=[f"row {i}" for i in range(len(rows))])
    else:
        index.add(rows)
    index.merge()
    return index


def neighbours(metric: str, rows: Floats, queries: Floats, k: int) -> NDArray[np.intp]:
    """The true ones, by row."""
    if metric == "cosine":
        rows, queries = (own / np.linalg.norm(own, axis=1, keepdims=True) for own in (rows, queries))
    inner = queries.astype(np.float64) @ rows.T.astype(np.float64)
    apart = np.square(rows, dtype=np.float64).sum(axis=1) - 2 * inner if metric == "l2" else -inner
    return np.argsort(apart, axis=1, kind="stable")[:, :k]


def share(found: NDArray[np.int64], wanted: NDArray[np.intp]) -> float:
    """How many of the wanted ones were found."""
    both = [len(np.intersect1d(own, true)) for own, true in zip(found, wanted, strict=True)]
    return sum(both) / wanted.size


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("keep", ["float16", "int8", "float32"])
def test_the_recall_that_was_asked_for_is_reached(metric: str, keep: str) -> None:
    rows, queries = digits()
    index = made(metric, keep_vectors=keep)
    assert index.stats()["cells"]["count"] > 20
    for k in (1, 10, 50):
        found = index.search(queries, k=k)
        assert share(found.ids, neighbours(metric, rows, queries, k)) >= 0.93
    report = index.explain(queries, k=10)
    assert report.strategy == "subset"
    assert 0 < report.probes < 40 * len(queries), "not all cells are visited"


def test_queries_unlike_the_rows_reach_it_too() -> None:
    rows, queries = digits()
    index = made("cosine")
    rng = np.random.default_rng(1)
    kinds = {
        "directions": rng.normal(size=(100, 64)),
        "noisy": queries[:100] + rng.normal(size=(100, 64)) * 8,
        "means": queries[:196].reshape(49, 4, 64).mean(axis=1),
    }
    for name, own in kinds.items():
        found = index.search(own, k=10)
        assert share(found.ids, neighbours("cosine", rows, own.astype(np.float32), 10)) >= 0.93, name


@pytest.mark.parametrize("bits", [8, 16])
def test_poor_codes_reach_it_too(bits: int) -> None:
    """They tell little about distances: more rows are compared, and more centres."""
    rows, queries = digits()
    index = Index(dim=64, encoder=make_encoder("lsq", bits=bits).fit(rows[:20]), subset=Cells(count=200))
    index.add(rows)
    index.merge()
    means = queries[:160].reshape(20, 8, 64).mean(axis=1)
    for some, wanted in ((queries, 0.93), (means, 0.86)):
        assert share(index.search(some, k=10).ids, neighbours("l2", rows, some, 10)) >= wanted


def test_a_higher_recall_visits_more() -> None:
    _, queries = digits()
    index = made()
    visited = [index.explain(queries, k=10, recall=recall).probes for recall in (0.8, 0.95, 0.995)]
    assert visited[0] < visited[1] < visited[2]


def test_a_recall_of_one_compares_all_vectors() -> None:
    rows, queries = digits()
    index = made(keep_vectors="float32")
    found = index.search(queries, k=10, recall=1.0)
    assert share(found.ids, neighbours("l2", rows, queries, 10)) > 0.998, "but for rows that are equally far"
    assert index.explain(queries, k=10, recall=1.0).strategy == "scan"


@pytest.mark.parametrize(
    "encoder",
    [{"encoder": "pq", "bits": 64}, {"encoder": "itq", "bits": 48}, {"encoder": "lsq", "bits": 96, "levels": 4}],
)
def test_all_cells_give_the_answer_of_the_scan(encoder: dict[str, object]) -> None:
    """By codes alone, and re-ranked: whatever kind of code it is."""
    _, queries = digits()
    for keep in (None, "float16"):
        index = made("l2", keep_vectors=keep, **encoder)
        everything = index.search(queries, k=10, probes=1 << 20, recall=0.999)
        scanned = index.search(queries, k=10, strategy="scan", recall=0.999)
        assert share(everything.ids, scanned.ids) > 0.99
        np.testing.assert_array_equal(everything.distances[:, 0], scanned.distances[:, 0])


def test_an_answer_does_not_depend_on_other_queries_or_threads() -> None:
    _, queries = digits()
    index = made("cosine")
    together = index.search(queries, k=10, threads=1)
    in_parallel = index.search(np.tile(queries, (20, 1)), k=10, threads=2)
    np.testing.assert_array_equal(in_parallel.ids[: len(queries)], together.ids)
    for i in (0, 17, 100):
        alone = index.search(queries[i], k=10)
        np.testing.assert_array_equal(alone.ids, together.ids[i])
        np.testing.assert_array_equal(alone.distances, together.distances[i])


def test_deleted_rows_are_never_found_and_fresh_ones_always() -> None:
    _, queries = digits()
    index = made("l2", keep_vectors="float32")
    nearest = index.search(queries, k=1).ids[:, 0]
    index.delete(np.unique(nearest))
    again = index.search(queries, k=10)
    assert not np.isin(again.ids, nearest).any()
    index.add(queries, ids=np.arange(5000, 5000 + len(queries)))
    fresh = index.search(queries, k=1)
    np.testing.assert_array_equal(fresh.ids[:, 0], np.arange(5000, 5000 + len(queries)))
    np.testing.assert_allclose(fresh.distances[:, 0], 0, atol=1e-3)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("kept", [0.95, 0.5, 0.1, 0.01])
def test_a_filter_leaves_the_recall_and_gives_k_results(kept: float, alike: bool) -> None:
    rows, queries = digits()
    index = Index(dim=64, encoder="lsq", bits=64, subset=Cells(count=40), fields=["group"]).train(rows)
    group = np.random.default_rng(2).random(len(rows)) < kept
    if alike:
        apart = np.square(rows - rows[0]).sum(axis=1)
        group = apart <= np.quantile(apart, kept)
    index.add(rows, payloads=[{"group": bool(own)} for own in group])
    index.merge()
    found = index.search(queries, k=10, filter={"group": True})
    allowed = np.flatnonzero(group)
    wanted = allowed[neighbours("l2", rows[allowed], queries, 10)]
    assert (found.ids >= 0).all() and group[found.ids].all()
    assert share(found.ids, wanted) >= 0.95
    # Many rows are found in cells, few are copied together.
    told = index.explain(queries, k=10, filter={"group": True})
    assert (told.strategy, told.probes > 0) == (("subset", True) if kept == 0.95 else ("scan", False))
    np.testing.assert_array_equal(told.matches.ids, found.ids)


def test_string_ids() -> None:
    rows, queries = digits()
    index = made("l2", ids="str")
    found = index.search(queries, k=10)
    numbers = np.array([[int(name[4:]) for name in own] for own in found.ids])
    assert share(numbers, neighbours("l2", rows, queries, 10)) >= 0.93


def test_queries_of_zeros_and_tiny_ones() -> None:
    _, queries = digits()
    index = made("cosine")
    tiny = np.concatenate([queries[:3] * np.float32(1e-30), np.zeros((1, 64), np.float32)])
    found = index.search(tiny, k=5)
    np.testing.assert_array_equal(found.ids[:3], index.search(queries[:3], k=5).ids)
    np.testing.assert_allclose(found.distances[3], 1)


def test_what_needs_a_multi_index_says_so() -> None:
    _, queries = digits()
    index = made()
    with pytest.raises(ParameterError, match=r"candidates needs a multi-index.*cells instead"):
        index.search(queries, candidates=100)
    with pytest.raises(ParameterError, match="multi-index"):
        index.search(queries, distance="score")


def test_the_rule_is_stored(tmp_path: object) -> None:
    rows, queries = digits()
    path = f"{tmp_path}/digits.lsq"
    with Index.create(path, 64, bits=64, subset=Cells(count=40)) as index:
        index.train(rows)
        index.add(rows)
        index.merge()
        before = index.search(queries, k=10)
        visited = index.explain(queries, k=10).probes
    with Index.open(path) as index:
        np.testing.assert_array_equal(index.search(queries, k=10).ids, before.ids)
        assert index.explain(queries, k=10).probes == visited
        assert index.check() == []


def test_many_equal_vectors() -> None:
    rows = np.ones((3000, 16), np.float32)
    index = Index(dim=16, bits=32, subset=Cells(count=20)).train(np.random.default_rng(0).normal(size=(500, 16)))
    index.add(rows)
    index.merge()
    found = index.search(rows[0], k=10)
    np.testing.assert_array_equal(found.ids, np.arange(10))


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("encoder", [{"encoder": "itq", "bits": 3}, {"encoder": "pq", "bits": 4, "field_bits": 2}])
def test_all_cells_give_the_answer_of_the_scan_where_codes_are_few(metric: str, encoder: dict[str, object]) -> None:
    """The first cells may hold rows of one code only, which tell nothing of the others."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-4, 5, (125, 3)) + 0.25
    index = Index(dim=3, metric=metric, subset=Cells(60, spill=False), keep_vectors="float16", **encoder)  # type: ignore[arg-type]
    index.add(rows)
    index.train()
    index.merge()
    queries = rng.integers(-4, 5, (40, 3)) + 0.5
    for k in (1, 7, 40, 200):
        found = index.search(queries, k=k, rerank=0, probes=1 << 16)
        assert np.array_equal(found.distances, index.search(queries, k=k, rerank=0, strategy="scan").distances)
