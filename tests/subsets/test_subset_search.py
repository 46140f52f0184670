"""Subset searches ranked by distance: probes, candidates, kept vectors, filters, ids."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pytest

from lsqindex import Index, MultiIndex

from .paper import (
    BOTH,
    ENCODERS,
    METRICS,
    THREE,
    How,
    Metric,
    Plain,
    Vectors,
    answers,
    by_code,
    code_distances,
    fitted,
    large,
    make,
    plain_probing,
    random,
)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ENCODERS)
def test_all_buckets_give_what_a_scan_gives(name: str, metric: Metric) -> None:
    index = make(name, metric, subset="multi-index")
    vectors, ids = random(700, 15), np.random.default_rng(16).permutation(2000)[:700]
    vectors[50:80] = vectors[10]  # ties, which come by id
    index.add(vectors[:600], ids[:600])
    index.merge()
    index.add(vectors[600:], ids[600:])
    index.delete(ids[::9])
    queries, everything = random(6, 17), 1 << 31
    for distance in (*fitted(name, metric).distances(metric), "auto"):
        for k, filter in ((1, None), (20, None), (2000, None), (30, ids[::2])):
            how: How = {"distance": distance, "filter": filter, "rerank": 50 if k == 20 else 0}
            found = index.search(queries, k, strategy="subset", probes=everything, candidates=2000, **how)
            scanned = index.search(queries, k, strategy="scan", **how)
            assert answers(found) == answers(scanned)
            for own in answers(found):
                pairs = [(b, a) for a, b in own]
                # Zeros are first, in the order of the estimates, which may have been below zero.
                zeros = 0 if metric == "ip" else sum(b == 0 for b, _ in pairs)
                assert pairs[zeros:] == sorted(pairs[zeros:]) and not any(b for b, _ in pairs[:zeros])
    index.close()


@pytest.mark.parametrize("name", ["lsq", "lsq of 16 levels", "itq"])
def test_probes_say_how_many_buckets_are_looked_into(name: str) -> None:
    index = make(name, subset="multi-index")
    vectors, queries = random(300, 18), random(4, 19)
    index.add(vectors)
    index.merge()
    subset = index.subset
    assert isinstance(subset, MultiIndex)
    plain = Plain(fitted(name), "l2", subset.bits)
    plain.add(range(300), vectors)
    everything = code_distances(index, queries)
    for probes in (1, 2, 3, 7, 20):
        found = answers(index.search(queries, 400, strategy="subset", probes=probes, candidates=400))
        scores = answers(index.search(queries, 400, strategy="subset", probes=probes, distance="score"))
        for own, score, codes, (rows, _) in zip(
            found, scores, everything, plain_probing(index, plain, queries, probes), strict=True
        ):
            assert own == by_code(codes, rows)
            assert {row for row, _ in score} == rows
    index.close()


def test_candidates_are_those_of_the_best_scores() -> None:
    """One candidate is at least one row of the best weighed score; more candidates never make an answer worse."""
    index = make("lsq", subset=MultiIndex(bits=4))
    index.add(random(3000, 20))
    index.merge()
    queries = random(40, 21)
    exact = index.search(queries, 5, strategy="scan").ids
    recalls = []
    for candidates in (1, 30, 300, 3000):
        told = index.explain(queries, 5, strategy="subset", probes=1 << 20, candidates=candidates)
        assert told.candidates >= 40 * max(candidates, 5)
        assert told.candidates == 40 * 3000 if candidates == 3000 else told.candidates < 40 * 3000
        recalls.append(np.mean([len(set(a) & set(b)) for a, b in zip(told.matches.ids, exact, strict=True)]))
    assert recalls == sorted(recalls)
    assert recalls[0] < recalls[-1] == 5
    index.close()


@pytest.mark.parametrize("kept", ["float32", "float16", "int8"])
@pytest.mark.parametrize("metric", METRICS)
def test_kept_vectors_rank_exactly(kept: Literal["float32", "float16", "int8"], metric: Metric) -> None:
    index = make("lsq", metric, keep_vectors=kept, subset=MultiIndex(bits=4))
    vectors, queries = random(500, 22), random(7, 23)
    index.add(vectors[:450])
    index.merge()
    index.add(vectors[450:])
    index.delete(range(0, 500, 11))
    scanned = answers(index.search(queries, 9, strategy="scan", rerank=500))
    # By their vectors at once, or after the nearest by their codes were taken.
    for candidates in (500, 600):
        how: How = {"strategy": "subset", "probes": 1 << 20, "candidates": candidates}
        assert answers(index.search(queries, 9, rerank=500, **how)) == scanned
    by_score = index.search(queries, 9, strategy="subset", distance="score", rerank=500)
    assert answers(by_score) == scanned
    # And these are the true ones.
    there = index.get(index.ids()).astype(np.float64)
    for query, own in zip(queries.astype(np.float64), scanned, strict=True):
        if metric == "l2":
            true = np.square(there - query).sum(axis=1)
        else:
            true = -(there @ query)
            if metric == "cosine":
                true = 1 + true / np.linalg.norm(there, axis=1) / np.linalg.norm(query)
        order = np.argsort(true, kind="stable")[:9]
        assert [name for name, _ in own] == index.ids()[order].tolist()
        assert np.allclose([far for _, far in own], true[order], rtol=1e-4, atol=1e-4)
    # Fewer candidates are ranked exactly, too: distances are the true ones of whatever was found.
    exact = dict(itertools.chain.from_iterable(answers(index.search(queries[:1], 500, strategy="scan", rerank=500))))
    few = index.search(queries[:1], 9, strategy="subset", candidates=20, rerank=20)
    assert all(exact[name] == far for name, far in answers(few)[0])
    index.close()


def uneven(fresh: int, **options: Any) -> tuple[Index, Vectors, Plain]:
    """3000 vectors on one side of the mean: of the buckets some have many rows, and others few or none."""
    index = make("lsh", subset=MultiIndex(bits=4), **options)
    vectors = random(3000, 64) + np.float32(0.7)
    vectors[200:240] = vectors[100]  # ties among codes, too
    names: Any = range(3000) if options.get("ids", "int") == "int" else [f"{i:04}" for i in range(3000)]
    index.add(vectors[: 3000 - fresh], names[: 3000 - fresh])
    index.merge()
    if fresh:
        index.add(vectors[3000 - fresh :], names[3000 - fresh :])
    plain = Plain(fitted("lsh"), "l2", 4)
    plain.add(names[: 3000 - fresh], vectors[: 3000 - fresh])
    plain.create_tables()
    return index, vectors, plain


def nearest(codes: dict[Any, float], names: Iterable[Any], k: int) -> set[Any]:
    """The ``k`` nearest of them, and those that are as near."""
    far = sorted((codes[name], name) for name in names)
    return {name for distance, name in far if len(far) <= k or distance <= far[k - 1][0]}


@pytest.mark.parametrize("ids", ["int", "str"])
@pytest.mark.parametrize("fresh", [0, 300])
def test_of_far_more_ties_than_are_wanted_the_nearest_codes_are_ranked_exactly(fresh: int, ids: str) -> None:
    index, vectors, plain = uneven(fresh, keep_vectors="float32", ids=ids)
    queries = np.concatenate([vectors[100:102], random(8, 65)])
    codes = code_distances(index, queries)
    exact = [dict(own) for own in answers(index.search(queries, 3000, strategy="scan", rerank=3000))]
    new = [name for name in codes[0] if name not in plain.codes]
    cut = kept = 0
    for probes, wanted in itertools.product((1, 3, 8), (10, 40)):
        how: How = {"strategy": "subset", "probes": probes, "candidates": wanted, "rerank": wanted}
        found = answers(index.search(queries, 10, **how))
        for far, code, true, own in zip(plain.distances(queries), codes, exact, found, strict=True):
            looked = plain.buckets(far)[:probes]
            assert not any(cost for cost, _ in looked), "own buckets, of which each counts the same"
            score = Counter(name for _, (table, value) in looked for name in plain.tables[table].get(value, ()))
            least = sorted(score.values(), reverse=True)[:wanted][-1] if score else 0
            best = {name for name in score if score[name] >= least}
            if len(best) > 2 * wanted:
                above = {name for name in best if score[name] > least}
                best = above | nearest(code, best - above, wanted - len(above))
                cut += 1
            else:
                kept += 1
            best |= nearest(code, new, wanted)
            assert own == sorted(((name, true[name]) for name in best), key=lambda pair: (pair[1], pair[0]))[:10]
    assert cut > 5 < kept
    index.close()


@pytest.mark.parametrize("rerank", [0, 20, 256])
def test_company_does_not_change_an_answer(rerank: int) -> None:
    """Also that of queries which find little."""
    index, vectors, _ = uneven(0, keep_vectors="float32")
    queries = random(81, 66) - np.float32(3)
    queries[60] = vectors[100]
    how: How = {"strategy": "subset", "probes": 1, "rerank": rerank}
    together, alone = index.explain(queries, 5, **how), [index.explain(query, 5, **how) for query in queries]
    found = (together.matches.ids >= 0).sum(axis=1)
    assert found.min() < 5 == found.max()
    # (Distances by code may differ in their last bits: tables of several queries are one product.)
    assert together.matches.ids.tolist() == [one.matches.ids.tolist() for one in alone]
    assert together.reranked == sum(one.reranked for one in alone)
    index.close()


def test_scores_are_ranked_again_asymmetrically_without_kept_vectors() -> None:
    index = make("lsq", subset=MultiIndex(bits=4))
    index.add(random(400, 24))
    queries = random(3, 25)
    by_score = index.search(queries, 30, strategy="subset", distance="score")
    again = index.search(queries, 10, strategy="subset", distance="score", rerank=30)
    for codes, own, ids in zip(code_distances(index, queries), answers(again), by_score.ids.tolist(), strict=True):
        assert own == by_code(codes, ids)[:10]
    index.close()


def test_filters_and_deletions_hold_among_listed_and_fresh_rows() -> None:
    index = make("lsq", subset=MultiIndex(bits=4))
    index.add(random(600, 26))
    index.merge()
    index.add(random(100, 27))
    queries = random(4, 28)
    some = np.random.default_rng(29).permutation(700)[:300]
    index.delete(some[:100])
    for how in THREE:
        found = index.search(queries, 400, strategy="subset", filter=some, **how)
        ids = found.ids[found.ids >= 0]
        assert np.isin(ids, some[100:]).all()
        if "probes" not in how:
            assert [set(own) for own in found.ids.tolist()] == [{-1, *some[100:].tolist()}] * 4
        nothing = index.search(queries, 3, strategy="subset", filter=some[:100], **how)
        assert set(nothing.ids.ravel().tolist()) == {-1}
    # All listed rows came from lists: none but the fresh are scanned.
    told = index.explain(queries, 400, strategy="subset", filter=some)
    assert (told.fresh, told.chunks, told.candidates) == (4 * 100, 4, 4 * int((some[100:] < 600).sum()))
    # A few rows, all of them fresh, or all listed.
    for names in ([650, 651], [5, 6, 7], [5, 650]):
        left = sorted(set(names) - set(some[:100].tolist()))
        for how in BOTH:
            found = index.search(queries, 3, strategy="subset", filter=names, **how)
            assert [sorted(own[: len(left)]) for own in found.ids.tolist()] == [left] * 4
    index.close()


def test_updates_move_a_row_to_its_new_buckets() -> None:
    index = make("lsh", subset=MultiIndex(bits=8))
    vectors = random(200, 30)
    index.add(vectors)
    index.merge()
    index.add(vectors[:1], ids=[150], upsert=True)
    for _ in range(2):
        for how in BOTH:
            found = index.search(vectors[0], 2, strategy="subset", **how)
            assert found.ids.tolist() == [0, 150]
            assert found.distances[0] == found.distances[1]
        assert 150 not in index.search(vectors[150], 3, strategy="subset", distance="score").ids
        index.merge()
    index.close()


def test_strings_are_ids_too() -> None:
    numbers, names = make("lsq", subset="multi-index"), make("lsq", ids="str", subset="multi-index")
    vectors = random(300, 31)
    vectors[100:140] = vectors[7]
    text = [f"{i:03}" for i in range(300)]
    for part in (slice(0, 250), slice(250, 300)):
        numbers.add(vectors[part])
        names.add(vectors[part], text[part])
        if part.start == 0:
            numbers.merge()
            names.merge()
    queries = np.concatenate([vectors[7:8], random(2, 32)])
    for how in THREE:
        for k in (50, 400):
            a = answers(numbers.search(queries, k, strategy="subset", **how))
            b = answers(names.search(queries, k, strategy="subset", **how))
            assert [[(f"{name:03}", far) for name, far in own] for own in a] == b
    found = names.search(queries, 5, strategy="subset", distance="score", filter=["003", "299", "nobody"])
    assert [sorted(own[:2]) for own in found.ids.tolist()] == [["003", "299"]] * 3
    assert found.ids[0, 2:].tolist() == [None] * 3
    numbers.close()
    names.close()


@pytest.mark.parametrize(
    "how", [{}, {"distance": "score"}, {"probes": 60, "candidates": 100}, {"distance": "symmetric"}]
)
def test_threads_and_company_do_not_change_an_answer(how: How) -> None:
    index, _ = large()
    queries = random(600, 33)
    found = answers(index.search(queries, 10, strategy="subset", threads=1, **how))
    for threads in (2, 5, None):
        assert answers(index.search(queries, 10, strategy="subset", threads=threads, **how)) == found
