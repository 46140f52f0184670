"""Sections speed, growth and hashes: queries a second at the same recall, beside the scan and beside FAISS.

What each system is asked for is chosen first, for batches and for single queries: of its probes, candidates and rows to
rank again, those that answer fastest of all that reach the recall. Then systems take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index

from .. import faiss_systems, turns
from ..measure import recall10_at_10
from ..page import Curve, Plot
from ..report import Rows
from ..runner import Question, ask, timed
from ..scan.systems import MODES, Mode, System, answers, speed
from . import bars
from .plan import RECALL, K, Plan, Run
from .stored import Collection

#: Single queries that tell which setting is the fastest.
_SINGLES = 50

#: Who tells the nearest codes.
_EXACT = "BinaryFlat"

Truth = NDArray[np.int64]
Options = dict[str, Any]


@dataclass(frozen=True)
class Tuned:
    """A system, what it is asked for, and the recall of its batches."""

    system: System
    options: Options
    recall: float


# -- speed: the multi-index against the scan ---------------------------------------------------------


def compared_speed(run: Run) -> Iterator[Question]:
    for collection in (run.plan.real, run.plan.large):
        for mode in MODES:
            for name in (bars.SUBSET, bars.SCAN, bars.LSQ_SCAN):
                parameters = {"vectors": collection.size, "queries": mode}
                yield ask(collection.name, name, parameters, run.together, name, _speed, collection, mode)


def _speed(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    plan, shelf, truth = run.plan, run.shelf, run.shelf.truth(collection)
    with ExitStack() as stack:
        index = stack.enter_context(shelf.index(collection, plan.hashes))
        other = stack.enter_context(shelf.index(collection, plan.searched, subset=False))
        tuned = [
            by_lists(plan, bars.SUBSET, index, collection, truth, mode),
            by_scan(plan, bars.SCAN, index, collection, truth, mode),
            by_scan(plan, bars.LSQ_SCAN, other, collection, truth, mode),
        ]
        return by_turns(plan, tuned, mode, collection.queries, bars.SCAN)


# -- growth: time per query against the number of vectors --------------------------------------------


def growth(run: Run) -> Iterator[Question]:
    for mode in MODES:
        for collection in (run.plan.small, run.plan.large):
            parameters = {"vectors": collection.size, "queries": mode}
            yield ask(collection.name, bars.SUBSET, parameters, run.together, collection.size, _growth, mode)


def _growth(run: Run, mode: Mode) -> dict[int, dict[str, Any]]:
    plan = run.plan
    with ExitStack() as stack:
        tuned = {}
        for collection in (plan.small, plan.large):
            index = stack.enter_context(run.shelf.index(collection, plan.hashes))
            truth = run.shelf.truth(collection)
            tuned[collection.size] = by_lists(plan, bars.SUBSET, index, collection, truth, mode)
        queries = plan.large.queries
        times = turns.by_turns(
            {size: _turn(plan, own.system, mode, queries) for size, own in tuned.items()}, _rounds(plan, mode)
        )
    found: dict[int, dict[str, Any]] = {}
    for size, own in tuned.items():
        found[size] = {"recall10@10": own.recall, **own.options, **speed(times[size], _asked(plan, mode, queries))}
        if size != plan.few:
            found[size].update(turns.ratios(times[size], times[plan.few]))
    return found


# -- hashes: FAISS's hash tables on the same codes ---------------------------------------------------


def hashes(run: Run) -> Iterator[Question]:
    if not faiss_systems.AVAILABLE:
        return
    collection = run.plan.large
    for rival in faiss_systems.HASHES:
        for flips in run.plan.flips:
            for name in (bars.SUBSET_HAMMING, rival):
                parameters = {"vectors": collection.size, "rival": rival, "flips": flips}
                yield ask(collection.name, name, parameters, run.together, name, _hashes, rival, flips)


def hashes_plots(rows: Rows) -> Iterator[Plot]:
    """Recall of the nearest codes against queries a second, ours beside each rival."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows.of("hashes"):
        points.setdefault((row.system, row["rival"]), []).append((row["queries/s"], row["recall10@10"]))
    curves = [
        Curve.through(system if system == rival else f"{system}, beside {rival}", own, system)
        for (system, rival), own in points.items()
    ]
    yield Plot("hashes", "Hash tables on the same codes", "queries a second", "recall10@10", curves, log_x=True)


