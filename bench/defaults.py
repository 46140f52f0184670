"""What an index does when no option is set: recall, and how many rows it re-ranks for it.

Sections: recall. Queries are of three kinds, so that a depth of re-ranking that suits one kind only shows: held-out
vectors; the middles between two of them; and vectors with noise as long as themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lsqindex import Index

from .framework.bars import Verdict
from .framework.benchmark import Benchmark, Section
from .framework.report import Rows, machine_facts
from .framework.runner import Question, Sheet, ask
from .material import data
from .material.data import Dataset, Vectors, normalized
from .material.measure import recall10_at_10

_TARGET = 0.95
_KINDS = ("held out", "between two", "noisy")
#: How an index is made and searched. "0.1" is what a default index was in version 0.1: codes alone.
_SYSTEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "default, 64 bits": ({"bits": 64}, {}),
    "0.1": ({}, {"rerank": 0}),
}


@dataclass(frozen=True)
class Plan:
    """What is measured on which data."""

    name: str
    remark: str
    data: tuple[str, ...]


FULL = Plan(
    name="defaults",
    remark="No option is set but the dimensions and the metric, and, in the middle rows, the bits of a code.",
    data=("minilm-wordnet", "fashion-mnist", "digits"),
)
QUICK = Plan(name="defaults-quick", remark="A smoke test: does everything run?", data=("digits",))


@dataclass
class Run(Sheet):
    """One run of the benchmark; the index that was filled last stays."""

    plan: Plan = field(kw_only=True)
    filled: tuple[tuple[str, str], Index] | None = None

    def index(self, name: str, system: str) -> Index:
        """The data set's base in an index of that kind."""
        # One index serves "default" and "0.1": they differ in the search alone.
        key = (name, repr(_SYSTEMS[system][0]))
        if self.filled is None or self.filled[0] != key:
            dataset = data.load(name)
            index = Index(dataset.base.shape[1], metric=dataset.metric, **_SYSTEMS[system][0])
            index.add(dataset.base)
            # Few vectors stay exact; what codes would do is measured as well.
            self.filled = key, index if index.is_trained else index.train()
        return self.filled[1]


def recall(run: Run) -> Iterator[Question]:
    """A row for each data set, system and kind of query."""
    for name in run.plan.data:
        for system, (made, searched) in sorted(_SYSTEMS.items(), key=lambda own: repr(own[1][0])):
            for kind in _KINDS:
                yield ask(name, system, {**made, **searched, "queries": kind}, _measure, run, name, system, kind)


def _measure(run: Run, name: str, system: str, kind: str) -> dict[str, Any]:
    index, asked = run.index(name, system), queries_of(data.load(name), kind)
    told = index.explain(asked.queries, k=10, **_SYSTEMS[system][1])
    return {
        "recall10@10": recall10_at_10(told.matches.ids, asked.truth),
        "re-ranked": told.reranked / len(asked.queries),
        "vectors": len(index),
    }


def queries_of(dataset: Dataset, kind: str) -> Dataset:
    """The data set with queries of that kind."""
    queries: Vectors = dataset.queries
    if kind == "held out":
        return dataset
    if kind == "between two":
        queries = (queries + np.roll(queries, 1, axis=0)) / np.float32(2)
    else:
        noise = normalized(np.random.default_rng(data.SEED).standard_normal(queries.shape, np.float32))
        lengths = np.sqrt(((queries - dataset.base.mean(axis=0)) ** 2).sum(axis=1, keepdims=True))
        queries = (queries + noise * lengths).astype(np.float32)
    return replace(dataset, queries=normalized(queries) if dataset.metric == "cosine" else queries)


def _bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for name in plan.data:
        for system in ("default", "default, 64 bits"):
            for row in rows.of("recall", data=name, system=system):
                found = float(row["recall10@10"])
                what = f"recall10@10, {name}, {system}, {row['queries']}"
                yield Verdict(what, f">= {_TARGET}", found, found >= _TARGET)


BENCHMARK = Benchmark[Plan, Run](
    title="No option set",
    full=FULL,
    quick=QUICK,
    facts=lambda plan: machine_facts(),
    needs=lambda plan, section: plan.data,
    begin=lambda plan, rows, work: Run(rows, plan=plan),
    sections={
        "recall": Section(
            recall,
            ("data", "system", "queries", "vectors", "recall10@10", "re-ranked"),
            "recall10@10: the share of the true 10 nearest among the 10 returned. re-ranked: rows compared exactly, "
            "per query. An index of digits has too few vectors to train itself; here train() trained it.",
            bars=_bars,
        ),
    },
)
run = BENCHMARK.run
