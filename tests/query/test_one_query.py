"""A query is plain data, and the same inner path finds the k nearest, all within a limit, or both."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex._inputs.filters import read_filter
from lsqindex._query.found import Answer
from lsqindex._query.query import Query, read_query
from lsqindex._query.search import search
from lsqindex._query.trace import Trace
from lsqindex.errors import ParameterError
from lsqindex.testing import reference

DIM = 24
RNG = np.random.default_rng(11)
VECTORS = RNG.standard_normal((3000, DIM)).astype(np.float32)
QUERIES = RNG.standard_normal((5, DIM)).astype(np.float32)
DELETED = np.arange(0, 3000, 7)


def asked(**how: Any) -> Query:
    defaults = {"k": 10, "limit": math.inf, **dict.fromkeys(("rerank", "probes", "candidates", "threads"))}
    given = {**Query()._asdict(), **defaults, **how}
    return read_query(*(given[name] for name in Query._fields[:-1]))


def answer(index: Index, query: Query) -> Answer:
    with index._reader() as reader:
        return search(index._snapshot(reader), reader, query, QUERIES, Trace())[0]


def lists(found: Answer) -> list[list[tuple[int, float]]]:
    there = found.rows >= 0
    parts = zip(found.ids, found.distances, there, strict=True)
    return [list(zip(ids[own].tolist(), far[own].tolist(), strict=True)) for ids, far, own in parts]


def brute_force(metric: str, ids: NDArray[np.int64], k: int | None, limit: float) -> list[list[tuple[int, float]]]:
    out = []
    for query in QUERIES:
        far = reference.exact_distances(VECTORS[ids], metric, query)
        order = np.lexsort((ids, far))
        near = [(int(ids[i]), float(far[i])) for i in order if far[i] <= np.float32(limit)]
        out.append(near[:k])
    return out


def test_a_query_is_plain_data() -> None:
    query = asked(k=np.int64(7))._replace(filter=read_filter({"lang": {"$in": ["a", "b"]}}, "int"))
    assert pickle.loads(pickle.dumps(query)) == query
    assert type(query.k) is int and hash(query) == hash(pickle.loads(pickle.dumps(query)))


def test_arguments_are_checked_once_and_never_mistaken_for_others() -> None:
    assert asked(k=3) is asked(k=3)
    for wrong in (
        {"k": True},
        {"k": 1.0},
        {"k": None},
        {"progressive": 1},
        {"limit": math.nan},
        {"threads": 0},
        {"recall": 0},
    ):
        with pytest.raises(ParameterError):
            asked(**wrong)
    for recall in (0, -1, 1.01, math.nan, True, "0.9", None):
        with pytest.raises(ParameterError, match="recall="):
            asked(recall=recall)
    with pytest.raises(ParameterError, match="distance"):  # it has no hash
        asked(distance=np.zeros(3))


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("encoder", ["lsq", "flat"])
@pytest.mark.parametrize("threads", [1, 3])
def test_vectors_in_place_are_searched_as_by_brute_force(metric: Any, encoder: str, threads: int) -> None:
    index = Index(dim=DIM, metric=metric, encoder=encoder)  # (lsq: not trained yet)
    index.add(VECTORS)
    index.delete(DELETED)
    left = np.setdiff1d(np.arange(3000), DELETED)
    some = np.arange(100, 900)
    for ids, filter in ((left, None), (np.intersect1d(left, some), some)):
        limit = float(np.median(reference.exact_distances(VECTORS, metric, QUERIES[0])))
        for k, far in ((10, math.inf), (10, limit), (None, limit), (4000, math.inf)):
            condition = None if filter is None else read_filter(filter, "int")
            query = asked(k=k, limit=far, threads=threads)._replace(filter=condition)
            assert lists(answer(index, query)) == brute_force(metric, ids, k, far)


def test_codes_within_a_limit_are_those_of_the_scan() -> None:
    index = Index(dim=DIM, encoder="lsq", bits=64, keep_vectors=None)
    index.train(VECTORS).add(VECTORS)
    whole = lists(answer(index, asked(k=3000, progressive=False)))
    limit = whole[0][40][1]
    wanted = [[(name, far) for name, far in own if far <= limit] for own in whole]
    assert lists(answer(index, asked(k=None, limit=limit))) == wanted
    assert lists(answer(index, asked(k=5, limit=limit))) == [own[:5] for own in wanted]


def test_kept_vectors_decide_what_is_within_a_limit() -> None:
    index = Index(dim=DIM, encoder="lsq", bits=128, keep_vectors="float32")
    index.train(VECTORS).add(VECTORS)
    near = np.sort(reference.exact_distances(VECTORS, "l2", QUERIES[0]))
    limit = float(near[3])
    found = lists(answer(index, asked(k=10, limit=limit)))
    assert found == [own[:10] for own in brute_force("l2", np.arange(3000), None, limit)]


def test_an_exact_search_copies_no_vectors() -> None:
    vectors = RNG.standard_normal((40_000, DIM)).astype(np.float32)
    index = Index(dim=DIM, encoder="flat")
    index.add(vectors)
    index.delete([5])
    index.search(vectors[0])  # what is prepared once for a snapshot
    tracemalloc.start()
    try:
        for filter in (None, np.arange(30_000)):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            index.search(vectors[:3], k=10, filter=filter)
            peak = tracemalloc.get_traced_memory()[1] - before
            # (A filter of ids is 8 bytes an id, and its rows as many again.)
            assert peak < (0.05 if filter is None else 0.5) * vectors.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_never_change_an_answer(threads: int) -> None:
    vectors = np.tile(VECTORS, (8, 1))
    index = Index(dim=DIM, encoder="lsq", bits=64, fields=["even"])
    index.train(vectors).add(vectors, payloads=[{"even": n % 2 == 0} for n in range(len(vectors))])
    queries = RNG.standard_normal((300, DIM)).astype(np.float32)
    ways: list[dict[str, Any]] = [{}, {"filter": {"even": True}}, {"filter": np.arange(500)}, {"rerank": 20_000}]
    for how in ways:
        one, many = (index.search(queries[: 20 if "rerank" in how else 300], threads=n, **how) for n in (1, threads))
        assert np.array_equal(one.ids, many.ids) and np.array_equal(one.distances, many.distances), how


def test_explain_counts_the_same_with_threads() -> None:
    vectors = np.tile(VECTORS, (8, 1))
    index = Index(dim=DIM, encoder="lsq", bits=64)
    index.train(vectors).add(vectors)
    one, many = (index.explain(vectors[:200], threads=n) for n in (1, 4))
    assert (one.rows, one.chunks, one.reranked) == (many.rows, many.chunks, many.reranked)


def test_the_same_filter_is_selected_once_for_a_snapshot() -> None:
    index = Index(dim=2, fields=["lang"])
    index.add([[1, 2], [3, 4]], payloads=[{"lang": "en"}, {"lang": 1}])
    for wanted, found in (("en", 0), (1, 1), (True, -1), (1.0, 1)):
        for _ in range(2):
            assert index.search([1, 2], k=1, filter={"lang": wanted}).ids.tolist() == [found]
    assert index._searched is not None
    known = index._searched.selections
    index.search([1, 2], filter={"lang": "en"})
    assert index._searched.selections == known
    index.add([[1, 2]], payloads=[{"lang": "en"}])
    assert index.search([1, 2], filter={"lang": "en"}).ids[:2].tolist() == [0, 2]
