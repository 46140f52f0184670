"""Scores and order of a subset search are those of the paper."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsqindex import Index, MultiIndex, make_encoder
from lsqindex._query import tuning
from tests.settings import LONG

from .paper import (
    BINARY,
    BOTH,
    DIM,
    ENCODERS,
    METRICS,
    Metric,
    Plain,
    answers,
    code_distances,
    fitted,
    grouped,
    large,
    make,
    random,
)


@st.composite
def stories(draw: st.DrawFn) -> dict[str, Any]:
    """Vectors, many equal or none, in several adds, each perhaps followed by a merge; deletes; a filter; queries."""
    name = draw(st.sampled_from(sorted(ENCODERS)))
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    sizes = draw(st.lists(st.sampled_from((1, 2, 31, 64, 150)), min_size=1, max_size=3))
    n, different = sum(sizes), draw(st.sampled_from((1, 2, 9, 1000)))
    vectors = random(different, seed)[rng.integers(0, different, n)]
    queries = random(draw(st.integers(1, 3)), seed + 1)
    if draw(st.booleans()):
        queries[0] = vectors[0]
    return {
        "name": name,
        "metric": draw(st.sampled_from(METRICS)),
        "bits": draw(st.none() | st.integers(4, 10)) if name in BINARY else None,
        "sizes": sizes,
        "merged": [draw(st.booleans()) for _ in sizes],
        "late": draw(st.booleans()),
        "ids": rng.permutation(3 * n)[:n].astype(np.int64),
        "vectors": vectors,
        "dead": rng.random(n) < draw(st.sampled_from((0, 0.2, 0.9))),
        "filter": rng.random(n) < draw(st.sampled_from((0.02, 0.5))) if draw(st.booleans()) else None,
        "queries": queries,
        "k": draw(st.sampled_from((1, 2, 10, 60, 1000))),
    }


def told(story: dict[str, Any]) -> tuple[Index, Plain, Any]:
    """The index and the plain tables after the story, and the ids that its filter lets through."""
    name, metric = story["name"], story["metric"]
    subset = MultiIndex(bits=story["bits"])
    index = make(name, metric, subset=None if story["late"] else subset)
    ids, vectors, at = story["ids"], story["vectors"], 0
    for size, merged in zip(story["sizes"], story["merged"], strict=True):
        index.add(vectors[at : at + size], ids[at : at + size])
        at += size
        if merged:
            index.merge()
    index.delete(ids[story["dead"]])
    if story["late"]:
        index.set_subset(subset)
    known = index.subset
    assert isinstance(known, MultiIndex)
    plain = Plain(fitted(name, metric), metric, known.bits)
    plain.add(ids.tolist(), vectors)
    plain.delete(ids[story["dead"]].tolist())
    return index, plain, None if story["filter"] is None else ids[story["filter"]]


@settings(max_examples=2_500 if LONG else 60, deadline=None)
@given(stories())
def test_scores_and_order_are_those_of_the_paper(story: dict[str, Any]) -> None:
    index, plain, some = told(story)
    queries, k = story["queries"], story["k"]
    found = index.search(queries, k, strategy="subset", distance="score", filter=some)
    wanted = plain.search(queries, k, code_distances(index, queries), None if some is None else some.tolist())
    assert answers(found) == wanted
    # As many as there are; and nothing after them.
    there = len(plain.codes) if some is None else len(set(some.tolist()) & set(plain.codes))
    assert [len(own) for own in wanted] == [min(k, there)] * len(queries)
    for ids, distances in zip(found.ids, found.distances, strict=True):
        assert set(ids[min(k, there) :].tolist()) <= {-1}
        assert np.isinf(distances[min(k, there) :]).all()
    index.close()


@pytest.mark.parametrize("bits", [12, 13, 14, 15])
def test_scores_and_order_are_those_of_the_paper_for_larger_tables(bits: int) -> None:
    """Where a bucket's number has more bits than the directory of a list."""
    vectors, queries = random(400, 1), random(2, 2)
    index, plain = make("lsh", subset=MultiIndex(bits=bits)), Plain(fitted("lsh"), "l2", bits)
    plain.add(index.add(vectors[:300]).tolist(), vectors[:300])
    index.merge()
    plain.add(index.add(vectors[300:]).tolist(), vectors[300:])
    index.delete(range(0, 400, 9))
    plain.delete(range(0, 400, 9))
    codes = code_distances(index, queries)
    for k in (1, 40, 1000):
        found = index.search(queries, k, strategy="subset", distance="score")
        assert answers(found) == plain.search(queries, k, codes)
    index.close()


