"""One search in one snapshot: which rows, their distances, the nearest, their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _records
from .coder import Coder
from .encoders.base import Distance
from .encoders.layout import Tables
from .matches import Matches
from .search import exact, scan, topk
from .storage import deleted
from .storage.columns import RowNumbers
from .storage.records import HEADER_SIZE
from .storage.store import Store
from .stored import vectors_of
from .vectors import Vectors

#: Queries against vectors are taken in groups whose distances to all rows fit into about so many bytes.
_GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class Request:
    """What to search for; checked."""

    queries: Vectors
    k: int
    distance: Distance
    rerank: int
    threads: int = 1
    #: Only rows of these ids; None for all.
    ids: Any = None


def search(store: Store, coder: Coder, request: Request) -> Matches:
    """The k nearest of each query, shape (nq, k)."""
    out = _empty(len(request.queries), request.k, store.options.ids)
    if not len(request.queries) or not store.state.count:
        return out
    rows = None if request.ids is None else _rows_of(store, request.ids)
    if rows is not None and not len(rows):
        return out
    if coder.layout.floats:
        _search_vectors(store, coder, request, store.living() if rows is None else rows, out)
    else:
        _search_codes(store, coder, request, rows, out)
    return out


def _rows_of(store: Store, ids: Any) -> RowNumbers:
    found = store.rows_of(ids)
    return np.array(sorted(set(found[found >= 0].tolist())), np.uint32)


def _search_codes(store: Store, coder: Coder, request: Request, rows: RowNumbers | None, out: Matches) -> None:
    wide = min(max(request.k, request.rerank), store.state.count)
    tables = coder.encoder.tables(request.queries, coder.metric, request.distance)
    asymmetric = request.distance == "asymmetric"
    if rows is None:
        found = scan.nearest(
            _stored_codes(store), coder.layout, tables, wide, asymmetric=asymmetric, threads=request.threads
        )
    else:
        found = _among(store, coder, tables, rows, wide, asymmetric)
    for i, query in enumerate(request.queries):
        near, distances = found.of(i)
        ids = store.ids_of(near)
        if request.rerank:
            best = topk.ordered(distances, ids, wide)
            near = near[best]
            ids = ids[best] if isinstance(ids, np.ndarray) else [ids[j] for j in best.tolist()]
            distances = _again(store, coder, query, near)
        _write(out, i, distances, ids, request.k)


def _stored_codes(store: Store) -> scan.Codes:
    """All codes, verified, where they lie."""
    codes = store.codes()
    codes.touch_all()
    column = codes.column
    bits = deleted.addresses(store.source)
    return scan.Codes(
        codes.starts, codes.counts, codes.addresses, column.width, column.head, bits, deleted.SEGMENT_ROWS
    )


def _among(store: Store, coder: Coder, tables: Tables, rows: RowNumbers, k: int, asymmetric: bool) -> scan.Found:
    """The nearest of some rows only: their codes are copied together and scanned as all would be."""
    codes = store.codes()
    column = codes.column
    record = np.frombuffer(column.encode(0, codes.gather(rows)), np.uint8)
    here = scan.Codes(
        np.zeros(1, np.uint32),
        np.array([len(rows)], np.uint32),
        np.array([_records.address(record) + HEADER_SIZE], np.uint64),
        column.width,
        column.head,
        np.empty(0, np.uint64),
        deleted.SEGMENT_ROWS,
    )
    found = scan.nearest(here, coder.layout, tables, k, asymmetric=asymmetric)
    return scan.Found(found.counts, rows[found.rows], found.distances)


def _again(store: Store, coder: Coder, query: Vectors, rows: RowNumbers) -> NDArray[Any]:
    """Better distances: exact where vectors are kept, asymmetric where not."""
    if store.options.keep_vectors:
        return exact.distances(query, vectors_of(store, coder, rows), coder.metric)
    offered = coder.encoder.distances(coder.metric)
    tables = coder.encoder.tables(query[None], coder.metric, offered[0])
    found = _among(store, coder, tables, rows, len(rows), offered[0] == "asymmetric")
    order = np.argsort(rows)
    return found.distances[np.argsort(found.rows)][np.argsort(order)]


def _search_vectors(store: Store, coder: Coder, request: Request, rows: RowNumbers, out: Matches) -> None:
    """Exactly, among vectors that are stored as they are."""
    if not len(rows):
        return
    vectors = coder.decode(store.codes().gather(rows))
    group = max(1, _GROUP_BYTES // (8 * len(rows)))
    for first in range(0, len(request.queries), group):
        queries = request.queries[first : first + group]
        bounds, slack = exact.lower_bounds(queries, vectors, coder.metric)
        for i, query in enumerate(queries):
            places = topk.nearest(bounds[i], request.k, slack)
            distances = exact.distances(query, vectors[places], coder.metric)
            _write(out, first + i, distances, store.ids_of(rows[places]), request.k)


def _write(out: Matches, query: int, distances: NDArray[Any], ids: Any, k: int) -> None:
    best = topk.ordered(distances, ids, k)
    out.distances[query, : len(best)] = distances[best]
    out.ids[query, : len(best)] = ids[best] if isinstance(ids, np.ndarray) else [ids[j] for j in best.tolist()]


def _empty(nq: int, k: int, kind: str) -> Matches:
    ids: NDArray[Any] = np.full((nq, k), -1, np.int64) if kind == "int" else np.full((nq, k), None, object)
    return Matches(ids, np.full((nq, k), np.inf, np.float32))
