"""One search in one snapshot: which rows, their distances, the nearest, their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .coder import Coder
from .encoders.base import Distance, Metric
from .encoders.layout import Tables
from .matches import Matches
from .search import exact, scan, topk
from .storage.columns import RowNumbers, Rows
from .storage.store import Store
from .stored import vectors_of
from .vectors import Vectors

#: Queries are taken in groups whose distances to all rows fit into about so many bytes.
_GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class Request:
    """What to search for; checked."""

    queries: Vectors
    k: int
    distance: Distance
    rerank: int
    #: Only rows of these ids; None for all.
    ids: Any = None


def search(store: Store, coder: Coder, request: Request) -> Matches:
    """The k nearest of each query, shape (nq, k)."""
    rows = _allowed(store, request)
    nq, k = len(request.queries), request.k
    out = _empty(nq, k, store.options.ids)
    if not len(rows) or not nq:
        return out
    group = max(1, _GROUP_BYTES // (8 * len(rows)))
    for first in range(0, nq, group):
        part = request.queries[first : first + group]
        _search_group(store, coder, request, part, rows, Matches(*(array[first : first + group] for array in out)))
    return out


def _allowed(store: Store, request: Request) -> RowNumbers:
    """The rows that may be found."""
    if request.ids is None:
        return store.living()
    found = store.rows_of(request.ids)
    return np.unique(found[found >= 0]).astype(np.uint32)


def _search_group(
    store: Store, coder: Coder, request: Request, queries: Vectors, rows: RowNumbers, out: Matches
) -> None:
    metric: Metric = coder.metric  # type: ignore[assignment]
    floats = coder.layout.floats
    wide = max(request.k, request.rerank)
    slack = 0.0
    distances: NDArray[Any]
    if floats:
        distances, slack = exact.lower_bounds(queries, coder.decode(store.codes().gather(rows)), metric)
    else:
        distances = _estimates(store.codes(), coder, coder.encoder.tables(queries, metric, request.distance), rows)
    for i, query in enumerate(queries):
        places = topk.nearest(distances[i], wide, slack)
        near = np.asarray(distances[i][places], np.float32)
        if floats or request.rerank:
            places, near = _again(store, coder, request, query, rows, places, near, wide)
        ids = store.ids_of(rows[places])
        best = topk.ordered(near, ids, request.k)
        out.distances[i, : len(best)] = near[best]
        out.ids[i, : len(best)] = ids[best] if isinstance(ids, np.ndarray) else [ids[j] for j in best.tolist()]


def _again(
    store: Store,
    coder: Coder,
    request: Request,
    query: Vectors,
    rows: RowNumbers,
    places: NDArray[np.intp],
    near: NDArray[np.float32],
    wide: int,
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Candidates with better distances: exact where vectors are there, asymmetric where not."""
    metric: Metric = coder.metric  # type: ignore[assignment]
    if not coder.layout.floats:
        # Exactly `rerank` candidates, by distance and then by id, as everywhere.
        places = places[topk.ordered(near, store.ids_of(rows[places]), wide)]
    if store.options.keep_vectors or coder.layout.floats:
        return places, exact.distances(query, vectors_of(store, coder, rows[places]), metric)
    offered = coder.encoder.distances(metric)
    tables = coder.encoder.tables(query[None], metric, offered[0])
    return places, _estimates(store.codes(), coder, tables, rows[places])[0]


def _estimates(codes: Rows, coder: Coder, tables: Tables, rows: RowNumbers) -> NDArray[np.float32]:
    """Distances off the codes, shape (nq, n)."""
    by_byte = scan.byte_tables(coder.layout, tables)
    out = np.empty((len(tables.values), len(rows)), np.float32)
    step = 1 << 14
    for first in range(0, len(rows), step):
        part = codes.gather(rows[first : first + step])
        out[:, first : first + step] = scan.distances(part, coder.layout, tables, by_byte)
    return out


def _empty(nq: int, k: int, kind: str) -> Matches:
    ids: NDArray[Any] = np.full((nq, k), -1, np.int64) if kind == "int" else np.full((nq, k), None, object)
    return Matches(ids, np.full((nq, k), np.inf, np.float32))
