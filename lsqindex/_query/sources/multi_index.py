"""Candidates by subset indexing: rows that posting lists return, and the fresh rows, which no list has yet.

    probe tables ─▶ the cheapest buckets ─▶ scores ─▶ the best rows ─▶ their distances
    fresh rows are scanned, and join them

Where vectors are kept and all candidates are to be ranked again, their codes are not looked at: a code that lies
somewhere in memory costs about as much to read as its vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._compiled import multi_index as _multi_index
from ..._compiled import records as _records
from ..._inputs.vectors import Vectors
from ..._storage.format import deleted
from ..._storage.format.columns import CHUNK_ROWS, RowNumbers
from ..._storage.format.records import REMEDY
from ..._storage.store import Store
from ..._subsets import stored as subsets
from ..._subsets.multi_index import lists
from ..._subsets.multi_index.postings import SEGMENT_ROWS, UNIT_ROWS
from ..._subsets.multi_index.structure import MultiIndexStructure
from ..._threads.cached import cached_property
from ...encoders.coder import Coder
from ...encoders.layout import Tables
from ...errors import DamagedError
from .. import topk
from ..query import Request
from ..snapshot import once
from . import codes as scan
from . import probing as multi_index
from . import scan as by_scan
from .probing import Lists, Probing

#: Without ``probes``: so many for each table. Without ``candidates``: so many times what is asked for, and at least
#: so many.
PROBES, CANDIDATES, LEAST_CANDIDATES = 16, 4, 256

#: So many queries at a time.
_AT_ONCE = 256


@dataclass(frozen=True)
class Candidates:
    """Rows of some queries, in no order."""

    counts: NDArray[np.int64]
    rows: RowNumbers
    #: By their codes; None where they are to be ranked by their vectors.
    distances: NDArray[np.float32] | None
    #: How many tables did not return them; None unless that is the ranking.
    missing: NDArray[np.float32] | None = None


def find(
    store: Store, coder: Coder, request: Request, rows: RowNumbers | None, wide: int
) -> Iterator[tuple[Vectors, Candidates]]:
    """Candidates for the ``wide`` nearest among ``rows``, or all for None; for some queries after others."""
    values = coder.encoder._probe_tables(request.queries, coder.metric).values
    probing = _probing(store, request, rows, wide)
    ranked = _by_score if request.by_score else _by_distance
    for first in range(0, len(request.queries), _AT_ONCE):
        at = slice(first, first + _AT_ONCE)
        some = replace(request, queries=request.queries[at])
        search = _Search(store, coder, some, values[at], probing, rows, wide)
        yield some.queries, ranked(search)


@dataclass(frozen=True)
class _Search:
    """One slice of queries."""

    store: Store
    coder: Coder
    request: Request
    #: Their probe tables.
    values: NDArray[np.float32]
    probing: Probing
    rows: RowNumbers | None
    wide: int

    @cached_property
    def tables(self) -> Tables:
        """Of their distances: not needed where all candidates are ranked by their vectors."""
        return self.coder.encoder._checked_tables(self.request.queries, self.coder.metric, self.request.distance)

    def best(self, among: Lists) -> multi_index.Scored:
        threads, share = self.request.threads, self.store.source.place.share
        found = multi_index.best(among, self.values, self.probing, threads=threads, share=share)
        trace, figures = self.request.trace, found.figures.sum(axis=0).tolist()
        trace.probes += figures[0]
        trace.postings += figures[1]
        trace.rows += figures[2]
        trace.candidates += len(found.rows)
        return found

    def distances(self, counts: NDArray[np.int64], rows: RowNumbers) -> NDArray[np.float32]:
        """By the codes."""
        nibbles = scan.by_nibbles(self.coder.layout, asymmetric=self.request.distance == "asymmetric")
        codes = by_scan.codes_of(self.store, self.coder)
        try:
            return codes.distances(self.tables.values, self.tables.bias, nibbles, counts, rows)
        except LookupError as error:
            raise DamagedError(f"posting lists: {error}; {REMEDY}") from error


def _probing(store: Store, request: Request, rows: RowNumbers | None, wide: int) -> Probing:
    tables = len(_found(store).bits)
    allowed = None if rows is None else by_scan.bits_of(rows)
    if request.by_score:
        reach = store.state.count if rows is None else len(rows)
        probes, wanted = request.probes or tables, wide
    else:
        reach = _listed(store, rows)
        probes = request.probes or PROBES * tables
        wanted = max(wide, request.candidates or max(LEAST_CANDIDATES, CANDIDATES * wide))
    least = 0 if request.probes else min(wide, reach)
    return Probing(probes, wanted, least, not request.by_score, allowed, request.counting)


def _listed(store: Store, rows: RowNumbers | None) -> int:
    """How many rows that may be found are in posting lists."""
    if rows is not None:
        return int(np.searchsorted(rows, store.state.listed))
    return once(store, "living and listed", lambda: int(np.searchsorted(store.living(), store.state.listed)))


# -- ranked by distance ---------------------------------------------------------------------------


def _by_distance(search: _Search) -> Candidates:
    """The best by their scores, and the nearest of the fresh; or of all, for queries whose buckets hold too few."""
    found, fresh = search.best(_stored_lists(search.store, search.coder)), _fresh(search)
    kept = search.store.options.keep_vectors is not None and search.request.rerank >= search.probing.wanted
    if kept:
        found = _without_most_ties(search, found)
    lacking = found.counts < search.probing.least
    counts, rows = _only(~lacking, found.counts, found.rows)
    parts = [
        scan.Found(counts, rows, np.empty(0, np.float32) if kept else search.distances(counts, rows)),
        scan.Found(*_only(~lacking, fresh.counts, fresh.rows, fresh.distances)),
    ]
    if lacking.any():
        parts.append(_scanned(search, lacking))
    counts, rows = _together(parts, [part.rows for part in parts])
    distances = None if kept else _together(parts, [part.distances for part in parts])[1]
    return Candidates(counts, rows, distances)


def _without_most_ties(search: _Search, found: multi_index.Scored) -> multi_index.Scored:
    """Where far more rows than are wanted have the same last score, those of them whose codes are nearest."""
    if not len(found.counts) or int(found.counts.max()) <= 2 * search.probing.wanted:
        return found
    many = found.counts > 2 * search.probing.wanted
    queries = np.repeat(np.arange(len(many)), found.counts)
    last = np.zeros(len(many), np.uint16)
    some = found.counts > 0
    last[some] = np.minimum.reduceat(found.scores, (np.cumsum(found.counts) - found.counts)[some])
    tied = many[queries] & (found.scores == last[queries])
    distances = np.full(len(queries), -np.inf, np.float32)
    distances[tied] = search.distances(np.bincount(queries[tied], minlength=len(many)), found.rows[tied])
    distances[~many[queries]] = 0  # all equal: none is left out
    counts, places = topk.cut(found.counts, distances, search.probing.wanted)
    return replace(found, counts=counts, rows=found.rows[places], scores=found.scores[places])


def _only(queries: NDArray[np.bool_], counts: NDArray[np.int64], *values: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """The same for these queries only: the others have nothing."""
    if queries.all():
        return counts, *values
    kept = np.repeat(queries, counts)
    return np.where(queries, counts, 0), *(array[kept] for array in values)


def _together(parts: list[scan.Found], values: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """How many rows of each query all sources have together, and their ``values``, query by query."""
    if not any(len(part.rows) for part in parts[1:]):
        return parts[0].counts, values[0]
    counts = np.sum([part.counts for part in parts], axis=0)
    queries = np.arange(len(counts))
    order = np.argsort(np.concatenate([np.repeat(queries, part.counts) for part in parts]), kind="stable")
    return counts, np.concatenate(values)[order]


def _scanned(search: _Search, queries: NDArray[np.bool_]) -> scan.Found:
    """The nearest rows of some queries, by a scan."""
    some = replace(search.request, queries=search.request.queries[queries])
    tables = Tables(search.tables.values[queries], search.tables.bias[queries])
    search.request.trace.scanned += len(some.queries)
    found = list(by_scan.find(search.store, search.coder, some, tables, search.rows, search.wide))
    counts = np.zeros(len(queries), np.int64)
    counts[queries] = np.concatenate([part.counts for part in found])
    return replace(_one_after_another(found), counts=counts)


def _one_after_another(parts: list[scan.Found]) -> scan.Found:
    """What was found for some queries, and for the next ones, as one."""
    arrays = ((part.counts, part.rows, part.distances) for part in parts)
    return scan.Found(*(np.concatenate(own) for own in zip(*arrays, strict=True)))


def _fresh(search: _Search) -> scan.Found:
    """The nearest of the rows that no list has yet."""
    store, state, trace = search.store, search.store.state, search.request.trace
    nq = len(search.request.queries)
    if state.listed == state.rows:
        return scan.Found(np.zeros(nq, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32))
    codes, bits = once(store, "fresh", lambda: _fresh_codes(store, search.coder))
    allowed = search.probing.allowed
    if bits is not None and allowed is not None:
        size = min(len(bits), len(allowed))
        bits = bits[:size] & allowed[:size]
    nibbles = scan.by_nibbles(search.coder.layout, asymmetric=search.request.distance == "asymmetric")
    wanted = scan.Search(search.wide, nibbles, None, allowed if bits is None else bits)
    trace.rows += codes.rows * nq
    trace.fresh += (state.rows - state.listed) * nq
    trace.chunks += -(-codes.rows // CHUNK_ROWS) * nq
    threads, share = search.request.threads, search.store.source.place.share
    return _one_after_another(list(scan.nearest(codes, search.tables, wanted, threads=threads, share=share)))


def _fresh_codes(store: Store, coder: Coder) -> tuple[scan.Codes, NDArray[np.uint8] | None]:
    """The records that hold fresh rows; and, where the first of them holds others, too, a bit for each fresh row."""
    codes, listed = store.codes(), store.state.listed
    first = int(np.searchsorted(codes.starts.astype(np.int64) + codes.counts, listed, side="right"))
    codes.touch_all()
    here = (codes.starts[first:].copy(), codes.counts[first:].copy(), codes.addresses[first:].copy())
    found = by_scan.codes_at(*here, store, coder, deleted.addresses(store.source))
    if not len(here[0]) or int(here[0][0]) >= listed:
        return found, None
    end = int(here[0][-1]) + int(here[1][-1])
    return found, by_scan.bits_of(np.arange(listed, end, dtype=np.uint32))


# -- ranked by score, as in the paper -------------------------------------------------------------


def _by_score(search: _Search) -> Candidates:
    """The best scores; where no number of buckets gives enough rows, the nearest of the others follow."""
    found = search.best(once(search.store, "all lists", lambda: _all_lists(search.store, search.coder))[0])
    tables = len(_found(search.store).bits)
    counts, rows = found.counts, found.rows
    missing = (tables - found.scores.astype(np.int64)).astype(np.float32)
    lacking = counts < search.probing.least
    if lacking.any():
        # The nearest of the rows that no bucket returned follow, as rows without a score.
        others = _scanned(search, lacking)
        queries = np.arange(len(counts))
        own = np.repeat(queries, counts) << 32 | rows
        new = ~np.isin(np.repeat(queries, others.counts) << 32 | others.rows, own)
        extra = np.bincount(np.repeat(queries, others.counts)[new], minlength=len(counts))
        nothing = np.empty(0, np.float32)
        parts = [scan.Found(counts, rows, nothing), scan.Found(extra, others.rows[new], nothing)]
        missing = _together(parts, [missing, np.full(int(new.sum()), tables, np.float32)])[1]
        counts, rows = _together(parts, [part.rows for part in parts])
    return Candidates(counts, rows, search.distances(counts, rows), missing)


def _all_lists(store: Store, coder: Coder) -> tuple[Lists, list[NDArray[np.uint8]]]:
    """Posting lists of all rows, those of the fresh ones made here; and what holds these."""
    stored, state, codes = _found(store), store.state, store.codes()
    codes.touch_all()
    column = (codes.starts, codes.counts, codes.addresses, state.code_size, state.head)
    begin = stored.listed if stored.listed % UNIT_ROWS == 0 else stored.listed // UNIT_ROWS * UNIT_ROWS
    kept = int(np.searchsorted(stored.firsts, begin))
    firsts, spans, counts = [stored.firsts[:kept]], [stored.spans[:kept]], [stored.counts[:kept]]
    addresses = [stored.addresses[:kept]]
    payloads: list[NDArray[np.uint8]] = []
    while begin < state.rows:
        end = min(state.rows, (begin // SEGMENT_ROWS + 1) * SEGMENT_ROWS)
        made = [
            _multi_index.build(*column, int(bit), int(bits), begin, end)
            for bit, bits in zip(stored.first_bits, stored.bits, strict=True)
        ]
        payloads += [payload for _, payload in made]
        firsts.append(np.array([begin], np.uint32))
        spans.append(np.array([end - begin], np.uint32))
        counts.append(np.array([made[0][0]], np.uint32))
        addresses.append(np.array([[_records.address(payload) for _, payload in made]], np.uint64))
        begin = end
    everything = replace(
        stored,
        firsts=np.concatenate(firsts),
        counts=np.concatenate(counts),
        spans=np.concatenate(spans),
        addresses=np.concatenate(addresses),
        listed=state.rows,
    )
    return _lists(everything, store, coder), payloads


# -- posting lists --------------------------------------------------------------------------------


def _stored_lists(store: Store, coder: Coder) -> Lists:
    return once(store, Lists, lambda: _lists(_found(store), store, coder))


def _found(store: Store) -> lists.Lists:
    structure = subsets.read(store.source)
    found = structure.lists(store) if isinstance(structure, MultiIndexStructure) else None
    if found is None:  # the strategy is a scan where there are no tables
        raise DamagedError(f"posting lists: the index has none, and is searched by them; {REMEDY}")
    return found


def _lists(stored: lists.Lists, store: Store, coder: Coder) -> Lists:
    chunks = np.zeros(-(-store.state.rows // CHUNK_ROWS), np.uint8)
    chunks[store.codes().starts // CHUNK_ROWS] = 1
    bits = deleted.addresses(store.source)
    return multi_index.lists_of(stored, coder.layout, bits, chunks, segment_rows=SEGMENT_ROWS, chunk_rows=CHUNK_ROWS)
