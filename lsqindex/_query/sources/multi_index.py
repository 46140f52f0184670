"""Subset indexing (section 3.2 of the paper): rows that share most buckets with the query, and the fresh rows.

    probe tables ─▶ the cheapest buckets ─▶ scores ─▶ the best rows ─▶ their distances
    fresh rows, which no list has yet, are scanned, and join them

Each table of the multi-index returns the rows of the query's bucket, and of the buckets nearest to it; a row's score is
the number of tables that return it, each the more the nearer its bucket is. The kernel (``cython_src/probes.h``,
``scores.h``) takes the cheapest buckets of all tables together, and reads posting lists where they lie.

Where vectors are kept and all candidates are to be ranked again, their codes are not looked at: a code that lies
somewhere in memory costs about as much to read as its vector.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import ranking as _ranking
from ..._compiled.multi_index import Lists
from ..._compiled.scan import Codes
from ..._storage.format import deleted
from ..._storage.format.columns import CHUNK_ROWS
from ..._storage.format.records import REMEDY
from ..._storage.store import Store
from ..._subsets import stored as subsets
from ..._subsets.multi_index import lists
from ..._subsets.multi_index.postings import SEGMENT_ROWS
from ..._subsets.multi_index.structure import MultiIndexStructure
from ...errors import DamagedError
from .. import tuning
from ..found import Found, together
from ..query import Query
from ..select import Selection, bits_of
from .scan import Scan

if TYPE_CHECKING:
    from ..plan import MakeTables
    from ..search import Search
    from ..snapshot import Snapshot


class Listed:
    """The posting lists of a snapshot, and the rows that are in none."""

    def __init__(self, snapshot: Snapshot, store: Store) -> None:
        self.stored = stored_lists(store)
        self.lists = lists_of(self.stored, snapshot, store)
        #: How many tables there are, and how many rows that are not deleted are in their lists.
        self.tables = len(self.stored.bits)
        self.living = int(np.searchsorted(store.living(), snapshot.state.listed))
        #: The records that hold fresh rows; and, where the first of them holds others, too, a bit for each fresh row.
        self.fresh: Codes | None = None
        self.fresh_bits: NDArray[np.uint8] | None = None
        if snapshot.state.listed < snapshot.state.rows:
            self._find_fresh(snapshot, store)

    def _find_fresh(self, snapshot: Snapshot, store: Store) -> None:
        codes, listed = store.codes(), snapshot.state.listed
        codes.touch_all()
        first = int(np.searchsorted(codes.starts.astype(np.int64) + codes.counts, listed, side="right"))
        starts, counts, addresses = (
            codes.starts[first:].copy(),
            codes.counts[first:].copy(),
            codes.addresses[first:].copy(),
        )
        self.fresh = snapshot.codes_at(starts, counts, addresses, deleted.addresses(store.source))
        if len(starts) and int(starts[0]) < listed:
            self.fresh_bits = bits_of(np.arange(listed, int(starts[-1]) + int(counts[-1]), dtype=np.uint32))


class Probing(NamedTuple):
    """How to look for rows, whatever the queries are."""

    #: Buckets to look into, of all tables together.
    probes: int
    #: Rows of the best scores that are wanted.
    wanted: int
    #: At least so many rows: one bucket more at a time until they are there.
    least: int
    #: Whether a hit counts the more, the nearer its bucket is.
    weigh: bool = True


class Scored(NamedTuple):
    """For each query the rows of the best scores, ties included, in no order."""

    counts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    scores: NDArray[np.uint16]


class MultiIndex:
    """Candidates ranked by distance: the best by their scores, and the nearest of the fresh rows."""

    group = 1

    def __init__(
        self, snapshot: Snapshot, store: Store, query: Query, scan: Scan, selection: Selection | None, wide: int
    ) -> None:
        """``scan`` finds the nearest of queries whose buckets hold too few rows, ``wide`` of which are wanted."""
        listed = snapshot.listed = snapshot.listed or Listed(snapshot, store)
        reach = listed.living if selection is None else int(np.searchsorted(selection.rows, snapshot.state.listed))
        self._probing = Probing(
            query.probes or tuning.PROBES * listed.tables,
            max(wide, query.candidates or max(tuning.LEAST_CANDIDATES, tuning.CANDIDATES * wide)),
            0 if query.probes else min(wide, reach),
        )
        self._lists, self._scan, self._probes = listed.lists, scan, probe_tables(snapshot)
        self._allowed = None if selection is None else selection.bits
        self._fresh_rows = snapshot.state.rows - snapshot.state.listed
        self._fresh = _fresh_scan(snapshot, listed, scan, self._allowed)
        self.cost = self._probing.probes * tuning.PROBE_COST

    def find(self, search: Search, wide: int) -> Found:
        """The best by their scores, and the nearest of the fresh; or of all, for queries whose buckets hold too few."""
        found, fresh = (
            best(search, self._lists, self._probes, self._probing, self._allowed),
            self._nearest_fresh(search, wide),
        )
        kept = (
            search.plan.depth.better is search.snapshot.kept is not None
            and search.plan.depth.wide >= self._probing.wanted
        )
        if kept:
            found = self._without_most_ties(search, found)
        lacking = found.counts < self._probing.least
        counts, rows = _only(~lacking, found.counts, found.rows)
        parts = [Found(counts, rows, None if kept else self._distances(search, counts, rows))]
        if fresh is not None:
            assert fresh.distances is not None
            parts.append(Found(*_only(~lacking, fresh.counts, fresh.rows, fresh.distances)))
        if lacking.any():
            parts.append(scanned(search, self._scan, lacking, wide))
        whole = together(parts)
        return whole._replace(distances=None) if kept else whole

    def _distances(self, search: Search, counts: NDArray[np.int64], rows: NDArray[np.uint32]) -> NDArray[np.float32]:
        try:
            return self._scan.distances(search, counts, rows)
        except LookupError as error:
            raise DamagedError(f"posting lists: {error}; {REMEDY}") from error

    def _nearest_fresh(self, search: Search, wide: int) -> Found | None:
        if self._fresh is None:
            return None
        search.trace.fresh += self._fresh_rows * len(search.vectors)
        return self._fresh.find(search, wide)

    def _without_most_ties(self, search: Search, found: Scored) -> Scored:
        """Where far more rows than are wanted have the same last score, those of them whose codes are nearest."""
        wanted = self._probing.wanted
        if not len(found.counts) or int(found.counts.max()) <= 2 * wanted:
            return found
        many = found.counts > 2 * wanted
        queries = np.repeat(np.arange(len(many)), found.counts)
        last = np.zeros(len(many), np.uint16)
        some = found.counts > 0
        last[some] = np.minimum.reduceat(found.scores, (np.cumsum(found.counts) - found.counts)[some])
        tied = many[queries] & (found.scores == last[queries])
        distances = np.full(len(queries), -np.inf, np.float32)
        distances[tied] = self._distances(search, np.bincount(queries[tied], minlength=len(many)), found.rows[tied])
        distances[~many[queries]] = 0  # all equal: none is left out
        counts, places = _ranking.cut(found.counts, distances, wanted)
        return Scored(counts, found.rows[places], found.scores[places])


def best(
    search: Search, among: Lists, tables: MakeTables, probing: Probing, allowed: NDArray[np.uint8] | None
) -> Scored:
    """The rows of the best scores of each query."""
    limits = (probing.probes, probing.wanted, probing.weigh, min(probing.least, probing.wanted), tuning.MOST_PROBES)
    counts, rows, scores, figures = among.best(search.tables(tables).values, *limits, allowed, search.counting)
    trace, (probes, postings, named) = search.trace, figures.sum(axis=0).tolist()
    trace.probes += probes
    trace.postings += postings
    trace.rows += named
    trace.candidates += len(rows)
    return Scored(counts, rows, scores)


def probe_tables(snapshot: Snapshot) -> MakeTables:
    """Makes the probe tables of queries."""
    coder = snapshot.coder
    return partial(coder.encoder._probe_tables, metric=coder.metric)


def scanned(search: Search, scan: Any, queries: NDArray[np.bool_], wide: int) -> Found:
    """The nearest rows of some queries, by a scan; nothing for the others."""
    search.trace.scanned += int(queries.sum())
    found = scan.find(search.only(np.flatnonzero(queries)), wide)
    counts = np.zeros(len(queries), np.int64)
    counts[queries] = found.counts
    return Found(counts, found.rows, found.distances)


def _only(queries: NDArray[np.bool_], counts: NDArray[np.int64], *values: NDArray[Any]) -> tuple[Any, ...]:
    """The same for these queries only: the others have nothing."""
    if queries.all():
        return counts, *values
    kept = np.repeat(queries, counts)
    return np.where(queries, counts, 0), *(array[kept] for array in values)


def _fresh_scan(snapshot: Snapshot, listed: Listed, scan: Scan, allowed: NDArray[np.uint8] | None) -> Scan | None:
    if listed.fresh is None:
        return None
    bits = listed.fresh_bits
    if bits is not None and allowed is not None:
        size = min(len(bits), len(allowed))
        bits = bits[:size] & allowed[:size]
    return Scan(snapshot, listed.fresh, scan.distance, allowed=allowed if bits is None else bits)


# -- posting lists --------------------------------------------------------------------------------


def stored_lists(store: Store) -> lists.Lists:
    """The posting lists of a snapshot, where they lie."""
    structure = subsets.read(store.source)
    found = structure.lists(store) if isinstance(structure, MultiIndexStructure) else None
    if found is None:  # the strategy is a scan where there are no tables
        raise DamagedError(f"posting lists: missing; {REMEDY}")
    return found


def lists_of(stored: lists.Lists, snapshot: Snapshot, store: Store) -> Lists:
    """Posting lists for the kernel."""
    layout = snapshot.coder.layout
    there = np.zeros(-(-snapshot.state.rows // CHUNK_ROWS), np.uint8)
    there[store.codes().starts // CHUNK_ROWS] = 1
    return Lists(
        stored.firsts,
        stored.spans,
        stored.counts,
        stored.addresses,
        np.append(np.searchsorted(layout.bit_starts, stored.first_bits), len(layout.bits)).astype(np.int64),
        stored.bits.astype(np.uint8),
        layout.starts,
        layout.level_counts,
        deleted.addresses(store.source),
        SEGMENT_ROWS,
        there,
        CHUNK_ROWS,
    )
