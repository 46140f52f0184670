"""How large the file and the process get."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lsqindex import Index
from lsqindex.encoders import to_bytes

from ..data import SEED
from ..runner import Question
from .plan import PLAIN, SIZED, Run
from .stored import Kind, remove

# -- size: the file against what it must hold -------------------------------------------------------


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


# -- updates: does the file stay small? -------------------------------------------------------------


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


# -- memory -----------------------------------------------------------------------------------------


def memory(run: Run) -> Iterator[Question]:
    for rows in (run.plan.small, run.plan.large):
        yield run.ask(str(PLAIN), {"vectors": rows}, _memory, run, rows)


def _memory(run: Run, rows: int) -> dict[str, Any]:
    path = run.shelf.path(PLAIN, rows)
    run.fresh("memory", path)
    return run.fresh("memory", path)
