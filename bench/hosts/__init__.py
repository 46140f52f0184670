"""Through a host: adding and searching with lsqindex as the backend, beside the host's default, in memory.

Run it in the hosts' environment: ``make bench-hosts``. Everything goes through the host's own calls, its overhead
included. Backends take turns in one process (``scan/turns.py``).

    stores  what a host is asked to do, with one of its backends; one class for each host
    fill    index and save most vectors; add the rest in batches, first without saving, then with
    search  one query at a time, and, where the host can, all in one call
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..framework import turns
from ..framework.bars import Verdict
from ..framework.benchmark import Benchmark, Section
from ..framework.report import Rows, machine_facts
from ..framework.runner import Question, Sheet, ask, timed
from ..material import data
from ..material.data import Dataset, Vectors
from ..material.measure import recall10_at_10
from .stores import HOSTS, OURS, K, Store


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    data: str
    #: Vectors are taken from the front; None: all.
    vectors: int | None
    #: Batches that are added without saving, as many that are saved, and vectors in each.
    batches: int
    batch: int
    #: Rounds of batches of queries; of single ones, and queries in a turn of these.
    rounds: int
    single_rounds: int
    singles: int
    #: Settings of our backend.
    settings: Mapping[str, Any]


FULL = Plan(
    name="hosts",
    remark="Both through the host, one thread each. The default backend of txtai is FAISS: IVF, flat, in memory, with "
    "txtai's own choice of lists and probes. LangChain's own store, and the FAISS of langchain-community, compare with "
    "all vectors, in memory.",
    data="minilm-wordnet",
    vectors=None,
    batches=10,
    batch=100,
    rounds=15,
    single_rounds=40,
    singles=100,
    settings={"bits": 256, "keep_vectors": "float16", "rerank": 40},
)
QUICK = replace(
    FULL,
    name="hosts-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    data="digits",
    batches=2,
    batch=100,
    rounds=2,
    single_rounds=2,
    singles=10,
    settings={"bits": 128, "keep_vectors": "float16", "rerank": 40, "train_size": 1_000},
)


@dataclass
class Run(Sheet):
    """One run of the benchmark; stores are filled when they are first asked for."""

    plan: Plan = field(kw_only=True)
    work: Path = field(kw_only=True)
    _filled: dict[str, tuple[dict[str, Store], dict[Any, dict[str, Any]]]] = field(default_factory=dict)

    @cached_property
    def dataset(self) -> Dataset:
        """The first so many vectors of the data set, of unit length, as hosts make them."""
        whole = data.load(self.plan.data)
        base, queries = data.normalized(whole.base[: self.plan.vectors]), data.normalized(whole.queries)
        return replace(whole, base=base, queries=queries)

    def filled(self, host: str) -> tuple[dict[str, Store], dict[Any, dict[str, Any]]]:
        """The host with either backend, filled, and what filling took."""
        if host not in self._filled:
            self._filled[host] = _fill(self, host)
        return self._filled[host]


# -- fill: index, add, save -------------------------------------------------------------------------


def adding(run: Run) -> Iterator[Question]:
    for host, kind in HOSTS.items():
        for call in kind.calls:
            for system in (OURS, kind.default):
                parameters = {"host": host, "call": call, "vectors": len(run.dataset.base)}
                yield ask(run.plan.data, system, parameters, _filling, run, host, call, system)


def _filling(run: Run, host: str, call: str, system: str) -> dict[str, Any]:
    return run.filled(host)[1][call, system]


def _fill(run: Run, host: str) -> tuple[dict[str, Store], dict[Any, dict[str, Any]]]:
    plan, base, kind = run.plan, run.dataset.base, HOSTS[host]
    first = len(base) - (len(kind.calls) - 1) * plan.batches * plan.batch
    stores: dict[str, Store] = {}
    times: dict[Any, list[float]] = {}
    there: dict[Any, int] = {}
    begin, *more = kind.calls
    for system in (OURS, kind.default):
        folder = run.work / plan.name / host / system
        folder.mkdir(parents=True)
        stores[system] = store = kind.make(system, plan.settings if system == OURS else {}, folder)
        times[begin, system] = [timed(store.index, base[:first])[1] + timed(store.save)[1]]
        there[begin, system] = store.in_file()
    stored = {begin: first}
    for call in more:
        at = max(stored.values())
        stored[call] = at + plan.batches * plan.batch
        parts = np.split(base[at : stored[call]], plan.batches)
        makers = {(call, system): _adder(store, parts, call.endswith("save")) for system, store in stores.items()}
        times.update(turns.by_turns(makers, plan.batches - 1))
        there.update({(call, system): store.in_file() for system, store in stores.items()})
    return stores, {
        (call, system): {
            "vectors/s": (first if call == begin else plan.batch) / statistics.median(taken),
            "ms": 1e3 * statistics.median(taken),
            **(turns.ratios(times[call, kind.default], taken) if system == OURS else {}),
            "in the file": there[call, system] / stored[call],
        }
        for (call, system), taken in times.items()
    }


def _adder(store: Store, parts: list[Vectors], saving: bool) -> turns.Turn:
    def add(number: int) -> None:
        store.add(parts[number + 1])  # rounds begin with −1
        if saving:
            store.save()

    return add


# -- search -----------------------------------------------------------------------------------------


def searching(run: Run) -> Iterator[Question]:
    for host, kind in HOSTS.items():
        for mode in kind.modes:
            for system in (OURS, kind.default):
                parameters = {"host": host, "queries": mode, "vectors": len(run.dataset.base)}
                yield ask(run.plan.data, system, parameters, run.together, system, _compare, host, mode)


def _compare(run: Run, host: str, mode: str) -> dict[str, dict[str, Any]]:
    plan, dataset, kind = run.plan, run.dataset, HOSTS[host]
    stores, _ = run.filled(host)
    single = mode == "single"
    rounds = plan.single_rounds if single else plan.rounds
    asked = max(1, plan.singles // kind.fewer) if single else len(dataset.queries)
    makers = {system: _asker(store, dataset.queries, asked, single) for system, store in stores.items()}
    times = turns.by_turns(makers, rounds)
    return {
        system: {
            "recall10@10": _recall(stores[system], dataset, single, 1 if system == OURS else kind.fewer),
            "queries/s": asked / statistics.median(taken),
            "µs": 1e6 * statistics.median(taken) / asked,
            "spread": turns.spread(taken),
            **(turns.ratios(times[kind.default], taken) if system == OURS else {}),
        }
        for system, taken in times.items()
    }


def _asker(store: Store, queries: Vectors, asked: int, single: bool) -> turns.Turn:
    if not single:
        return lambda number: store.search_all(queries)
    rows = list(queries)

    def one_by_one(number: int) -> None:
        for i in range(number * asked, (number + 1) * asked):
            store.search(rows[i % len(rows)])

    return one_by_one


def _recall(store: Store, dataset: Dataset, single: bool, fewer: int) -> float:
    """Of all queries, or of so many times fewer."""
    queries = dataset.queries[: max(1, len(dataset.queries) // fewer)]
    found = [store.search(query) for query in queries] if single else store.search_all(queries)
    ranking = np.array([names + [-1] * (K - len(names)) for names in found], np.int64)
    return recall10_at_10(ranking, dataset.truth[: len(queries)])


# -- what the rows say ------------------------------------------------------------------------------


def _search_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    for row in rows.of("search", system=OURS):
        what = f"through {row['host']}, {row['vectors']:,} vectors, {row['queries']}: lsqindex"
        recall, ratio = float(row["recall10@10"]), float(row["ratio"])
        yield Verdict(f"{what}, recall10@10", ">= 0.95", recall, recall >= 0.95)
        yield Verdict(f"{what} / default, queries/s", ">= 1", ratio, ratio >= 1)


def _add_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    for row in rows.of("add", system=OURS):
        share = float(row["in the file"])
        yield Verdict(f"through {row['host']}, after {row['call']}: share in the file", ">= 1", share, share >= 1)


_RATIO = ("ratio", "low", "high", "of medians")
SECTIONS: dict[str, Section[Plan, Run]] = {
    "add": Section(
        adding,
        ("data", "host", "call", "vectors", "system", "vectors/s", "ms", *_RATIO, "in the file"),
        "index, save: all vectors but those of the batches, in one call. add: a batch, upserted. add, save: a batch, "
        "then the host's own save. ms: of a call. ratio: of vectors/s to the default's. in the file: the share of all "
        "vectors so far that a copy of the backend's file has after the call.",
        _add_bars,
    ),
    "search": Section(
        searching,
        ("data", "host", "vectors", "queries", "system", "recall10@10", "queries/s", "µs", "spread", *_RATIO),
        "ratio: of queries/s to the default's. single: a call of the host for each query; batch: one for all.",
        _search_bars,
    ),
}


def _facts(plan: Plan) -> dict[str, str]:
    return {
        **machine_facts(),
        **{host: metadata.version(host) for host in HOSTS},
        "settings": ", ".join(f"{name} {value}" for name, value in plan.settings.items()),
        "rounds": f"{plan.rounds} of batches, {plan.single_rounds} of {plan.singles} single queries; medians",
        "added": f"2 x {plan.batches} batches of {plan.batch}",
    }


def _begin(plan: Plan, rows: Rows, work: Path) -> Run:
    return Run(rows, plan=plan, work=work)


def _needs(plan: Plan, section: str) -> Iterable[str]:
    return (plan.data,)


BENCHMARK = Benchmark("Hosts", FULL, QUICK, SECTIONS, _facts, _begin, _needs)
run = BENCHMARK.run