def _hashes(run: Run, rival: str, flips: int) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    encoder = run.shelf.encoder(collection, plan.hashes)
    queries = collection.queries[:200]
    theirs, exact = (run.together("index", _faiss_hash, name)["index"] for name in (rival, _EXACT))
    codes = encoder.encode(queries)
    last = exact.search(codes, K)[1][:, -1:]

    def recall_of(found: Any) -> float:
        """The share of rows that are among the 10 nearest codes: of equal distances any may be returned."""
        return float((found[1] <= last).mean())

    search = System(rival, lambda rows: theirs.search(rows, K, flips), codes)
    recall = recall_of(answers(search, "batch", queries))
    with run.shelf.index(collection, plan.hashes) as index:
        ladders = (
            [
                {"strategy": "subset", "distance": "symmetric", "probes": probes, "candidates": c}
                for c in (10, 30, 80, *plan.candidates)
            ]
            for probes in (1, 2, 4, 8, 16, 32, *plan.probes)
        )
        ours = _fastest(bars.SUBSET_HAMMING, _searches(index), ladders, queries, recall_of, recall, "batch")
        return by_turns(plan, [ours, Tuned(search, {}, recall)], "batch", queries, rival)


def _faiss_hash(run: Run, rival: str) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    print(f"filling FAISS {rival} with {collection.size:,} codes …", flush=True)
    codes = run.shelf.codes(collection, plan.hashes)
    if rival == _EXACT:
        return {"index": {"index": faiss_systems.FaissHamming(codes)}}
    return {"index": {"index": faiss_systems.FaissHash(rival, codes, plan.hash_bits)}}


# -- what to ask for ---------------------------------------------------------------------------------


def by_lists(plan: Plan, name: str, index: Index, collection: Collection, truth: Truth, mode: Mode) -> Tuned:
    """The multi-index, its best candidates ranked by their vectors."""
    ladders = (
        [{"strategy": "subset", "probes": probes, "candidates": c, "rerank": c} for c in plan.candidates]
        for probes in plan.probes
    )
    return _fastest(name, _searches(index), ladders, collection.queries, _true(truth), RECALL, mode)


def by_scan(plan: Plan, name: str, index: Index, collection: Collection, truth: Truth, mode: Mode) -> Tuned:
    """The scan, its best rows ranked again by their vectors."""
    ladder = [{"strategy": "scan", "rerank": rows} for rows in (12, 16, 20, 25, 35, *plan.reranks)]
    return _fastest(name, _searches(index), [ladder], collection.queries, _true(truth), RECALL, mode)


def _true(truth: Truth) -> Callable[[Any], float]:
    """The share of the true 10 nearest among those found."""
    return lambda found: recall10_at_10(found[0], truth)


def _searches(index: Index) -> Callable[[Options], Callable[[NDArray[Any]], Any]]:
    return lambda options: lambda queries: index.search(queries, K, threads=1, **options)


def _fastest(
    name: str,
    searches: Callable[[Options], Callable[[NDArray[Any]], Any]],
    ladders: Sequence[list[Options]] | Iterator[list[Options]],
    queries: Any,
    recall_of: Callable[[Any], float],
    recall: float,
    mode: Mode,
) -> Tuned:
    """Of each ladder the first rung that reaches the recall; of these the fastest, or the best if none does."""
    enough: list[tuple[float, int, Tuned]] = []
    others: list[tuple[float, int, Tuned]] = []
    for ladder in ladders:
        for options in ladder:
            search = searches(options)
            found, seconds = timed(search, queries)
            if mode == "single":
                _, seconds = timed(lambda search=search: [search(query) for query in queries[:_SINGLES]])
            own = recall_of(found)
            tuned = Tuned(System(name, search), options, own)
            if own >= recall:
                enough.append((seconds, len(enough), tuned))
                break
            others.append((-own, len(others), tuned))
    return min(enough)[2] if enough else min(others)[2]


# -- by turns ----------------------------------------------------------------------------------------


def by_turns(plan: Plan, tuned: Sequence[Tuned], mode: Mode, queries: Any, rival: str) -> dict[str, dict[str, Any]]:
    """Queries a second of each; ratios are to ``rival``'s."""
    by_name = {own.system.name: _turn(plan, own.system, mode, queries) for own in tuned}
    times = turns.by_turns(by_name, _rounds(plan, mode))
    return {
        own.system.name: {
            "recall10@10": own.recall,
            **{name: value for name, value in own.options.items() if name in ("probes", "candidates", "rerank")},
            **speed(times[own.system.name], _asked(plan, mode, queries)),
            **(turns.ratios(times[rival], times[own.system.name]) if own.system.name != rival else {}),
        }
        for own in tuned
    }


def _turn(plan: Plan, system: System, mode: Mode, queries: Any) -> turns.Turn:
    asking = queries if system.queries is None else system.queries
    if mode == "batch":
        return lambda number: system.search(asking)
    count = _asked(plan, mode, queries)

    def one_by_one(number: int) -> None:
        for i in range(number * count, (number + 1) * count):
            system.search(asking[i % len(asking)])

    return one_by_one


def _rounds(plan: Plan, mode: Mode) -> int:
    return plan.rounds if mode == "batch" else plan.single_rounds


def _asked(plan: Plan, mode: Mode, queries: Any) -> int:
    return len(queries) if mode == "batch" else min(plan.singles, len(queries))
