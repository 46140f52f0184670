"""Queries whose true neighbours are known, and in which cells these are: what calibration measures with.

rows       some of the stored rows; a row is not its own neighbour
between    points halfway between two rows, which are unlike any
means      means of several rows: near to nothing
random     random directions, as long as rows: farther still
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._compiled import cells as _cells
from ..._compiled import exact as _exact
from ..._compiled import scan as _scan
from ..._storage.format import deleted
from ..._storage.format.columns import CHUNK_ROWS
from ..._storage.lmdb.writer import Writer
from ..._storage.store import Store
from ...metrics import METRICS, Metric
from .entries import Floats
from .found import Cells
from .kernel import kernel_cells
from .rule import EVERYTHING
from .vectors import RowVectors, coder_of, stored_chunks

#: So many rows are compared with queries, in all; at least and at most so many queries that are rows.
_WORK, FEWEST, _MOST = 1 << 24, 48, 128

#: Kinds of queries.
ROWS, BETWEEN, MEANS, RANDOM = range(4)

#: Queries that are near to nothing take long, so these are fewer; means are of so many rows.
_FAR, _MEAN_OF = 8, 8


class Sample(NamedTuple):
    """Queries, and what is known of their true neighbours."""

    queries: Floats
    #: Of each: its kind.
    kinds: NDArray[np.int64]
    #: Cells in the order of their centres' distances, and these distances, (queries, cells).
    order: NDArray[np.int64]
    apart: Floats
    #: Of each neighbour, nearest first, (queries, k): its distance, and the place in that order of the first cell that
    #: holds it; −1 where none does, for then it is always found.
    far: Floats
    places: NDArray[np.int64]


def sample_of(writer: Writer, found: Cells, vectors: RowVectors, most: int) -> Sample | None:
    """``most`` neighbours of each; None where no query has any: all are zeros, whose cosines say nothing."""
    queries, own, kinds = _queries(vectors, writer.state.count)
    k = min(most, max(1, writer.state.count - 1))
    rows = _neighbours(writer, found, vectors, queries, k + 1)
    if (rows < 0).all():
        return None
    # A query that is a row is not its own neighbour.
    others = np.argsort(rows == own[:, None], axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, others, axis=1)
    metric = METRICS[vectors.options.metric]
    apart = _apart(metric, queries, found.centres)
    order = np.argsort(apart, axis=1, kind="stable")
    first = _first_places(found, vectors, rows, np.argsort(order, axis=1, kind="stable"))
    # Where there are fewer neighbours, some row stands for them, which is there: row 0 may have been given back.
    there = np.where(rows < 0, rows.max(), rows)
    far = np.stack([_apart(metric, queries[[i]], vectors[some])[0] for i, some in enumerate(there)])
    near = np.argsort(np.where(rows < 0, np.inf, far), axis=1, kind="stable")
    far, first = (np.take_along_axis(values, near, axis=1) for values in (far, first))
    return Sample(queries, kinds, order, np.take_along_axis(apart, order, axis=1), far, first)


def _queries(vectors: RowVectors, count: int) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Queries of all kinds, the row that each is, or −1, and its kind."""
    rng = np.random.default_rng(0)
    rows = vectors.codes.numbers()
    rows = rows[vectors.living(rows)]
    n = max(FEWEST, min(_MOST, _WORK // max(1, count)))
    some = rng.choice(rows, min(2 * n, len(rows)), replace=False)
    own, half = vectors[some], len(some) // 2
    between = (own[:half] + own[half : 2 * half]) / 2
    few = max(1, half // _FAR)
    means = own[rng.integers(0, len(own), (few, _MEAN_OF))].mean(axis=1)
    random = rng.standard_normal(means.shape).astype(np.float32)
    random *= np.linalg.norm(own, axis=1).mean() / np.linalg.norm(random, axis=1, keepdims=True)
    queries = np.ascontiguousarray(np.concatenate([own[:half], between, means, random]), np.float32)
    kinds = np.repeat([ROWS, BETWEEN, MEANS, RANDOM], [half, half, few, few])
    return queries, np.where(kinds == ROWS, np.resize(some.astype(np.int64), len(kinds)), -1), kinds


def _neighbours(writer: Writer, found: Cells, vectors: RowVectors, queries: Floats, k: int) -> NDArray[np.int64]:
    """The rows of the ``k`` nearest of each query: all cells are visited."""
    store, state, coder = Store(writer, vectors.options), writer.state, coder_of(writer, vectors.options)
    layout, codes, ids, bits = coder.layout, store.codes(), store.ids(), deleted.addresses(writer)
    fields = (layout.starts, layout.bit_starts, layout.level_counts)
    known = _scan.Codes(
        codes.starts, codes.counts, codes.addresses, state.code_size, state.head, *fields, bits, deleted.SEGMENT_ROWS
    )
    kept = None
    if vectors.options.keep_vectors is not None:
        own = store.vectors()
        own.touch_all()
        kind = (vectors.options.keep_vectors, coder.dim, 0)
        kept = (
            _exact.Vectors(own.starts, own.counts, own.addresses, *kind, bits, deleted.SEGMENT_ROWS),
            own.verified.view(np.uint8),
        )
    distance = coder.encoder.distances(coder.metric)[0]
    tables = coder.encoder._table_maker(coder.metric, distance)(queries)
    rows, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    prepared = _cells.Prepared(
        kernel_cells(writer, found, coder),
        known,
        layout.by_nibbles(distance),
        state.listed,
        stored_chunks(writer, codes),
        CHUNK_ROWS,
        None,
        coder.dim,
        kept,
        METRICS[coder.metric].number,
        (ids.starts, ids.counts, ids.addresses),
        vectors.options.ids == "str",
        k,
        math.inf,
        EVERYTHING,
    )
    prepared.search(queries, None, None, distances, rows, -math.inf, tables.values, tables.bias)
    return rows


def _apart(metric: Metric, queries: Floats, others: Floats) -> Floats:
    """Distances as the rule sees them, (queries, others)."""
    inner = queries @ others.T
    if metric.unit:
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(others, axis=1)
        apart: Floats = 1 - inner / np.maximum(lengths, 1e-30)
    elif metric.base == "ip":
        apart = -inner
    else:
        apart = np.square(queries).sum(axis=1)[:, None] + np.square(others).sum(axis=1) - 2 * inner
        np.maximum(apart, 0, out=apart)
    return apart


def _first_places(
    found: Cells, vectors: RowVectors, rows: NDArray[np.int64], places: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of each neighbour the place, in the order of its query, of the first cell that holds it."""
    wanted, state = np.unique(rows[rows >= 0]), vectors.state
    held, cells = [], []
    for part in range(2):
        there = np.flatnonzero(found.counts[:, part])
        counts = found.counts[there, part].astype(np.int64)
        own, _ = _assign.unpack(found.addresses[there, part], counts, state.code_size, state.head)
        at = np.minimum(np.searchsorted(wanted, own), len(wanted) - 1)
        ours = wanted[at] == own
        held.append(at[ours])
        cells.append(np.repeat(there, counts)[ours])
    # The two cells of each row, or one of them twice; a row that is in none is always found.
    at, cell = np.concatenate(held), np.concatenate(cells)
    both = np.full((2, len(wanted)), -1)
    both[0][at] = cell
    both[1][at[::-1]] = cell[::-1]
    own = both[:, np.searchsorted(wanted, np.maximum(rows, wanted[0]))]
    first: NDArray[np.int64] = np.minimum(*(np.take_along_axis(places, np.maximum(some, 0), axis=1) for some in own))
    return np.where(own[0] < 0, -1, first)


def tau_of(vectors: RowVectors, queries: Floats, found: Cells) -> float:
    """How far rows of a cell are spread along a query, as a share of their spread."""
    rows = vectors.codes.numbers()
    some = vectors[np.sort(np.random.default_rng(1).choice(rows[vectors.living(rows)], min(512, vectors.state.count)))]
    centres = found.centres[_assign.Centres(found.centres).nearest(some, 1)[0][:, 0]]
    apart = some - centres
    lengths = np.linalg.norm(queries, axis=1, keepdims=True)
    along = np.square(queries / np.maximum(lengths, 1e-30) @ apart.T).mean()
    spread = np.square(apart).sum(axis=1).mean()
    return float(np.sqrt(along / spread)) if spread > 0 else 0.1