@pytest.mark.parametrize("bits", [16, 20])
def test_scores_are_those_of_the_paper_where_the_next_buckets_are_empty(bits: int) -> None:
    """Few rows in millions of buckets: how many must be looked into is found by counting what is nearer than it."""
    encoder = fitted("lsh")
    vectors, query = random(40, 3), random(1, 4)
    index, plain = make("lsh", subset=MultiIndex(bits=bits)), Plain(encoder, "l2", bits)
    plain.add(index.add(vectors).tolist(), vectors)
    (far,) = plain.distances(query)
    groups = grouped(encoder.layout, far, bits)
    # Without going through all buckets: how far the ones are that hold a row.
    near: dict[Any, list[int]] = {
        name: [sum(own[bit] for own, bit in zip(*pair, strict=True)) for pair in zip(groups, code, strict=True)]
        for name, code in plain.codes.items()
    }
    nearest = sorted(min(own) for own in near.values())
    k = next(k for k in (8, 9, 10, 11) if nearest[k - 1] < nearest[k])
    score = {name: sum(far <= nearest[k - 1] for far in own) for name, own in near.items()}
    (codes,) = code_distances(index, query)
    ranked = sorted((name for name in near if score[name]), key=lambda name: (-score[name], codes[name], name))[:k]
    found = index.search(query, k, strategy="subset", distance="score")
    assert answers(found) == [[(name, float(len(groups) - score[name])) for name in ranked]]
    index.close()


def test_rows_that_no_reasonable_number_of_buckets_holds_follow_by_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the search for buckets is given up, the rest comes by a scan: they are in no table that was looked into."""
    monkeypatch.setattr(tuning, "MOST_PROBES", 20)
    vectors, queries = random(300, 5), random(5, 6)
    index, plain = make("lsh", subset=MultiIndex(bits=8)), Plain(fitted("lsh"), "l2", 8)
    plain.add(index.add(vectors).tolist(), vectors)
    plain.create_tables()
    everything = code_distances(index, queries)
    found = answers(index.search(queries, 250, strategy="subset", distance="score"))
    for far, codes, own in zip(plain.distances(queries), everything, found, strict=True):
        buckets = plain.buckets(far)[:20]
        score = Counter(name for _, (table, value) in buckets for name in plain.tables[table].get(value, ()))
        assert 0 < len(score) < 250
        ranked = sorted(codes, key=lambda name: (-score[name], codes[name], name))[:250]
        assert own == [(name, float(len(plain.tables) - score[name])) for name in ranked]
    index.merge()  # by distance the same holds for listed rows
    by_distance = index.search(queries, 250, strategy="subset")
    assert answers(by_distance) == answers(index.search(queries, 250, strategy="scan"))
    index.close()


@pytest.mark.parametrize("metric", METRICS)
def test_one_vector_is_found_from_anywhere(metric: Metric) -> None:
    for name in ENCODERS:
        index = make(name, metric, subset="multi-index")
        index.add(random(1, 7), ids=[42])
        for _ in range(2):
            for how in BOTH:
                found = index.search(random(3, 8), 5, strategy="subset", **how)
                assert found.ids.tolist() == [[42, -1, -1, -1, -1]] * 3
            index.merge()
        index.close()


def test_equal_vectors_are_one_bucket_of_each_table_and_come_by_id() -> None:
    for name in ("lsq", "pq", "lsh"):
        index = make(name, subset="multi-index")
        index.add(np.repeat(random(1, 9), 20_000, axis=0))  # more than fill a unit
        for query in (random(1, 9), random(2, 10)):
            for k in (1, 7, 20_000):
                found = index.search(query, k, strategy="subset", distance="score")
                assert all(ids.tolist() == list(range(k)) for ids in found.ids)
                assert all(len(set(missing.tolist())) == 1 for missing in found.distances)
                scanned = index.search(query, k, strategy="scan")
                assert answers(index.search(query, k, strategy="subset")) == answers(scanned)
        index.close()


@pytest.mark.parametrize("kind", ["the origin", "uneven dimensions", "constant dimensions"])
def test_a_query_is_looked_up_in_every_table(kind: str) -> None:
    """Also where all values of a dimension are about equally far from it: one of them is its own."""
    vectors, metric, name, query = random(400, 11), "l2", "pq", random(1, 59)
    if kind == "the origin":
        metric, name, query = "ip", "lsh", np.zeros((1, DIM), np.float32)
    sizes = {"uneven dimensions": [1e-3] * 4 + [1e2] * 4, "constant dimensions": [0] * 4 + [1] * 4}
    of_dimensions = np.array(sizes.get(kind, [1] * DIM), np.float32)
    vectors, query = vectors * of_dimensions, query * of_dimensions
    encoder = make_encoder(ENCODERS[name][0], **ENCODERS[name][1]).fit(vectors)
    index = Index(DIM, metric=metric, encoder=encoder, subset="multi-index", keep_vectors=None)  # type: ignore[arg-type]
    index.add(vectors)
    subset = index.subset
    assert isinstance(subset, MultiIndex)
    plain = Plain(encoder, metric, subset.bits)  # type: ignore[arg-type]
    plain.add(range(400), vectors)
    found = index.search(query, 5, strategy="subset", distance="score")
    assert answers(found) == plain.search(query, 5, code_distances(index, query))
    index.close()


def test_scores_and_order_are_those_of_the_paper_in_many_blocks() -> None:
    index, vectors = large()
    plain = Plain(fitted("lsh"), "l2", 8)
    ids = index.ids()
    plain.add(ids.tolist(), vectors[ids])
    queries = np.concatenate([vectors[70_000:70_001], random(1, 13)])
    codes = code_distances(index, queries)
    some = np.random.default_rng(14).permutation(len(vectors))[:20_000]
    for k, filter in ((1, None), (150, None), (20, some)):
        found = index.search(queries, k, strategy="subset", distance="score", filter=filter)
        assert answers(found) == plain.search(queries, k, codes, filter)
