"""Sections threads, growth, memory and call: what a query costs, and what of it is not the scan."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import turns
from ..page import Curve, Plot
from ..report import Rows
from ..runner import Question, ask, timed
from . import bars, inside, systems
from .plain_read import reader
from .plan import K, Run
from .stored import LSQ
from .systems import MODES, Mode, System

#: Several times what a processor's caches hold.
_FLUSH_BYTES = 256 << 20

# -- threads: several against one -------------------------------------------------------------------


def threads(run: Run) -> Iterator[Question]:
    collection = run.plan.large
    for mode in MODES:
        for count in (1, run.plan.threads):
            parameters = {"vectors": collection.size, "queries": mode, "threads": count}
            yield ask(collection.name, "lsq", parameters, run.together, str(count), _threads, mode)


def _threads(run: Run, mode: Mode) -> dict[str, dict[str, Any]]:
    collection = run.plan.large
    with run.shelf.index(collection, LSQ) as index:
        compared = [systems.lsqindex(str(count), index, threads=count) for count in (1, run.plan.threads)]
        return systems.compare(run.plan, compared, mode, collection.queries, run.shelf.truth(collection), "1")


# -- growth: time per query against the number of vectors -------------------------------------------


def growth(run: Run) -> Iterator[Question]:
    for mode in MODES:
        for rows in run.plan.growth:
            parameters = {"vectors": rows, "queries": mode}
            yield ask(run.plan.large.name, "lsq", parameters, run.together, rows, _growth, mode)


def growth_plots(rows: Rows) -> Iterator[Plot]:
    """Time a query against the number of vectors, and what it would be if both grew alike."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows.of("growth"):
        points.setdefault(row["queries"], []).append((row["vectors"], row["µs"]))
    curves = []
    for mode, own in points.items():
        (few, least), (many, _) = min(own), max(own)
        alike = [(few, least), (many, least * many / few)]
        curves += [Curve.through(mode, own, mode), Curve.through(f"{mode}, proportional", alike, mode)]
    yield Plot("growth", "Time of a query", "vectors", "µs", curves, log_x=True, log_y=True)


def _growth(run: Run, mode: Mode) -> dict[int, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    queries, sizes = collection.queries, run.plan.growth
    with ExitStack() as stack:
        compared: dict[int, System] = {}
        for rows in sizes:
            index = stack.enter_context(run.shelf.index(collection, LSQ, rows))
            compared[rows] = systems.lsqindex("lsq", index)
        by_size = {rows: systems.turn(plan, system, mode, queries) for rows, system in compared.items()}
        times = turns.by_turns(by_size, systems.rounds(plan, mode))
    found: dict[int, dict[str, Any]] = {}
    for before, rows in zip((None, *sizes), sizes, strict=False):
        found[rows] = systems.speed(times[rows], systems.queries_of_turn(plan, mode, queries))
        found[rows]["ns a vector"] = 1000 * found[rows]["µs"] / rows
        if before is not None:
            found[rows].update(turns.ratios(times[rows], times[sizes[0]], scale=sizes[0] / rows))
            found[rows]["step"] = turns.ratios(times[rows], times[before], scale=before / rows)["ratio"]
    return found


# -- memory: gigabytes of codes a second ------------------------------------------------------------


def memory(run: Run) -> Iterator[Question]:
    collection = run.plan.large
    for caches in bars.CACHES:
        for name in (bars.PLAIN_READ, bars.SEARCH, bars.KERNEL):
            parameters = {"vectors": collection.size, "caches": caches}
            yield ask(collection.name, name, parameters, run.together, name, _memory, caches)


def _memory(run: Run, caches: str) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    queries = list(collection.queries)
    count = plan.reads if caches == bars.WARM else max(1, plan.reads // 4)
    with run.shelf.index(collection, LSQ) as index, inside.stored_codes(index) as stored:
        who, read = reader(stored.rows, run.shelf.made_here)
        search = systems.lsqindex(bars.SEARCH, index, progressive=False).search
        scan = inside.kernel(stored, K)
        tables = [inside.tables_of(index)(query) for query in queries]
        take = _calls if caches == bars.WARM else _calls_from_memory
        by_name = {
            bars.PLAIN_READ: take(lambda _: read(), queries, count),
            bars.SEARCH: take(search, queries, count),
            bars.KERNEL: take(scan, tables, count),
        }
        times = turns.by_turns(by_name, plan.single_rounds)
        size = collection.size * stored.width
    return {
        name: {
            "MB": size / 1e6,
            "GB/s": size * count / statistics.median(found) / 1e9,
            "spread": turns.spread(found),
            **(turns.ratios(times[bars.PLAIN_READ], found) if name != bars.PLAIN_READ else {"read by": who}),
        }
        for name, found in times.items()
    }


# -- call: what one search costs beside its kernel, on few vectors ----------------------------------


def call(run: Run) -> Iterator[Question]:
    rows = run.plan.growth[0]
    for name in (bars.SEARCH, bars.KERNEL, bars.TABLES):
        yield ask(run.plan.large.name, name, {"vectors": rows}, run.together, name, _call)


def _call(run: Run) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    queries = list(collection.queries)
    with run.shelf.index(collection, LSQ, plan.growth[0]) as index, inside.stored_codes(index) as stored:
        make_tables, scan = inside.tables_of(index), inside.kernel(stored, K)
        search = systems.lsqindex(bars.SEARCH, index, progressive=False).search
        tables = [make_tables(query) for query in queries]

        by_name = {
            bars.SEARCH: _calls(search, queries, plan.calls),
            bars.KERNEL: _calls(scan, tables, plan.calls),
            bars.TABLES: _calls(make_tables, queries, plan.calls),
        }
        times = turns.by_turns(by_name, plan.single_rounds)
    found: dict[str, dict[str, Any]] = {
        name: {"µs": 1e6 * statistics.median(seconds) / plan.calls, "spread": turns.spread(seconds)}
        for name, seconds in times.items()
    }
    beside = [1e6 * (a - b) / plan.calls for a, b in zip(times[bars.SEARCH], times[bars.KERNEL], strict=True)]
    low, middle, high = turns.quartiles(beside)
    found[bars.SEARCH].update({"beside the kernel, µs": middle, "low": low, "high": high})
    return found


@cache
def _others() -> NDArray[np.int64]:
    return np.ones(_FLUSH_BYTES // 8, np.int64)


def _calls(function: Callable[[Any], Any], arguments: list[Any], count: int) -> turns.Turn:
    """So many calls, with other arguments in every round."""

    def turn(number: int) -> None:
        for i in range(number * count, (number + 1) * count):
            function(arguments[i % len(arguments)])

    return turn


def _calls_from_memory(function: Callable[[Any], Any], arguments: list[Any], count: int) -> turns.Turn:
    """As :func:`_calls`; before each, so much else is read that no cache has kept the codes. Its own seconds."""
    others = _others()

    def turn(number: int) -> float:
        total = 0.0
        for i in range(number * count, (number + 1) * count):
            others.sum()
            total += timed(function, arguments[i % len(arguments)])[1]
        return total

    return turn
