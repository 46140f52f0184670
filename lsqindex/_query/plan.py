"""What will be done for a query in a snapshot: which source, how many candidates, whether they are ranked again.

no codes, or none that can be read here    the vectors are compared exactly
few rows by a filter                       their codes are copied together and scanned
cells                                      the nearest ones are visited
a multi-index that pays, or is asked for   what its lists return
otherwise                                  all codes are scanned
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .._inputs.options import thread_count
from .._inputs.vectors import Vectors
from .._storage.store import Store
from .._subsets.cells.structure import CellsStructure
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
from .sources.cells import Cells
from .sources.exact import Exact
from .sources.multi_index import MultiIndex
from .sources.scan import Scan, scan_of_few

if TYPE_CHECKING:
    from .found import Answer, Found
    from .search import Search

#: Makes the tables of queries.
MakeTables: TypeAlias = Callable[[Vectors], Tables]


class Depth(NamedTuple):
    """How many candidates there are, and what becomes of them."""

    #: So many are asked for at first.
    wide: int
    #: What ranks them again.
    better: Kept | ByCode | None = None
    #: Whether to ask for more while more than this share of the k nearest is expected to be missing.
    deepen: bool = False
    missed: float = 1.0


class Plan(NamedTuple):
    """What is done for a query, whatever its vectors are."""

    #: "scan" or "subset", as users know them, and why.
    strategy: str
    why: str
    source: Source
    #: The answer in one call, where the source has such.
    answer: Callable[[Search], Answer] | None
    #: Look-up tables of queries, and of which distance; nothing needs them where vectors are compared.
    tables: MakeTables | None
    distance: Distance
    #: The k nearest, none beyond the limit; and that of codes, which better distances may correct.
    k: int
    limit: float
    code_limit: float
    depth: Depth
    #: How many rows could be found.
    total: int
    threads: int


def make_plan(snapshot: Snapshot, store: Store, query: Query) -> Plan:
    """The plan for all rows; ParameterError where this index cannot do what was asked for."""
    coder, count = snapshot.coder, snapshot.state.count
    if query.needs_subset:
        _check_subset(snapshot, query)
    exact = _is_exact(snapshot, query)
    distance = "asymmetric" if coder.floats or not coder.present else _distance(snapshot, query)
    strategy, why = _choose(snapshot, query, exact=exact)
    k = count if query.k is None else query.k
    depth = Depth(max(1, min(k, count))) if exact else _depth(snapshot, query, distance, k)
    deepen = depth.deepen and strategy == "scan"
    plan = Plan(
        strategy,
        why,
        NOTHING,
        None,
        None if exact else coder.encoder._table_maker(coder.metric, distance),
        distance,
        k,
        query.limit,
        query.limit if depth.better is None or query.k is None else math.inf,
        depth._replace(deepen=deepen),
        count,
        thread_count(query.threads),
    )
    return _with_source(plan, snapshot, store, query, None)


def _check_subset(snapshot: Snapshot, query: Query) -> None:
    """ParameterError where the index has no structure for what was asked for."""
    if isinstance(snapshot.subset, MultiIndexStructure):
        return
    needs_lists = query.distance == "score" or query.candidates is not None
    if isinstance(snapshot.subset, CellsStructure) and not needs_lists:
        return
    other = "cells instead" if isinstance(snapshot.subset, CellsStructure) else "none"
    remedy = "set_subset('multi-index') adds one" if needs_lists else "set_subset('cells') or ('multi-index') adds one"
    raise ParameterError(
        f"{query.needs_subset}, and this index has {other}: {remedy}; without these options, the index chooses"
    )


def filtered(plan: Plan, snapshot: Snapshot, store: Store, query: Query, selection: Selection) -> Plan:
    """``plan``, which is for all rows, for those that a filter leaves."""
    total = min(plan.total, len(selection.rows))
    k = total if query.k is None else query.k
    few, by_cells = _are_few(plan, snapshot, total), _visits_cells(plan, snapshot)
    if few and plan.tables is not None and query.strategy != "scan" and query.distance != "score":
        plan = plan._replace(strategy="scan", why="the filter leaves few rows: their codes alone are scanned")
        deepen = _deepens(snapshot, query)
        plan = plan._replace(depth=plan.depth._replace(deepen=deepen))
    wide = max(1, min(plan.depth.wide if query.k is not None else total, plan.total))
    plan = plan._replace(total=total, k=k, depth=plan.depth._replace(wide=wide))
    if by_cells and total:
        return _with_cells(plan, snapshot, store, query, selection, few=few)
    return _with_source(plan, snapshot, store, query, selection, few=few)


def _visits_cells(plan: Plan, snapshot: Snapshot) -> bool:
    return plan.strategy == "subset" and isinstance(snapshot.subset, CellsStructure)


def _are_few(plan: Plan, snapshot: Snapshot, total: int) -> bool:
    """Whether the ``total`` rows of a filter are so few that it pays to copy their codes together."""
    if not _visits_cells(plan, snapshot):
        return total * tuning.SCAN_SHARE < plan.total
    # Where a filter leaves a share of the rows, about as many times more cells are visited.
    visited = tuning.VISITED * plan.total / snapshot.state.cells
    return total < math.sqrt(visited * plan.total)


def _is_exact(snapshot: Snapshot, query: Query) -> bool:
    """Whether vectors are compared, all of them."""
    coder, kept = snapshot.coder, snapshot.options.keep_vectors is not None
    if coder.floats:
        return True
    if not kept or query.distance != "auto" or query.needs_subset:
        return False
    # Without the encoder kept vectors can be compared, but nothing can be done that needs codes.
    return not coder.present or (query.recall == 1 and query.rerank is None)


def _deepens(snapshot: Snapshot, query: Query) -> bool:
    """Whether more candidates are compared where neighbours seem to be missing."""
    # Whoever names a distance wants rows ranked by it, and whoever wants all rows within a limit gets all of them.
    return query.rerank is None and snapshot.kept is not None and query.distance == "auto" and query.k is not None


def _depth(snapshot: Snapshot, query: Query, distance: Distance, k: int) -> Depth:
    count, deepen = snapshot.state.count, _deepens(snapshot, query)
    wide = tuning.first_depth(k) if deepen else query.rerank or 0
    if query.k is None and query.rerank is None and snapshot.kept is not None and query.distance == "auto":
        wide = k
    better: Kept | ByCode | None = None
    if wide:
        better = snapshot.kept or _by_code(snapshot, query, distance)
    return Depth(max(1, min(max(k, wide), count)), better, deepen, tuning.missed_share(query.recall))


def _distance(snapshot: Snapshot, query: Query) -> Distance:
    """Which distance of codes ranks candidates."""
    coder = snapshot.coder
    offered = coder.encoder.distances(coder.metric)
    if query.distance in ("auto", "score"):
        return offered[0]
    if query.distance not in offered:
        raise ParameterError(f"distance={query.distance!r}: {coder.encoder} supports only {' and '.join(offered)}")
    return query.distance


def _by_code(snapshot: Snapshot, query: Query, distance: Distance) -> ByCode | None:
    """The better distance of codes, where there is one that has not been used."""
    best = snapshot.coder.encoder.distances(snapshot.coder.metric)[0]
    return None if best == distance and query.distance != "score" else ByCode(snapshot, best)


def _choose(snapshot: Snapshot, query: Query, *, exact: bool) -> tuple[str, str]:
    """The strategy, and why."""
    coder, by_score = snapshot.coder, query.distance == "score"
    if not coder.trained:
        return "scan", "the index is not trained: vectors are stored as they are and compared exactly"
    if coder.floats:
        return "scan", f"{coder.name} stores vectors as they are: they are compared exactly"
    if exact and coder.present:
        return "scan", "recall=1.0: all kept vectors are compared exactly"
    if exact:
        return "scan", f"the encoder {coder.name} is not available here: the kept vectors are compared exactly"
    if query.strategy == "scan":
        return "scan", "it was asked for"
    if snapshot.subset is None:
        return "scan", "the index has no subset structure"
    if isinstance(snapshot.subset, CellsStructure):
        return _choose_cells(snapshot, query)
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


def _choose_cells(snapshot: Snapshot, query: Query) -> tuple[str, str]:
    """The strategy of an index with cells, and why."""
    cells = snapshot.state.cells
    if not cells or not snapshot.state.listed:
        return "scan", "the index has too few vectors for cells: all codes are scanned"
    if query.distance != "auto":
        return "scan", f"distance={query.distance!r} ranks by codes: all of them are scanned"
    if query.k is None:
        return "scan", "all rows within a limit are wanted: all codes are scanned"
    if query.strategy == "subset" or query.probes is not None:
        return "subset", "it was asked for"
    return "subset", f"{cells:,} cells; those that may hold neighbours are visited"


def _with_source(
    plan: Plan, snapshot: Snapshot, store: Store, query: Query, selection: Selection | None, *, few: bool = False
) -> Plan:
    """``plan`` with its source: for all rows, or for those of a selection, which are ``few`` or not."""
    bits, total = (None, None) if selection is None else (selection.bits, len(selection.rows))
    if plan.tables is None:
        return plan._replace(source=Exact(snapshot, store, allowed=bits, total=total))
    if not plan.total:
        return plan
    if _visits_cells(plan, snapshot):
        return _with_cells(plan, snapshot, store, query, selection)
    if few and plan.strategy == "scan" and selection is not None:
        scan = scan_of_few(snapshot, store, selection.rows, plan.distance)
    else:
        codes, progressive = snapshot.codes(store), query.progressive
        scan = Scan(snapshot, codes, plan.distance, progressive=progressive, allowed=bits, total=total)
    if plan.strategy == "subset":
        make = ByScore if query.distance == "score" else MultiIndex
        return plan._replace(source=make(snapshot, store, query, scan, selection, plan.depth.wide))
    if isinstance(plan.depth.better, ByCode):
        return plan._replace(source=scan)
    scan.prepare(snapshot, plan.k, plan.limit, plan.code_limit, plan.depth)
    return plan._replace(source=scan, answer=scan.answer)


def _with_cells(
    plan: Plan, snapshot: Snapshot, store: Store, query: Query, selection: Selection | None, *, few: bool = False
) -> Plan:
    assert isinstance(snapshot.subset, CellsStructure)
    found = snapshot.subset.find(store)
    assert found is not None
    cells = Cells(snapshot, store, found, query, plan, selection, few=few)
    return plan._replace(source=cells, answer=cells.answer)


class _Nothing:
    """The source of a plan that has none yet, or for no rows."""

    cost, group = 0, 1

    def find(self, search: Search, wide: int) -> Found:
        """Nothing."""
        raise AssertionError("a plan without a source is never searched")


NOTHING = _Nothing()
