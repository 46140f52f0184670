"""What a subset search says that it did, and which strategy is chosen why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lsqindex import Index, MultiIndex, make_encoder
from lsqindex._query import tuning
from lsqindex._storage.format.columns import CHUNK_ROWS

from .paper import BINARY, DIM, ENCODERS, How, Plain, answers, assert_same, fitted, make, plain_probing, random


@pytest.mark.parametrize("name", ["lsq", "lsq of 5 levels", "lsh"])
def test_explain_counts_what_a_plain_search_counts(name: str) -> None:
    index = make(name, subset=MultiIndex(bits=5) if name in BINARY else "multi-index", keep_vectors="float16")
    vectors, queries = random(764, 34), random(3, 35)
    index.add(vectors[:704])
    index.merge()
    plain = Plain(fitted(name), "l2", 5)
    plain.add(range(704), vectors[:704])
    index.delete(range(0, 704, 10))  # lists still name them
    dead = set(range(0, 704, 10))
    tables = len(plain.codes[0])
    buckets = len(plain.buckets(plain.distances(queries)[0]))
    for fresh in (0, 60):
        if fresh:
            index.add(vectors[704:])
        for probes in (1, tables, 3 * tables + 1, buckets, buckets + 9):
            looked = plain_probing(index, plain, queries, probes)
            rows = sum(len(found) for found, _ in looked)
            living = sum(len(found - dead) for found, _ in looked)
            how: How = {"strategy": "subset", "probes": probes, "candidates": 800}
            told = index.explain(queries, 5, rerank=0, **how)
            assert (told.strategy, told.why) == ("subset", "it was asked for")
            assert (told.tables, told.table_bits) == (tables, 5 if name in BINARY else 3)
            assert (told.probes, told.postings) == (3 * min(probes, buckets), sum(count for _, count in looked))
            assert (told.rows, told.fresh, told.chunks) == (rows + 3 * fresh, 3 * fresh, 3 * (fresh > 0))
            assert (told.candidates, told.reranked) == (living, 0)
            assert answers(told.matches) == answers(index.search(queries, 5, rerank=0, **how))
            # Of each query the best are ranked again, as many as there are; 60 + 4k of them where nothing is said.
            for rerank, most in ((40, 40), (None, 80)):
                there = [min(most, len(found - dead) + fresh) for found, _ in looked]
                assert index.explain(queries, 5, rerank=rerank, **how).reranked == sum(there)
    index.close()


@pytest.mark.parametrize("name", ["lsq", "pq", "itq"])
def test_explain_counts_what_the_paper_s_search_looks_into(name: str) -> None:
    index = make(name, subset="multi-index")
    vectors, queries = random(500, 36), random(4, 37)
    index.add(vectors[:450])
    index.merge()
    index.add(vectors[450:])  # fresh rows are listed on the way, and do not count as scanned
    subset = index.subset
    assert isinstance(subset, MultiIndex)
    plain = Plain(fitted(name), "l2", subset.bits)
    plain.add(range(500), vectors)
    plain.create_tables()
    for k in (1, 10, 400, 900):
        told = index.explain(queries, k, strategy="subset", distance="score")
        probes = postings = rows = candidates = 0
        for far in plain.distances(queries):
            score, looked = plain.retrieve(plain.buckets(far), min(k, 500), set(range(500)))
            probes += len(looked)
            postings += sum(len(plain.tables[table].get(value, ())) for _, (table, value) in looked)
            rows += len(score)
            least = sorted(score.values())[-min(k, len(score))]
            candidates += sum(number >= least for number in score.values())
        assert (told.probes, told.postings, told.rows, told.candidates) == (probes, postings, rows, candidates)
        assert (told.fresh, told.chunks, told.reranked) == (0, 0, 0)
        assert index.explain(queries, k, strategy="subset", distance="score", rerank=20).reranked == 4 * min(
            max(k, 20), 500
        )
    index.close()


def test_a_scan_is_explained_too() -> None:
    index = make("lsq", subset="multi-index")
    index.add(random(CHUNK_ROWS + 10, 38))
    told = index.explain(random(2, 39), 3, strategy="scan")
    assert (told.strategy, told.tables, told.table_bits) == ("scan", 0, 0)
    assert (told.rows, told.chunks) == (2 * (CHUNK_ROWS + 10), 4)
    assert (told.probes, told.postings, told.fresh, told.candidates) == (0, 0, 0, 0)
    assert told.matches.ids.shape == (2, 3)
    few = index.explain(random(2, 39), 3, filter=[1, 2, 3, 99_999])
    assert (few.rows, few.chunks) == (6, 0)
    index.close()


def test_what_is_told_reads_as_lines() -> None:
    index = make("lsq of 16 levels", subset="multi-index")
    index.add(random(50, 40))
    index.merge()
    lines = dict(line.split(None, 1) for line in str(index.explain(random(1, 41)[0], 7, strategy="subset")).split("\n"))
    assert lines["strategy"] == "subset"
    assert lines["why"] == "it was asked for"
    assert lines["matches"] == "7"
    assert lines["candidates"] == "50"
    assert "fresh" not in lines  # nothing is said of what there is nothing of
    index.close()


def test_the_strategy_is_chosen_and_the_reason_told(monkeypatch: pytest.MonkeyPatch) -> None:
    index = make("lsh", subset="multi-index")
    index.add(random(400, 42))
    index.merge()
    query = random(1, 43)

    def chosen(**how: Any) -> tuple[str, str]:
        told = index.explain(query, 3, **how)
        return told.strategy, told.why

    assert chosen() == ("scan", "400 rows are in posting lists; below 524,288 a scan is as fast and misses nothing")
    assert chosen(strategy="scan") == ("scan", "it was asked for")
    for how in ({"probes": 5}, {"candidates": 5}, {"distance": "score"}):
        assert chosen(**how) == ("subset", "what was asked for is of the multi-index")
    assert chosen(strategy="subset") == ("subset", "it was asked for")
    few = "the filter leaves few rows: their codes alone are scanned"
    assert chosen(strategy="subset", filter=[1, 2]) == ("scan", few)
    assert chosen(filter=[1, 2], probes=3) == ("scan", few)
    assert chosen(strategy="subset", filter=[1, 2], distance="score")[0] == "subset"
    assert chosen(strategy="subset", filter=range(100))[0] == "subset"
    monkeypatch.setattr(tuning, "AUTO_ROWS", 400)
    index._searched = None  # which keeps its plans
    assert chosen() == ("subset", "400 rows are in posting lists")
    assert chosen(distance="symmetric")[0] == "subset"
    monkeypatch.setattr(tuning, "AUTO_ROWS", 401)
    index._searched = None  # which keeps its plans
    assert chosen()[0] == "scan"
    index.set_subset(None)
    assert chosen() == ("scan", "the index has no subset structure")
    index.close()


SEARCHED = "lsq searches for its codes: neighbours share few buckets, and a scan finds more"
NOT_BINARY = "the code is not binary: its tables have few buckets, and reading them is no faster than a scan"


@pytest.mark.parametrize("name", ENCODERS)
def test_codes_that_no_bucket_tells_are_scanned_however_many_there_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "AUTO_ROWS", 100)
    searched = name.startswith("lsq") and name != "lsq as published"
    wanted = SEARCHED if searched else NOT_BINARY if name not in BINARY else None
    assert fitted(name).hashes is not searched
    with make(name, subset="multi-index") as index:
        index.add(random(100, 60))
        query = random(1, 61)
        # Nothing is listed yet.
        below = "0 rows are in posting lists; below 100 a scan is as fast and misses nothing"
        assert index.explain(query, 3).why == (wanted or below)
        index.merge()
        told = index.explain(query, 3)
        assert (told.strategy, told.why) == (
            ("scan", wanted) if wanted else ("subset", "100 rows are in posting lists")
        )
        # Who asks for it has it.
        for how in ({"strategy": "subset"}, {"probes": 5}, {"candidates": 5}, {"distance": "score"}):
            assert index.explain(query, 3, **how).strategy == "subset"


def test_published_codes_of_several_levels_are_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hash, and are not binary."""
    monkeypatch.setattr(tuning, "AUTO_ROWS", 1)
    encoder = make_encoder("lsq", m=6, refine=0, levels=4, iterations=2).fit(random(600, 0))
    assert encoder.hashes
    with Index(DIM, encoder=encoder, subset="multi-index", keep_vectors=None) as index:
        index.add(random(50, 62))
        index.merge()
        assert index.explain(random(1, 63), 3).why == NOT_BINARY


def test_an_index_that_is_not_trained_is_searched_exactly() -> None:
    index = Index(DIM, encoder="lsh", bits=29, subset=MultiIndex(bits=6), keep_vectors=None)
    assert index.subset == MultiIndex(bits=6)
    vectors, queries = random(300, 44), random(2, 45)
    assert index.search(queries, 3, strategy="subset", distance="score").ids.tolist() == [[-1] * 3] * 2
    index.add(vectors)
    index.merge()  # nothing to list yet, and no error
    told = index.explain(queries, 4, strategy="subset", probes=5)
    assert told.strategy == "scan"
    assert "not trained" in told.why
    true = np.square(queries[:, None] - vectors).sum(axis=2)
    assert told.matches.ids.tolist() == np.argsort(true, axis=1)[:, :4].tolist()
    # Once it is, it is the index that was trained before.
    index.train()
    assert index.subset == MultiIndex(bits=6)
    other = Index(DIM, encoder=index.encoder, subset=MultiIndex(bits=6), keep_vectors=None)
    other.add(vectors)
    assert_same(index, other)
    index.close()
    other.close()
