"""Re-ranking as deep as each query needs, and what an index does when no option is set."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from lsqindex import Index
from lsqindex._compiled import exact as _exact
from lsqindex._query import tuning
from lsqindex.errors import CodesOnlyWarning
from lsqindex.testing import reference

DIGITS = load_digits().data.astype(np.float32)
BASE, QUERIES = DIGITS[:-200], DIGITS[-200:]


def nearest(base: NDArray[Any], queries: NDArray[Any], k: int) -> NDArray[np.int64]:
    distances = ((base.astype(np.float64)[None] - queries.astype(np.float64)[:, None]) ** 2).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def recall(found: NDArray[Any], truth: NDArray[Any]) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), truth.tolist(), strict=True)]))


# -- the rule -------------------------------------------------------------------------------------

numbers = st.floats(-1e6, 1e6, width=32)


@given(st.data(), st.integers(3, 40), st.integers(0, 10**6))
def test_expected_misses_are_those_of_the_reference(data: st.DataObject, n: int, more: int) -> None:
    estimates = np.sort(np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)), np.float32))
    exact = np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)), np.float32)
    kth = np.sort(exact)[[data.draw(st.integers(0, n - 1))]]
    (found,) = _exact.expected_misses(estimates[None], exact[None], kth, n + more)
    assert found == reference.expected_misses(estimates, exact, float(kth[0]), n + more)
    assert 0 <= found <= more


def test_estimates_without_error_miss_nothing_and_worthless_ones_miss_much() -> None:
    rng = np.random.default_rng(0)
    exact = np.sort(rng.standard_normal(100)).astype(np.float32)
    noise = rng.permutation(exact)
    kth = exact[[9]]
    assert _exact.expected_misses(exact[None], exact[None], kth, 100_000)[0] < 1e-3
    # Every rest row is as likely to be among the ten nearest as the hundred that were compared.
    assert _exact.expected_misses(exact[None], noise[None], kth, 1100)[0] > 50


def test_equal_distances_are_not_misses() -> None:
    same = np.full((1, 100), 2.5, np.float32)
    assert _exact.expected_misses(same, same, same[:, 0], 1_000_000)[0] == 0


@pytest.mark.parametrize("shape", [(2, 4), (1, 5), (1, 2)])
def test_wrong_shapes_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="shapes"):
        _exact.expected_misses(np.zeros((1, 4), np.float32), np.zeros(shape, np.float32), np.zeros(1, np.float32), 9)
    with pytest.raises(ValueError, match="shapes"):
        _exact.expected_misses(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), np.zeros(1, np.float32), 9)


# -- a search -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth() -> NDArray[np.int64]:
    return nearest(BASE, QUERIES, 10)


@lru_cache
def trained(bits: int, encoder: str = "lsq", keep_vectors: Any = "float16") -> Index:
    fast: dict[str, Any] = {"iterations": 3} if encoder == "lsq" else {}
    index = Index(64, encoder=encoder, bits=bits, keep_vectors=keep_vectors, **fast)
    index.add(BASE)
    return index.train()


@pytest.mark.parametrize("index", [(256,), (16,), (16, "lsh"), (64, "lsq", "float32"), (64, "lsq", "int8")], ids=str)
def test_codes_of_any_size_reach_the_target(index: tuple[Any, ...], truth: NDArray[np.int64]) -> None:
    found = recall(trained(*index).search(QUERIES).ids, truth)
    assert found >= 0.95 and found > recall(trained(*index).search(QUERIES, rerank=0).ids, truth)
    assert recall(trained(*index).search(QUERIES, k=1).ids, truth[:, :1]) >= 0.95


def test_coarse_codes_are_re_ranked_deeper_and_only_for_queries_that_need_it() -> None:
    fine, coarse = ([trained(bits).explain(query).reranked for query in QUERIES[:20]] for bits in (256, 16))
    assert np.mean(fine) < 2 * tuning.first_depth(10) < np.mean(coarse)
    assert len(set(coarse)) > 1


def test_one_query_gets_what_it_gets_among_others() -> None:
    together = trained(16).search(QUERIES[:40])
    for number, query in enumerate(QUERIES[:40]):
        alone = trained(16).search(query, threads=1)
        assert (alone.ids == together.ids[number]).all() and (alone.distances == together.distances[number]).all()


def test_a_thousand_copies_of_a_vector_are_no_reason_to_go_deeper() -> None:
    index = Index(8, bits=16)
    index.add(np.ones((20_000, 8), np.float32))
    told = index.explain(np.zeros(8))
    assert told.reranked <= tuning.first_depth(10)
    assert told.matches.ids.tolist() == list(range(10)) and (told.matches.distances == 8).all()


def test_a_filter_limits_how_deep_a_search_can_go() -> None:
    index = trained(16)
    allowed = np.arange(0, len(BASE), 3)
    found = index.search(QUERIES, filter=allowed)
    assert recall(found.ids, allowed[nearest(BASE[allowed], QUERIES, 10)]) >= 0.95
    assert index.search(QUERIES[0], k=10, filter=[5, 6]).ids.tolist()[2:] == [-1] * 8


def test_a_distance_that_is_named_ranks_by_codes_alone() -> None:
    index = trained(16)
    plain = index.search(QUERIES, rerank=0)
    named = index.search(QUERIES, distance="asymmetric")
    assert (plain.ids == named.ids).all() and (plain.distances == named.distances).all()
    assert index.explain(QUERIES[0], distance="symmetric").reranked == 0
    assert index.explain(QUERIES[0], distance="symmetric", rerank=50).reranked == 50


@pytest.mark.parametrize("keep", ["float16", "int8"])
def test_full_recall_compares_all_kept_vectors(keep: Any) -> None:
    index = trained(16, "lsq", keep)
    told = index.explain(QUERIES[0], recall=1.0)
    assert told.reranked == len(BASE) and "recall=1.0" in told.why
    kept = index.get(np.arange(len(BASE)))
    assert (index.search(QUERIES, recall=1.0).ids == nearest(kept, QUERIES, 10)).mean() > 0.999
    assert index.explain(QUERIES[0], recall=1.0, rerank=20).reranked == 20


def test_a_higher_target_finds_more_and_compares_more(truth: NDArray[np.int64]) -> None:
    index = trained(16)
    found = [recall(index.search(QUERIES, recall=target).ids, truth) for target in (0.3, 0.9, 0.99)]
    compared = [index.explain(QUERIES, recall=target).reranked for target in (0.3, 0.9, 0.99)]
    assert found == sorted(found) and compared == sorted(set(compared)) and found[-1] >= 0.99


# -- no option set --------------------------------------------------------------------------------


def test_a_default_index_keeps_what_was_added() -> None:
    index = Index(64, train_size=1000, iterations=3)
    index.add(BASE)
    told = index.stats()
    assert (told["trained"], told["keep_vectors"]) == (True, "float16")
    # Small whole numbers are exact in float16.
    assert (index.get(np.arange(len(BASE))) == BASE).all()
    assert index.search(BASE[7], k=1).distances[0] == 0


def test_without_kept_vectors_codes_are_all_there_is(truth: NDArray[np.int64]) -> None:
    index = trained(16, "lsq", None)
    default, alone = index.search(QUERIES), index.search(QUERIES, rerank=0)
    assert (default.ids == alone.ids).all() and recall(default.ids, truth) < 0.9


@pytest.mark.filterwarnings("default::lsqindex.errors.CodesOnlyWarning")
@pytest.mark.parametrize("how", ["add", "batch", "train"])
def test_it_warns_before_vectors_are_lost(how: str) -> None:
    index = Index(64, encoder="lsh", keep_vectors=None, train_size=1000)
    index.add(BASE[:999])
    with pytest.warns(CodesOnlyWarning, match="keeps no vectors.*keep_vectors='float16'"):
        if how == "add":
            index.add(BASE[999:1010])
        elif how == "batch":
            with index.batch() as batch:
                batch.add(BASE[999:1010])
        else:
            index.train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.add(BASE[1010:])
        kept = Index(64, encoder="lsh", train_size=1000)
        kept.add(BASE)


@pytest.mark.filterwarnings("error::lsqindex.errors.CodesOnlyWarning")
def test_a_warning_that_is_made_an_error_leaves_the_vectors() -> None:
    index = Index(64, encoder="lsh", keep_vectors=None, train_size=1000)
    index.add(BASE[:999])
    with pytest.raises(CodesOnlyWarning):
        index.add(BASE[999:1010])
    assert len(index) == 999 and not index.is_trained and (index.get(np.arange(999)) == BASE[:999]).all()
