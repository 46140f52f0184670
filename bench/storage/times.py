"""What opening, adding, upserting and deleting cost."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any

import lmdb
import numpy as np

from lsqindex import Index

from .. import probe
from ..data import SEED
from ..page import Curve, Plot
from ..report import Rows
from ..runner import Question, timed
from .plan import KINDS, PLAIN, Run
from .stored import Kind, remove

# -- open: a fresh process, the first query, later ones ---------------------------------------------


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


# -- add: one vector at a time ----------------------------------------------------------------------


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


# -- bulk: how much of it is encoding ---------------------------------------------------------------


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
