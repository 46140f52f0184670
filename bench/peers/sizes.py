"""Sections size and cold: build time, bytes on disk and in memory, and what opening takes, with pages there or not."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from .. import data
from ..probe import forget_pages
from ..runner import Question, ask
from .plan import KS, Run
from .stored import files, size
from .systems import System, shown

_K = KS[0]


def questions(run: Run) -> Iterator[Question]:
    for name, system in run.cases():
        yield ask(name, system.name, {"setting": shown(system.usual(_K))}, _sizes, run, name, system)


def _sizes(run: Run, name: str, system: System) -> dict[str, Any]:
    vectors = len(data.load(name).base)
    folder = run.shelf.built(name, system)
    opened = _opened(run, name, system, cold=False)
    found: dict[str, Any] = {
        "build s": run.shelf.build_seconds(name, system),
        "disk": size(folder) / vectors,
        **{where: opened.pop(where) / vectors for where in ("resident", "own") if where in opened},
    }
    return {**found, **opened, "open + first": opened["open"] + opened["first"]}


def cold_questions(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        yield ask(name, system.name, {"setting": shown(system.usual(_K))}, _cold, run, name, system)


def _cold(run: Run, name: str, system: System) -> dict[str, Any]:
    folder = run.shelf.built(name, system)
    if not all(forget_pages(path) for path in files(folder)):
        return {"note": "this system cannot drop pages"}
    opened = _opened(run, name, system, cold=True)
    times = {what: opened[what] for what in ("open", "first", "later")}
    return {**times, "open + first": opened["open"] + opened["first"], "MB": size(folder) / 1e6}


def _opened(run: Run, name: str, system: System, cold: bool) -> dict[str, float]:
    """Medians over fresh processes, each of which has imported the library."""
    folder, queries = run.shelf.built(name, system), run.shelf.array(name, "queries")
    found: list[dict[str, float]] = []
    for _ in range(run.plan.processes):
        with run.shelf.child(name, system) as child:
            if cold:
                for path in files(folder):
                    forget_pages(path)
            setting = system.usual(_K)
            found.append(child.call("first", folder=str(folder), queries=queries, k=_K, setting=setting))
    return {what: statistics.median(one[what] for one in found) for what in found[0]}
