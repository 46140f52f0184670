"""Ranking: what a source found becomes an answer, by distance and then by id.

    candidates ─▶ better distances, where planned ─▶ no farther than the k-th ─▶ their ids ─▶ in order

Better distances are exact where vectors are kept: the kernel (``cython_src/exact.h``) reads these in place. Where none
are kept, a symmetric distance, or a score, can be followed by the asymmetric one.

A scan does all of this in one call (``sources/scan.py``); other sources come here.
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
from .._storage.format import deleted
from .._storage.format.columns import RowNumbers
from .._storage.format.records import REMEDY
from .._storage.store import Store
from .._threads.pool import in_parallel
from ..encoders.base import Distance
from ..errors import DamagedError
from ..metrics import Metric
from . import tuning
from .found import Answer, Found, empty_answer

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
    if not ordered:
        counts, places = order(counts, distances, ids, k)
        ids, distances, rows = ids[places], distances[places], rows[places]
    shape = (len(counts), k)
    if len(rows) == shape[0] * k:
        return Answer(ids.reshape(shape), distances.reshape(shape), rows.reshape(shape).astype(np.int64))
    answer, there = empty_answer(*shape, strings=ids.dtype == object), np.arange(k) < counts[:, None]
    answer.ids[there], answer.distances[there], answer.rows[there] = ids, distances, rows
    return answer


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


class Kept:
    """The vectors that are kept beside codes, where they lie: exact distances."""

    def __init__(self, store: Store, metric: Metric) -> None:
        rows, options = store.vectors(), store.options
        self._column = (rows.starts, rows.counts, rows.addresses)
        #: Whether each record was verified (shared with all who read this column); records are when first touched.
        self.verified = rows.verified.view(np.uint8)
        self._how = (str(options.keep_vectors), options.dim, metric.number)
        nothing = np.empty(0, np.uint64)
        self.vectors = _exact.Vectors(*self._column, *self._how[:2], 0, nothing, deleted.SEGMENT_ROWS)

    def touch(self, store: Store, rows: RowNumbers) -> None:
        """Verify the records of ``rows`` that were not, and note it here.

        What is noted elsewhere may be of a later snapshot by now, or forgotten.
        """
        starts = self._column[0]
        if not _records.touched(starts, self.verified, rows):
            store.vectors().touch(rows)
            after = np.searchsorted(starts, rows, side="right")
            self.verified[after[after > 0] - 1] = 1

    def distances(self, search: Search, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """The distance of each of ``rows`` from its query: the first ``counts[0]`` are of the first, and so on."""
        search.trace.reranked += len(rows)
        self.touch(search.store, rows)
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
        self._nibbles = coder.layout.by_nibbles(distance)

    def distances(self, search: Search, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """As :meth:`Kept.distances`, estimated."""
        search.trace.reranked += len(rows)
        tables, codes = search.tables(self._make_tables), search.snapshot.codes(search.store)
        return codes.distances(tables.values, tables.bias, self._nibbles, counts, rows)


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
