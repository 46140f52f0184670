"""Ranking: what a source found becomes an answer, by distance and then by id.

    candidates ─▶ better distances, where planned ─▶ no farther than the k-th ─▶ their ids ─▶ in order

Better distances are exact where vectors are kept: the kernel (``cython_src/exact.h``) reads these in place. Where none
are kept, a symmetric distance, or a score, can be followed by the asymmetric one.

How many rows are worth comparing depends on the query and on the code. So a search starts with a few
(``tuning.first_depth``), and goes on with four times as many where the exact distances show that neighbours are likely
to be missing (:func:`too_shallow`, ``cython_src/misses.h``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._compiled import exact as _exact
from .._compiled import ranking as _ranking
from .._compiled import records as _records
from .._inputs.vectors import Vectors
from .._storage.format.columns import RowNumbers
from .._storage.format.records import REMEDY
from .._storage.store import Store
from .._threads.pool import in_parallel
from ..encoders.base import Distance
from ..encoders.layout import Layout
from ..errors import DamagedError
from ..metrics import Metric
from . import tuning
from .found import Answer, Found

if TYPE_CHECKING:
    from .search import Search
    from .snapshot import Snapshot


def ranked(snapshot: Snapshot, found: Found, k: int, limit: float = math.inf) -> Answer:
    """The ``k`` nearest of each query, none farther than ``limit``."""
    counts, rows, distances, ordered = found
    assert distances is not None
    if len(rows) > len(counts) * k or limit < math.inf:
        counts, places = _ranking.cut(counts, distances, k, limit)
        rows, distances = rows[places], distances[places]
    ids = ids_of(snapshot, rows)
    if ordered:
        return Answer(counts, rows, distances, ids)
    counts, places = order(counts, distances, ids, k)
    return Answer(counts, rows[places], distances[places], ids[places])


def padded(answer: Answer, k: int) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.int64]]:
    """(ids, distances, rows), shape (nq, k) each: where fewer were found, −1 or None, inf, and −1 follow."""
    counts, found, distances, names = answer
    shape, rows = (len(counts), k), found.astype(np.int64)
    if len(rows) == shape[0] * k:
        return names.reshape(shape), distances.reshape(shape), rows.reshape(shape)
    there = np.arange(k) < counts[:, None]
    ids = np.full(shape, None if names.dtype == object else -1, names.dtype)
    far, numbers = np.full(shape, np.inf, np.float32), np.full(shape, -1, np.int64)
    ids[there], far[there], numbers[there] = names, distances, rows
    return ids, far, numbers


def order(
    counts: NDArray[np.int64], distances: NDArray[np.float32], ids: NDArray[Any], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(counts, places): of the found rows of each query the k nearest, by distance and then by id.

    ``ids`` are numbers, or strings as objects; ``counts`` tells how many of all are each query's.

    >>> order(np.array([3, 1]), np.array([2, 1, 2, 5], np.float32), np.array([8, 9, 7, 0]), 2)
    (array([2, 1]), array([1, 2, 3]))
    """
    if ids.dtype == object:
        # As numbers in the order of the strings.
        names, ranks = ids.tolist(), np.empty(len(ids), np.int64)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        ids = ranks
    return _ranking.order(counts, distances, ids, k)


def ids_of(snapshot: Snapshot, rows: RowNumbers) -> NDArray[Any]:
    """The id of each row: int64, or str as objects."""
    try:
        if snapshot.options.ids == "int":
            return _records.gather_ints(*snapshot.ids, rows)
        names = _records.gather_strings(*snapshot.ids, rows)
    except LookupError as error:
        raise DamagedError(f"ids: {error}; {REMEDY}") from error
    except UnicodeDecodeError as error:
        raise DamagedError(f"ids: an id is not UTF-8; {REMEDY}") from error
    ids = np.empty(len(names), object)
    ids[:] = names
    return ids


# -- better distances -------------------------------------------------------------------------------


def too_shallow(
    estimates: NDArray[np.float32], exact: NDArray[np.float32], kth: NDArray[np.float32], k: int, total: int
) -> NDArray[np.intp]:
    """The queries that should re-rank more of ``total`` rows than they did.

    ``estimates`` and ``exact`` are the distances, shape (nq, n), of the rows that each query re-ranked, by ascending
    estimate; ``kth`` is each query's k-th smallest exact distance.
    """
    return np.flatnonzero(_exact.expected_misses(estimates, exact, kth, total) > tuning.MISSED_SHARE * k)


class Kept:
    """The vectors that are kept beside codes, where they lie: exact distances."""

    def __init__(self, store: Store, metric: Metric) -> None:
        rows = store.vectors()
        self._column = (rows.starts, rows.counts, rows.addresses)
        # (Shared with all who read this column: a record is verified when it is first touched.)
        self._starts, self._verified = rows.starts, rows.verified.view(np.uint8)
        self._how = (str(store.options.keep_vectors), store.options.dim, metric.name)

    def distances(self, search: Search, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """The distance of each of ``rows`` from its query: the first ``counts[0]`` are of the first, and so on."""
        search.trace.reranked += len(rows)
        if not _records.touched(self._starts, self._verified, rows):
            search.store.vectors().touch(rows)
        queries = search.vectors
        threads = min(search.threads, len(rows) * queries.shape[1] // tuning.EXACT_WORK)
        try:
            if threads < 2:
                return _exact.distances(*self._column, *self._how, queries, counts, rows)
            parts = _parts(queries, counts, rows, threads)
            found = in_parallel(
                lambda part: _exact.distances(*self._column, *self._how, *part), parts, threads, search.share
            )
        except LookupError as error:
            raise DamagedError(f"vectors: {error}; {REMEDY}") from error
        return np.concatenate(found)


class ByCode:
    """The encoder's best distance of codes, for candidates that were ranked otherwise."""

    def __init__(self, snapshot: Snapshot, distance: Distance) -> None:
        coder = snapshot.coder
        self._make_tables = coder.encoder._table_maker(coder.metric, distance)
        self._nibbles = by_nibbles(coder.layout, asymmetric=distance == "asymmetric")

    def distances(self, search: Search, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """As :meth:`Kept.distances`, estimated."""
        search.trace.reranked += len(rows)
        tables, codes = search.tables(self._make_tables), search.snapshot.codes(search.store)
        return codes.distances(tables.values, tables.bias, self._nibbles, counts, rows)


def by_nibbles(layout: Layout, *, asymmetric: bool) -> bool:
    """Whether a distance can be looked up nibble by nibble."""
    return (layout.linear and asymmetric) or not layout.crosses


def _parts(
    queries: Vectors, counts: NDArray[np.int64], rows: RowNumbers, n: int
) -> list[tuple[Vectors, NDArray[np.int64], RowNumbers]]:
    """``rows`` cut into ``n`` parts of equal size, each with the queries that it is of and how many rows each has."""
    edges, ends = np.linspace(0, len(rows), n + 1).astype(np.int64), np.cumsum(counts)
    parts = []
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        begin, last = np.searchsorted(ends, [first, end - 1], side="right").tolist()
        own = np.minimum(ends[begin : last + 1], end) - np.maximum((ends - counts)[begin : last + 1], first)
        parts.append((queries[begin : last + 1], own, rows[first:end]))
    return parts
