"""Queries whose true neighbours are known, and in which cells these are: what calibration measures with.

rows       some of the stored rows; a row is not its own neighbour
between    points halfway between two rows, which are unlike any
means      means of several rows: near to nothing
random     random directions, as long as rows: farther still

To find neighbours takes a scan of all rows, so few queries are answered at a time (``answered``). The answers are kept
in the file until there are enough (``stored``, ``store``).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._compiled import cells as _cells
from ..._compiled import exact as _exact
from ..._compiled import scan as _scan
from ..._storage.format import deleted, keys, records
from ..._storage.format.columns import CHUNK_ROWS
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ..._storage.store import Store
from ...errors import DamagedError
from ...metrics import METRICS, Metric
from .entries import Floats
from .found import Cells
from .kernel import kernel_cells
from .rule import EVERYTHING, KS, Rule
from .vectors import RowVectors, coder_of, options_of, stored_chunks

#: So many rows are compared with queries, in all; at least and at most so many queries that are rows.
_WORK, FEWEST, _MOST = 1 << 25, 48, 256

#: Of these, so many are answered at a time.
_STEP = 4

#: Kinds of queries.
ROWS, BETWEEN, MEANS, RANDOM = range(4)

#: Queries that are near to nothing take long: one of each kind every so many steps. Means are of so many rows.
_FAR, _MEAN_OF = 2, 8

#: A row number that stands for no row.
_NO_ROW = (1 << 32) - 1


class Answered(NamedTuple):
    """Queries and their true neighbours."""

    queries: Floats
    #: Of each: its kind.
    kinds: NDArray[np.int64]
    #: Of each neighbour, nearest first, (queries, k): its row, −1 where there are fewer, and its distance.
    rows: NDArray[np.int64]
    far: Floats


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


def steps_of(count: int) -> int:
    """How many times queries are answered for a sample, of ``count`` vectors."""
    return max(FEWEST, min(_MOST, _WORK // max(1, count))) // _STEP


def answered(writer: Writer, found: Cells, vectors: RowVectors, step: int) -> Answered:
    """Some queries of all kinds; others at each step."""
    queries, own, kinds = _queries(vectors, step)
    k = min(KS[-1], max(1, writer.state.count - 1))
    rows = Searcher(writer, found, vectors).rows(queries, k + 1, EVERYTHING)
    # A query that is a row is not its own neighbour.
    others = np.argsort(rows == own[:, None], axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, others, axis=1)
    far = np.full(rows.shape, np.inf, np.float32)
    for i, some in enumerate(rows):
        far[i, some >= 0] = _apart(METRICS[vectors.options.metric], queries[[i]], vectors[some[some >= 0]])[0]
    near = np.argsort(far, axis=1, kind="stable")
    return Answered(queries, kinds, np.take_along_axis(rows, near, axis=1), np.take_along_axis(far, near, axis=1))


def together(parts: list[Answered]) -> Answered:
    """Several as one: as many neighbours as all have."""
    k = min(part.rows.shape[1] for part in parts)
    return Answered(
        np.concatenate([part.queries for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.rows[:, :k] for part in parts]),
        np.concatenate([part.far[:, :k] for part in parts]),
    )


def sample_of(answers: Answered, found: Cells, vectors: RowVectors) -> Sample | None:
    """In which cells the neighbours are; None where no query has any: all are zeros, whose cosines say nothing."""
    queries, kinds, rows, far = answers
    if (rows < 0).all():
        return None
    apart = _apart(METRICS[vectors.options.metric], queries, found.centres)
    order = np.argsort(apart, axis=1, kind="stable")
    first = _first_places(found, vectors, rows, np.argsort(order, axis=1, kind="stable"))
    # Where there are fewer neighbours, the farthest stands for them.
    far = np.where(rows < 0, far[rows >= 0].max(), far)
    return Sample(queries, kinds, order, np.take_along_axis(apart, order, axis=1), far, first)


# -- queries that were answered, in the file ---------------------------------------------------------


def stored(source: Reader | Writer) -> list[Answered]:
    """What was answered so far, step by step."""
    dim = options_of(source).dim
    parts: list[Answered] = []
    while (value := source.get(keys.META, keys.answers(len(parts)))) is not None:
        parts.append(_from_record(value, len(parts), dim))
    return parts


def store(writer: Writer, step: int, part: Answered) -> None:
    """Store what was answered in a step."""
    rows = np.where(part.rows < 0, _NO_ROW, part.rows)
    numbers = np.concatenate([part.kinds[:, None], rows], axis=1).astype("<u4")
    floats = (values.astype("<f4").view("<u4") for values in (part.queries, part.far))
    payload = np.concatenate([numbers, *floats], axis=1)
    header = records.Header(records.ANSWERS, len(payload), step, 4 * payload.shape[1])
    writer.put(keys.META, keys.answers(step), records.encode(header, payload))


def forget(writer: Writer) -> None:
    """Remove what is stored."""
    step = 0
    while writer.get(keys.META, keys.answers(step)) is not None:
        writer.delete(keys.META, keys.answers(step))
        step += 1


def _from_record(value: Any, step: int, dim: int) -> Answered:
    header, payload = records.decode(value, "answers")
    k = (header.width // 4 - dim - 1) // 2
    expected = records.Header(records.ANSWERS, header.count, step, 4 * (dim + 1 + 2 * k))
    if header != expected or k < 1 or not header.count or len(payload) != header.count * header.width:
        raise DamagedError(f"answers: the record of something else; {records.REMEDY}")
    words = np.frombuffer(payload, "<u4").reshape(header.count, header.width // 4)
    numbers = words[:, : 1 + k].astype(np.int64)
    kinds, rows = numbers[:, 0], np.where(numbers[:, 1:] == _NO_ROW, -1, numbers[:, 1:])
    floats = words[:, 1 + k :].view("<f4").astype(np.float32)
    queries, far = np.ascontiguousarray(floats[:, :dim]), floats[:, dim:]
    if not np.isfinite(queries).all() or np.isnan(far).any() or (kinds > RANDOM).any():
        raise DamagedError(f"answers: impossible values; {records.REMEDY}")
    return Answered(queries, kinds, rows, far)


# -- queries and neighbours --------------------------------------------------------------------------


def _queries(vectors: RowVectors, step: int) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Queries of all kinds, the row that each is, or −1, and its kind."""
    rng = np.random.default_rng(step)
    rows = vectors.codes.numbers()
    rows = rows[vectors.living(rows)]
    some = rng.choice(rows, min(2 * _STEP, len(rows)), replace=False)
    own, half = vectors[some], len(some) // 2
    between = (own[:half] + own[half : 2 * half]) / 2
    few = int(step % _FAR == 0)
    means = own[rng.integers(0, len(own), (few, _MEAN_OF))].mean(axis=1)
    random = rng.standard_normal(means.shape).astype(np.float32)
    random *= np.linalg.norm(own, axis=1).mean() / np.linalg.norm(random, axis=1, keepdims=True)
    queries = np.ascontiguousarray(np.concatenate([own[:half], between, means, random]), np.float32)
    kinds = np.repeat([ROWS, BETWEEN, MEANS, RANDOM], [half, half, few, few])
    return queries, np.where(kinds == ROWS, np.resize(some.astype(np.int64), len(kinds)), -1), kinds


