"""Section search: recall against queries a second, all systems by turns.

round 0   A B C …     a turn: some single queries, or one batch, of one setting of one system
round 1   … C B A     every system in its own process, all of them open at once; those that wait use nothing
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ..page import Curve, Plot
from ..report import Row, Rows
from ..runner import Question, ask
from ..turns import spread
from .children import Child
from .plan import KS, Run
from .systems import Setting, System, shown

MODES = ("single", "batch")
#: The recall at which systems are compared in words.
_WANTED = 0.95


@dataclass(frozen=True)
class _Case:
    """A setting of a system, asked one by one or in batches."""

    k: int
    system: System
    setting: Setting
    mode: str

    @property
    def key(self) -> tuple[int, str, str, str]:
        return self.k, self.system.name, shown(self.setting), self.mode


def questions(run: Run) -> Iterator[Question]:
    for name in run.plan.data:
        for case in _cases(run, name):
            parameters = {"k": case.k, "setting": shown(case.setting), "queries": case.mode}
            yield ask(name, case.system.name, parameters, run.together, case.key, _search, name)


def _cases(run: Run, name: str) -> list[_Case]:
    return [
        _Case(k, system, setting, mode)
        for k in KS
        for system in run.plan.systems(name)
        for setting in system.settings[k]
        for mode in (MODES if system.batches else MODES[:1])
    ]


def _search(run: Run, name: str) -> dict[Any, dict[str, Any]]:
    """Recall, and queries a second, of all settings of all systems."""
    plan, shelf = run.plan, run.shelf
    cases = _cases(run, name)
    queries, truth = shelf.array(name, "queries"), shelf.array(name, "truth")
    with ExitStack() as stack:
        children: dict[System, Child] = {}
        for system in plan.systems(name):
            folder = shelf.built(name, system)
            children[system] = stack.enter_context(shelf.child(name, system))
            children[system].call("open", folder=str(folder))
        print(f"{name}: {len(cases)} settings, {plan.rounds} rounds …", flush=True)
        recalls, asked, rounds = {}, {}, {}
        for case in cases:
            batch = case.mode == "batch"
            common = {"queries": queries, "k": case.k, "setting": case.setting, "batch": batch}
            asked[case.key] = {**common, "seconds": plan.single}
            rounds[case.key] = plan.rounds
            if batch or not case.system.batches:
                told = children[case.system].call("recall", **common, truth=truth, seconds=plan.recall)
                recalls[case.key[:3]] = {what: told[what] for what in ("recall", "asked")}
            if batch:
                rounds[case.key] = max(1, min(plan.rounds, int(plan.batch / told["seconds"])))
        turns: dict[Any, list[dict[str, Any]]] = {case.key: [] for case in cases}
        for number in range(plan.rounds):
            for case in cases if number % 2 else cases[::-1]:
                if number < rounds[case.key]:
                    turns[case.key].append(children[case.system].call("turn", **asked[case.key], number=number))
    return {case.key: {**recalls[case.key[:3]], **_speed(turns[case.key])} for case in cases}


def _speed(turns: list[dict[str, Any]]) -> dict[str, Any]:
    times = [turn["seconds"] / turn["count"] for turn in turns]
    median = statistics.median(times)
    cores = sum(turn["processor"] for turn in turns) / sum(turn["seconds"] for turn in turns)
    told = {"queries/s": 1 / median, "µs": 1e6 * median, "spread": spread(times), "turns": len(turns)}
    return {**told, "cores": cores}


# -- what the rows say ----------------------------------------------------------------------------------------------


def plots(rows: Rows) -> Iterator[Plot]:
    found = rows.of("search")
    for name in dict.fromkeys(row.data for row in found):
        for k in KS:
            for mode in MODES:
                here = [row for row in found if (row.data, row["k"], row["queries"]) == (name, k, mode)]
                if here:
                    title = f"{name}, k = {k}, {'one query at a time' if mode == 'single' else 'batches'}"
                    axes = (f"recall{k}@{k}", "queries/s")
                    curves = list(_curves(here))
                    yield Plot(f"{name}-{k}-{mode}", title, *axes, curves, log_y=True, near_one_x=True)


def _curves(rows: Iterable[Row]) -> Iterator[Curve]:
    by_system: dict[str, list[Row]] = {}
    for row in rows:
        by_system.setdefault(row.system, []).append(row)
    for system, own in by_system.items():
        ordered = sorted(own, key=lambda row: float(row["recall"]))
        x, y = [row["recall"] for row in ordered], [row["queries/s"] for row in ordered]
        yield Curve(system, x, y, group=system.split()[0])


def sentences(rows: Rows) -> Iterator[str]:
    """Who is fastest of those that find enough."""
    found = rows.of("search")
    for name in dict.fromkeys(row.data for row in found):
        for k in KS:
            for mode in MODES:
                good = [
                    row
                    for row in found
                    if (row.data, row["k"], row["queries"]) == (name, k, mode) and row["recall"] >= _WANTED
                ]
                if good:
                    yield _sentence(f"{name}, k = {k}, {mode}", k, good)


def _sentence(where: str, k: int, good: list[Row]) -> str:
    best = {}
    for row in sorted(good, key=lambda row: float(row["queries/s"])):
        best[row.system.split()[0]] = row
    ranked = sorted(best.values(), key=lambda row: -float(row["queries/s"]))
    told = ", ".join(f"{row.system} {row['queries/s']:,.0f}" for row in ranked)
    return f"{where}, recall{k}@{k} ≥ {_WANTED}, queries/s of each library's fastest: {told}."
