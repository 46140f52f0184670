"""The search of cells, for one query: cython_src/cells.h, centres.h, smallest.h."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...encoders.layout import Layout, Tables
from .exact import exact_distances, lane_sums
from .line import Points, below, normal_quantile
from .tables import field_distances, nibble_distances, nibble_tables, nibbles

#: As cells_work.h has them.
FIRST, LOOK, RANKED, SAMPLED, MORE = 4, 4, 16, 8, 14
#: As cells.h has it.
CENTRE_MARGIN = 1.5
#: No sum; the largest look-up of one byte, and of two; columns that may have two.
LARGEST, QUANTUM, WIDE_QUANTUM, WIDE_COLUMNS = 65535, 127, (127 << 7) + 127, 4

Sums = NDArray[np.uint16]
Floats = NDArray[np.float32]


class Rule(NamedTuple):
    """What decides which cells are visited, and which rows compared."""

    reach: float
    slope: float
    tau: float
    misses: float
    lost: float


@dataclass
class Cells:
    """Cells and rows, as plain arrays."""

    #: The rows of each cell, and those of its tail.
    entries: list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]
    #: Centres as they are ranked (float16 numbers), their codes, and what the rule knows of their rows.
    centres: Floats
    centre_codes: NDArray[np.uint8]
    near: Floats
    spreads: Floats
    #: Codes of all rows; the first row and the rows of each record of them; the first row that is in no cell.
    codes: NDArray[np.uint8]
    records: list[tuple[int, int]]
    fresh: int
    #: Which rows may be found.
    may: NDArray[np.bool_]


@dataclass
class Asked:
    """One query and what is wanted."""

    query: Floats
    metric: str
    layout: Layout
    #: Of the query alone.
    tables: Tables
    by_nibbles: bool
    #: Columns of a code that come first.
    head: int
    #: Kept vectors; None where codes alone decide.
    vectors: Floats | None
    k: int
    rule: Rule
    #: Instead of the rule, where they are not 0.
    probes: int = 0
    depth: int = 0


@dataclass
class Visits:
    """What was found, and what was done for it."""

    compared: dict[int, np.float32] = field(default_factory=dict)
    cells: int = 0
    rows: int = 0
    left: float = 0.0

    def nearest(self, k: int) -> tuple[list[int], list[np.float32]]:
        """The k nearest rows, and their distances; rows that are equally far in their order."""
        order = sorted(self.compared, key=lambda row: (self.compared[row], row))[:k]
        return order, [self.compared[row] for row in order]


def search_cells(cells: Cells, asked: Asked) -> Visits:
    """All steps, as cells.h tells them."""
    one = _Search(cells, asked)
    one.next(max(asked.probes, RANKED))
    visited = min(min(asked.probes or FIRST, FIRST), len(one.ordered))
    one.begin(visited)
    if not asked.depth:
        one.compare(one.first())
        taken = one.again(one.limit())
    else:
        taken = one.best(one.collected())
    one.compare(taken)
    while True:
        if visited == len(one.ordered):
            if visited == len(cells.entries):
                break
            one.next(visited)
        until = one.until(visited)
        if until <= visited:
            if asked.probes or not one.more(visited):
                break
            continue
        found = one.visit(visited, until, max(one.hit_limit() if asked.depth else one.limit(), 0))
        one.compare(one.best(found) if asked.depth else one.new(found))
        visited = until
    return one.visits


class _Search:
    def __init__(self, cells: Cells, asked: Asked) -> None:
        self.cells, self.asked, self.visits = cells, asked, Visits()
        self.exact, self.bias = nibble_tables(asked.layout, asked.tables)
        self.scale = _scale(asked, self.exact[0], self.bias[0])
        n = len(cells.entries)
        self.centre_sums = in_places(_padded(self.sums(cells.centre_codes), n))
        self.ordered: list[tuple[float, int]] = []
        self.reached = -1
        self.hits: list[tuple[int, int]] = []
        self.points, self.centre_points = Points(), Points()
        self.moments: list[int] = []

    def sums(self, codes: NDArray[np.uint8]) -> Sums:
        """Estimates in whole steps."""
        if self.asked.by_nibbles:
            at = nibbles(codes)
            total: Sums = self.scale.look_ups[np.arange(at.shape[1]), at].sum(axis=1).astype(np.uint16)
            return total
        distances = field_distances(codes, self.asked.layout, self.asked.tables)[0]
        return np.array([ceiling((float(d) - self.scale.base) / self.scale.step) for d in distances], np.uint16)

    # -- centres ------------------------------------------------------------------------------

    def order(self, start: int, high: int) -> None:
        """Rank the cells exactly whose sums are up to ``high``, among those from place ``start`` on."""
        places = within(self.centre_sums, self.reached + 1, high)
        chosen = lanes(places)
        # Centres have the length 1 where only directions count.
        cosine = self.asked.metric == "cosine"
        apart = exact_distances(self.cells.centres[chosen], "ip" if cosine else self.asked.metric, self.asked.query)
        if cosine:
            apart = np.float32(1) + apart / np.float32(math.sqrt(_square(self.asked.query)))
        self.centre_points.add(self.centre_sums[places].tolist(), apart.tolist())
        new = zip(apart.tolist(), chosen.tolist(), strict=True)
        self.ordered = [*self.ordered[:start], *sorted([*self.ordered[start:], *new])]
        self.reached = high

    def next(self, more: int) -> None:
        """Rank the next cells by their sums, a few more than ``more``."""
        self.order(len(self.ordered), bound(self.centre_sums, self.reached + 1, more))

    def more(self, visited: int) -> bool:
        """Rank the cells, too, that may be as near as those visited, or within reach; whether there are any."""
        line, old, rule = self.centre_points.line(), len(self.ordered), self.asked.rule
        if old == len(self.cells.entries):
            return False
        octaves = np.float32(math.log2(visited + 1))
        farthest = self.kth() + np.float32(rule.reach) - np.float32(rule.slope) * octaves
        if visited > RANKED:
            farthest = max(farthest, np.float32(self.ordered[visited - 1][0]))
        # Where codes tell nothing, all are.
        known = fourths(self.centre_sums)
        high = ceiling(below(line, known, float(farthest), CENTRE_MARGIN)) if line.slope > 0 else LARGEST
        if high <= self.reached:
            return False
        self.order(visited, min(high, LARGEST - 1))
        return len(self.ordered) > old

    # -- entries ------------------------------------------------------------------------------

    def begin(self, count: int) -> None:
        """Collect the entries of the first cells, and the rows that are in no cell."""
        rows, sums = [np.empty(0, np.uint32)], [np.empty(0, np.uint16)]
        for _, cell in self.ordered[:count]:
            for own in self.cells.entries[cell]:
                rows.append(_full(own))
                sums.append(in_places(_padded(self.sums(self.cells.codes[own]), len(own))))
                self.visits.rows += len(own)
            self.visits.cells += 1
        for start, size in reversed(self.cells.records):
            if start + size <= self.cells.fresh:
                break
            skip = max(0, self.cells.fresh - start)
            first = skip // 32 * 32
            own = np.arange(start + first, start + size, dtype=np.uint32)
            own_sums = self.sums(self.cells.codes[own])
            own_sums[: skip - first] = LARGEST
            rows.append(_full(own))
            sums.append(in_places(_padded(own_sums, len(own))))
            self.visits.rows += size - skip
        self.rows, self.entry_sums = np.concatenate(rows), np.concatenate(sums)
        self.moments = fourths(self.entry_sums)

    def visit(self, first: int, last: int, limit: int) -> list[tuple[int, int]]:
        """(row, sum) of the entries of further cells that are not above the limit."""
        found: list[tuple[int, int]] = []
        for _, cell in self.ordered[first:last]:
            for own in self.cells.entries[cell]:
                sums = self.sums(self.cells.codes[own])
                kept = (sums <= limit) & self.cells.may[own]
                found += zip(own[kept].tolist(), sums[kept].tolist(), strict=True)
                if first >= RANKED:  # then sums are unlike those of the first cells
                    self.moments += fourths(in_places(sums[: len(sums) // 32 * 32]))
                self.visits.rows += len(own)
            self.visits.cells += 1
        return found

    def _at(self, places: NDArray[np.intp]) -> list[tuple[int, int]]:
        """(row, sum) of entries that were collected at first, as far as their rows may be found."""
        rows, sums = self.rows[lanes(places)], self.entry_sums[places]
        may = self.cells.may[rows]
        return list(zip(rows[may].tolist(), sums[may].tolist(), strict=True))

    def collected(self) -> list[tuple[int, int]]:
        """All entries that were collected at first, of rows that may be found."""
        found = self._at(np.flatnonzero(self.entry_sums < LARGEST))
        return [(row, own) for row, own in found if self.cells.may[row]]

    def first(self) -> list[tuple[int, int]]:
        """The best of the entries collected, and some that were not chosen."""
        n, taken, want = len(self.entry_sums), list[tuple[int, int]](), self.asked.k + MORE
        while len(taken) < self.asked.k:
            places = within(self.entry_sums, 0, bound(self.entry_sums, 0, want))[: 2 * want]
            taken = self.new([*taken, *self._at(places)])
            if want >= n:
                break
            want *= 2
        places = np.unique(np.arange(SAMPLED) * n // SAMPLED) if n else np.empty(0, np.intp)
        return self.new([*taken, *self._at(places[self.entry_sums[places] < LARGEST])])

    def again(self, limit: int) -> list[tuple[int, int]]:
        """All entries collected whose sums are not above the limit."""
        return [] if limit < 0 else self.new(self._at(within(self.entry_sums, 0, min(limit, LARGEST - 1))))

    def hit_limit(self) -> int:
        """The sum of the last of the best entries so far, where ``depth`` is asked for."""
        sums = sorted(own for _, own in self.hits)
        return sums[2 * self.asked.depth - 1] if len(sums) >= 2 * self.asked.depth else LARGEST

    def best(self, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The best of all entries so far, and of these the new rows."""
        self.hits += found
        limit = self.hit_limit()
        self.hits = [hit for hit in self.hits if hit[1] <= limit]
        return self.new(self.hits)

    def new(self, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Each row that may be found and was not compared yet, once."""
        once: dict[int, int] = {}
        for row, own in found:
            if self.cells.may[row] and row not in self.visits.compared:
                once.setdefault(row, own)
        return list(once.items())

    # -- the rule -----------------------------------------------------------------------------

    def compare(self, taken: list[tuple[int, int]]) -> None:
        """Exact distances of rows."""
        rows, asked = np.array([row for row, _ in taken], np.int64), self.asked
        if asked.vectors is not None:
            exact = exact_distances(asked.vectors[rows], asked.metric, asked.query)
        elif asked.by_nibbles:
            exact = nibble_distances(self.cells.codes[rows], self.exact, self.bias)[0]
        else:
            exact = field_distances(self.cells.codes[rows], asked.layout, asked.tables)[0]
        self.visits.compared.update(zip(rows.tolist(), exact, strict=True))
        self.points.add([own for _, own in taken], exact.tolist())

    def kth(self) -> np.float32:
        """The k-th smallest distance so far."""
        distances = sorted(self.visits.compared.values())
        return np.float32(distances[self.asked.k - 1] if len(distances) >= self.asked.k else math.inf)

    def limit(self) -> int:
        """The largest sum of rows that are worth comparing; −1 where none are."""
        asked, compared = self.asked, len(self.visits.compared)
        if compared < asked.k:
            return LARGEST
        kth = float(self.kth())
        if asked.vectors is None:
            rounded = self.cells.codes.shape[1] + self.scale.slack if asked.by_nibbles else 1
            return ceiling((kth - self.scale.base) / self.scale.step + rounded)
        line, margin = self.points.line(), normal_quantile(float(np.float32(asked.rule.lost)))
        if line.slope > 0:
            return ceiling(below(line, self.moments, kth, margin))
        return LARGEST if line.around > 0 or kth > line.start else int(line.mean) - 1

    def until(self, visited: int) -> int:
        """Up to which place in the order cells are to be visited now."""
        end, asked = min(visited + LOOK, len(self.ordered)), self.asked
        if asked.probes:
            return min(end, max(asked.probes, visited))
        reach, slope = np.float32(asked.rule.reach), np.float32(asked.rule.slope)
        farthest, ahead = self.kth() + reach, end
        while end > visited:
            if np.float32(self.ordered[end - 1][0]) <= farthest - slope * np.float32(math.log2(end)):
                return end
            end -= 1
        self.visits.left = self.expected(visited)
        return visited if self.visits.left <= float(np.float32(asked.rule.misses)) else ahead

    def expected(self, visited: int) -> float:
        """How many rows of the cells that are left are expected to be nearer than the k-th, at most."""
        distance, cell = self.ordered[visited]
        near, spread = float(self.cells.near[cell]), float(self.cells.spreads[cell])
        tau, mean = float(np.float32(self.asked.rule.tau)), distance
        deviation = float(np.float32(tau) * np.float32(spread))
        if self.asked.metric == "cosine":
            mean = 1 - near * float(np.float32(1) - np.float32(distance))
            deviation = tau * math.sqrt(max(0.0, 1 - near * near))
        elif self.asked.metric == "ip":
            deviation *= math.sqrt(_square(self.asked.query))
        else:
            mean += spread * spread
            deviation *= 2 * math.sqrt(max(0.0, distance))
        entries = sum(len(own) for both in self.cells.entries for own in both)
        rows = entries / len(self.cells.entries) * (len(self.cells.entries) - visited)
        z = (mean - float(self.kth())) / (deviation if deviation > 0 else 1e-30)
        return rows * 0.5 * math.erfc(z * 0.70710678118654752)


# -- look-ups in whole steps ------------------------------------------------------------------------


class Scale(NamedTuple):
    """Estimates are base + step · sum, within ``slack`` steps of rounding in float32."""

    base: float
    step: float
    slack: float
    look_ups: NDArray[np.int64]


def _scale(asked: Asked, exact: Floats, bias: np.float32) -> Scale:
    """The steps of a query, as centres.h and quantize.h choose them."""
    if not asked.by_nibbles:
        bounds = asked.layout.starts
        tables = [asked.tables.values[0, a:b] for a, b in pairwise(bounds.tolist())]
        least = _in_order([float(asked.tables.bias[0]), *(float(own.min()) for own in tables)])
        most = _in_order([float(asked.tables.bias[0]), *(float(own.max()) for own in tables)])
        return Scale(least, (most - least) / (LARGEST - 1) if most > least else 1.0, 0.0, np.empty(0, np.int64))
    low, high = exact.min(axis=1), exact.max(axis=1)
    ranges = high.astype(np.float64) - low
    wide = wide_columns(ranges, asked.head)
    step = finest_step(ranges, wide)
    base = _in_order([float(bias), *low.astype(np.float64)])
    size = _in_order([abs(float(bias)), *np.maximum(np.abs(low), np.abs(high)).astype(np.float64)])
    slack = 1 + (len(low) / 2 + 4) * float(np.finfo(np.float32).eps) * size / step
    top = np.where(np.arange(len(low)) < 2 * wide, WIDE_QUANTUM, QUANTUM).astype(np.float32)[:, None]
    rounded = (exact - low[:, None]) * np.float32(1 / step) + np.float32(0.5)
    return Scale(base, step, slack, np.minimum(rounded, top).astype(np.int64))


def finest_step(ranges: NDArray[np.float64], wide: int) -> float:
    """The finest step if look-ups of the first ``wide`` columns have two bytes, those of the others one."""
    narrow, widest = float(ranges[2 * wide :].max(initial=0)), float(ranges[: 2 * wide].max(initial=0))
    step = max(narrow / QUANTUM, widest / WIDE_QUANTUM, _in_order(ranges) / (65535.0 - len(ranges)))
    return step if step > 0 else 1.0


def wide_columns(ranges: NDArray[np.float64], head: int) -> int:
    """How many columns are worth two bytes."""
    most = min(head, WIDE_COLUMNS)
    finest = finest_step(ranges, most)
    if not finest < 0.67 * finest_step(ranges, 0):
        return 0
    wide = 1
    while wide < most and finest_step(ranges, wide) > 1.25 * finest:
        wide += 1
    return wide


def _in_order(numbers: Any) -> float:
    """A sum in double, one after another."""
    return float(np.cumsum(np.asarray(numbers, np.float64))[-1])


def _square(query: Floats) -> float:
    """The squared length of a query as exact.h has it."""
    return float(lane_sums((query * query)[None])[0])


# -- sums in their places ---------------------------------------------------------------------------


def in_places(sums: Sums) -> Sums:
    """Sums of blocks of 32 rows as sums.h has them: those of even rows first.

    >>> in_places(np.arange(32, dtype=np.uint16))[[0, 1, 15, 16, 31]]
    array([ 0,  2, 30,  1, 31], dtype=uint16)
    """
    return sums.reshape(-1, 16, 2).transpose(0, 2, 1).reshape(-1)


def lanes(places: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows of places."""
    return (places & ~31) | (places & 15) << 1 | (places >> 4 & 1)


def bound(sums: Sums, low: int, want: int) -> int:
    """A sum such that at least ``want`` are from ``low`` to it, and seldom twice as many.

    >>> bound(np.arange(64, dtype=np.uint16), 5, 10)
    14
    """
    n, groups = len(sums), 32
    while groups < 2 * want and 2 * groups <= n:
        groups *= 2
    if groups < 2 * want or groups > n:
        groups = n
    if want > n:
        return LARGEST - 1
    above = np.full(-(-n // groups) * groups, LARGEST, np.uint16)
    above[:n] = sums - np.uint16(low)
    minima = np.sort(above.reshape(-1, groups).min(axis=0))
    return min(int(minima[want - 1]) + low, LARGEST - 1)


def within(sums: Sums, low: int, high: int) -> NDArray[np.intp]:
    """The places of the sums from ``low`` to ``high``."""
    return np.flatnonzero(sums - np.uint16(low) <= np.uint16(high - low))


def ceiling(number: float) -> int:
    """A sum as a limit, also where it is out of range or not a number."""
    return LARGEST if not number < LARGEST else int(number) if number > 0 else 0


def fourths(sums: Sums) -> list[int]:
    """Every fourth of them, without those that stand for nothing."""
    return [own for own in sums[::4].tolist() if own < LARGEST]


def _padded(sums: Sums, n: int) -> Sums:
    """With no sums behind the last, up to a whole block."""
    return np.concatenate([sums, np.full(-n % 32, LARGEST, np.uint16)])


def _full(rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return np.concatenate([rows, np.zeros(-len(rows) % 32, np.uint32)])
