"""The index file: what opening, adding, updating and deleting cost, and how large file and process get.

Times are compared within one run, and taken by turns where two indexes are compared. Everything is durable.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from lsqindex import Index
from lsqindex.encoders import to_bytes

from . import THREAD_VARIABLES
from .framework import runner
from .framework.bars import Verdict, at_most, below, told
from .framework.benchmark import Benchmark, Section, add_work
from .framework.page import Curve, Plot
from .framework.report import Row, Rows, machine_facts
from .framework.runner import Question, ask, timed
from .material import probe
from .material.data import SEED
from .material.filled import Kind, Mixture, Shelf, fingerprint, remove, source_of


@dataclass(frozen=True)
class Plan:
    """How large everything is."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: Vectors of the two indexes that are compared.
    small: int
    large: int
    #: Vectors of a bulk add.
    batch: int
    dim: int
    bits: int
    #: Where vectors are taken from, if it is there.
    data: str
    #: Fresh processes for each measurement of opening; adds, and upserts and deletes, of one vector each.
    processes: int
    adds: int
    changes: int
    #: Bulk adds for each measurement.
    bulks: int
    #: Updates of an index of ``small`` vectors.
    cycles: int


FULL = Plan(
    name="storage",
    remark="Codes of lsq, cosine. Every add, upsert and delete is durable when its time is taken.",
    small=10_000,
    large=1_000_000,
    batch=10_000,
    dim=384,
    bits=256,
    data="minilm-wordnet",
    processes=9,
    # A chunk's worth: an add costs more the fuller the last chunk is, so all of it is gone through.
    adds=4064,
    changes=1000,
    bulks=8,
    cycles=100_000,
)
QUICK = Plan(
    name="storage-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    small=1_000,
    large=10_000,
    batch=2_000,
    dim=32,
    bits=64,
    data="synthetic",
    processes=1,
    adds=20,
    changes=10,
    bulks=1,
    cycles=100,
)

PLAIN = Kind()
KINDS = tuple(Kind(ids, keep) for keep in (None, "float16") for ids in ("rising", "random", "str"))
SIZED = (PLAIN, Kind("random"), Kind("str"), Kind("rising", "float16"))
ROOT = Path(__file__).parents[1]


class Run(runner.Run[Plan, Shelf]):
    """One run of the benchmark."""

    def fresh(self, what: str, *arguments: Any) -> dict[str, Any]:
        """What a fresh process measures; its modules are compiled already, as those of an installed package."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if what == "memory":  # as users have it: a BLAS of many threads may take more
            for variable in THREAD_VARIABLES:
                environment.pop(variable, None)
        environment["PYTHONPYCACHEPREFIX"] = str(self.shelf.directory / "bytecode")
        command = [sys.executable, "-m", "bench.material.probe", what, *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return dict(json.loads(done.stdout))

    def ask(self, system: str, parameters: dict[str, Any], *call: Any) -> Question:
        """For a row on the run's data."""
        return ask(self.shelf.mixture.name, system, parameters, *call)


# -- open: a fresh process, the first query, later ones ----------------------------------------------------------------


def opening(run: Run) -> Iterator[Question]:
    for pages in ("in memory", "dropped"):
        for rows in (run.plan.small, run.plan.large):
            parameters = {"vectors": rows, "processes": run.plan.processes}
            yield run.ask(f"pages {pages}", parameters, run.together, rows, _openings, pages == "dropped")