class Searcher:
    """Searches cells while they are being written."""

    def __init__(self, writer: Writer, found: Cells, vectors: RowVectors) -> None:
        store, state, self._coder = Store(writer, vectors.options), writer.state, coder_of(writer, vectors.options)
        coder, codes, ids, bits = self._coder, store.codes(), store.ids(), deleted.addresses(writer)
        layout, keep = coder.layout, vectors.options.keep_vectors
        fields = (layout.starts, layout.bit_starts, layout.level_counts)
        known = _scan.Codes(
            codes.starts,
            codes.counts,
            codes.addresses,
            state.code_size,
            state.head,
            *fields,
            bits,
            deleted.SEGMENT_ROWS,
        )
        kept = None
        if keep is not None:
            own = store.vectors()
            own.touch_all()
            kind = (keep, coder.dim, 0)
            kept = (
                _exact.Vectors(own.starts, own.counts, own.addresses, *kind, bits, deleted.SEGMENT_ROWS),
                own.verified.view(np.uint8),
            )
        self._distance = coder.encoder.distances(coder.metric)[0]
        self._known = (
            kernel_cells(writer, found, coder),
            known,
            layout.by_nibbles(self._distance),
            state.listed,
            stored_chunks(writer, codes),
            CHUNK_ROWS,
            None,
            coder.dim,
            kept,
            METRICS[coder.metric].number,
            (ids.starts, ids.counts, ids.addresses),
            vectors.options.ids == "str",
        )

    def rows(self, queries: Floats, k: int, rule: Rule) -> NDArray[np.int64]:
        """The rows of the ``k`` nearest of each query that the rule finds; −1 where there are fewer."""
        tables = self._coder.encoder._table_maker(self._coder.metric, self._distance)(queries)
        rows, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        prepared = _cells.Prepared(*self._known, k, math.inf, rule)
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
        own = _assign.rows(found.addresses[there, part], counts, state.code_size)
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
