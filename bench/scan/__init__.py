"""The scan: queries a second and recall beside FAISS, threads, growth, and how close to the memory's speed it is.

Systems that are compared take turns in one process (``turns.py``). A section measures row after row; rows already in
the result file are kept, so an interrupted run goes on.

    stored   vectors, exact neighbours, filled indexes     plan    how much is measured
    systems  who answers, single queries and batches       turns   rounds, ratios, spread
    speeds   sections lsq, hamming, rerank                 costs   sections threads, growth, memory, call
    inside   the steps of a search                         plain_read  the codes read and nothing else
    bars     what the rows say
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import data, faiss_systems, verdicts
from ..data import SEED
from ..report import Rows, machine_facts, table
from ..runner import chosen_sections
from . import bars, costs, speeds
from .plan import FULL, QUICK, Plan, Run
from .stored import Shelf


@dataclass(frozen=True)
class Section:
    """What runs, the columns of its table, and a word to the reader."""

    run: Callable[[Run], None]
    columns: tuple[str, ...]
    note: str


_SPEED = ("queries/s", "µs", "spread")
_RATIO = ("ratio", "low", "high", "of medians")
_CASE = ("data", "vectors", "queries", "system")

SECTIONS = {
    "lsq": Section(
        speeds.lsq,
        (*_CASE, "recall10@10", *_SPEED, *_RATIO),
        "Asymmetric distances. ratio: of queries/s to FAISS's, which has learned from the same vectors and spends the "
        "same bytes a row. Answers and recall are those of the measured way, single or batch.",
    ),
    "hamming": Section(
        speeds.hamming,
        (*_CASE, "recall10@10", "unequal", *_SPEED, *_RATIO),
        "The same codes of itq in both. ratio: to FAISS that is given coded queries, while ours codes them itself; the "
        "third system lets our encoder code them for FAISS. unequal: queries whose distances differ from FAISS's.",
    ),
    "rerank": Section(
        speeds.rerank,
        (*_CASE, "rerank", "recall10@10", *_SPEED, *_RATIO),
        "float16 vectors kept. ratio: to the same index without re-ranking.",
    ),
    "threads": Section(
        costs.threads,
        ("data", "vectors", "queries", "threads", "recall10@10", *_SPEED, *_RATIO),
        "ratio: of queries/s to one thread's.",
    ),
    "growth": Section(
        costs.growth,
        ("data", "vectors", "queries", *_SPEED, "ns a vector", "ratio", "low", "high", "of medians", "step"),
        "Indexes of the first so many vectors. ratio: how often the time of the smallest index, over how often its "
        "number of vectors; step: the same against the index before. 1 is proportional.",
    ),
    "memory": Section(
        costs.memory,
        ("data", "vectors", "caches", "system", "read by", "MB", "GB/s", "spread", *_RATIO),
        "One query at a time, all bytes of all codes (the progressive scan off). The plain read adds up the same bytes "
        "in the same mapped pages, 64 bits at a time. ratio: to the plain read. caches: warm, call after call on the "
        "same codes, which may stay in a large cache; flushed, by reading 256 MB of something else before every call.",
    ),
    "call": Section(
        costs.call,
        ("data", "vectors", "system", "µs", "spread", "beside the kernel, µs", "low", "high"),
        "One query, whole scan. The kernel alone is given the query's tables and the addresses of the codes. beside "
        "the kernel: the difference of turns of one round, median and quartiles.",
    ),
}


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all sections or some, then the tables and the bars."""
    plan = QUICK if arguments.quick else FULL
    chosen = chosen_sections(arguments.section, SECTIONS)
    data.require([plan.data])
    if not faiss_systems.AVAILABLE:
        print("FAISS is not installed (pip install faiss-cpu): its rows are left out.")
    facts = _facts(plan)
    rows = Rows(arguments.out / f"{plan.name}.json", forget=chosen if arguments.fresh else (), facts=facts)
    work = arguments.work or Path(tempfile.mkdtemp(prefix="lsqindex-bench-"))
    try:
        shelf = Shelf(work.resolve() / plan.name, plan.bits)
        columns = {name: section.columns for name, section in SECTIONS.items()}
        current = Run(rows, columns, plan=plan, shelf=shelf)
        for name in chosen:
            SECTIONS[name].run(current)
            current.finish(name)
    finally:
        if arguments.work is None:
            shutil.rmtree(work)
    text = _markdown(plan, facts, rows)
    (arguments.out / f"{plan.name}.md").write_text(text, encoding="utf-8")
    print("\n" + text)


def _facts(plan: Plan) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    return {
        **machine_facts(),
        "vectors": f"{plan.data}, normalized; mixed: {plan.mixed:,} made from it, random pairs with random weights, "
        f"normalized, seed {SEED}; queries are the data set's own",
        "rounds": f"{plan.rounds} of batches, {plan.single_rounds} of single queries, a turn of each system in each; "
        "medians; spread: the middle half of the rounds over their median; ratio, low, high: median and quartiles of "
        "the rounds' ratios; of medians: ratio of median times",
    }


def _markdown(plan: Plan, facts: dict[str, str], rows: Rows) -> str:
    parts = [f"# Scan\n\n{plan.remark}\n\n" + "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for name, section in SECTIONS.items():
        found = rows.of(name)
        if found:
            parts.append(f"## {name}\n\n{section.note}\n\n{table(section.columns, found)}")
    parts.append("## Bars\n\n" + verdicts.bar_table(bars.all_bars(rows, plan)))
    return "\n\n".join(parts) + "\n"
