"""What building and changing cost: beside other libraries, and beside an index that was built in one go."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index

from ..framework.bars import Verdict, at_least, at_most
from ..framework.report import Rows
from ..framework.runner import Question, ask
from ..material import data, systems
from ..material.data import Dataset, Vectors, normalized
from ..material.filled import remove
from ..material.systems import MODES, K
from ..peers.shelf import Shelf as PeerShelf
from ..peers.shelf import size
from ..peers.systems import System
from ..peers.systems import systems as all_systems
from .plan import Plan, Run, in_dim

# -- built: bytes and seconds beside others ----------------------------------------------------------------------------

OURS, HNSWLIB = "lsqindex lsq 256 + int8, cells", "hnswlib M16"
_OTHERS = (HNSWLIB, "faiss HNSW16", "faiss IVF512,PQ64x4fs,RFlat")


def built(run: Run) -> Iterator[Question]:
    for name in run.plan.changed:
        yield from (ask(name, own.name, {}, _built, run, name, own) for own in _peers())


def _peers() -> list[System]:
    made = all_systems(bits=256, axes=64, fields=64, lists=512, opq_learn=10_000)
    return [system for system in made if system.name in (OURS, *_OTHERS) and system.installed]


def _built(run: Run, name: str, system: System) -> dict[str, Any]:
    shelf = PeerShelf(run.shelf.common)
    folder = shelf.built(name, system)
    return {"build s": shelf.build_seconds(name, system), "bytes": size(folder) / len(data.load(name).base)}


def built_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for ours in rows.of("built", system=OURS):
        dim = data.load(ours.data).base.shape[1]
        others = [row for row in rows.of("built", data=ours.data) if row.system != OURS]
        # 560 bytes of 384 dimensions: a vector in int8, two codes and row numbers, and what comes with them.
        yield at_most(f"bytes a vector, {ours.data}", 560 + dim - 384, ours["bytes"])
        for row in others:
            yield at_most(f"bytes, ours / {row.system}, {ours.data}", 0.4, ours["bytes"] / row["bytes"])
            if row.system == HNSWLIB:
                yield at_most(f"build, ours / {row.system}, {ours.data}", 0.2, ours["build s"] / row["build s"])


# -- changed: beside an index that was built in one go -----------------------------------------------------------------

FRESH, GROWN, SMALL = "in one go", "last half in small adds", "all in small adds"
FRESH_OTHER, REPLACED = "half of another, in one go", "half replaced by another"
#: What is compared with what was built in one go.
_COMPARED = {FRESH: (GROWN, SMALL), FRESH_OTHER: (REPLACED,)}


def changed(run: Run) -> Iterator[Question]:
    for name in run.plan.changed:
        for mode in MODES:
            for system in (FRESH, GROWN, SMALL, FRESH_OTHER, REPLACED):
                yield ask(name, system, {"queries": mode}, run.together, (mode, system), _changed, name)


def _changed(run: Run, name: str) -> dict[Any, dict[str, Any]]:
    source, shelf = data.load(name), run.shelf
    drifted = _drifted(run.plan, name)
    source = data.load(name)
    half, n, step = len(source.base) // 2, len(source.base), run.plan.batch

    def grow(index: Index, at_once: int) -> None:
        if at_once:
            index.add(source.base[:at_once])
        for first in range(at_once, n, step):
            index.add(source.base[first : min(n, first + step)])

    def drift(index: Index) -> None:
        index.add(source.base)
        for first in range(0, half, step):
            ids = np.arange(first, min(half, first + step))
            index.add(drifted.base[ids], ids, upsert=True)

    paths = {
        FRESH: (source, shelf.path(source, str(n), lambda index: index.add(source.base))),
        GROWN: (source, shelf.path(source, "grown", lambda index: grow(index, half))),
        SMALL: (source, shelf.path(source, "small", lambda index: grow(index, 0))),
        FRESH_OTHER: (drifted, shelf.path(source, "other", lambda index: index.add(drifted.base))),
        REPLACED: (drifted, shelf.path(source, "replaced", drift)),
    }
    found: dict[Any, dict[str, Any]] = {}
    for one, others in _COMPARED.items():
        with ExitStack() as stack:
            own = {
                what: systems.lsqindex(what, stack.enter_context(Index.open(paths[what][1], read_only=True)))
                for what in (one, *others)
            }
            asked = paths[one][0]
            for mode in MODES:
                compared = systems.compare(run.plan, list(own.values()), mode, asked.queries, asked.truth, one)
                found |= {(mode, what): values for what, values in compared.items()}
    return found


def _drifted(plan: Plan, name: str) -> Dataset:
    """The data set with its first half replaced by another's vectors, and half of the queries by that one's."""
    other, source = data.load(plan.other[name]), data.load(name)
    half, asked = len(source.base) // 2, len(source.queries) // 2
    many = np.resize(np.arange(len(other.base)), half)
    new: Vectors = in_dim(np.concatenate([other.base[many], other.queries[:asked]]), source.base)
    new = normalized(new) if source.metric == "cosine" else new
    base = np.concatenate([new[:half], source.base[half:]])
    return replace(source, base=base, queries=np.concatenate([new[half:], source.queries[asked:]]))


def changed_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for one, others in _COMPARED.items():
        for row in [row for other in others for row in rows.of("changed", system=other)]:
            beside = rows.one("changed", system=one, data=row.data, queries=row["queries"])
            assert beside is not None
            what = f"{row.data}, {row['queries']}"
            points = 100 * (row["recall10@10"] - beside["recall10@10"])
            yield at_least(f"recall10@10, {row.system}, points above {one}, {what}", -0.5, points)
            yield at_least(f"queries/s, {row.system} / {one}, {what}", 0.85, row["ratio"])


# -- adding: searches while another process adds -----------------------------------------------------------------------


def adding(run: Run) -> Iterator[Question]:
    for name in run.plan.changed:
        yield ask(name, "reader", {"adds/s": run.plan.rate}, _adding, run, name)


def _adding(run: Run, name: str) -> dict[str, Any]:
    source, plan = data.load(name), run.plan
    new = _noisy(source, round(plan.rate * plan.seconds))
    vectors, path = run.shelf.common / "adding.npy", run.shelf.common / "adding.lsq"
    np.save(vectors, new)
    remove(path)
    with run.shelf.index(name) as index:
        index.save(path)
    command = [sys.executable, "-m", "bench.cells.writer", str(path), str(vectors), str(plan.batch), str(plan.rate)]
    with Index.open(path, read_only=True) as reader:
        queries = list(source.queries)
        quiet = _rate(reader, queries, plan.seconds)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()  # it is open
            busy = _rate(reader, queries, plan.seconds)
            done = json.loads(writer.stdout.read())
        found = reader.search(new[: done["added"]], 1, recall=1.0, threads=1).ids[:, 0]
    remove(path)
    there = float((found == done["first"] + np.arange(done["added"])).mean())
    return {
        "queries/s, quiet": quiet,
        "queries/s": busy,
        "ratio": busy / quiet,
        "added/s": done["added"] / done["seconds"],
        "add ms": 1000 * done["median"],
        "99 % ms": 1000 * done["late"],
        "worst ms": 1000 * done["worst"],
        "found": there,
    }


def _rate(reader: Index, queries: list[NDArray[Any]], seconds: float) -> float:
    """Queries per second, one at a time, for so long."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        reader.search(queries[count % len(queries)], K, threads=1)
        count += 1
    return count / (time.perf_counter() - start)


def _noisy(source: Dataset, count: int) -> Vectors:
    """New vectors: base vectors with a little noise."""
    rng = np.random.default_rng(data.SEED)
    some = source.base[rng.integers(0, len(source.base), count)]
    made = some + 0.3 * some.std(axis=1, keepdims=True) * rng.standard_normal(some.shape, np.float32)
    return normalized(made) if source.metric == "cosine" else np.asarray(made, np.float32)


def adding_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for row in rows.of("adding"):
        yield at_least(f"queries/s while {plan.rate:,} vectors/s are added / quiet, {row.data}", 0.7, row["ratio"])
        yield at_least(f"vectors added a second, {row.data}", 0.95 * plan.rate, row["added/s"])
        yield at_least(f"added vectors that are found, {row.data}", 1, row["found"])
        yield at_most(f"ms of the slowest add of {plan.batch} vectors, {row.data}", 300, row["worst ms"])
