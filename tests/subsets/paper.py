"""Section 3.2 of the paper, word for word: dicts of lists, one bucket at a time. Shares nothing with the package."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, Matches, MultiIndex, make_encoder, metrics
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex._subsets.multi_index.postings import SEGMENT_ROWS, UNIT_ROWS
from lsqindex.encoders import Encoder, Layout

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
    with patch.object(type(metrics.METRICS[index.metric]), "least", -np.inf):
        found = index.search(queries, max(len(index), 1), **how)
    return [dict(own) for own in answers(found)]


def by_code(codes: dict[Any, float], names: Iterable[Any]) -> list[tuple[Any, float]]:
    """What an answer says of them, where codes alone rank them; not under inner products."""
    return [(name, max(codes[name], 0.0)) for name in sorted(names, key=lambda name: (codes[name], name))]


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


def plain_probing(index: Index, plain: Plain, queries: Vectors, probes: int) -> list[tuple[set[Any], int]]:
    """For each query the rows that the nearest ``probes`` buckets hold, and how many postings that are."""
    plain.create_tables()
    out = []
    for far in plain.distances(queries):
        lists = [plain.tables[table].get(value, []) for _, (table, value) in plain.buckets(far)[:probes]]
        out.append((set().union(*lists), sum(map(len, lists))))
    return out


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
