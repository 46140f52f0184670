"""Beside others: recall against queries per second, size, opening, and what changing costs.

Section search goes by turns, every system in a process of its own, all of them open at once; those that wait use
nothing:

    round 0   A B C …     a turn: some single queries, or one batch, of one setting of one system
    round 1   … C B A
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ..framework import runner
from ..framework.benchmark import Benchmark, Section
from ..framework.page import Curve, Plot
from ..framework.report import Row, Rows, machine_facts
from ..framework.runner import Question, ask
from ..framework.turns import spread
from ..material import data
from ..material.probe import forget_pages
from .adapter import NotPossible
from .children import Child, all_cores, one_core
from .shelf import Shelf, files, size
from .systems import PACKAGES, Setting, System, shown, systems, version

KS = (10, 100)
_K = KS[0]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: Data sets of the sections size and search; the first is that of the others.
    data: tuple[str, ...]
    #: Bits a code; principal axes of the multi-index's planes; fields and lists of FAISS; what OPQ learns from.
    bits: int
    axes: int
    fields: int
    lists: int
    opq_learn: int
    #: Rounds of turns; seconds of a turn of single queries, and of all turns of batches of a setting together.
    rounds: int
    single: float
    batch: float
    #: Seconds for the recall of a setting, where queries are asked one by one; those of the sections about changes.
    recall: float
    change: float
    #: Fresh processes for each time of opening.
    processes: int
    #: Vectors stored in the smaller index that is added to.
    few: int

    def systems(self, name: str) -> list[System]:
        """Those that are installed, and for the metric of the data set."""
        made = systems(self.bits, self.axes, self.fields, self.lists, self.opq_learn)
        metric = data.load(name).metric
        return [system for system in made if system.installed and metric in system.metrics]


FULL = Plan(
    name="peers",
    remark="One thread and one core each, every system in a process of its own, its index built, saved and opened "
    "again. Vectors of MiniLM-WordNet have unit length, so systems without a cosine use L2.",
    data=("minilm-wordnet", "fashion-mnist"),
    bits=256,
    axes=64,
    fields=64,
    lists=512,
    opq_learn=10_000,
    rounds=5,
    single=0.1,
    batch=4.0,
    recall=3.0,
    change=4.0,
    processes=3,
    few=10_000,
)
QUICK = Plan(
    name="peers-quick",
    remark="A smoke test: does everything run? Its numbers say nothing.",
    data=("digits",),
    bits=64,
    axes=32,
    fields=16,
    lists=16,
    opq_learn=1_000,
    rounds=1,
    single=0.002,
    batch=0.01,
    recall=0.2,
    change=0.1,
    processes=1,
    few=1_597,
)


class Run(runner.Run[Plan, Shelf]):
    """One run of the benchmark."""

    def cases(self) -> Iterator[tuple[str, System]]:
        """All data sets, each with its systems."""
        for name in self.plan.data:
            for system in self.plan.systems(name):
                yield name, system

    def first_cases(self) -> Iterator[tuple[str, System]]:
        """Those of the first data set alone, and one of systems that change alike."""
        name = self.plan.data[0]
        return ((name, system) for system in self.plan.systems(name) if not system.alike)


# -- size and cold -----------------------------------------------------------------------------------------------------


def sizes(run: Run) -> Iterator[Question]:
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


def cold(run: Run) -> Iterator[Question]:
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


# -- search ------------------------------------------------------------------------------------------------------------

MODES = ("single", "batch")
#: The recalls at which systems are compared in words.
_WANTED = (0.9, 0.95, 0.99)


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


def search(run: Run) -> Iterator[Question]:
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
    """Recall, and queries per second, of all settings of all systems."""
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


# -- what the rows say -------------------------------------------------------------------------------------------------


def search_plots(rows: Rows) -> Iterator[Plot]:
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


def search_sentences(rows: Rows) -> Iterator[str]:
    """Who is fastest of those that find enough."""
    found = rows.of("search")
    for name in dict.fromkeys(row.data for row in found):
        for k, mode, wanted in product(KS, MODES, _WANTED):
            here = [row for row in found if (row.data, row["k"], row["queries"]) == (name, k, mode)]
            good = [row for row in here if row["recall"] >= wanted]
            if good:
                yield f"{name}, k = {k}, {mode}, recall{k}@{k} ≥ {wanted:g}, {_fastest(good)}"


def _fastest(good: list[Row]) -> str:
    best = {row.system: row for row in sorted(good, key=lambda row: float(row["queries/s"]))}
    ranked = sorted(best.values(), key=lambda row: -float(row["queries/s"]))
    return "queries/s: " + ", ".join(f"{row.system} {row['queries/s']:,.0f}" for row in ranked) + "."


# -- while-adding: single queries, with and without somebody who adds one vector after another -------------------------


def while_adding(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        parameters = {"setting": shown(system.usual(_K))}
        yield ask(name, system.name, parameters, _while_adding, run, name, system)


def _while_adding(run: Run, name: str, system: System) -> dict[str, Any]:
    seconds, extra = run.plan.change, run.shelf.array(name, "extra")
    asking = {"queries": run.shelf.array(name, "queries"), "k": _K, "setting": system.usual(_K), "seconds": seconds}
    with run.shelf.copy(name, system) as folder, run.shelf.child(name, system, one_core(1)) as writer:
        about = writer.call("about")
        if about["beside"] == "not possible":
            return {"reader": "not possible", "why": about["why"]}
        writer.call("open", folder=str(folder), change=True)
        if about["beside"] == "thread":
            writer.call("keep_to", cores=all_cores())
            alone = writer.call("reading", **asking)
            beside = writer.call("reading_beside", vectors=extra, **asking)
        else:
            with run.shelf.child(name, system) as reader:
                reader.call("open", folder=str(folder))
                alone = reader.call("reading", **asking)
                writer.tell("adding", vectors=extra, folder=str(folder), seconds=seconds)
                beside = reader.call("reading", **asking)
                beside["adds/s"] = writer.hear()["adds/s"]
                reader.call("close")
        writer.call("close")
    return {
        "reader": f"another {about['beside']}",
        **({"why": about["why"]} if about["why"] else {}),
        **{f"{what}, alone": alone[what] for what in ("queries/s", "p50", "p99")},
        **beside,
        "ratio": beside["queries/s"] / alone["queries/s"],
    }


# -- durable: one vector at a time -------------------------------------------------------------------------------------


def durable(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        for stored in dict.fromkeys((run.plan.few, len(data.load(name).base))):
            yield ask(name, system.name, {"stored": stored}, _durable, run, name, system, stored)


def _durable(run: Run, name: str, system: System, stored: int) -> dict[str, Any]:
    extra = run.shelf.array(name, "extra")
    with run.shelf.copy(name, system, stored) as folder, run.shelf.child(name, system) as child:
        child.call("open", folder=str(folder), change=True)
        found = child.call("adding", vectors=extra, folder=str(folder), seconds=run.plan.change)
        about = child.call("about")
        child.call("close")
    return {**found, "how": "add" if about["durable"] else "add, then save everything"}


# -- deletes: half of the vectors --------------------------------------------------------------------------------------


def deletes(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        yield ask(name, system.name, {"setting": shown(system.usual(_K))}, _deletes, run, name, system)


def _deletes(run: Run, name: str, system: System) -> dict[str, Any]:
    vectors = len(data.load(name).base)
    queries, truth = run.shelf.array(name, "queries"), run.shelf.array(name, "half-truth")
    asking = {"queries": queries, "truth": truth, "k": _K, "setting": system.usual(_K), "batch": system.batches}
    with run.shelf.copy(name, system) as folder, run.shelf.child(name, system) as child:
        found: dict[str, Any] = {"MB before": size(folder) / 1e6}
        child.call("open", folder=str(folder), change=True)
        try:
            found["delete s"] = child.call("delete", rows=vectors, folder=str(folder))["seconds"]
        except NotPossible as error:
            return {"possible": False, "why": str(error), **found}
        found["MB deleted"] = size(folder) / 1e6
        found["recall"] = child.call("recall", **asking, seconds=run.plan.recall)["recall"]
        try:
            given = child.call("give_back", folder=str(folder))
            found.update({"give back": given["how"], "give back s": given["seconds"]})
        except NotPossible as error:
            found["why"] = str(error)
        child.call("close")
        found["MB given back"] = size(folder) / 1e6
    return {"possible": True, **found}


# -- the benchmark -----------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Section[Plan, Run]] = {
    "size": Section(
        sizes,
        ("data", "system", "setting", "build s", "disk", "resident", "own", "open", "first", "later", "open + first"),
        "build s: learning, adding and saving. Bytes per vector: disk, all files; resident, by how much the memory of "
        "a fresh process grows that opens the index and answers all queries; own, the part of it that is no page of a "
        "file, and cannot be shared or dropped. Milliseconds in a fresh process that has imported the library, with "
        "the file's pages in the system's memory: open, the first query, later ones.",
    ),
    "search": Section(
        search,
        ("data", "k", "queries", "system", "setting", "recall", "asked", "queries/s", "µs", "spread", "turns", "cores"),
        "recall: the share of the true k nearest among the k returned, over so many queries asked. All systems take "
        "turns, in processes of their own; medians. spread: the middle half of the turns over their median. cores: "
        "seconds of the processor over those of the clock. batch: all queries in one call; sqlite-vec has "
        "no such call.",
        plots=search_plots,
        sentences=search_sentences,
    ),
    "while-adding": Section(
        while_adding,
        (
            "data",
            "system",
            "setting",
            "reader",
            "queries/s, alone",
            "queries/s",
            "ratio",
            "p50, alone",
            "p50",
            "p99, alone",
            "p99",
            "worst",
            "adds/s",
            "why",
        ),
        "Single queries of a reader while another adds one vector after another as fast as it can, each made durable "
        "(by threads: in memory). p50, p99, worst: milliseconds of a query. Reader and writer have a core each.",
    ),
    "durable": Section(
        durable,
        ("data", "system", "stored", "how", "adds", "adds/s", "median"),
        "One vector at a time, each in the index's files before the next; median: milliseconds. Those that only save "
        "a whole index write it to a new file, sync it, and rename it. LanceDB has written its files, and asks the "
        "system for no sync.",
    ),
    "cold": Section(
        cold,
        ("data", "system", "setting", "MB", "open", "first", "open + first", "later", "note"),
        "As in size, in milliseconds, after the system was asked to drop the pages of all files of the index "
        "(posix_fadvise). The library's own files stay in memory.",
    ),
    "deletes": Section(
        deletes,
        (
            "data",
            "system",
            "setting",
            "possible",
            "delete s",
            "recall",
            "MB before",
            "MB deleted",
            "give back",
            "give back s",
            "MB given back",
            "why",
        ),
        "Every second vector is deleted in one go, and what is left is saved where that takes a call of its own. "
        "recall10@10 among the rest. MB: all files, before, after deleting, and after the library's own way to give "
        "space back.",
    ),
}


def _facts(plan: Plan) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    known = {name: value for name, value in machine_facts().items() if name not in ("faiss", "lsqindex")}
    versions = {package: version(package) or "not installed" for package in PACKAGES}
    return {
        **known,
        **versions,
        "threads": "one each, set in every library; every process is kept to one core",
        "OPQ": f"learns from {plan.opq_learn:,} vectors: from as many as the others it takes minutes",
        "rounds": f"{plan.rounds}; a turn is single queries for {plan.single} s, or a batch of all; of "
        f"these a setting has as many as take {plan.batch} s",
    }


def _begin(plan: Plan, rows: Rows, work: Path) -> Run:
    for package in PACKAGES:
        if version(package) is None:
            print(f"{package} is not installed (pip install {package}): its rows are left out.")
    return Run(rows, plan=plan, shelf=Shelf(work / plan.name))


def _needs(plan: Plan, section: str) -> Iterable[str]:
    return plan.data if section in ("size", "search") else plan.data[:1]


BENCHMARK = Benchmark("Peers", FULL, QUICK, SECTIONS, _facts, _begin, _needs)
