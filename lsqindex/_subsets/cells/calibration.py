"""How many cells a query should visit for a recall: measured when cells are made, or have changed much.

Some rows serve as queries, and so do points halfway between two rows, which are unlike any. Their true neighbours are
found by visiting all cells. Of each neighbour it is then known which ``reach`` of the rule (``cython_src/cells.h``)
finds it, so that the reach for a recall is a quantile. Of several slopes the one that visits the fewest cells is taken.

A part of what a recall allows to be missed is left for rows whose estimates are too far (``lost``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._compiled import cells as _cells
from ..._compiled import exact as _exact
from ..._compiled import scan as _scan
from ..._storage.format import deleted
from ..._storage.format.columns import CHUNK_ROWS
from ..._storage.format.meta import State
from ..._storage.lmdb.writer import Writer
from ..._storage.store import Store
from ...metrics import METRICS, Metric
from .entries import Floats
from .found import Cells
from .kernel import kernel_cells
from .vectors import RowVectors, coder_of, stored_chunks

#: The numbers of neighbours, and the recalls, that are measured. In between it is interpolated.
_KS = (1, 10, 100)
_RECALLS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995)

#: So many rows are compared with queries, in all; at least and at most so many queries of each kind.
_WORK, _FEWEST, _MOST = 1 << 24, 32, 128

#: The share of what may be missed that is missed by not visiting cells; and what stands for ``lost``.
_BY_CELLS, _BY_CODES = 0.6, 2.0

#: No reach is less than minus this: a number, where all neighbours are in no cell yet.
_FARTHEST = 1e30

#: Slopes that are tried, in steps of the mean growth of centres' distances from octave to octave of their order.
_SLOPES = (0.0, 0.25, 0.5, 1.0)


class Rule(NamedTuple):
    """The numbers of ``cython_src/cells.h`` that decide what a query visits and compares."""

    reach: float
    slope: float
    tau: float
    misses: float
    lost: float


#: Visits everything, and compares all that could matter.
EVERYTHING = Rule(math.inf, 0.0, 1.0, 0.0, 0.001)


def rule_for(stored: Mapping[str, float], k: int, recall: float) -> Rule:
    """The rule for the ``k`` nearest at ``recall``, from what is stored."""
    if "slope" not in stored or recall > 0.9995:
        return EVERYTHING
    missed = 1 - recall
    decade = min(math.log10(k), 4.0)
    low = min(int(decade), len(_KS) - 2)
    near, far = (_reach(stored, _KS[at], recall) for at in (low, low + 1))
    reach = near + (far - near) * (decade - low)
    return Rule(reach, stored["slope"], stored["tau"], missed * k, _BY_CODES * missed)


def _reach(stored: Mapping[str, float], k: int, recall: float) -> float:
    """The reach for a measured k: nearly linear in the logarithm of what is missed."""
    known = [stored[_name(k, at)] for at in _RECALLS]
    return float(np.interp(-math.log(1 - recall), [-math.log(1 - at) for at in _RECALLS], known))


def _name(k: int, recall: float) -> str:
    return f"reach {k} {recall}"


def is_due(stored: Mapping[str, float], state: State) -> bool:
    """Whether cells have changed so much that they should be calibrated again."""
    if state.count < _FEWEST or not state.listed:
        return False
    if "rows" not in stored:
        return True
    return not (0.5 < state.count / stored["rows"] < 2 and 0.7 < state.cells / stored["cells"] < 1.5)


def calibrated(writer: Writer, found: Cells) -> dict[str, float]:
    """The rule of these cells, as it is stored."""
    vectors = RowVectors(writer)
    rule = {"rows": float(writer.state.count), "cells": float(len(found.numbers))}
    sample = _measured(writer, found, vectors)
    if sample is None:
        return rule
    # How much farther centres are from octave to octave of their order.
    growth = float((sample.apart[:, min(31, len(found.numbers) - 1)] - sample.apart[:, 0]).mean()) / 5
    rules = [_with_slope(sample, growth * share) for share in _SLOPES]
    best = min(rules, key=lambda rule: _visited(sample, rule))
    tau = _tau(vectors, sample.queries, found)
    return {**rule, **best, "tau": tau}


class _Sample(NamedTuple):
    """Queries, and what is known of their true neighbours."""

    queries: Floats
    #: Which of them are rows.
    stored: NDArray[np.bool_]
    #: Distances of centres, ascending, (queries, cells).
    apart: Floats
    #: Of each neighbour, nearest first, (queries, k): its distance, and the place in that order of the first cell that
    #: holds it; −1 where none does, for then it is always found.
    far: Floats
    places: NDArray[np.int64]


def _measured(writer: Writer, found: Cells, vectors: RowVectors) -> _Sample | None:
    """None where no query has neighbours: all are zeros, whose cosines say nothing."""
    queries, own = _queries(vectors, writer.state.count)
    k = min(_KS[-1], max(1, writer.state.count - 1))
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
    return _Sample(queries, own >= 0, np.take_along_axis(apart, order, axis=1), far, first)


def _with_slope(sample: _Sample, slope: float) -> dict[str, float]:
    """The reaches of a slope: of each neighbour the least reach that finds it, and of these a quantile.

    As many neighbours must be found of queries that are rows as of those that are not.
    """
    octaves = np.log2(np.arange(sample.apart.shape[1]) + 1)
    at = np.maximum(sample.places, 0)
    centres = np.take_along_axis(sample.apart, at, axis=1) + slope * octaves[at]
    rule = {"slope": slope}
    for k in _KS:
        last = min(k, sample.far.shape[1])
        needed = np.where(sample.places < 0, -math.inf, centres - sample.far[:, [last - 1]])[:, :last]
        for recall in _RECALLS:
            share = 1 - _BY_CELLS * (1 - recall)
            kinds = (needed[kind] for kind in (sample.stored, ~sample.stored))
            reach = max(float(np.quantile(kind, share, method="higher")) for kind in kinds)
            rule[_name(k, recall)] = max(reach, -_FARTHEST)
    return rule


def _visited(sample: _Sample, rule: Mapping[str, float]) -> float:
    """How many cells are visited for ten neighbours at a recall of 0.95, on the average."""
    octaves = np.log2(np.arange(sample.apart.shape[1]) + 1)
    kth = sample.far[:, [min(10, sample.far.shape[1]) - 1]]
    return float((sample.apart - kth <= rule[_name(10, 0.95)] - rule["slope"] * octaves).sum(axis=1).mean())


def _queries(vectors: RowVectors, count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Rows, and points between two of them; and the row that each is, or −1."""
    rng = np.random.default_rng(0)
    rows = vectors.codes.numbers()
    rows = rows[vectors.living(rows)]
    n = max(_FEWEST, min(_MOST, _WORK // max(1, count)))
    some = rng.choice(rows, min(2 * n, len(rows)), replace=False)
    own, half = vectors[some], len(some) // 2
    between = (own[:half] + own[half : 2 * half]) / 2
    queries = np.ascontiguousarray(np.concatenate([own[:half], between]), np.float32)
    return queries, np.concatenate([some[:half].astype(np.int64), np.full(half, -1)])


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


def _tau(vectors: RowVectors, queries: Floats, found: Cells) -> float:
    """How far rows of a cell are spread along a query, as a share of their spread."""
    rows = vectors.codes.numbers()
    some = vectors[np.sort(np.random.default_rng(1).choice(rows[vectors.living(rows)], min(512, vectors.state.count)))]
    centres = found.centres[_assign.Centres(found.centres).nearest(some, 1)[0][:, 0]]
    apart = some - centres
    lengths = np.linalg.norm(queries, axis=1, keepdims=True)
    along = np.square(queries / np.maximum(lengths, 1e-30) @ apart.T).mean()
    spread = np.square(apart).sum(axis=1).mean()
    return float(np.sqrt(along / spread)) if spread > 0 else 0.1
