"""A process for one system: ``python -m bench.peers.worker``, told what to do line by line.

Every line that it reads is a JSON list, the name of a method of :class:`Worker` and its arguments; every line that it
writes is the JSON of what came of it, or of why it is not possible. It keeps to one core and knows one system, so that
memory is that system's and libraries do not meet.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .adapter import Ids, NotPossible, Peer, Vectors

#: Queries whose recall is told, at the least.
_LEAST = 20
#: How far the first single query of a round is from that of the round before.
_STEP = 37
#: Queries after the first of a process that it is compared with.
_LATER = 5
#: Queries that are answered before the memory is looked at.
_MORE = 200


class Worker:
    """One system, in this process."""

    def __init__(self, module: str, name: str, metric: str, dim: int, kind: dict[str, Any]) -> None:
        start = time.perf_counter()
        self._peer: Peer = getattr(importlib.import_module(module), name)(metric, dim, **kind)
        self._imported = time.perf_counter() - start
        self._data: dict[str, Any] = {}

    def about(self) -> dict[str, Any]:
        """What the library says of itself."""
        return {"beside": self._peer.beside, "why": self._peer.why, "durable": self._peer.durable}

    def keep_to(self, cores: list[int]) -> dict[str, Any]:
        """Run on these alone, where the system can do that."""
        _keep_to(cores)
        return {}

    # -- made and opened ------------------------------------------------------------------------------------------

    def build(self, folder: str, base: str, learn: str, rows: int) -> dict[str, Any]:
        """Seconds to learn, add and write the first ``rows`` vectors."""
        vectors, sample = np.ascontiguousarray(self._load(base)[:rows]), self._load(learn)[:rows]
        start = time.perf_counter()
        self._peer.build(Path(folder), vectors, sample)
        return {"seconds": time.perf_counter() - start}

    def open(self, folder: str, change: bool = False) -> dict[str, Any]:
        """Milliseconds."""
        start = time.perf_counter()
        self._peer.open(Path(folder), change)
        return {"open": _since(start)}

    def first(self, folder: str, queries: str, k: int, setting: dict[str, Any]) -> dict[str, Any]:
        """Milliseconds of opening, the first query and later ones, and the memory that this took."""
        asked = self._load(queries)
        before = _resident()
        found = self.open(folder)
        times = []
        for i in range(1 + _LATER):
            start = time.perf_counter()
            self._peer.search(asked[i : i + 1], k, **setting)
            times.append(_since(start))
        for query in asked[_LATER : _LATER + _MORE]:
            self._peer.search(query[None], k, **setting)
        after = _resident()
        grown = {name: after[name] - before[name] for name in after}
        return {**found, "first": times[0], "later": statistics.median(times[1:]), **grown}

    # -- asked ----------------------------------------------------------------------------------------------------

    def recall(
        self, queries: str, truth: str, k: int, setting: dict[str, Any], batch: bool, seconds: float = math.inf
    ) -> dict[str, Any]:
        """The share of the true ``k`` nearest that is found: all queries in one call, or one by one as time allows."""
        asked, true = self._load(queries), self._load(truth)
        found: list[Ids] = []
        start = time.perf_counter()
        while sum(map(len, found)) < len(asked) and (len(found) < _LEAST or time.perf_counter() - start < seconds):
            block = asked if batch else asked[len(found) : len(found) + 1]
            found.append(self._peer.search(block, k, **setting))
        took = time.perf_counter() - start
        ids = np.concatenate(found)
        shares = [len(np.intersect1d(own[own >= 0], near[:k])) / k for own, near in zip(ids, true, strict=False)]
        return {"recall": statistics.fmean(shares), "asked": len(ids), "seconds": took}

    def turn(
        self, queries: str, k: int, setting: dict[str, Any], batch: bool, number: int, seconds: float
    ) -> dict[str, Any]:
        """Queries, and seconds of the clock and of the processor: one batch of all, or single ones for about so long.

        Single queries are others in every round.
        """
        asked, search = self._load(queries), self._peer.search
        step = _STEP * number
        singles = [asked[(step + i) % len(asked)][None] for i in range(len(asked))]
        search(singles[0], k, **setting)  # what others have pushed out of the caches comes back
        count, used, start = 0, time.process_time(), time.perf_counter()
        if batch:
            search(asked, k, **setting)
            count = len(asked)
        while not batch and (not count or time.perf_counter() - start < seconds):
            search(singles[count % len(singles)], k, **setting)
            count += 1
        took = time.perf_counter() - start
        return {"count": count, "seconds": took, "processor": time.process_time() - used}

    # -- changed --------------------------------------------------------------------------------------------------

    def reading(self, queries: str, k: int, setting: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Single queries for so long: milliseconds of each, in percentiles."""
        asked = self._load(queries)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            i = len(times) % len(asked)
            self._peer.search(asked[i : i + 1], k, **setting)
            times.append(_since(start))
        p50, p99 = np.percentile(times, [50, 99])
        return {"queries/s": 1000 * len(times) / sum(times), "p50": p50, "p99": p99, "worst": max(times)}

    def adding(self, vectors: str, folder: str, seconds: float, most: int | None = None) -> dict[str, Any]:
        """One vector after another, each durable, for so long: milliseconds of each."""
        new = self._load(vectors)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end and (most is None or len(times) < most):
            self._add_one(new, len(times))
            if not self._peer.durable:
                self._peer.save(Path(folder))
            times.append(_since(start))
        return {"adds/s": 1000 * len(times) / sum(times), "median": statistics.median(times), "adds": len(times)}

    def reading_beside(
        self, vectors: str, queries: str, k: int, setting: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """Single queries while another thread of this process adds, in memory."""
        new, done, stop = self._load(vectors), 0, threading.Event()

        def add() -> None:
            nonlocal done
            while not stop.is_set():
                self._add_one(new, done)
                done += 1

        thread = threading.Thread(target=add)
        thread.start()
        try:
            found = self.reading(queries, k, setting, seconds)
        finally:
            stop.set()
            thread.join()
        return {**found, "adds/s": done / seconds}

    def delete(self, rows: int, folder: str) -> dict[str, Any]:
        """Every second of ``rows`` vectors, then whatever makes that durable: seconds."""
        start = time.perf_counter()
        self._peer.delete(np.arange(0, rows, 2))
        self._peer.save(Path(folder))
        return {"seconds": time.perf_counter() - start}

    def give_back(self, folder: str) -> dict[str, Any]:
        """The space of what was deleted: seconds, and how."""
        start = time.perf_counter()
        how = self._peer.give_back(Path(folder))
        self._peer.save(Path(folder))
        return {"seconds": time.perf_counter() - start, "how": how}

    def close(self) -> dict[str, Any]:
        self._peer.close()
        return {}

    def _add_one(self, vectors: Vectors, number: int) -> None:
        row = number % len(vectors)
        self._peer.add(np.array([_NEW + number]), vectors[row : row + 1])

    def _load(self, file: str) -> Any:
        """An array, read once."""
        if file not in self._data:
            self._data[file] = np.load(file)
        return self._data[file]


#: The first id of vectors that are added to those of a data set.
_NEW = 10_000_000


def _since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


def _resident() -> dict[str, float]:
    """Bytes of memory: all, and what is not a page of some file."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    fields = dict(line.split(":", 1) for line in lines)
    names = {"resident": "VmRSS", "own": "RssAnon"}
    return {name: int(fields[field].split()[0]) * 1024 for name, field in names.items() if field in fields}


def _keep_to(cores: list[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def main() -> None:
    """Answers go where the standard output was; what libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            if worker is None:
                _keep_to(arguments.pop("cores"))
                worker = Worker(**arguments)
                result: dict[str, Any] = {}
            else:
                call: Callable[..., dict[str, Any]] = getattr(worker, name)
                result = call(**arguments)
            answer: dict[str, Any] = {"result": result}
        except NotPossible as error:
            answer = {"not possible": str(error)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
