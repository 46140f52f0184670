"""The scan: queries a second and recall beside FAISS, threads, growth, and how close to the memory's speed it is.

Systems that are compared take turns in one process (``turns.py``).

    stored   vectors, exact neighbours, filled indexes     plan    how much is measured
    systems  who answers, single queries and batches       turns   rounds, ratios, spread
    speeds   sections lsq, hamming, rerank                 costs   sections threads, growth, memory, call
    inside   the steps of a search                         plain_read  the codes read and nothing else
    bars     what the rows say
"""

from __future__ import annotations

from ..benchmark import Benchmark, Section, add_work
from ..data import SEED
from ..report import machine_facts
from . import bars, costs, speeds
from .plan import FULL, QUICK, Plan, Run
from .stored import Shelf

_SPEED = ("queries/s", "µs", "spread")
_RATIO = ("ratio", "low", "high", "of medians")
_CASE = ("data", "vectors", "queries", "system")

SECTIONS: dict[str, Section[Plan, Run]] = {
    "lsq": Section(
        speeds.lsq,
        (*_CASE, "recall10@10", *_SPEED, *_RATIO),
        "Asymmetric distances. ratio: of queries/s to FAISS's, which has learned from the same vectors and spends the "
        "same bytes a row. Answers and recall are those of the measured way, single or batch.",
        bars=bars.lsq,
        plots=speeds.speed_plots,
    ),
    "hamming": Section(
        speeds.hamming,
        (*_CASE, "recall10@10", "unequal", *_SPEED, *_RATIO),
        "The same codes of itq in both. ratio: to FAISS that is given coded queries, while ours codes them itself; the "
        "third system lets our encoder code them for FAISS. unequal: queries whose distances differ from FAISS's.",
        bars=bars.hamming,
    ),
    "rerank": Section(
        speeds.rerank,
        (*_CASE, "rerank", "recall10@10", *_SPEED, *_RATIO),
        "float16 vectors kept. ratio: to the same index without re-ranking.",
        bars=bars.rerank,
    ),
    "threads": Section(
        costs.threads,
        ("data", "vectors", "queries", "threads", "recall10@10", *_SPEED, *_RATIO),
        "ratio: of queries/s to one thread's.",
        bars=bars.threads,
    ),
    "growth": Section(
        costs.growth,
        ("data", "vectors", "queries", *_SPEED, "ns a vector", "ratio", "low", "high", "of medians", "step"),
        "Indexes of the first so many vectors. ratio: how often the time of the smallest index, over how often its "
        "number of vectors; step: the same against the index before. 1 is proportional.",
        bars=bars.growth,
        plots=costs.growth_plots,
    ),
    "memory": Section(
        costs.memory,
        ("data", "vectors", "caches", "system", "read by", "MB", "GB/s", "spread", *_RATIO),
        "One query at a time, all bytes of all codes (the progressive scan off). The plain read adds up the same bytes "
        "in the same mapped pages, 64 bits at a time. ratio: to the plain read. caches: warm, call after call on the "
        "same codes, which may stay in a large cache; flushed, by reading 256 MB of something else before every call.",
        bars=bars.memory,
    ),
    "call": Section(
        costs.call,
        ("data", "vectors", "system", "µs", "spread", "beside the kernel, µs", "low", "high"),
        "One query, whole scan. The kernel alone is given the query's tables and the addresses of the codes. beside "
        "the kernel: the difference of turns of one round, median and quartiles.",
        bars=bars.call,
    ),
}


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


BENCHMARK = Benchmark(
    title="Scan",
    full=FULL,
    quick=QUICK,
    sections=SECTIONS,
    facts=_facts,
    begin=lambda plan, rows, work: Run(rows, plan=plan, shelf=Shelf(work / plan.name, plan.bits)),
    needs=lambda plan, section: [plan.data],
)
run, add_arguments = BENCHMARK.run, add_work
