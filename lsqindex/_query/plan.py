"""What will be done for a query in a snapshot: which source, how many candidates, whether they are ranked again.

no codes, or none that can be read here    the vectors are compared exactly
few rows by a filter                       their codes are copied together and scanned
a subset structure that pays, or is asked  the multi-index
otherwise                                  all codes are scanned
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .._inputs.options import thread_count
from .._inputs.vectors import Vectors
from .._storage.store import Store
from .._subsets.multi_index.structure import MultiIndexStructure
from ..encoders.base import Distance
from ..encoders.layout import Tables
from ..errors import ParameterError
from . import tuning
from .query import Query
from .ranking import ByCode, Kept
from .select import Selection
from .snapshot import Snapshot
from .sources import Source
from .sources.by_score import ByScore
from .sources.exact import Exact
from .sources.multi_index import MultiIndex
from .sources.scan import Scan, ScanOfFew

#: Makes the tables of queries.
MakeTables: TypeAlias = Callable[[Vectors], Tables]


class Plan(NamedTuple):
    """What is done for a query, whatever its vectors are."""

    #: "scan" or "subset", as users know them, and why.
    strategy: str
    why: str
    source: Source
    #: Look-up tables of queries; nothing needs them where vectors are compared.
    tables: MakeTables | None
    #: The k nearest, none beyond the limit; and that of estimates, which better distances may correct.
    k: int
    limit: float
    estimate_limit: float
    #: How many candidates the source is asked for, and what ranks them again.
    wide: int
    better: Kept | ByCode | None
    #: Ask for more candidates where neighbours seem to be missing.
    deepen: bool
    #: How many rows could be found.
    total: int
    threads: int


def make_plan(snapshot: Snapshot, store: Store, query: Query, selection: Selection | None) -> Plan:
    """The plan; ParameterError where this index cannot do what was asked for."""
    coder, kept = snapshot.coder, store.options.keep_vectors is not None
    if query.needs_subset and not isinstance(snapshot.subset, MultiIndexStructure):
        raise ParameterError(
            f"{query.needs_subset}, and this index has none: set_subset('multi-index') adds one; without these "
            "options all codes are scanned"
        )
    total = snapshot.state.count if selection is None else min(snapshot.state.count, len(selection.rows))
    # Without the encoder kept vectors can be compared, but nothing can be done that needs codes.
    exact = coder.floats or (not coder.present and kept and query.distance == "auto" and not query.needs_subset)
    few = selection is not None and total * tuning.SCAN_SHARE < snapshot.state.count
    distance = "asymmetric" if exact else _distance(snapshot, query)
    strategy, why = _choose(snapshot, query, exact=exact, few=few)
    k = total if query.k is None else query.k
    # Whoever names a distance wants rows ranked by it, and whoever wants all rows within a limit gets all of them.
    deepen = query.rerank is None and kept and query.distance == "auto" and query.k is not None
    depth = tuning.first_depth(k) if deepen else query.rerank or 0
    if query.k is None and query.rerank is None and kept and query.distance == "auto":
        depth = k
    better: Kept | ByCode | None = None
    if depth and not exact:
        better = snapshot.kept or _by_code(snapshot, query, distance)
    wide = max(1, min(k if exact else max(k, depth), snapshot.state.count))
    return Plan(
        strategy,
        why,
        _source(snapshot, store, query, selection, distance, strategy, exact=exact, few=few, wide=wide),
        None if exact else coder.encoder._table_maker(coder.metric, distance),
        k,
        query.limit,
        query.limit if better is None or query.k is None else math.inf,
        wide,
        better,
        deepen and not exact and strategy == "scan",
        total,
        thread_count(query.threads),
    )


def _distance(snapshot: Snapshot, query: Query) -> Distance:
    """Which distance of codes ranks candidates."""
    coder = snapshot.coder
    offered = coder.encoder.distances(coder.metric)
    if query.distance in ("auto", "score"):
        return offered[0]
    if query.distance not in offered:
        raise ParameterError(f"distance={query.distance!r}: {coder.encoder} has {' and '.join(offered)} only")
    return query.distance


def _by_code(snapshot: Snapshot, query: Query, distance: Distance) -> ByCode | None:
    """The better distance of codes, where there is one that has not been used."""
    best = snapshot.coder.encoder.distances(snapshot.coder.metric)[0]
    return None if best == distance and query.distance != "score" else ByCode(snapshot, best)


def _choose(snapshot: Snapshot, query: Query, *, exact: bool, few: bool) -> tuple[str, str]:
    """The strategy, and why; ``few``: a filter leaves few rows."""
    coder, by_score = snapshot.coder, query.distance == "score"
    if not coder.trained:
        return "scan", "the index is not trained: vectors are stored as they are and compared exactly"
    if coder.floats:
        return "scan", f"{coder.name} stores vectors as they are: they are compared exactly"
    if exact:
        return "scan", f"the encoder {coder.name} is not available here: the kept vectors are compared exactly"
    if query.strategy == "scan":
        return "scan", "it was asked for"
    if few and not by_score:
        return "scan", "the filter leaves few rows: their codes alone are scanned"
    if snapshot.subset is None:
        return "scan", "the index has no subset structure"
    if not isinstance(snapshot.subset, MultiIndexStructure):
        return "scan", "cells are not searched yet"
    if query.strategy == "subset":
        return "subset", "it was asked for"
    if by_score or query.probes is not None or query.candidates is not None:
        return "subset", "what was asked for is of the multi-index"
    if not coder.encoder.hashes:
        return (
            "scan",
            f"{coder.name} searches for its codes: neighbours share few buckets, and a scan finds more",
        )
    if not coder.layout.binary:
        return "scan", "the code is not binary: its tables have few buckets, and reading them is no faster than a scan"
    listed = snapshot.state.listed
    if listed < tuning.AUTO_ROWS:
        why = f"{listed:,} rows are in posting lists; below {tuning.AUTO_ROWS:,} a scan is as fast and misses nothing"
        return "scan", why
    return "subset", f"{listed:,} rows are in posting lists"


def _source(
    snapshot: Snapshot,
    store: Store,
    query: Query,
    selection: Selection | None,
    distance: Distance,
    strategy: str,
    *,
    exact: bool,
    few: bool,
    wide: int,
) -> Source:
    bits, total = (None, None) if selection is None else (selection.bits, len(selection.rows))
    if exact:
        return Exact(snapshot, store, allowed=bits, total=total)
    if few and strategy == "scan" and selection is not None:
        return ScanOfFew(snapshot, store, selection.rows, distance)
    codes = snapshot.codes(store)
    scan = Scan(snapshot, codes, distance, progressive=query.progressive, allowed=bits, total=total)
    if strategy == "scan":
        return scan
    make = ByScore if query.distance == "score" else MultiIndex
    return make(snapshot, store, query, scan, selection, wide)
