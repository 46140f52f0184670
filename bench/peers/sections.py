"""The benchmark: its sections, and what their columns mean."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..benchmark import Benchmark, Section
from ..report import Rows, machine_facts
from . import changing, searching, sizes
from .plan import FULL, QUICK, Plan, Run
from .stored import Shelf
from .systems import PACKAGES, version

SECTIONS: dict[str, Section[Plan, Run]] = {
    "size": Section(
        sizes.questions,
        ("data", "system", "setting", "build s", "disk", "resident", "own", "open", "first", "later", "open + first"),
        "build s: learning, adding and saving. Bytes a vector: disk, all files; resident, by how much the memory of a "
        "fresh process grows that opens the index and answers all queries; own, the part of it that is no page of a "
        "file, and cannot be shared or dropped. Milliseconds in a fresh process that has imported the library, with "
        "the file's pages in the system's memory: open, the first query, later ones.",
    ),
    "search": Section(
        searching.questions,
        ("data", "k", "queries", "system", "setting", "recall", "asked", "queries/s", "µs", "spread", "turns", "cores"),
        "recall: the share of the true k nearest among the k returned, over so many queries asked. All systems take "
        "turns, in processes of their own; medians. spread: the middle half of the turns over their median. cores: "
        "seconds of the processor over those of the clock. batch: all queries in one call; sqlite-vec has "
        "no such call.",
        plots=searching.plots,
        sentences=searching.sentences,
    ),
    "while-adding": Section(
        changing.while_adding,
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
        changing.durable,
        ("data", "system", "stored", "how", "adds", "adds/s", "median"),
        "One vector at a time, each in the index's files before the next; median: milliseconds. Those that only save "
        "a whole index write it to a new file, sync it, and rename it. LanceDB has written its files, and asks the "
        "system for no sync.",
    ),
    "cold": Section(
        sizes.cold_questions,
        ("data", "system", "setting", "MB", "open", "first", "open + first", "later", "note"),
        "As in size, in milliseconds, after the system was asked to drop the pages of all files of the index "
        "(posix_fadvise). The library's own files stay in memory.",
    ),
    "deletes": Section(
        changing.deletes,
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
