"""The index file: what opening, adding, updating and deleting cost, and how large file and process get.

Times are compared within one run, and taken by turns where two indexes are compared. Everything is durable.

    stored   vectors, ids and filled indexes      plan   how large everything is
    times    sections open, add, bulk             sizes  sections size, updates, memory
    bars     what the rows say
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import lmdb

from ..benchmark import Benchmark, Section, add_work
from ..data import SEED
from ..report import Rows, machine_facts
from . import bars, sizes, times
from .plan import FULL, QUICK, Plan, Run
from .stored import Mixture, Shelf, fingerprint, source_of

_OPEN_COLUMNS = ("open", "first", "later", "open + first", "set-up", "read")

SECTIONS: dict[str, Section[Plan, Run]] = {
    "open": Section(
        times.opening,
        ("system", "vectors", *(f"{what}{again}" for again in ("", " again") for what in _OPEN_COLUMNS), "page-ins"),
        "Milliseconds, medians over fresh processes that have imported lsqindex. later: the same query again, the "
        "scan alone; set-up = open + first − later, with what a process pays only once (importing the encoder) and "
        "with the first touch of all codes, whose checksums are verified then. again: closed and opened a second "
        "time in the same process. read: adding up as many bytes of the mapped file in a fresh process, and again "
        "once its pages are there; the difference is what page-ins alone take. Pages dropped: by posix_fadvise, "
        "before every process.",
        bars=bars.opening,
    ),
    "add": Section(
        times.adding,
        ("system", "vectors", "times", "median", "mean", "worst"),
        "Milliseconds, durable, by turns in one process: the small index, the large one, and, as a floor, a bare LMDB "
        "file that commits 40 bytes. Upserts and deletes are of random ids that are there.",
        bars=bars.adding,
    ),
    "bulk": Section(
        times.bulk,
        ("system", "stored", "threads", "encode", "add", "outside"),
        "Milliseconds a batch, medians; encoding alone and the whole add by turns on the same vectors. "
        "outside: the share of the add that is not encoding.",
        bars=bars.bulk,
        plots=times.bulk_plots,
    ),
    "size": Section(
        sizes.size,
        ("system", "state", "left", "file MB", "needed MB", "free MB", "encoder MB", "ratio", "ratio less encoder"),
        "needed: codes, ids (8 bytes, or the UTF-8 of a str) and kept vectors. free: pages of the file that hold "
        "nothing now and are used next. The trained encoder is in the file too, whatever the number of vectors.",
        bars=bars.size,
    ),
    "updates": Section(
        sizes.updates,
        ("system", "cycles", "before MB", "largest MB", "after MB", "live MB", "ratio", "largest ratio", "ms a cycle"),
        "An upsert of one random vector each, durable. live: a copy by save(path); largest: seen on the way.",
        bars=bars.updates,
    ),
    "memory": Section(
        sizes.memory,
        ("vectors", "interpreter", "numpy", "lsqindex", "opened", "opened, peak", "searched"),
        "Resident megabytes of a fresh process after each step; after a search the file's pages count, too.",
        bars=bars.memory,
    ),
}


@cache
def _mixture(plan: Plan) -> Mixture:
    return Mixture(source_of(plan.data), plan.dim)


def _facts(plan: Plan) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    mixture, unneeded = _mixture(plan), ("faiss", "queries")
    return {
        **{name: value for name, value in machine_facts().items() if name not in unneeded},
        "lmdb": ".".join(map(str, lmdb.version())),
        "vectors": f"{mixture.name}, normalized sums of random pairs, {mixture.dim} dimensions, seed {SEED}",
        "codes": f"lsq, {plan.bits} bits",
    }


def _begin(plan: Plan, rows: Rows, work: Path) -> Run:
    mixture = _mixture(plan)
    shelf = Shelf(work / f"{plan.name}-{mixture.name}-{fingerprint()}", mixture, plan.bits, plan.batch)
    return Run(rows, plan=plan, shelf=shelf)


BENCHMARK = Benchmark("Storage", FULL, QUICK, SECTIONS, _facts, _begin)
run, add_arguments = BENCHMARK.run, add_work
