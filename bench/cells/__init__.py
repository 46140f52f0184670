"""Cells, with no option set: recall, time, size, building, changes, filters and growth.

plan       how much is measured, and the indexes that are
searching  what searches reach: defaults, kinds of queries, filters, growth
changing   what building and changing cost; writer is the process that adds while another searches
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..framework.benchmark import Benchmark, Section, add_work
from ..framework.report import Rows, machine_facts
from ..material.systems import MODES
from . import changing, searching
from .plan import FULL, MILLION, QUICK, Plan, Run, Shelf


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    add_work(parser)
    parser.add_argument("--million", action="store_true", help="1,000,000 vectors instead: growth, and all searches")


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all sections or some, then the page."""
    (replace(BENCHMARK, full=MILLION) if arguments.million else BENCHMARK).run(arguments)


def _begin(plan: Plan, rows: Rows, work: Path) -> Run:
    return Run(rows, plan=plan, shelf=Shelf(work / plan.name, plan.options))


def _needs(plan: Plan, section: str) -> tuple[str, ...]:
    return (*plan.data, *(plan.other.values() if section == "changed" else ()))


BENCHMARK = Benchmark[Plan, Run](
    title="Cells",
    full=FULL,
    quick=QUICK,
    facts=lambda plan: machine_facts(),
    begin=_begin,
    needs=_needs,
    sections={
        "defaults": Section(
            searching.defaults,
            ("data", "queries", "system", "recall10@10", "probes", "rerank", "queries/s", "µs", "ratio", "low", "high"),
            "A search with no parameter beside the fastest setting by hand of those that reach a recall10@10 of 0.95. "
            "ratio: queries/s over those of the setting by hand.",
            bars=searching.default_bars,
        ),
        "queries": Section(
            searching.kinds,
            ("data", "queries", "recall10@10", "cells", "rows", "compared", "µs"),
            "Queries of other kinds, with no parameter. farthest: those of the held-out ones that are farthest from "
            "all vectors. noisy: with noise as long as they are far from the mean. Per query: cells visited, rows "
            "whose codes were scanned, rows compared exactly.",
            bars=searching.kind_bars,
        ),
        "filters": Section(
            searching.filters,
            (
                "data", "filter", "share", "recall10@10", "returned", "strategy",
                *(f"{what}, {mode}" for mode in MODES for what in ("µs", "× unfiltered")),
            ),
            "Rows that a filter lets through: at random, or those nearest to one vector. returned: the fewest results "
            "of a query. × unfiltered: the time over that without a filter.",
            bars=searching.filter_bars,
        ),
        "growth": Section(
            searching.growth,
            ("data", "queries", "vectors", "recall10@10", "µs", "ratio", "low", "high"),
            "The first so many vectors. ratio: time a query over that of the smallest index.",
            bars=searching.growth_bars,
        ),
        "built": Section(
            changing.built,
            ("data", "system", "build s", "bytes"),
            "Seconds to learn, add and save, each in a process of its own on one core; bytes per vector on disk.",
            bars=changing.built_bars,
        ),
        "changed": Section(
            changing.changed,
            ("data", "queries", "system", "recall10@10", "queries/s", "µs", "ratio", "low", "high"),
            "The last half of the vectors in adds of 100, or all of them; and the first half replaced, 100 at a time, "
            "by vectors of the other data set, projected to as many dimensions (half of the queries are of that one, "
            "too). ratio: queries/s over those of an index of the same vectors that was built in one go.",
            bars=changing.changed_bars,
        ),
        "adding": Section(
            changing.adding,
            (
                "data", "adds/s", "queries/s, quiet", "queries/s", "ratio", "added/s", "add ms", "99 % ms", "worst ms",
                "found",
            ),
            "Single queries while another process adds 100 vectors at a time, each durably. add ms, 99 %, worst: the "
            "median, the 99th percentile and the longest of the adds. found: the share of added vectors that an exact "
            "search with k = 1 finds again.",
            bars=changing.adding_bars,
        ),
    },
)  # fmt: skip
