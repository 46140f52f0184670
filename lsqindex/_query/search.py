"""One search in one snapshot: which strategy, which rows, their distances, the nearest, their ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._inputs.filters import Condition
from .._inputs.vectors import Vectors
from .._storage.format import sorted_ids
from .._storage.format.columns import RowNumbers
from .._storage.format.records import REMEDY
from .._storage.store import Store
from .._subsets import stored as subsets
from ..encoders.coder import Coder
from ..encoders.layout import Tables
from ..encoders.linalg import squares
from ..errors import DamagedError
from . import rerank, topk
from .query import Request, choose
from .select import select
from .snapshot import once
from .sources import codes as scan
from .sources import exact
from .sources import multi_index as by_lists
from .sources import scan as by_scan
from .stored import vectors_of

#: Queries against vectors are taken in groups whose distances to all rows fit into about so many bytes.
_GROUP_BYTES = 8 << 20

#: Vectors that are searched as they are stay in memory from one search to the next, up to so many bytes.
_KNOWN_BYTES = 16 << 20

#: Queries that re-rank many rows are taken in groups that re-rank about so many together.
_DEEP_ROWS = 1 << 22

#: Under cosine, a query whose squares add up to less than the first is multiplied by the second: products with such
#: small numbers are too small for float32.
_SMALL, _LIFT = 2.0**-80, np.float32(2.0**100)


class Answer(NamedTuple):
    """What was found, shape (nq, k) each; rows are −1 where there is nothing."""

    ids: NDArray[Any]
    distances: NDArray[np.float32]
    rows: NDArray[np.int64]


def search(store: Store, coder: Coder, request: Request) -> tuple[Answer, str, str]:
    """The k nearest of each query; the strategy that found them, and why.

    An estimate of a distance, or a sum in floats, can be a little below zero. It is returned as zero, except for inner
    products; the order of the answers is that of the estimates.
    """
    answer, strategy, why = _search(store, coder, request)
    if coder.metric != "ip":
        np.maximum(answer.distances, 0, out=answer.distances)
    return answer, strategy, why


def _search(store: Store, coder: Coder, request: Request) -> tuple[Answer, str, str]:
    rows = None if request.allowed is None else allowed_rows(store, request.allowed)
    strategy, why = choose(
        request,
        coder,
        listed=store.state.listed if subsets.read(store.source) else None,
        few=rows is not None and by_scan.few(store, rows),
    )
    if not len(request.queries) or not store.state.count or (rows is not None and not len(rows)):
        counts, no_rows = np.zeros(len(request.queries), np.int64), np.empty(0, np.uint32)
        return _padded(counts, no_rows, np.empty(0, np.float32), _no_ids(store), request.k), strategy, why
    if coder.metric == "cosine" and not request.by_score:
        small = squares(request.queries) < _SMALL
        if small.any():
            return _with_small_queries(store, coder, request, rows, strategy, small), strategy, why
    return _found(store, coder, request, rows, strategy), strategy, why


def _found(store: Store, coder: Coder, request: Request, rows: RowNumbers | None, strategy: str) -> Answer:
    if request.exact:
        some = store.living() if rows is None else rows
        if not len(some):
            raise DamagedError(f"deleted rows: all of them, and {store.state.count} should be there; {REMEDY}")
        return (_search_vectors if coder.floats else _search_kept)(store, coder, request, some)
    wide = min(max(request.k, request.rerank), store.state.count)
    return (_by_lists if strategy == "subset" else _by_scan)(store, coder, request, rows, wide)


def allowed_rows(store: Store, allowed: Any) -> RowNumbers:
    """The rows of ids, or those whose payloads are so, ascending."""
    if isinstance(allowed, Condition):
        return select(store, allowed)
    found = store.rows_of(allowed)
    return np.unique(found[found >= 0]).astype(np.uint32)


# -- cosine: queries of zeros, and nearly so ---------------------------------------------------------


def _with_small_queries(
    store: Store, coder: Coder, request: Request, rows: RowNumbers | None, strategy: str, small: NDArray[np.bool_]
) -> Answer:
    """Short queries are made longer, which changes no cosine. Queries of zeros are at distance 1 from every row."""
    queries = request.queries * np.where(small, _LIFT, np.float32(1))[:, None]
    zeros = np.logical_not(queries.any(axis=1))
    if not zeros.any():
        return _found(store, coder, replace(request, queries=queries), rows, strategy)
    first = _first_by_id(store, rows, request.k)
    one = _padded(np.array([len(first)]), first, np.ones(len(first), np.float32), store.ids_of(first), request.k)
    by_id = _joined([one] * int(zeros.sum()))
    if zeros.all():
        return by_id
    others = _found(store, coder, replace(request, queries=queries[~zeros]), rows, strategy)
    order = np.argsort(np.concatenate([np.flatnonzero(zeros), np.flatnonzero(~zeros)]))
    ids, distances, found = _joined([by_id, others])
    return Answer(ids[order], distances[order], found[order])


def _first_by_id(store: Store, rows: RowNumbers | None, k: int) -> RowNumbers:
    """Of ``rows``, or all for None, the k of the smallest ids, in their order."""
    if rows is None:
        found: list[RowNumbers] = []
        for _, block in sorted_ids.blocks(store.source):
            found.append(block[: k - sum(map(len, found))])
            if sum(map(len, found)) == k:
                break
        return np.concatenate(found)
    _, places = topk.order(np.array([len(rows)]), np.ones(len(rows), np.float32), store.ids_of(rows), k)
    return rows[places]


# -- cosine: rows of zeros ------------------------------------------------------------------------


def _zeros_among(store: Store, coder: Coder, rows: RowNumbers) -> RowNumbers:
    """All rows of zeros that have the same code as one of ``rows``, which are at distance 1 from a query."""
    if not len(rows):
        return rows
    rows = np.unique(rows)
    found = rows[~vectors_of(store, coder, rows).any(axis=1)]
    codes = np.unique(store.codes().gather(found), axis=0)
    same = [once(store, ("zeros", code.tobytes()), partial(_zeros, store, coder, code)) for code in codes]
    return np.concatenate([rows[:0], *same])


def _zeros(store: Store, coder: Coder, code: NDArray[np.uint8]) -> RowNumbers:
    """All rows of zeros with that code."""
    living, found = store.living(), []
    for first in range(0, len(living), 1 << 16):
        rows = living[first : first + (1 << 16)]
        rows = rows[(store.codes().gather(rows) == code).all(axis=1)]
        found.append(rows[~vectors_of(store, coder, rows).any(axis=1)])
    return np.concatenate(found)


def _without_zeros(
    store: Store, coder: Coder, request: Request, tables: Tables, rows: RowNumbers | None, zeros: RowNumbers, wide: int
) -> Answer:
    """Zeros share a code, so many of them can take the places of all other candidates. So these queries are searched
    among the other rows, and the first zeros by id join what is found, at their distance of 1.
    """
    everything = store.living() if rows is None else rows
    zero = np.zeros(store.state.rows, np.bool_)
    zero[zeros] = True
    left, k = everything[~zero[everything]], request.k
    first = _first_by_id(store, everything[zero[everything]], k)
    n = len(request.queries)
    near = np.tile(first.astype(np.int64), (n, 1))
    distances = np.ones(near.shape, np.float32)
    if len(left):
        others = _scanned(store, coder, request, tables, left, min(wide, len(left)))
        near = np.concatenate([others.rows, near], axis=1)
        distances = np.concatenate([others.distances, distances], axis=1)
    there = near >= 0
    found, far = near[there].astype(np.uint32), distances[there]
    ids = store.ids_of(found)
    counts, places = topk.order(there.sum(axis=1), far, ids, k)
    return _padded(counts, found[places], far[places], _take(ids, places), k)


# -- distance estimation --------------------------------------------------------------------------


def _by_scan(store: Store, coder: Coder, request: Request, rows: RowNumbers | None, wide: int) -> Answer:
    tables = coder.encoder._checked_tables(request.queries, coder.metric, request.distance)
    return _scanned(store, coder, request, tables, rows, wide)


def _scanned(
    store: Store, coder: Coder, request: Request, tables: Tables, rows: RowNumbers | None, wide: int
) -> Answer:
    """The ``k`` nearest of the ``wide`` best by their codes, re-ranked where that is asked for."""
    counts, near, estimates, ids = _nearest(store, by_scan.find(store, coder, request, tables, rows, wide), wide)
    if not request.rerank:
        return _padded(counts, near, estimates, ids, request.k)
    better = _again(store, coder, request, request.queries, counts, near)
    distances = estimates if better is None else better
    kept, places = topk.order(counts, distances, ids, request.k)
    answer = _padded(kept, near[places], distances[places], _take(ids, places), request.k)
    crowded = np.empty(0, np.intp)
    if better is not None and coder.metric == "cosine" and store.options.keep_vectors:
        zeros = _zeros_among(store, coder, near[better == 1])
        if len(zeros):
            crowded = np.unique(np.repeat(np.arange(len(counts)), counts)[np.isin(near, zeros)])
            own = replace(request, queries=request.queries[crowded])
            again = Tables(tables.values[crowded], tables.bias[crowded])
            _put(answer, crowded, _without_zeros(store, coder, own, again, rows, zeros, wide))
    total = store.state.count if rows is None else len(rows)
    if request.deepen and wide < min(total, rerank.DEEPEST):
        shape, kth = (len(counts), wide), np.ascontiguousarray(answer.distances[:, -1])
        shallow = rerank.too_shallow(estimates.reshape(shape), distances.reshape(shape), kth, request.k, total)
        shallow = np.setdiff1d(shallow, crowded)
        wide = min(rerank.DEEPER * wide, total, rerank.DEEPEST)
        # Few queries at a time, so that what they find fits into memory.
        step = max(1, _DEEP_ROWS // wide)
        for some in (shallow[first : first + step] for first in range(0, len(shallow), step)):
            own = replace(request, queries=request.queries[some])
            again = Tables(tables.values[some], tables.bias[some])
            _put(answer, some, _scanned(store, coder, own, again, rows, wide))
    return answer


def _nearest(
    store: Store, parts: Iterable[scan.Found], k: int
) -> tuple[NDArray[np.int64], RowNumbers, NDArray[np.float32], Any]:
    """(how many, rows, distances, ids) of the nearest by their codes, in order."""
    ordered = []
    for found in parts:
        ids = store.ids_of(found.rows)
        counts, places = topk.order(found.counts, found.distances, ids, k)
        ordered.append((counts, found.rows[places], found.distances[places], _take(ids, places)))
    if len(ordered) == 1:
        return ordered[0]
    counts, near, distances = (np.concatenate([part[i] for part in ordered]) for i in range(3))
    names = [part[3] for part in ordered]
    if isinstance(names[0], list):
        return counts, near, distances, [name for some in names for name in some]
    return counts, near, distances, np.concatenate(names)


# -- subset indexing ------------------------------------------------------------------------------


def _by_lists(store: Store, coder: Coder, request: Request, rows: RowNumbers | None, wide: int) -> Answer:
    found = by_lists.find(store, coder, request, rows, wide)
    parts = [_ranked(store, coder, request, queries, candidates, wide) for queries, candidates in found]
    return _joined(parts)


def _ranked(
    store: Store, coder: Coder, request: Request, queries: Vectors, found: by_lists.Candidates, wide: int
) -> Answer:
    counts, near, distances = found.counts, found.rows, found.distances
    if distances is not None and (found.missing is not None or not request.rerank or (counts > wide).any()):
        # The best by their codes; by score first, where that is the ranking.
        if found.missing is None:
            counts, places = topk.cut(counts, distances, wide)
            near, distances = near[places], distances[places]
            ids = store.ids_of(near)
            counts, places = topk.order(counts, distances, ids, wide)
        else:
            ids = store.ids_of(near)
            _, by_code = topk.order(counts, distances, ids, len(near))
            counts, best = topk.order(counts, found.missing[by_code], np.arange(len(near)), wide)
            places, distances = by_code[best], found.missing
        if not request.rerank:
            return _padded(counts, near[places], distances[places], _take(ids, places), request.k)
        near, distances = near[places], distances[places]
    better = _again(store, coder, request, queries, counts, near)
    distances = distances if better is None else better
    assert distances is not None
    counts, places = topk.cut(counts, distances, request.k)
    near, distances = near[places], distances[places]
    ids = store.ids_of(near)
    counts, places = topk.order(counts, distances, ids, request.k)
    return _padded(counts, near[places], distances[places], _take(ids, places), request.k)


# -- ranking again --------------------------------------------------------------------------------


def _again(
    store: Store, coder: Coder, request: Request, queries: Vectors, found: NDArray[np.int64], rows: RowNumbers
) -> NDArray[np.float32] | None:
    """Better distances of the rows ``found`` for each query: exact where vectors are kept, asymmetric where not.

    None where there are none better.
    """
    kind = store.options.keep_vectors
    if kind:
        request.trace.reranked += len(rows)
        vectors = store.vectors()
        vectors.touch(rows)
        return rerank.distances(vectors, kind, coder.metric, queries, found, rows)
    best = coder.encoder.distances(coder.metric)[0]
    if best == request.distance and not request.by_score:
        return None
    request.trace.reranked += len(rows)
    tables = coder.encoder._checked_tables(queries, coder.metric, best)
    nibbles = scan.by_nibbles(coder.layout, asymmetric=best == "asymmetric")
    return by_scan.codes_of(store, coder).distances(tables.values, tables.bias, nibbles, found, rows)


def _search_kept(store: Store, coder: Coder, request: Request, rows: RowNumbers) -> Answer:
    """Exactly, among the vectors that are kept beside codes."""
    request.trace.rows += len(rows) * len(request.queries)
    group = max(1, _GROUP_BYTES // (8 * len(rows)))
    parts = []
    for first in range(0, len(request.queries), group):
        queries = request.queries[first : first + group]
        every = by_lists.Candidates(np.full(len(queries), len(rows)), np.tile(rows, len(queries)), None)
        parts.append(_ranked(store, coder, request, queries, every, len(rows)))
    return _joined(parts)


def _search_vectors(store: Store, coder: Coder, request: Request, rows: RowNumbers) -> Answer:
    """Exactly, among vectors that are stored as they are."""
    there = _vectors(store, coder, rows, everything=request.allowed is None)
    request.trace.rows += len(rows) * len(request.queries)
    group = max(1, _GROUP_BYTES // (8 * len(rows)))
    parts = []
    for first in range(0, len(request.queries), group):
        queries = request.queries[first : first + group]
        bounds, slack = exact.lower_bounds(queries, there, coder.metric)
        near = [topk.nearest(own, request.k, slack) for own in bounds]
        found = [
            exact.distances(query, there.vectors[own], coder.metric) for query, own in zip(queries, near, strict=True)
        ]
        distances, those = np.concatenate(found), rows[np.concatenate(near)]
        ids = store.ids_of(those)
        counts, places = topk.order(np.array([len(own) for own in near]), distances, ids, request.k)
        parts.append(_padded(counts, those[places], distances[places], _take(ids, places), request.k))
    return _joined(parts)


def _vectors(store: Store, coder: Coder, rows: RowNumbers, *, everything: bool) -> exact.Rows:
    """The vectors of rows; those of all rows, if they are not too many, are read once for a snapshot."""

    def read() -> exact.Rows:
        return exact.Rows(coder.decode(store.codes().gather(rows)))

    small = 8 * coder.dim * len(rows) <= _KNOWN_BYTES
    return once(store, exact.Rows, read) if everything and small else read()


def _take(ids: Any, places: NDArray[np.int64]) -> Any:
    return ids[places] if isinstance(ids, np.ndarray) else [ids[i] for i in places.tolist()]


def _no_ids(store: Store) -> Any:
    return np.empty(0, np.int64) if store.options.ids == "int" else []


def _joined(parts: list[Answer]) -> Answer:
    """Answers to some queries after each other."""
    return Answer(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _put(answer: Answer, some: NDArray[np.intp], better: Answer) -> None:
    """Better answers to some of the queries."""
    answer.ids[some], answer.distances[some], answer.rows[some] = better


def _padded(counts: NDArray[np.int64], rows: RowNumbers, distances: NDArray[np.float32], ids: Any, k: int) -> Answer:
    """What was found for each query, nearest first, and nothing after it."""
    shape = (len(counts), k)
    if isinstance(ids, list):
        names = np.empty(len(ids), object)
        names[:] = ids
        ids = names
    wide = rows.astype(np.int64)
    if len(distances) == len(counts) * k:
        return Answer(ids.reshape(shape), distances.reshape(shape), wide.reshape(shape))
    there = np.arange(k) < counts[:, None]
    nothing = np.full(shape, None if ids.dtype == object else -1, ids.dtype)
    out = Answer(nothing, np.full(shape, np.inf, np.float32), np.full(shape, -1, np.int64))
    out.ids[there], out.distances[there], out.rows[there] = ids, distances, wide
    return out
