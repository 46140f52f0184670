"""The multi-index: what the paper says of it, queries a second beside the scan and FAISS, growth, size.

Systems that are compared take turns in one process (``bench/scan/turns.py``). A section measures row after row; rows
already in the result file are kept, so an interrupted run goes on.

    stored   vectors, exact neighbours, filled indexes     plan       how much is measured
    text     scores against a plain reading of the paper   paper      its finding: binary against n-ary codes
    searching  sections speed, growth, hashes              lists      sections accumulate, size
    bars     what the rows say                             bare_loop  adding up and nothing else
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
from . import bars, lists, paper, searching, text
from .plan import FULL, QUICK, RECALL, Plan, Run
from .stored import Shelf


@dataclass(frozen=True)
class Section:
    """What runs, the columns of its table, and a word to the reader."""

    run: Callable[[Run], None]
    columns: tuple[str, ...]
    note: str


_SPEED = ("recall10@10", "probes", "candidates", "rerank", "queries/s", "µs", "spread", "ratio", "low", "high")

SECTIONS = {
    "text": Section(
        text.text,
        ("system", "bits", "m", "levels", "field_bits", "queries compared", "unequal"),
        "Random codes: half the indexes have fresh rows only, the other half none. unequal: queries whose scores or "
        "order are not those of a plain reading of section 3.2.",
    ),
    "paper": Section(
        paper.paper,
        ("data", "system", "table bits", "recall10@10", *(f"recall@{r}" for r in paper.RANKS), "area", "read"),
        "Ranked by score alone, as in the paper; codes of all systems have the same bits (for b = 5 one bit less). "
        "recall@R: queries whose nearest is among the first R. area: under recall@1…1000. read: the share of rows that "
        "any bucket returned.",
    ),
    "speed": Section(
        searching.compared_speed,
        ("data", "vectors", "queries", "system", *_SPEED),
        f"float16 vectors kept, the best ranked by them. Of all settings tried that reach a recall10@10 of {RECALL}, "
        "each system has the one that answers fastest. ratio: of queries/s to the scan of the same codes.",
    ),
    "growth": Section(
        searching.growth,
        ("data", "vectors", "queries", *_SPEED),
        "Settings as in speed, chosen for each number of vectors. ratio: of the time a query to the smaller index's.",
    ),
    "hashes": Section(
        searching.hashes,
        ("data", "vectors", "rival", "flips", "system", *_SPEED),
        "The same codes, ranked by Hamming distance alone; 200 queries in one batch. FAISS is given coded queries, "
        "ours codes them itself. recall10@10 here: of the 10 nearest codes, equal distances counted alike. ratio: of "
        "queries/s to the rival's; ours has the fastest setting of no less recall.",
    ),
    "accumulate": Section(
        lists.accumulate,
        ("data", "vectors", "table bits", "probes", "system", "postings", "postings/s", "ratio", "low", "high"),
        "The kernel finds the lists of its probes in all blocks, sets scores to 0 and adds them up; the bare loop adds "
        "1 to the same rows in the same order, which lie one after another for it.",
    ),
    "size": Section(
        lists.size,
        ("data", "vectors", "table bits", "tables", "MB", "bytes a row and table"),
        "All pages of the database of posting lists, bucket starts, headers and page ends included.",
    ),
}


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all sections or some, then the tables and the bars."""
    plan = QUICK if arguments.quick else FULL
    chosen = chosen_sections(arguments.section, SECTIONS)
    data.require([plan.data, plan.paper])
    if not faiss_systems.AVAILABLE:
        print("FAISS is not installed (pip install faiss-cpu): its rows are left out.")
    facts = _facts(plan)
    rows = Rows(arguments.out / f"{plan.name}.json", forget=chosen if arguments.fresh else (), facts=facts)
    work = arguments.work or Path(tempfile.mkdtemp(prefix="lsqindex-bench-"))
    try:
        columns = {name: section.columns for name, section in SECTIONS.items()}
        current = Run(rows, columns, plan=plan, shelf=Shelf(work.resolve() / plan.name))
        for name in chosen:
            SECTIONS[name].run(current)
            current.finish(name)
    finally:
        if arguments.work is None:
            shutil.rmtree(work)
    written = _markdown(plan, facts, rows)
    (arguments.out / f"{plan.name}.md").write_text(written, encoding="utf-8")
    print("\n" + written)


def _facts(plan: Plan) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    return {
        **machine_facts(),
        "vectors": f"{plan.data}; mixed: made from it, random pairs of one class with random weights, seed {SEED}; "
        "queries are the data set's own",
        "codes": f"{plan.hashes}: {plan.bits} random planes among the first {plan.axes} principal axes; "
        f"{plan.searched}: its defaults",
        "rounds": f"{plan.rounds} of batches, {plan.single_rounds} of single queries, a turn of each system in each; "
        "medians; spread: the middle half of the rounds over their median; ratio, low, high: median and quartiles of "
        "the rounds' ratios",
    }


def _markdown(plan: Plan, facts: dict[str, str], rows: Rows) -> str:
    parts = [
        f"# Subset indexing\n\n{plan.remark}\n\n" + "\n".join(f"- {name}: {value}" for name, value in facts.items())
    ]
    for name, section in SECTIONS.items():
        found = rows.of(name)
        if found:
            parts.append(f"## {name}\n\n{section.note}\n\n{table(section.columns, found)}")
    parts.append("## Bars\n\n" + verdicts.bar_table(bars.all_bars(rows, plan)))
    return "\n\n".join(parts) + "\n"
