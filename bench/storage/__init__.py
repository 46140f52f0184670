"""The index file: what opening, adding, updating and deleting cost, and how large file and process get.

Times are compared within one run, and taken by turns where two indexes are compared. Everything is durable.
A section measures row after row; rows already in the result file are kept, so an interrupted run goes on.

    stored   vectors, ids and filled indexes      plan   how large everything is
    times    sections open, add, bulk             sizes  sections size, updates, memory
    bars     what the rows say
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lmdb

from .. import verdicts
from ..data import SEED
from ..report import Rows, machine_facts, table
from ..runner import chosen_sections
from . import bars, sizes, times
from .plan import FULL, QUICK, Plan, Run
from .stored import Mixture, Shelf, fingerprint, source_of


@dataclass(frozen=True)
class Section:
    """What runs, the columns of its table, and a word to the reader."""

    run: Callable[[Run], None]
    columns: tuple[str, ...]
    note: str


_OPEN_COLUMNS = ("open", "first", "later", "open + first", "set-up", "read")

SECTIONS = {
    "open": Section(
        times.opening,
        ("system", "vectors", *(f"{what}{again}" for again in ("", " again") for what in _OPEN_COLUMNS), "page-ins"),
        "Milliseconds, medians over fresh processes that have imported lsqindex. later: the same query again, the "
        "scan alone; set-up = open + first − later, with what a process pays only once (importing the encoder) and "
        "with the first touch of all codes, whose checksums are verified then. again: closed and opened a second "
        "time in the same process. read: adding up as many bytes of the mapped file in a fresh process, and again "
        "once its pages are there; the difference is what page-ins alone take. Pages dropped: by posix_fadvise, "
        "before every process.",
    ),
    "add": Section(
        times.adding,
        ("system", "vectors", "times", "median", "mean", "worst"),
        "Milliseconds, durable, by turns in one process: the small index, the large one, and, as a floor, a bare LMDB "
        "file that commits 40 bytes. Upserts and deletes are of random ids that are there.",
    ),
    "bulk": Section(
        times.bulk,
        ("system", "stored", "threads", "encode", "add", "outside"),
        "Milliseconds a batch, medians; encoding alone and the whole add by turns on the same vectors. "
        "outside: the share of the add that is not encoding.",
    ),
    "size": Section(
        sizes.size,
        ("system", "state", "left", "file MB", "needed MB", "free MB", "encoder MB", "ratio", "ratio less encoder"),
        "needed: codes, ids (8 bytes, or the UTF-8 of a str) and kept vectors. free: pages of the file that hold "
        "nothing now and are used next. The trained encoder is in the file too, whatever the number of vectors.",
    ),
    "updates": Section(
        sizes.updates,
        ("system", "cycles", "before MB", "largest MB", "after MB", "live MB", "ratio", "largest ratio", "ms a cycle"),
        "An upsert of one random vector each, durable. live: a copy by save(path); largest: seen on the way.",
    ),
    "memory": Section(
        sizes.memory,
        ("vectors", "interpreter", "numpy", "lsqindex", "opened", "opened, peak", "searched"),
        "Resident megabytes of a fresh process after each step; after a search the file's pages count, too.",
    ),
}


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all sections or some, then the tables and the bars."""
    plan = QUICK if arguments.quick else FULL
    chosen = chosen_sections(arguments.section, SECTIONS)
    mixture = Mixture(source_of(plan.data), plan.dim)
    facts = _facts(plan, mixture)
    rows = Rows(arguments.out / f"{plan.name}.json", forget=chosen if arguments.fresh else (), facts=facts)
    work = arguments.work or Path(tempfile.mkdtemp(prefix="lsqindex-bench-"))
    try:
        shelf = Shelf(work.resolve() / f"{plan.name}-{mixture.name}-{fingerprint()}", mixture, plan.bits, plan.batch)
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


def _facts(plan: Plan, mixture: Mixture) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    unneeded = ("faiss", "queries")
    return {
        **{name: value for name, value in machine_facts().items() if name not in unneeded},
        "lmdb": ".".join(map(str, lmdb.version())),
        "vectors": f"{mixture.name}, normalized sums of random pairs, {mixture.dim} dimensions, seed {SEED}",
        "codes": f"lsq, {plan.bits} bits",
    }


def _markdown(plan: Plan, facts: dict[str, str], rows: Rows) -> str:
    parts = [f"# Storage\n\n{plan.remark}\n\n" + "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for name, section in SECTIONS.items():
        found = rows.of(name)
        if found:
            parts.append(f"## {name}\n\n{section.note}\n\n{table(section.columns, found)}")
    parts.append("## Bars\n\n" + verdicts.bar_table(bars.all_bars(rows)))
    return "\n\n".join(parts) + "\n"