def _openings(run: Run, cold: bool) -> dict[int, dict[str, Any]]:
    """Fresh processes by turns on both indexes; medians of milliseconds."""
    query = run.shelf.directory / "query.npy"
    np.save(query, run.shelf.mixture.rows(0, 1, stream=2)[0])
    found: dict[int, list[dict[str, float]]] = {run.plan.small: [], run.plan.large: []}
    paths = {rows: run.shelf.path(PLAIN, rows) for rows in found}
    for turn in range(run.plan.processes + 1):
        for rows, path in paths.items():
            measured: dict[str, float] = {}
            for what, argument in (("open", query), ("read", rows * run.plan.bits // 8)):
                if cold and not probe.forget_pages(path):
                    return {rows: {"note": "this system cannot drop pages"} for rows in found}
                measured.update(run.fresh(what, path, argument))
            if turn:  # the first one may have to compile modules
                found[rows].append(measured)
    return {rows: _derived(results) for rows, results in found.items()}


def _derived(results: list[dict[str, float]]) -> dict[str, float]:
    times = {what: statistics.median(result[what] for result in results) for what in results[0]}
    return {
        **times,
        "open + first": times["open"] + times["first"],
        "set-up": times["open"] + times["first"] - times["later"],
        "set-up again": times["open again"] + times["first again"] - times["later again"],
        "page-ins": times["read"] - times["read again"],
    }


# -- add: one vector at a time -----------------------------------------------------------------------------------------


def adding(run: Run) -> Iterator[Question]:
    for what, count in (("add", run.plan.adds), ("upsert", run.plan.changes), ("delete", run.plan.changes)):
        for rows in (run.plan.small, run.plan.large):
            parameters = {"vectors": rows, "times": count}
            yield run.ask(f"{what} one", parameters, run.together, rows, _changes, what, count)
        beside = {"times": count, "beside": what}
        yield run.ask("a commit of bare LMDB", beside, run.together, 0, _changes, what, count)


def _changes(run: Run, what: str, count: int) -> dict[int, dict[str, Any]]:
    """The small index, the large one and, as number 0, a bare LMDB file by turns; milliseconds."""
    rng = np.random.default_rng(SEED)
    vectors = run.shelf.mixture.rows(0, count, stream=3)
    bare = run.shelf.directory / "bare.lmdb"
    remove(bare)
    paths, indexes, names = [bare], {}, {}
    environment = lmdb.open(str(bare), subdir=False, lib_version=0, map_size=1 << 30)
    try:
        for rows in (run.plan.small, run.plan.large):
            paths.append(run.shelf.copy(PLAIN, rows, f"one-{rows}"))
            indexes[rows] = Index.open(paths[-1])
            names[rows] = rng.choice(rows, count, replace=False)

        def change(rows: int, i: int) -> None:
            if not rows:
                with environment.begin(write=True) as txn:
                    txn.put(b"%08d" % i, bytes(40))
            elif what == "add":
                indexes[rows].add(vectors[i : i + 1])
            elif what == "upsert":
                indexes[rows].add(vectors[i : i + 1], names[rows][i : i + 1], upsert=True)
            else:
                indexes[rows].delete(names[rows][i : i + 1])

        times: dict[int, list[float]] = {0: [], run.plan.small: [], run.plan.large: []}
        for i in range(count):
            for rows in list(times) if i % 2 else list(times)[::-1]:
                times[rows].append(1000 * timed(change, rows, i)[1])
    finally:
        environment.close()
        for index in indexes.values():
            index.close()
        for path in paths:
            remove(path)
    return {
        rows: {"median": statistics.median(found), "mean": statistics.fmean(found), "worst": max(found)}
        for rows, found in times.items()
    }


# -- bulk: how much of it is encoding ----------------------------------------------------------------------------------


def bulk(run: Run) -> Iterator[Question]:
    for kind in KINDS:
        for stored in (0, run.plan.large // 2, run.plan.large):
            for threads in sorted({1, _cores()}):
                parameters = {"stored": stored, "threads": threads, "batch": run.plan.batch}
                yield run.ask(str(kind), parameters, _bulk, run, kind, stored, threads)


def bulk_plots(rows: Rows) -> Iterator[Plot]:
    """Whether the share outside encoding grows with the index."""
    points: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for row in rows.of("bulk"):
        points.setdefault((row.system, row["threads"]), []).append((row["stored"], row["outside"]))
    curves = [
        Curve.through(f"{kind}, {threads} thread{'s' * (threads > 1)}", own, kind)
        for (kind, threads), own in points.items()
    ]
    yield Plot("bulk", "The share of an add that is not encoding", "vectors stored before", "share", curves)


def _bulk(run: Run, kind: Kind, stored: int, threads: int) -> dict[str, Any]:
    """Encoding alone and the whole add by turns, on the same vectors."""
    shelf, n = run.shelf, run.plan.batch
    encoder = shelf.encoder
    path = shelf.copy(kind, stored, "bulk")
    encoding: list[float] = []
    adding: list[float] = []
    with Index.open(path) as index:
        for i in range(run.plan.bulks):
            first = stored + i * n
            vectors, names = shelf.mixture.rows(first, n), kind.names(first, n)
            calls = [
                (encoding, lambda v, _: encoder.encode(v, threads=threads)),
                (adding, lambda v, k: index.add(v, k, threads=threads)),
            ]
            for times, call in calls if i % 2 else calls[::-1]:
                times.append(1000 * timed(call, vectors, names)[1])
    remove(path)
    encode, add = statistics.median(encoding), statistics.median(adding)
    return {"encode": encode, "add": add, "outside": 1 - encode / add, "adds": run.plan.bulks}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- size: the file against what it must hold --------------------------------------------------------------------------


def size(run: Run) -> Iterator[Question]:
    for kind in SIZED:
        for state in ("filled", "filled, compacted", "90 % deleted", "90 % deleted, compacted"):
            parameters = {"state": state, "vectors": run.plan.large}
            deleted = state.startswith("90 %")
            yield run.ask(str(kind), parameters, run.together, state, _sizes, kind, deleted)


def _sizes(run: Run, kind: Kind, deleted: bool) -> dict[str, dict[str, Any]]:
    """The file as it is, and compacted."""
    path = run.shelf.copy(kind, run.plan.large, "sized")
    with Index.open(path) as index:
        if deleted:
            _delete_most(run, kind, index)
        name = "90 % deleted" if deleted else "filled"
        found = {name: _size(run, kind, index, path)}
        index.compact()
        found[f"{name}, compacted"] = _size(run, kind, index, path)
    remove(path)
    return found


def _delete_most(run: Run, kind: Kind, index: Index) -> None:
    """Nine of ten vectors, chosen at random, batch by batch."""
    names, batch = kind.all_names(run.plan.large), run.plan.batch
    gone = np.random.default_rng(SEED).permutation(run.plan.large)[: run.plan.large * 9 // 10].tolist()
    for first in range(0, len(gone), batch):
        index.delete([names[i] for i in gone[first : first + batch]])


def _size(run: Run, kind: Kind, index: Index, path: Path) -> dict[str, Any]:
    stats, file = index.stats(), path.stat().st_size
    needed = len(index) * kind.row_bytes(stats["code_bytes"], run.plan.dim)
    encoder = len(to_bytes(run.shelf.encoder))
    return {
        "left": len(index),
        "file MB": file / 1e6,
        "needed MB": needed / 1e6,
        "free MB": stats["free_bytes"] / 1e6,
        "encoder MB": encoder / 1e6,
        "ratio": file / needed,
        "ratio less encoder": (file - encoder) / needed,
    }


# -- updates: does the file stay small? --------------------------------------------------------------------------------


def updates(run: Run) -> Iterator[Question]:
    for kind in (PLAIN, Kind("rising", "float16")):
        parameters = {"vectors": run.plan.small, "cycles": run.plan.cycles}
        yield run.ask(str(kind), parameters, _updates, run, kind)


def _updates(run: Run, kind: Kind) -> dict[str, Any]:
    """Replace one random vector, durably, again and again."""
    plan, shelf = run.plan, run.shelf
    path = shelf.copy(kind, plan.small, "updated")
    saved = path.with_name("saved.lsq")
    rng = np.random.default_rng(SEED)
    largest, start = path.stat().st_size, time.perf_counter()
    before = largest
    with Index.open(path) as index:
        for done in range(0, plan.cycles, plan.cycles // 100):
            n = min(plan.cycles // 100, plan.cycles - done)
            vectors, names = shelf.mixture.rows(done, n, stream=4), rng.integers(0, plan.small, n)
            for i in range(n):
                index.add(vectors[i : i + 1], names[i : i + 1], upsert=True)
                if i % 10 == 0:
                    largest = max(largest, path.stat().st_size)
            if (done + n) % (plan.cycles // 10) == 0:
                print(f"updates  {kind}: {done + n:,} of {plan.cycles:,}, {path.stat().st_size:,} bytes", flush=True)
        seconds = time.perf_counter() - start
        index.save(saved)
    after, live = path.stat().st_size, saved.stat().st_size
    largest = max(largest, after)
    for name in (path, saved):
        remove(name)
    return {
        "before MB": before / 1e6,
        "after MB": after / 1e6,
        "largest MB": largest / 1e6,
        "live MB": live / 1e6,
        "ratio": after / live,
        "largest ratio": largest / live,
        "ms a cycle": 1000 * seconds / plan.cycles,
    }


# -- memory ------------------------------------------------------------------------------------------------------------


def memory(run: Run) -> Iterator[Question]:
    for rows in (run.plan.small, run.plan.large):
        yield run.ask(str(PLAIN), {"vectors": rows}, _memory, run, rows)


def _memory(run: Run, rows: int) -> dict[str, Any]:
    path = run.shelf.path(PLAIN, rows)
    run.fresh("memory", path)
    return run.fresh("memory", path)


# -- bars --------------------------------------------------------------------------------------------------------------


def opening_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The large index against the small one; raw figures have no bar, for a scan grows."""
    small, large = _pair(rows, "open", "pages in memory")
    yield below("open the large index alone, ms", 10.0, large["open"] if large else None)
    for what in ("set-up", "set-up again"):
        yield at_most(f"{what}, large / small", 2.0, _ratio(large, small, what))
    less = [_less_page_ins(row) for row in (large, small)]
    aside = less[0] / less[1] if less[0] is not None and less[1] else None
    yield at_most("set-up less page-ins, large / small", 2.0, aside)
    yield told("open + first query, the scan included, large / small", _ratio(large, small, "open + first"))
    yield told("a later query, the scan alone, large / small", _ratio(large, small, "later"))


def adding_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """One add to the large index against one to the small."""
    small, large = _pair(rows, "add", "add one")
    for form in ("median", "mean"):
        yield at_most(f"add one, {form}, large / small", 1.5, _ratio(large, small, form))
    for system in ("upsert one", "delete one"):
        small, large = _pair(rows, "add", system)
        yield told(f"{system}, median, large / small", _ratio(large, small, "median"))


def bulk_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The share outside encoding, the worst case of each kind of index."""
    found = rows.of("bulk")
    if not found:
        yield below("bulk add, share outside encoding", 0.5, None)
    for system in dict.fromkeys(row.system for row in found):
        for threads in sorted({int(row["threads"]) for row in found}):
            of_kind = [row for row in found if row.system == system and row["threads"] == threads]
            worst = max(float(row["outside"]) for row in of_kind)
            what = f"bulk add, share outside encoding, {system}, {threads} thread{'s' * (threads > 1)}, worst"
            yield below(what, 0.5, worst)


def size_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The file against what it must hold."""
    found = [row for row in rows.of("size") if row["state"] in ("filled", "90 % deleted, compacted")]
    if not found:
        yield at_most("file / codes, ids and kept vectors", 1.15, None)
    for row in found:
        yield at_most(f"file / codes, ids and kept vectors, {row.system}, {row['state']}", 1.15, row["ratio"])


def updates_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The file after many updates against a fresh copy of it."""
    found = rows.of("updates")
    if not found:
        yield at_most("file after updates / live size", 2.0, None)
    for row in found:
        yield at_most(f"file after {row['cycles']:,} updates / live size, {row.system}", 2.0, row["ratio"])
        yield at_most(f"largest file on the way / live size, {row.system}", 2.0, row["largest ratio"])


def memory_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The process with the large index open, before a search."""
    found = max(rows.of("memory"), key=lambda row: int(row["vectors"]), default=None)
    sizes = [found[name] for name in ("opened", "opened, peak")] if found else []
    known = [float(size) for size in sizes if size is not None]
    yield below("resident memory, large index open, MB", 80.0, max(known, default=None))


def _pair(rows: Rows, section: str, system: str) -> tuple[Row | None, Row | None]:
    """The rows of the small and of the large index."""
    pair = sorted(rows.of(section, system=system), key=lambda row: int(row["vectors"]))
    return (pair[0], pair[1]) if len(pair) == 2 else (None, None)


def _ratio(large: Row | None, small: Row | None, what: str) -> float | None:
    return float(large[what]) / float(small[what]) if large and small else None


def _less_page_ins(row: Row | None) -> float | None:
    return float(row["set-up"]) - float(row["page-ins"]) if row else None


# -- the benchmark -----------------------------------------------------------------------------------------------------

_OPEN_COLUMNS = ("open", "first", "later", "open + first", "set-up", "read")

SECTIONS: dict[str, Section[Plan, Run]] = {
    "open": Section(
        opening,
        ("system", "vectors", *(f"{what}{again}" for again in ("", " again") for what in _OPEN_COLUMNS), "page-ins"),
        "Milliseconds, medians over fresh processes that have imported lsqindex. later: the same query again, the "
        "scan alone; set-up = open + first − later, with what a process pays only once (importing the encoder) and "
        "with the first touch of all codes, whose checksums are verified then. again: closed and opened a second "
        "time in the same process. read: adding up as many bytes of the mapped file in a fresh process, and again "
        "once its pages are there; the difference is what page-ins alone take. Pages dropped: by posix_fadvise, "
        "before every process.",
        bars=opening_bars,
    ),
    "add": Section(
        adding,
        ("system", "vectors", "times", "median", "mean", "worst"),
        "Milliseconds, durable, by turns in one process: the small index, the large one, and, as a floor, a bare LMDB "
        "file that commits 40 bytes. Upserts and deletes are of random ids that are there.",
        bars=adding_bars,
    ),
    "bulk": Section(
        bulk,
        ("system", "stored", "threads", "encode", "add", "outside"),
        "Milliseconds a batch, medians; encoding alone and the whole add by turns on the same vectors. "
        "outside: the share of the add that is not encoding.",
        bars=bulk_bars,
        plots=bulk_plots,
    ),
    "size": Section(
        size,
        ("system", "state", "left", "file MB", "needed MB", "free MB", "encoder MB", "ratio", "ratio less encoder"),
        "needed: codes, ids (8 bytes, or the UTF-8 of a str) and kept vectors. free: pages of the file that hold "
        "nothing now and are used next. The trained encoder is in the file too, whatever the number of vectors.",
        bars=size_bars,
    ),
    "updates": Section(
        updates,
        ("system", "cycles", "before MB", "largest MB", "after MB", "live MB", "ratio", "largest ratio", "ms a cycle"),
        "An upsert of one random vector each, durable. live: a copy by save(path); largest: seen on the way.",
        bars=updates_bars,
    ),
    "memory": Section(
        memory,
        ("vectors", "interpreter", "numpy", "lsqindex", "opened", "opened, peak", "searched"),
        "Resident megabytes of a fresh process after each step; after a search the file's pages count, too.",
        bars=memory_bars,
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
