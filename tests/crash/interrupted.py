"""Interrupts every public method of an index, at random moments, and looks whether everything still works.

``python interrupted.py directory interrupts seed subset`` prints a summary as JSON. A real timer interrupts
whatever the main thread is doing; one time in three it goes on doing so every few microseconds, so that cleaning up
is interrupted too. A second thread reads meanwhile. A watchdog ends the process if anything hangs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._compiled import gate as _gate
from lsqindex._storage.lmdb import registry
from lsqindex.errors import LsqIndexError
from tests.crash.acknowledged import small_lumps
from tests.subsets.cells.counted import KINDS, count_upkeep

#: Seconds after which one round hangs.
PATIENCE = 120
DIM = 8
_START = 400
_NEAR = 1000

Operation = Callable[[], Any]


def vectors(ids: list[int], version: int) -> Any:
    """The vectors of ids, known from their numbers alone; those of a version from ``_NEAR`` on are near each other."""
    points = np.stack([np.random.default_rng([i, version]).standard_normal(DIM) for i in ids])
    if version >= _NEAR:
        points = 0.1 * points + 3 * np.random.default_rng(version).standard_normal(DIM)
    return points.astype(np.float32)


class Timer:
    """Raises KeyboardInterrupt in the main thread."""

    def __init__(self) -> None:
        self.armed = False
        self.raised = 0
        signal.signal(signal.SIGALRM, self._strike)

    def _strike(self, number: int, frame: Any) -> None:
        if self.armed:
            self.raised += 1
            raise KeyboardInterrupt

    def run(self, operation: Operation, delay: float, again: float) -> bool:
        """Do something, interrupted after ``delay`` seconds and every ``again`` seconds from then on; was it done?"""
        done = False
        try:
            try:
                self.armed = True
                signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6), again)
                operation()
                done = True
            finally:
                self.armed = False
        except KeyboardInterrupt:
            self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        return done


class Run:
    """An index, what must be in it, and what can be done with it."""

    def __init__(self, directory: Path, seed: int, subset: Any) -> None:
        self.subset = subset
        self.random = random.Random(seed)
        self.directory, self.path = directory, directory / "main.lsq"
        self.copy, self.other = directory / "copy.lsq", directory / "other.lsq"
        self.options: dict[str, Any] = {"encoder": "itq", "bits": 8, "keep_vectors": "float32", "subset": subset}
        self.index = Index.create(self.path, DIM, train_size=300, **self.options)
        #: The version of each vector that must be there.
        self.there: dict[int, int] = {}
        self.next_id = 0
        self.add(self.new_ids(_START))()
        Index.create(self.other, DIM, keep_vectors=None).close()
        self.query = vectors([1], 7)[0]
        self.stop = threading.Event()
        self.failed: list[str] = []

    def new_ids(self, n: int) -> list[int]:
        self.next_id += n
        return list(range(self.next_id - n, self.next_id))

    def some(self, n: int) -> list[int]:
        return self.random.sample(sorted(self.there), min(n, len(self.there)))

    def neighbours(self, n: int) -> list[int]:
        """Ids whose vectors are near each other: all rows of some cells."""
        ids = sorted(self.there)
        there = np.concatenate([vectors([i], self.there[i]) for i in ids])
        near = np.argsort(np.square(there - self.random.choice(there)).sum(axis=1), kind="stable")[:n]
        return [ids[i] for i in near.tolist()]

    # -- changes, each with what the index must hold once it has returned ------------------------

    def changing(self, change: Operation, after: dict[int, int]) -> Operation:
        """A change; ``after`` is what the index holds then, and it must never hold a part of it."""

        def operation() -> None:
            self.pending = after
            change()
            self.there, self.pending = after, None

        return operation

    pending: dict[int, int] | None = None

    def settle(self) -> None:
        """After an interrupt: was the change made or not? It must be either."""
        if self.pending is not None:
            if not self.holds(self.there):
                assert self.holds(self.pending), "the index holds a part of a change"
                self.there = self.pending
            self.pending = None

    def holds(self, wanted: dict[int, int]) -> bool:
        if self.index.ids().tolist() != sorted(wanted):
            return False
        by_version: dict[int, list[int]] = {}
        for i, version in wanted.items():
            by_version.setdefault(version, []).append(i)
        return all(np.array_equal(self.index.get(ids), vectors(ids, version)) for version, ids in by_version.items())

    def add(self, ids: list[int], version: int = 0) -> Operation:
        add = lambda: self.index.add(vectors(ids, version), ids, [{"n": i} for i in ids])  # noqa: E731
        return self.changing(add, {**self.there, **dict.fromkeys(ids, version)})

    def upsert(self, n: int) -> Operation:
        ids, version = self.some(n), self.random.randrange(1, _NEAR)
        change = lambda: self.index.add(vectors(ids, version), ids, upsert=True)  # noqa: E731
        return self.changing(change, {**self.there, **dict.fromkeys(ids, version)})

    def delete(self, ids: list[int]) -> Operation:
        return self.changing(
            lambda: self.index.delete(ids), {i: version for i, version in self.there.items() if i not in ids}
        )

    def batch(self) -> Operation:
        new, gone, fresh = self.new_ids(4), self.some(2), self.random.randrange(1, 1000)
        again = [i for i in self.some(4) if i not in gone]

        def change() -> None:
            with self.index.batch() as batch:
                batch.add(vectors(new, 0), new)
                batch.delete(gone)
                batch.add(vectors(again, fresh), again, upsert=True) if again else None
                batch.set_payloads(new, [{"new": True}] * 4)

        after = {i: version for i, version in self.there.items() if i not in gone}
        return self.changing(change, {**after, **dict.fromkeys(new, 0), **dict.fromkeys(again, fresh)})

    def replace(self) -> Operation:
        def make(old: Index) -> Index:
            new = Index(DIM, train_size=300, **self.options)
            ids = old.ids()
            new.add(old.get(ids), ids)
            return new

        return lambda: self.index.replace(make)

    def reopen(self) -> None:
        with Index.open(self.other) as one, Index.open(self.other, read_only=True) as two:
            assert len(one) == len(two)

    def in_memory(self) -> None:
        target = self.directory / "memory.lsq"
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        with Index(DIM, keep_vectors=None) as index:
            index.add(vectors([1, 2, 3], 0))
            index.save(target)
            assert len(index) == 3

    def operations(self) -> dict[str, Callable[[], Operation]]:
        """What can be done, by name; each call makes one operation ready."""
        index, some, query = self.index, self.some, self.query
        known = some(5)
        return {
            "search": lambda: lambda: index.search(query, k=5, rerank=50),
            "search many": lambda: lambda: index.search(np.stack([query] * 20), k=5, with_payloads=True),
            "search a filter": lambda: lambda: index.search(query, k=5, filter={"n": {"$gte": 7}}),
            "search lists": lambda: lambda: index.search(query, k=5, strategy="subset"),
            "explain": lambda: lambda: index.explain(query, k=5),
            "get": lambda: lambda: index.get(known),
            "payloads": lambda: lambda: index.payloads(known),
            "ids": lambda: lambda: index.ids(),
            "ids of a filter": lambda: lambda: index.ids({"n": 3}),
            "len": lambda: lambda: len(index),
            "contains": lambda: lambda: 3 in index,
            "repr": lambda: lambda: repr(index),
            "stats": lambda: lambda: index.stats(),
            "encoder": lambda: lambda: index.encoder,
            "subset": lambda: lambda: index.subset,
            "check": lambda: lambda: index.check(),
            "add": lambda: self.add(self.new_ids(5)),
            "add neighbours": lambda: self.add(self.new_ids(60), _NEAR + self.random.randrange(3)),
            "upsert": lambda: self.upsert(5),
            "delete": lambda: self.delete(some(3)),
            "delete neighbours": lambda: self.delete(self.neighbours(60)),
            "delete unknown": lambda: lambda: index.delete([-5]),
            "set_payloads": lambda: lambda: index.set_payloads(known, [{"n": 1}] * 5),
            "batch": self.batch,
            "train": lambda: lambda: index.train(),
            "reencode": lambda: lambda: index.reencode("lsh", bits=16),
            "reencode back": lambda: lambda: index.reencode("itq", bits=8),
            "merge": lambda: lambda: index.merge(),
            "set_subset": lambda: lambda: index.set_subset(self.subset),
            "set_subset None": lambda: lambda: index.set_subset(None),
            "save": lambda: lambda: index.save(),
            "save a copy": lambda: lambda: index.save(self.copy),
            "compact": lambda: lambda: index.compact(),
            "replace": self.replace,
            "open and close": lambda: self.reopen,
            "in memory": lambda: self.in_memory,
        }

    def next_name(self) -> str:
        """Any operation; one time in two one that changes cells, where these are looked at."""
        if self.subset == "cells" and self.random.random() < 0.5:
            if self.index.subset is None:
                self.index.set_subset(self.subset)
            fewer = "delete neighbours" if len(self.there) > _START else "add neighbours"
            return self.random.choice(["add neighbours", fewer, "merge"])
        listed = self.index.subset is not None
        return self.random.choice([name for name in self.operations() if listed or name != "search lists"])

    # -- all of it --------------------------------------------------------------------------------

    def read(self) -> None:
        """What another thread does meanwhile."""
        try:
            while not self.stop.wait(0.002):
                assert len(self.index.search(self.query, k=3).ids) == 3
        except BaseException as error:
            self.failed.append(f"the other thread: {error!r}")

    def go(self, interrupts: int, upkeep: Counter[str]) -> dict[str, Any]:
        """So many interrupts, and until cells were changed in all ways, where these are looked at."""
        changed = KINDS if self.subset == "cells" else ()
        timer, lasts, hits, rounds = Timer(), dict[str, float](), Counter[str](), 0
        reading = threading.Thread(target=self.read)
        reading.start()
        while (timer.raised < interrupts or not all(upkeep[kind] for kind in changed)) and not self.failed:
            assert rounds < 20 * interrupts, upkeep
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            rounds += 1
            name = self.next_name()
            operation, before = self.operations()[name](), timer.raised
            again = self.random.choice([0, 0, self.random.uniform(5e-6, 1e-3)])
            # The first time at any moment of ten milliseconds; then of as long as it took the last time.
            begin = time.perf_counter()
            done = timer.run(operation, self.random.uniform(0, lasts.get(name, 0.01)), again)
            lasts[name] = min(0.5, max(lasts.get(name, 0) * 0.95, 1.1 * (time.perf_counter() - begin)))
            hits[name] += timer.raised > before
            if not done:
                self.settle()
            if rounds % 100 == 0:
                self.look()
        self.stop.set()
        reading.join()
        return {"interrupts": timer.raised, "rounds": rounds, "interrupted": dict(sorted(hits.items()))}

    def look(self) -> None:
        """Everything acknowledged is there, and nothing is locked."""
        assert self.holds(self.there)
        if len(self.there) > 2 * _START:
            ids = self.some(_START)
            self.index.delete(ids)
            for i in ids:
                del self.there[i]
        thread = threading.Thread(target=self.add(self.new_ids(5)))
        thread.start()
        thread.join()
        assert self.holds(self.there)

    def end(self) -> None:
        """At the end: searches are right, other threads and processes can write, and nothing is left open."""
        assert not self.failed, self.failed
        index, ids = self.index, sorted(self.there)
        self.look()
        ids = sorted(self.there)
        truth = np.stack([vectors([i], self.there[i])[0] for i in ids])
        nearest = np.array(ids)[np.argsort(((truth - self.query) ** 2).sum(1), kind="stable")[:10]]
        assert index.search(self.query, k=10, rerank=len(ids), strategy="scan").ids.tolist() == nearest.tolist()
        index.compact()
        assert index.check() == [] and self.holds(self.there)
        gate, turn = index._env.gate, index._env.turn
        assert not gate.inside and not gate.closed and not turn.closed and not _gate.locks
        code = f"from lsqindex import Index; Index.open({str(self.path)!r}, wait=60).add([[0] * {DIM}], [10**9])"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert 10**9 in index
        index.save(self.copy)
        self.in_memory()  # these, as compact() did, remove what interrupted ones have left
        index.close()
        assert not registry.by_path, registry.by_path
        assert not list(self.directory.glob(".*.new*"))
        with Index.open(self.copy, read_only=True) as copied:
            assert copied.check() == [] and len(copied) == len(ids) + 1


def left_open(directory: Path) -> int:
    """How many descriptors of files in the directory this process has; 0 where the system does not tell."""
    count = 0
    gc.collect()
    for name in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            count += directory in name.readlink().parents
    return count


def main() -> None:
    directory, interrupts, seed, subset = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    small_lumps(40)
    upkeep = count_upkeep(pytest.MonkeyPatch())
    faulthandler.enable()
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    run = Run(directory, seed, subset)
    begin = time.perf_counter()
    summary = run.go(interrupts, upkeep)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    run.end()
    summary.update({"descriptors left open": left_open(directory), "upkeep": upkeep})
    print(json.dumps({**summary, "seconds": round(time.perf_counter() - begin, 1)}))


if __name__ == "__main__":
    try:
        main()
    except LsqIndexError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
