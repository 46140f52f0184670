"""The multi-index: what the paper says of it, queries a second beside the scan and FAISS, growth, size.

Systems that are compared take turns in one process (``bench/scan/turns.py``).

    stored   vectors, exact neighbours, filled indexes     plan       how much is measured
    text     scores against a plain reading of the paper   paper      its finding: binary against n-ary codes
    searching  sections speed, growth, hashes              lists      sections accumulate, size
    bars     what the rows say                             bare_loop  adding up and nothing else
"""

from __future__ import annotations

from ..benchmark import Benchmark, Section, add_work
from ..data import SEED
from ..report import machine_facts
from . import bars, lists, paper, searching, text
from .plan import FULL, QUICK, RECALL, Plan, Run
from .stored import Shelf

_SPEED = ("recall10@10", "probes", "candidates", "rerank", "queries/s", "µs", "spread", "ratio", "low", "high")

SECTIONS: dict[str, Section[Plan, Run]] = {
    "text": Section(
        text.text,
        ("system", "bits", "m", "levels", "field_bits", "queries compared", "unequal"),
        "Random codes: half the indexes have fresh rows only, the other half none. unequal: queries whose scores or "
        "order are not those of a plain reading of section 3.2.",
        bars=bars.text,
    ),
    "paper": Section(
        paper.paper,
        ("data", "system", "table bits", "recall10@10", *(f"recall@{r}" for r in paper.RANKS), "area", "read"),
        "Ranked by score alone, as in the paper; codes of all systems have the same bits (for b = 5 one bit less). "
        "recall@R: queries whose nearest is among the first R. area: under recall@1…1000. read: the share of rows that "
        "any bucket returned.",
        bars=bars.paper,
        plots=paper.plots,
    ),
    "speed": Section(
        searching.compared_speed,
        ("data", "vectors", "queries", "system", *_SPEED),
        f"float16 vectors kept, the best ranked by them. Of all settings tried that reach a recall10@10 of {RECALL}, "
        "each system has the one that answers fastest. ratio: of queries/s to the scan of the same codes.",
        bars=bars.speed,
    ),
    "growth": Section(
        searching.growth,
        ("data", "vectors", "queries", *_SPEED),
        "Settings as in speed, chosen for each number of vectors. ratio: of the time a query to the smaller index's.",
        bars=bars.growth,
    ),
    "hashes": Section(
        searching.hashes,
        ("data", "vectors", "rival", "flips", "system", *_SPEED),
        "The same codes, ranked by Hamming distance alone; 200 queries in one batch. FAISS is given coded queries, "
        "ours codes them itself. recall10@10 here: of the 10 nearest codes, equal distances counted alike. ratio: of "
        "queries/s to the rival's; ours has the fastest setting of no less recall.",
        bars=bars.hashes,
        plots=searching.hashes_plots,
    ),
    "accumulate": Section(
        lists.accumulate,
        ("data", "vectors", "table bits", "probes", "system", "postings", "postings/s", "ratio", "low", "high"),
        "The kernel finds the lists of its probes in all blocks, sets scores to 0 and adds them up; the bare loop adds "
        "1 to the same rows in the same order, which lie one after another for it.",
        bars=bars.accumulate,
    ),
    "size": Section(
        lists.size,
        ("data", "vectors", "table bits", "tables", "MB", "bytes a row and table"),
        "All pages of the database of posting lists, bucket starts, headers and page ends included.",
        bars=bars.size,
    ),
}


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


BENCHMARK = Benchmark(
    title="Subset indexing",
    full=FULL,
    quick=QUICK,
    sections=SECTIONS,
    facts=_facts,
    begin=lambda plan, rows, work: Run(rows, plan=plan, shelf=Shelf(work / plan.name)),
    needs=lambda plan, section: [plan.data, plan.paper],
)
run, add_arguments = BENCHMARK.run, add_work
