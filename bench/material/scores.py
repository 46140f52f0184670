"""Scores and order against a plain reading of section 3.2 of the paper, on codes of random shapes."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex.encoders import Encoder, make_encoder
from lsqindex.testing import reference

from .data import SEED

#: Encoders and their parameters; tables of so many bits where the code is binary.
ENCODERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("itq", {"bits": 12}),
    ("lsh", {"bits": 30}),
    ("okmeans", {"bits": 8}),
    ("lsq", {"bits": 11, "levels": 2, "refine": 0, "scalar": None}),
    ("lsq", {"m": 7, "levels": 5, "refine": 0, "scalar": None}),
    ("lsq", {"m": 4, "levels": 16, "refine": 0, "scalar": None}),
    ("ckmeans", {"bits": 12, "field_bits": 3}),
    ("pq", {"bits": 16, "field_bits": 4}),
    ("kmeans", {"bits": 5}),
)
_DIM = 12


def compared(name: str, parameters: dict[str, Any], shapes: int) -> dict[str, Any]:
    """Over so many random collections: queries, and those whose scores or order differ."""
    queries = wrong = 0
    encoder: Encoder | None = None
    for shape in range(shapes):
        rng = np.random.default_rng([SEED, shape])
        vectors = rng.standard_normal((300, _DIM)).astype(np.float32)
        if encoder is None or shape % 20 == 0:
            encoder = make_encoder(name, **parameters).fit(vectors)
        n, k = int(rng.integers(1, 300)), int(rng.integers(1, 40))
        bits = int(rng.integers(4, 9)) if encoder.layout.binary else None
        index = Index(_DIM, encoder=encoder, subset=MultiIndex(bits), keep_vectors=None)
        index.add(vectors[:n])
        if shape % 2:
            index.merge()
        asked = rng.standard_normal((3, _DIM)).astype(np.float32)
        found = index.search(asked, k, strategy="subset", distance="score")
        fields = encoder.layout.unpack(encoder.encode(vectors[:n]))
        for query, ids, missing in zip(asked, found.ids, found.distances, strict=True):
            queries += 1
            wrong += not as_in_the_paper(encoder, fields, bits, query, k, ids, missing)
        index.close()
    return {"queries compared": queries, "unequal": wrong}


def as_in_the_paper(
    encoder: Encoder, fields: NDArray[Any], bits: int | None, query: Any, k: int, ids: Any, missing: Any
) -> bool:
    layout, costs = encoder.layout, encoder.probe_tables(query[None]).values[0].astype(np.float64)
    groups = [[j] for j in range(layout.m)]
    if bits is not None:
        groups = [list(range(first, min(first + bits, layout.m))) for first in range(0, layout.m, bits)]
    scores, tables = _scores(layout, fields, costs, groups, min(k, len(fields)))
    ordered = sorted(scores.values(), reverse=True)[:k]
    if [tables - score for score in ordered] != missing[: len(ordered)].tolist() or (
        missing[len(ordered) :] < np.inf
    ).any():
        return False
    own = [int(name) for name in ids[: len(ordered)]]
    if len(set(own)) < len(own) or [scores[name] for name in own] != ordered:
        return False
    best = encoder.distances()[0]
    tables_of = encoder.tables(query[None], distance=best)
    distances = reference.distances(layout.pack(fields), layout, tables_of)[0]
    steps = [(scores[a] == scores[b], distances[b] - distances[a]) for a, b in pairwise(own)]
    return all(step >= -1e-4 * np.abs(distances).max() for tied, step in steps if tied)


def _scores(layout: Any, fields: NDArray[Any], costs: Any, groups: list[list[int]], k: int) -> tuple[Counter[int], int]:
    """Each table is a dict from a value of its dimensions to rows; a score counts the tables that return a row."""
    tables: list[dict[tuple[int, ...], list[int]]] = [{} for _ in groups]
    for row, code in enumerate(fields.tolist()):
        for table, group in zip(tables, groups, strict=True):
            table.setdefault(tuple(code[j] for j in group), []).append(row)
    # The value of each dimension that is nearest to the query, and then, one at a time, the next nearest of all.
    waiting = []
    for t, group in enumerate(groups):
        own = [costs[layout.starts[j] : layout.starts[j + 1]] for j in group]
        for values in product(*(range(len(each)) for each in own)):
            cost = sum(each[value] - each.min() for each, value in zip(own, values, strict=True))
            waiting.append((cost, t, values))
    heapq.heapify(waiting)
    scores: Counter[int] = Counter()
    looked = 0
    while waiting and (looked < len(groups) or len(scores) < k):
        _, t, values = heapq.heappop(waiting)
        scores.update(tables[t].get(values, []))
        looked += 1
    return scores, len(groups)
