"""A process that writes to an index and logs what it does, until it is killed or has done enough.

``python writer.py`` is a parent of such processes: each line of its input, the arguments of :func:`live` as
JSON, forks one and answers with its process id; an empty line waits for the last one and answers with how it
ended. A fork costs less than another start of Python, and hundreds are wanted.

``python writer.py ARGUMENTS`` lives one life itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lsqindex._storage.lmdb.opening
import lsqindex._storage.rewrite
import lsqindex._subsets.cells.structure
import lsqindex._subsets.multi_index.structure
import lsqindex._write.add
import lsqindex._write.retraining
from lsqindex import Cells, Index, MultiIndex
from lsqindex._storage.lmdb.registry import open_env
from tests.crash.acknowledged import COPY, DIM, INDEX, NEAR, payloads, rewrite_slowly, small_lumps, small_units, vectors
from tests.subsets.cells.counted import count_upkeep

SMALL_IDS = 300
LARGE = (10_000, 16_000)


class Life:
    """One life: an index, a log, and operations of some kinds, drawn or in turn."""

    def __init__(self, directory: str, first: int, seed: int, create: dict[str, Any] | None) -> None:
        self.directory = Path(directory)
        self.log = os.open(self.directory / "log", os.O_WRONLY | os.O_APPEND)
        self.number = first
        self.random = np.random.default_rng(seed)
        path = self.directory / INDEX
        if create is None:
            self.index = Index.open(path)
        else:
            self.begin("create", [], [])
            self.index = Index.create(path, DIM, **create)
            self.done()

    def begin(self, kind: str, put: Any, gone: Any) -> None:
        self.number += 1
        self._write([self.number, kind, [int(name) for name in put], [int(name) for name in gone], self.number])
        self.started = time.monotonic()

    def done(self) -> None:
        self._write([self.number, "done", time.monotonic() - self.started])

    def _write(self, fields: list[Any]) -> None:
        os.write(self.log, json.dumps(fields).encode() + b"\n")

    def new(self, ids: Any) -> Any:
        """Vectors and ids, and payloads, where the index has indexed fields."""
        versions = [self.number] * len(ids)
        return vectors(ids, versions), ids, payloads(ids, versions) if self.index.stats()["fields"] else None

    def some(self, ids: Any) -> Any:
        count = min(len(ids), int(self.random.integers(1, 21)))
        return self.random.choice(ids, count, replace=False)

    def do(self, kind: str) -> None:
        if kind in ("train", "reencode") and not len(self.index):
            self.do("upsert")  # nothing can be learnt from nothing
        getattr(self, f"do_{kind}")()
        self.done()

    def do_add(self) -> None:
        fresh = np.setdiff1d(np.arange(SMALL_IDS), self.index.ids())
        ids = self.some(fresh) if len(fresh) else fresh
        self.begin("add", ids, [])
        self.index.add(*self.new(ids))

    def do_upsert(self) -> None:
        ids = self.some(np.arange(SMALL_IDS))
        self.begin("upsert", ids, [])
        self.index.add(*self.new(ids), upsert=True)

    def do_delete(self) -> None:
        ids = self.some(np.arange(SMALL_IDS))
        self.begin("delete", [], ids)
        self.index.delete(ids)

    def do_batch(self) -> None:
        order = self.random.permutation(SMALL_IDS)
        first, second, gone = order[:15], order[15:30], order[10:20]
        put = [name for name in order[:30] if name not in gone]
        self.begin("batch", put, gone)
        with self.index.batch() as batch:
            batch.add(*self.new(first), upsert=True)
            batch.add(*self.new(second), upsert=True)
            batch.delete(gone)

    def do_large(self) -> None:
        ids = self.random.permutation(np.arange(*LARGE))
        self.begin("large", ids, [])
        self.index.add(*self.new(ids), upsert=True)

    def do_near(self) -> None:
        """Vectors that are nearer to each other than others: their cells grow past their limit."""
        ids = self.random.permutation(np.arange(NEAR, NEAR + 600))[:300]
        self.begin("near", ids, [])
        self.index.add(*self.new(ids), upsert=True)

    def do_far(self) -> None:
        """Their cells are left with few rows."""
        ids = np.arange(NEAR, NEAR + 600)
        self.begin("far", [], ids)
        self.index.delete(ids)

    def do_clear(self) -> None:
        ids = np.arange(LARGE[0] + int(self.random.integers(0, 500)), LARGE[1])
        self.begin("clear", [], ids)
        self.index.delete(ids)

    def do_compact(self) -> None:
        self.begin("compact", [], [])
        self.index.compact()

    def do_save(self) -> None:
        self.begin("save", [], [])
        self.index.save(self.directory / COPY)

    def do_train(self) -> None:
        self.begin("train", [], [])
        self.index.train()

    def do_subset(self) -> None:
        """Other tables, or none: all lists are made anew, or removed."""
        self.begin("subset", [], [])
        bits = int(self.random.integers(3, 14))
        self.index.set_subset(MultiIndex(bits=bits) if bits > 3 else None)

    def do_cells(self) -> None:
        """Other cells, as many as rows suggest, or none."""
        self.begin("cells", [], [])
        count = int(self.random.integers(0, 40))
        self.index.set_subset(Cells(count or None, spill=bool(count % 3)) if count != 1 else None)

    def do_merge(self) -> None:
        self.begin("merge", [], [])
        self.index.merge()

    def do_reencode(self) -> None:
        self.begin("reencode", [], [])
        self.index.reencode("lsh", bits=int(self.random.integers(8, 200)))


def live(
    directory: str,
    first: int,
    seed: int,
    kinds: list[str],
    *,
    create: dict[str, Any] | None = None,
    map_size: int = 0,
    commit_bytes: int = 0,
    unit_rows: int = 0,
    recode_rows: int = 0,
    lump_rows: int = 0,
    upkeep_log: str = "",
    in_turn: bool = False,
    sync: bool = True,
) -> None:
    """Do operations of these kinds at random, without an end; or each once, ``in_turn``."""
    if map_size:
        lsqindex._storage.lmdb.opening.INITIAL_MAP = map_size
    if commit_bytes:
        setattr(lsqindex._storage.rewrite, "COMMIT_BYTES", commit_bytes)  # noqa: B010
        setattr(lsqindex._write.add, "COMMIT_BYTES", commit_bytes)  # noqa: B010  (imported there by name)
        setattr(lsqindex._subsets.multi_index.structure, "COMMIT_BYTES", commit_bytes)  # noqa: B010
        setattr(lsqindex._subsets.cells.structure, "COMMIT_BYTES", commit_bytes)  # noqa: B010
        setattr(lsqindex._write.retraining, "COMMIT_BYTES", commit_bytes)  # noqa: B010
    if unit_rows:
        small_units(unit_rows)
    if lump_rows:
        small_lumps(lump_rows)
    if upkeep_log:
        count_upkeep(pytest.MonkeyPatch(), Path(upkeep_log))
    if recode_rows:
        rewrite_slowly(recode_rows)
    life = Life(directory, first, seed, create)
    if not sync:
        life.index.close()
        # All who open a file in a process share one environment: this one is not synced.
        unsynced = open_env(life.directory / INDEX, sync=False)
        life.index = Index.open(life.directory / INDEX)
        assert unsynced.env.users.inside == 2
    if in_turn:
        for kind in kinds:
            life.do(kind)
        return
    while True:
        life.do(kinds[int(life.random.integers(len(kinds)))])


def main() -> None:
    if len(sys.argv) > 1:
        live(**json.loads(sys.argv[1]))
        return
    child = 0
    for line in sys.stdin:
        if line.strip():
            child = os.fork()
            if child == 0:
                try:
                    live(**json.loads(line))
                except BaseException as error:
                    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            print(child, flush=True)
        else:
            print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
