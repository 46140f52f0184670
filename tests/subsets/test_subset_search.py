"""Subset indexing through the public face: the paper's scores and order, and what an index adds to them.

``Plain`` reads section 3.2 of the paper word for word: dicts of lists, one bucket at a time. It shares nothing with
the package's own reference.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex import Index, Matches, MultiIndex, make_encoder
from lsqindex._query import query as request
from lsqindex._query import search as searcher
from lsqindex._query.sources import probing as multi_index
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex._subsets.multi_index.postings import SEGMENT_ROWS, UNIT_ROWS
from lsqindex.encoders import Encoder, Layout
from lsqindex.errors import ParameterError

Metric = Literal["l2", "cosine", "ip"]
Vectors = NDArray[np.float32]
Answers = list[list[tuple[Any, float]]]

METRICS: tuple[Metric, ...] = ("l2", "cosine", "ip")
DIM = 8
How = dict[str, Any]
#: By distance and by score, and with few buckets.
BOTH: tuple[How, ...] = ({}, {"distance": "score"})
THREE: tuple[How, ...] = (*BOTH, {"probes": 40})

ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 28, "iterations": 2}),
    "lsq as published": ("lsq", {"bits": 10, "refine": 0, "iterations": 2}),
    "lsq of 3 levels": ("lsq", {"bits": 24, "levels": 3, "iterations": 2}),
    "lsq of 5 levels": ("lsq", {"bits": 30, "levels": 5, "iterations": 2}),
    "lsq of 16 levels": ("lsq", {"bits": 40, "levels": 16, "iterations": 2}),
    "lsq of 256 levels": ("lsq", {"bits": 48, "levels": 256, "iterations": 2}),
    "ckmeans": ("ckmeans", {"bits": 16, "field_bits": 4, "rotations": 2}),
    "pq": ("pq", {"bits": 24, "field_bits": 6}),
    "kmeans": ("kmeans", {"bits": 5}),
    "itq": ("itq", {"bits": 8, "iterations": 3}),
    "okmeans": ("okmeans", {"bits": 7, "iterations": 3}),
    "lsh": ("lsh", {"bits": 29}),
}
BINARY = ("lsq", "lsq as published", "itq", "okmeans", "lsh")


def random(n: int, seed: int, dim: int = DIM) -> Vectors:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def prepared(vectors: Vectors, metric: Metric) -> Vectors:
    """As an encoder sees them."""
    if metric != "cosine":
        return vectors
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    out: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return out


@cache
def fitted(name: str, metric: Metric = "l2") -> Encoder:
    kind, parameters = ENCODERS[name]
    return make_encoder(kind, **parameters).fit(prepared(random(600, 0), metric))


def make(name: str, metric: Metric = "l2", **options: Any) -> Index:
    return Index(DIM, encoder=fitted(name, metric), metric=metric, **{"keep_vectors": None, **options})


def answers(found: Matches) -> Answers:
    """For each query (id, distance), what was found only."""
    rows = zip(found.ids.tolist(), found.distances.tolist(), strict=True)
    return [[(a, b) for a, b in zip(*row, strict=True) if b != np.inf] for row in rows]


# -- the paper's text ----------------------------------------------------------------------------------

#: The number of a table, and what its dimensions of the code hold.
Bucket = tuple[int, tuple[int, ...]]


def grouped(layout: Layout, row: Sequence[Any], bits: int | None) -> list[tuple[Any, ...]]:
    """The dimensions of a code, each alone, or, of a binary code, ``bits`` consecutive ones together."""
    dimensions = list(row)[layout.scalars :]
    size = bits if bits and layout.binary else 1
    return [tuple(dimensions[i : i + size]) for i in range(0, len(dimensions), size)]


@dataclass
class Plain:
    """Multiple index hashing: an index table for each dimension (or ``bits`` bits) of the code."""

    encoder: Encoder
    metric: Metric
    bits: int | None
    #: For each table: value → the ids of the data points that have it.
    tables: list[dict[tuple[int, ...], list[Any]]] = field(default_factory=list)
    codes: dict[Any, list[tuple[int, ...]]] = field(default_factory=dict)

    def add(self, ids: Iterable[Any], vectors: Vectors) -> None:
        layout = self.encoder.layout
        fields = layout.unpack(self.encoder.encode(prepared(vectors, self.metric))).tolist()
        for name, row in zip(ids, fields, strict=True):
            self.codes[name] = grouped(layout, row, self.bits)

    def delete(self, ids: Iterable[Any]) -> None:
        for name in ids:
            self.codes.pop(name, None)

    def create_tables(self) -> None:
        self.tables = [defaultdict(list) for _ in grouped(self.encoder.layout, self.encoder.layout.bits, self.bits)]
        for name, code in self.codes.items():
            for table, value in zip(self.tables, code, strict=True):
                table[value].append(name)

    def distances(self, queries: Vectors) -> list[list[list[int]]]:
        """Of each query, how far each value of each dimension is from it, less its nearest one: that is its own.

        In millionths (2⁻²⁰) of the farthest, and at least one: what is nearer to each other is equally far.
        """
        layout = self.encoder.layout
        out = []
        for values in self.encoder.probe_tables(queries, self.metric).values.astype(np.float64):
            fields = [values[a:b] for a, b in itertools.pairwise(layout.starts.tolist())]
            own = [field - field.min() for field in fields]
            widest = max(float(field.max()) for field in own[layout.scalars :]) or 1.0
            steps = [np.maximum(np.floor(field * (2**20 / widest) + 0.5), 1).astype(int).tolist() for field in own]
            for whole, exact in zip(steps, own, strict=True):
                whole[int(np.argmin(exact))] = 0
            out.append(steps)
        return out

    def buckets(self, far: list[list[int]]) -> list[tuple[int, Bucket]]:
        """All buckets of all tables and how far they are from the query, nearest first; equal ones by number."""
        found = []
        for table, dimensions in enumerate(grouped(self.encoder.layout, far, self.bits)):
            for value in itertools.product(*(range(len(own)) for own in dimensions)):
                distance = sum(own[level] for own, level in zip(dimensions, value, strict=True))
                found.append((distance, table, value[::-1], (table, value)))
        return [(distance, bucket) for distance, _, _, bucket in sorted(found)]

    def retrieve(
        self, buckets: list[tuple[int, Bucket]], k: int, may: set[Any]
    ) -> tuple[Counter[Any], list[tuple[int, Bucket]]]:
        """The score of each data point that is retrieved, and what was looked into: the query's own value in each
        dimension; and, while fewer than ``k`` came, the nearest value that is left of all dimensions."""
        own: dict[int, tuple[int, Bucket]] = {}
        for far, bucket in buckets:
            own.setdefault(bucket[0], (far, bucket))
        left = [one for one in buckets if own[one[1][0]] != one]
        looked, score = list(own.values()), Counter[Any]()
        for _, (table, value) in looked:
            score.update(name for name in self.tables[table].get(value, ()) if name in may)
        for one in left:
            if len(score) >= k:
                break
            table, value = one[1]
            score.update(name for name in self.tables[table].get(value, ()) if name in may)
            looked.append(one)
        return score, looked

    def search(
        self, queries: Vectors, k: int, codes: list[dict[Any, float]], may: Iterable[Any] | None = None
    ) -> Answers:
        """The top k by their score, and how many tables did not return them; ties by the distance of the code."""
        self.create_tables()
        allowed = set(self.codes) & (set(self.codes) if may is None else set(may))
        found = []
        for far, code in zip(self.distances(queries), codes, strict=True):
            score, _ = self.retrieve(self.buckets(far), min(k, len(allowed)), allowed)
            ranked = sorted((-number, code[name], name) for name, number in score.items())[:k]
            found.append([(name, float(len(self.tables) + less)) for less, _, name in ranked])
        return found


def code_distances(index: Index, queries: Vectors, **how: Any) -> list[dict[Any, float]]:
    """The distance of every code from each query, as estimated: perhaps below zero, where an answer says zero."""
    how = {"strategy": "scan", "progressive": False, "rerank": 0, **how}
    with patch.object(searcher, "search", searcher._search):
        found = index.search(queries, max(len(index), 1), **how)
    return [dict(own) for own in answers(found)]


def by_code(codes: dict[Any, float], names: Iterable[Any]) -> list[tuple[Any, float]]:
    """What an answer says of them, where codes alone rank them; not under inner products."""
    return [(name, max(codes[name], 0.0)) for name in sorted(names, key=lambda name: (codes[name], name))]


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
    assert known is not None
    plain = Plain(fitted(name, metric), metric, known.bits)
    plain.add(ids.tolist(), vectors)
    plain.delete(ids[story["dead"]].tolist())
    return index, plain, None if story["filter"] is None else ids[story["filter"]]


@settings(max_examples=250, deadline=None)
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
    monkeypatch.setattr(multi_index, "MOST_PROBES", 20)
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
    assert subset is not None
    plain = Plain(encoder, metric, subset.bits)  # type: ignore[arg-type]
    plain.add(range(400), vectors)
    found = index.search(query, 5, strategy="subset", distance="score")
    assert answers(found) == plain.search(query, 5, code_distances(index, query))
    index.close()


# -- many rows -----------------------------------------------------------------------------------------


@cache
def large() -> tuple[Index, Vectors]:
    """A full segment, a unit, a part of one that was merged, and fresh rows; a chunk of the first is gone."""
    n = SEGMENT_ROWS + UNIT_ROWS + 700
    index, vectors = make("lsh", subset=MultiIndex(bits=8)), random(n, 12)
    vectors[1000:1100] = vectors[70_000]
    index.add(vectors[:-300])
    index.merge()
    index.add(vectors[-300:])
    index.delete(np.r_[2 * CHUNK_ROWS : 3 * CHUNK_ROWS : 3, 5000:5010, n - 290 : n - 280])
    stats = index.stats()
    assert 300 <= stats["fresh"] < CHUNK_ROWS
    assert stats["deleted"] < CHUNK_ROWS // 3  # those of the chunk that was given back are not even stored
    return index, vectors


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


# -- ranked by distance --------------------------------------------------------------------------------


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


def plain_probing(index: Index, plain: Plain, queries: Vectors, probes: int) -> list[tuple[set[Any], int]]:
    """For each query the rows that the nearest ``probes`` buckets hold, and how many postings that are."""
    plain.create_tables()
    out = []
    for far in plain.distances(queries):
        lists = [plain.tables[table].get(value, []) for _, (table, value) in plain.buckets(far)[:probes]]
        out.append((set().union(*lists), sum(map(len, lists))))
    return out


@pytest.mark.parametrize("name", ["lsq", "lsq of 16 levels", "itq"])
def test_probes_say_how_many_buckets_are_looked_into(name: str) -> None:
    index = make(name, subset="multi-index")
    vectors, queries = random(300, 18), random(4, 19)
    index.add(vectors)
    index.merge()
    subset = index.subset
    assert subset is not None
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


# -- what a search did ---------------------------------------------------------------------------------


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
    assert subset is not None
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
    monkeypatch.setattr(request, "AUTO_ROWS", 400)
    assert chosen() == ("subset", "400 rows are in posting lists")
    assert chosen(distance="symmetric")[0] == "subset"
    monkeypatch.setattr(request, "AUTO_ROWS", 401)
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
    monkeypatch.setattr(request, "AUTO_ROWS", 100)
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
    monkeypatch.setattr(request, "AUTO_ROWS", 1)
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


# -- however it came to be -----------------------------------------------------------------------------


def assert_same(index: Index, other: Index) -> None:
    """Both answer alike, in every way."""
    queries = random(9, 46)
    asked: list[How] = [
        {"distance": "score"},
        {"distance": "score", "filter": range(0, 300, 2)},
        {"distance": "score", "probes": 7},
        {},
        {"probes": 1 << 20, "candidates": 1000},
    ]
    for how in asked:
        for k in (3, 1000):
            a, b = (answers(one.search(queries, k, strategy="subset", **how)) for one in (index, other))
            assert a == b, how
    assert index.check() == other.check() == []


def story_of(index: Index, vectors: Vectors) -> Index:
    """300 vectors under their numbers, an update and two deletes, and all of them listed."""
    index.add(vectors[:200], ids=range(200))
    index.add(vectors[290:300], ids=range(200, 210))
    index.add(vectors[200:], ids=range(200, 300), upsert=True)
    index.delete([17, 230])
    index.merge()
    return index


def set_late(directory: Path, vectors: Vectors) -> Index:
    return story_of(make("lsh", keep_vectors="float32"), vectors).set_subset(MultiIndex(bits=5))


def set_anew(directory: Path, vectors: Vectors) -> Index:
    index = story_of(make("lsh", keep_vectors="float32", subset=MultiIndex(bits=9)), vectors)
    return index.set_subset(None).set_subset("multi-index").set_subset(MultiIndex(bits=5))


def reopened(directory: Path, vectors: Vectors) -> Index:
    path = directory / "index.lsq"
    with Index.create(path, DIM, encoder=fitted("lsh"), subset=MultiIndex(bits=5), keep_vectors="float32") as index:
        story_of(index, vectors)
    return Index.open(path, read_only=True)


def compacted(directory: Path, vectors: Vectors) -> Index:
    path = directory / "index.lsq"
    index = Index.create(path, DIM, encoder=fitted("lsh"), subset=MultiIndex(bits=5), keep_vectors="float32")
    story_of(index, vectors).compact()
    return index


def copied(directory: Path, vectors: Vectors) -> Index:
    with make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32") as index:
        story_of(index, vectors).save(directory / "copy.lsq")
    return Index.open(directory / "copy.lsq")


def reencoded(directory: Path, vectors: Vectors) -> Index:
    index = make("itq", keep_vectors="float32", subset=MultiIndex(bits=5))
    return story_of(index, vectors).reencode(fitted("lsh"))


def in_a_batch(directory: Path, vectors: Vectors) -> Index:
    index = make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32")
    with index.batch() as batch:
        batch.add(vectors[:250], ids=range(250))
        batch.delete([17, 230])
        assert len(index) == 0  # nobody sees it yet
        assert index.search(vectors[:1], 1, strategy="subset").ids.tolist() == [[-1]]
        batch.add(vectors[250:], ids=range(250, 300))
    return index


def undone(directory: Path, vectors: Vectors) -> Index:
    index = story_of(make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32"), vectors)
    with pytest.raises(KeyError), index.batch() as batch:
        batch.add(vectors[:100])
        batch.delete(range(100))
        raise KeyError("nothing of it happened")
    return index


WAYS: tuple[Callable[[Path, Vectors], Index], ...] = (
    set_late,
    set_anew,
    reopened,
    compacted,
    copied,
    reencoded,
    in_a_batch,
    undone,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_answers_do_not_depend_on_how_the_index_came_to_be(
    way: Callable[[Path, Vectors], Index], tmp_path: Path
) -> None:
    vectors = random(300, 47)
    with make("lsh", subset=MultiIndex(bits=5), keep_vectors="float32") as other:
        story_of(other, vectors)
        with way(tmp_path, vectors) as index:
            assert index.subset == MultiIndex(bits=5)
            assert_same(index, other)


def test_a_subset_structure_can_be_removed() -> None:
    index = make("lsq", subset="multi-index")
    vectors, queries = random(300, 48), random(3, 49)
    index.add(vectors)
    index.merge()
    assert index.stats()["listed"] == 300
    before = answers(index.search(queries, 5))
    assert index.set_subset(None) is index
    assert index.subset is None
    stats = index.stats()
    assert (stats["subset"], stats["tables"], stats["listed"], stats["fresh"]) == (None, 0, 0, 0)
    assert answers(index.search(queries, 5)) == before
    with pytest.raises(ParameterError, match="set_subset"):
        index.search(queries, 5, strategy="subset")
    index.merge()  # nothing to do
    assert index.check() == []
    index.close()


def test_merging_lists_fresh_rows_and_changes_no_answer() -> None:
    merged, fresh = (make("lsh", subset=MultiIndex(bits=5)) for _ in range(2))
    vectors, seen = random(300, 50), list[tuple[int, int | None]]()
    for first in range(0, 300, 60):
        for index in (merged, fresh):
            index.add(vectors[first : first + 60])
        merged.merge(progress=lambda done, total: seen.append((done, total)))
        assert_same(merged, fresh)
    assert (merged.stats()["fresh"], fresh.stats()["fresh"]) == (0, 300)
    assert seen == [(n, n) for n in range(60, 301, 60)]
    merged.close()
    fresh.close()


def test_tables_of_chosen_bits_grow_with_the_index_when_it_is_merged() -> None:
    index = make("lsh", subset="multi-index")
    vectors, query = random(5000, 51), random(1, 52)
    index.add(vectors[:10])
    assert index.subset == MultiIndex(bits=4)
    index.add(vectors[10:])
    assert index.subset == MultiIndex(bits=4)
    index.merge()
    assert index.subset == MultiIndex(bits=6)
    plain = Plain(fitted("lsh"), "l2", 6)
    plain.add(range(5000), vectors)
    found = index.search(query, 30, strategy="subset", distance="score")
    assert answers(found) == plain.search(query, 30, code_distances(index, query))
    # Those that were asked for stay.
    index.set_subset(MultiIndex(bits=9))
    index.merge()
    assert index.subset == MultiIndex(bits=9)
    index.close()


# -- what is refused -----------------------------------------------------------------------------------


def refused(act: Callable[[], Any], *words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        act()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["probes", "candidates"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, (1 << 31) + 1, np.float32(2)])
def test_probes_and_candidates_are_whole_numbers(name: str, value: Any) -> None:
    with make("lsq", subset="multi-index") as index:
        index.add(random(20, 53))
        for act in (index.search, index.explain):
            refused(partial(act, random(1, 54), 3, **{name: value}), f"{name}=", "whole number from 1")


def test_what_only_a_multi_index_can_do_is_refused_without_one() -> None:
    with make("lsq") as index:
        index.add(random(20, 55))
        query = random(1, 56)
        without: list[tuple[How, str]] = [
            ({"strategy": "subset"}, "strategy='subset'"),
            ({"distance": "score"}, "distance='score'"),
            ({"probes": 3}, "probes"),
            ({"candidates": 3}, "candidates"),
            ({"probes": 3, "candidates": 3}, "probes and candidates"),
        ]
        for how, cause in without:
            refused(partial(index.search, query, 3, **how), cause, "set_subset('multi-index')", "has none")
        index.set_subset("multi-index")
        by_scan: list[tuple[How, str]] = [
            ({"strategy": "scan", "distance": "score"}, "distance='score'"),
            ({"strategy": "scan", "probes": 3}, "probes"),
            ({"strategy": "scan", "candidates": 3}, "candidates"),
        ]
        for how, cause in by_scan:
            refused(partial(index.search, query, 3, **how), "strategy='scan'", cause)
        refused(lambda: index.search(query, 3, distance="score", candidates=3), "candidates", "leave it away")
        refused(lambda: index.search(query, 3, strategy="lists"), "strategy='lists'", "subset")  # type: ignore[arg-type]
        numbers: How = {"probes": np.int64(4), "candidates": np.uint8(3)}
        assert index.explain(query, 3, **numbers).probes == 4


@pytest.mark.parametrize("bits", [3, 21, 0, -4, 8.0, "8", True])
def test_bits_of_a_table_are_four_to_twenty(bits: Any) -> None:
    refused(lambda: MultiIndex(bits=bits), "bits=", "whole number from 4 to 20")


def test_every_number_of_bits_from_four_to_twenty_serves() -> None:
    vectors = random(60, 57)
    with make("lsh") as index:
        index.add(vectors)
        wanted = answers(index.search(vectors[:3], 60))
        for bits in range(4, 21):
            index.set_subset(MultiIndex(bits=np.int64(bits)))  # type: ignore[arg-type]
            assert index.subset == MultiIndex(bits)
            stats = index.stats()
            assert (stats["tables"], stats["table_bits"]) == (-(-29 // bits), bits)
            assert answers(index.search(vectors[:3], 60, strategy="subset")) == wanted
            nearest = index.search(vectors[:3], 1, strategy="subset", distance="score")
            assert (nearest.ids.tolist(), nearest.distances.tolist()) == ([[0], [1], [2]], [[0], [0], [0]])


def test_tables_that_a_code_cannot_have_are_refused_and_nothing_changes() -> None:
    wrong: list[Any] = ["multi", "", 8, b"multi-index", ["multi-index"], MultiIndex]
    for subset in wrong:
        refused(partial(Index, DIM, subset=subset), "subset=", "'multi-index'", "MultiIndex(bits=")
    refused(
        lambda: Index(DIM, encoder="flat", subset="multi-index", keep_vectors=None),
        "keeps vectors as they are",
        "another encoder",
    )
    refused(
        lambda: Index(DIM, encoder="pq", bits=16, subset=MultiIndex(bits=8), keep_vectors=None),
        "bits=8",
        "not binary",
        "MultiIndex()",
    )
    refused(
        lambda: Index(64, encoder="lsh", bits=4 * 4097, subset=MultiIndex(bits=4), keep_vectors=None),
        "4097 tables",
        "more bits a table",
    )
    with make("lsh", subset=MultiIndex(bits=6), keep_vectors="float32") as index:
        vectors = random(300, 58)
        index.add(vectors)
        index.merge()
        before = answers(index.search(vectors[:3], 5, strategy="subset", distance="score"))
        refused(lambda: index.reencode("pq", bits=16), "bits=6", "not binary")
        refused(lambda: index.reencode("flat"), "keeps vectors as they are")
        refused(lambda: index.set_subset("lists"), "subset='lists'")  # type: ignore[arg-type]
        assert index.subset == MultiIndex(bits=6)
        assert answers(index.search(vectors[:3], 5, strategy="subset", distance="score")) == before
        # Tables of each dimension follow from a code that is not binary, and from the next one.
        index.set_subset("multi-index").reencode("pq", bits=16, field_bits=4)
        assert (index.subset, index.stats()["tables"]) == (MultiIndex(), 4)
        index.reencode("lsh", bits=29)
        assert index.subset == MultiIndex(bits=4)
        assert index.check() == []
