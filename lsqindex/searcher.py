"""One search in one snapshot: which rows, their distances, the nearest, their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _records
from .coder import Coder
from .encoders.base import Distance
from .encoders.layout import Tables
from .matches import Matches
from .search import exact, rerank, scan, topk
from .storage import deleted
from .storage.columns import RowNumbers
from .storage.records import HEADER_SIZE
from .storage.store import Store
from .vectors import Vectors

#: Queries against vectors are taken in groups whose distances to all rows fit into about so many bytes.
_GROUP_BYTES = 64 << 20

#: Where a filter lets through at least one row of so many, all are scanned and the others skipped.
_SCAN_SHARE = 16


@dataclass(frozen=True)
class Request:
    """What to search for; checked."""

    queries: Vectors
    k: int
    distance: Distance
    rerank: int
    threads: int = 1
    #: Whether the head of codes may be read first, where that serves.
    progressive: bool = True
    #: Only rows of these ids; None for all.
    ids: Any = None


def search(store: Store, coder: Coder, request: Request) -> Matches:
    """The k nearest of each query, shape (nq, k)."""
    rows = None if request.ids is None else _rows_of(store, request.ids)
    if coder.layout.floats and rows is None:
        rows = store.living()
    if not len(request.queries) or not store.state.count or (rows is not None and not len(rows)):
        return _padded(np.zeros(len(request.queries), np.int64), np.empty(0, np.float32), _no_ids(store), request.k)
    if coder.layout.floats:
        assert rows is not None
        return _search_vectors(store, coder, request, rows)
    return _search_codes(store, coder, request, rows)


def _rows_of(store: Store, ids: Any) -> RowNumbers:
    found = store.rows_of(ids)
    return np.unique(found[found >= 0]).astype(np.uint32)


def _search_codes(store: Store, coder: Coder, request: Request, rows: RowNumbers | None) -> Matches:
    wide = min(max(request.k, request.rerank), store.state.count)
    tables = coder.encoder._checked_tables(request.queries, coder.metric, request.distance)
    counts, near, distances, ids = _nearest(store, coder, request, tables, rows, wide)
    if request.rerank:
        better = _again(store, coder, request, counts, near)
        distances = distances if better is None else better
        counts, places = topk.order(counts, distances, ids, request.k)
        distances, ids = distances[places], _take(ids, places)
    return _padded(counts, distances, ids, request.k)


def _nearest(
    store: Store, coder: Coder, request: Request, tables: Tables, rows: RowNumbers | None, k: int
) -> tuple[NDArray[np.int64], RowNumbers, NDArray[np.float32], Any]:
    """(how many, rows, distances, ids) of the nearest by their codes, in order."""
    parts = []
    for found in _by_codes(store, coder, request, tables, rows, k):
        ids = store.ids_of(found.rows)
        counts, places = topk.order(found.counts, found.distances, ids, k)
        parts.append((counts, found.rows[places], found.distances[places], _take(ids, places)))
    if len(parts) == 1:
        return parts[0]
    counts, near, distances = (np.concatenate([part[i] for part in parts]) for i in range(3))
    names = [part[3] for part in parts]
    if isinstance(names[0], list):
        return counts, near, distances, [name for some in names for name in some]
    return counts, near, distances, np.concatenate(names)


def _by_codes(
    store: Store, coder: Coder, request: Request, tables: Tables, rows: RowNumbers | None, k: int
) -> Iterable[scan.Found]:
    asymmetric = request.distance == "asymmetric"
    nibbles = scan.by_nibbles(coder.layout, asymmetric=asymmetric)
    count = store.state.count if rows is None else len(rows)
    if count * _SCAN_SHARE < store.state.count:
        assert rows is not None
        return _among(store, coder, tables, rows, scan.Search(k, nibbles))
    z = None
    if request.progressive and asymmetric:
        z = scan.margin(coder.layout, store.state.head, k, count)
    search = scan.Search(k, nibbles, z, None if rows is None else _bits(rows))
    return scan.nearest(_codes(store, coder), tables, search, threads=request.threads)


def _bits(rows: RowNumbers) -> NDArray[np.uint8]:
    """A bit for each row up to the last of ``rows``, which ascend."""
    bits = np.zeros(int(rows[-1]) // 8 + 1, np.uint8)
    for bit in range(8):
        bits[rows[rows % 8 == bit] // 8] |= 1 << bit
    return bits


def _codes(store: Store, coder: Coder) -> scan.Codes:
    """All codes, verified, where they lie; found once for a snapshot."""
    env, txn = store.source.env, (store.state.txn, store.source.env.moved)
    known = env.columns.get(scan.Codes)
    if known and store.source.clean and known[0] == txn:
        found: scan.Codes = known[1]
        return found
    codes = store.codes()
    codes.touch_all()
    bits = deleted.addresses(store.source)
    found = _codes_at(codes.starts, codes.counts, codes.addresses, store, coder, bits)
    if store.source.clean:
        env.columns[scan.Codes] = txn, found
    return found


def _codes_at(
    starts: RowNumbers,
    counts: RowNumbers,
    addresses: NDArray[np.uint64],
    store: Store,
    coder: Coder,
    bits: NDArray[np.uint64],
) -> scan.Codes:
    layout, state = coder.layout, store.state
    fields = (layout.starts, layout.bit_starts, layout.level_counts)
    return scan.Codes(starts, counts, addresses, state.code_size, state.head, *fields, bits, deleted.SEGMENT_ROWS)


def _among(store: Store, coder: Coder, tables: Tables, rows: RowNumbers, search: scan.Search) -> Iterator[scan.Found]:
    """The nearest of some rows only: their codes are copied together and scanned as all would be."""
    codes = store.codes()
    record = np.frombuffer(codes.column.encode(0, codes.gather(rows)), np.uint8)
    address = np.array([_records.address(record) + HEADER_SIZE], np.uint64)
    counts = np.array([len(rows)], np.uint32)
    here = _codes_at(np.zeros(1, np.uint32), counts, address, store, coder, np.empty(0, np.uint64))
    for found in scan.nearest(here, tables, search):
        yield scan.Found(found.counts, rows[found.rows], found.distances)


def _again(
    store: Store, coder: Coder, request: Request, found: NDArray[np.int64], rows: RowNumbers
) -> NDArray[np.float32] | None:
    """Better distances of the rows ``found`` for each query: exact where vectors are kept, asymmetric where not.

    None where there are none better.
    """
    kind = store.options.keep_vectors
    if kind:
        vectors = store.vectors()
        vectors.touch(rows)
        return rerank.distances(vectors, kind, coder.metric, request.queries, found, rows)
    best = coder.encoder.distances(coder.metric)[0]
    if best == request.distance:
        return None
    tables = coder.encoder._checked_tables(request.queries, coder.metric, best)
    nibbles = scan.by_nibbles(coder.layout, asymmetric=best == "asymmetric")
    return _codes(store, coder).distances(tables.values, tables.bias, nibbles, found, rows)


def _search_vectors(store: Store, coder: Coder, request: Request, rows: RowNumbers) -> Matches:
    """Exactly, among vectors that are stored as they are."""
    vectors = coder.decode(store.codes().gather(rows))
    group = max(1, _GROUP_BYTES // (8 * len(rows)))
    parts = []
    for first in range(0, len(request.queries), group):
        queries = request.queries[first : first + group]
        bounds, slack = exact.lower_bounds(queries, vectors, coder.metric)
        near = [topk.nearest(own, request.k, slack) for own in bounds]
        found = [exact.distances(query, vectors[own], coder.metric) for query, own in zip(queries, near, strict=True)]
        distances, ids = np.concatenate(found), store.ids_of(rows[np.concatenate(near)])
        counts, places = topk.order(np.array([len(own) for own in near]), distances, ids, request.k)
        parts.append(_padded(counts, distances[places], _take(ids, places), request.k))
    return Matches(np.concatenate([part.ids for part in parts]), np.concatenate([part.distances for part in parts]))


def _take(ids: Any, places: NDArray[np.int64]) -> Any:
    return ids[places] if isinstance(ids, np.ndarray) else [ids[i] for i in places.tolist()]


def _no_ids(store: Store) -> Any:
    return np.empty(0, np.int64) if store.options.ids == "int" else []


def _padded(counts: NDArray[np.int64], distances: NDArray[np.float32], ids: Any, k: int) -> Matches:
    """What was found for each query, nearest first, and nothing after it: shape (nq, k)."""
    shape = (len(counts), k)
    if isinstance(ids, list):
        names = np.empty(len(ids), object)
        names[:] = ids
        ids = names
    if len(distances) == len(counts) * k:
        return Matches(ids.reshape(shape), distances.reshape(shape))
    there = np.arange(k) < counts[:, None]
    out = Matches(np.full(shape, None if ids.dtype == object else -1, ids.dtype), np.full(shape, np.inf, np.float32))
    out.ids[there], out.distances[there] = ids, distances
    return out
