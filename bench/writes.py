"""Writing: single adds, adds of many threads, bulk adds, large payloads and deletions, beside LMDB and other libraries.

Every add is durable when its time is taken. Systems that are compared take turns in one run.
"""

from __future__ import annotations

import importlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import lmdb
import numpy as np

from lsqindex import Index
from lsqindex.encoders import to_bytes

from .framework import runner
from .framework.bars import Verdict, at_least, at_most, below, value
from .framework.benchmark import Benchmark, Section, add_work
from .framework.report import Rows, machine_facts
from .framework.runner import Question, ask, timed
from .framework.turns import by_turns, ratios
from .material import data
from .material.data import SEED, Vectors
from .material.filled import Kind, Mixture, remove


@dataclass(frozen=True)
class Plan:
    """How large everything is."""

    name: str
    remark: str
    #: Where vectors are taken from, and how many are stored before anything is timed.
    data: str
    stored: int
    bits: int
    #: Rounds of single adds; adds of each thread, and threads.
    rounds: int
    each: int
    threads: int
    #: Vectors of a bulk add, and rounds.
    bulk: int
    bulks: int
    #: Payloads of 200 KB that are there, and that are added.
    payloads: tuple[int, int]


FULL = Plan(
    name="writes",
    remark="256-bit codes, int8 kept, cells, cosine; everything is durable when its time is taken.",
    data="minilm-wordnet",
    stored=115_033,
    bits=256,
    rounds=200,
    each=60,
    threads=16,
    bulk=20_000,
    bulks=3,
    payloads=(500, 20),
)
QUICK = Plan(
    name="writes-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    data="synthetic",
    stored=2_000,
    bits=64,
    rounds=3,
    each=3,
    threads=4,
    bulk=1_500,
    bulks=1,
    payloads=(5, 2),
)

OURS, BARE = "lsqindex", "bare LMDB, as many pages"
_PAGE = 4096
#: Pages that a transaction of bare LMDB writes beside those of the values that it changes, with the tree of ``_ROWS``.
_ROWS, _VALUE = 20_000, bytes(900)


class Shelf:
    """The index that is written to, made once; and the vectors that are added to it."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory, self._plan = directory, plan
        directory.mkdir(parents=True, exist_ok=True)
        self.vectors = _vectors(plan)
        self.dim = self.vectors.shape[1]

    @property
    def stored(self) -> Vectors:
        """The vectors that are there before."""
        return self.vectors[: self._plan.stored]

    def new(self, first: int, n: int = 1) -> Vectors:
        """Vectors that are not there: sums of two that are."""
        rng = np.random.default_rng([SEED, first])
        pairs = rng.integers(0, self._plan.stored, (2, n))
        return np.asarray(self.vectors[pairs[0]] + self.vectors[pairs[1]], np.float32)

    def copy(self, name: str) -> Path:
        """A copy of the filled index."""
        whole, path = self.directory / "filled.lsq", self.directory / f"{name}.lsq"
        if not whole.exists():
            with self.create("making") as index:
                index.add(self.stored)
                index.save(whole)
        remove(path)
        shutil.copyfile(whole, path)
        return path

    def create(self, name: str, **options: Any) -> Index:
        """An empty index."""
        path = self.directory / f"{name}.lsq"
        remove(path)
        size = {} if "encoder" in options else {"bits": self._plan.bits}
        chosen: dict[str, Any] = {"metric": "cosine", "keep_vectors": "int8", **size, **options}
        return Index.create(path, self.dim, **chosen)


@cache
def _vectors(plan: Plan) -> Vectors:
    if plan.data == "synthetic":
        return Mixture("synthetic", 32).rows(0, plan.stored)
    return data.load(plan.data).base


class Run(runner.Run[Plan, Shelf]):
    """One run of the benchmark."""

    def ask(self, system: str, parameters: dict[str, Any], *call: Any) -> Question:
        """For a row on the run's data."""
        return ask(self.plan.data, system, parameters, *call)


# -- one: a vector at a time, beside others ----------------------------------------------------------------------------


def one(run: Run) -> Iterator[Question]:
    for name in (OURS, BARE):
        yield run.ask(name, {"stored": run.plan.stored}, run.together, name, _ones)
    for name in _PEERS:
        yield run.ask(name, {"stored": run.plan.stored}, _peer, run, name)


def _ones(run: Run) -> dict[str, dict[str, Any]]:
    """Both by turns; milliseconds, and their ratio to those of bare LMDB."""
    shelf, rounds = run.shelf, run.plan.rounds
    folder = shelf.directory / "one"
    shutil.rmtree(folder, ignore_errors=True)
    with Index.open(shelf.copy("one")) as index:
        for i in range(8):  # warm
            index.add(shelf.new(i))
        pages = _pages(lambda number: index.add(shelf.new(100 + number)))
        with _Bare(folder / "bare", pages) as bare:
            turns: dict[str, Callable[[int], Any]] = {
                OURS: lambda number: timed(index.add, shelf.new(1_000 + number))[1],
                BARE: lambda number: timed(bare.write, number)[1],
            }
            times = by_turns(turns, rounds)
    counts = {OURS: pages, BARE: bare.pages}
    return {name: {"pages": counts[name], **_told(own, times[BARE])} for name, own in times.items()}


def _told(own: list[float], bare: list[float]) -> dict[str, Any]:
    return {"ms": 1000 * median(own), "adds/s": 1 / median(own), **ratios(own, bare)}


class _Bare:
    """A file of LMDB, with a transaction that writes ``pages`` pages."""

    def __init__(self, folder: Path, pages: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._rng = np.random.default_rng(SEED)
        self._env = lmdb.open(str(folder / "bare.lmdb"), subdir=False, lib_version=0, map_size=1 << 30)
        with self._env.begin(write=True) as txn:
            for i in range(_ROWS):
                txn.put(b"%08d" % i, _VALUE)
        # As many values, each in a leaf of its own, as make that many pages.
        self._values = self.pages = 0
        while self.pages < pages:
            self._values += 1
            self.pages = _pages(self.write)

    def write(self, number: int) -> None:
        """One transaction."""
        names = [b"%08d" % i for i in self._rng.choice(_ROWS, self._values, replace=False).tolist()]
        with self._env.begin(write=True) as txn:
            for name in names:
                txn.put(name, _VALUE)

    def __enter__(self) -> _Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self._env.close()


def _pages(work: Callable[[int], Any]) -> int:
    """How many pages a transaction writes, the mean of 16."""

    def several() -> None:
        for number in range(16):
            work(number)

    return round(_written(several) / 16 / _PAGE)


def _written(work: Callable[[], Any]) -> int:
    """How many bytes this process hands to files meanwhile."""

    def count() -> int:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])

    before = count()
    work()
    return count() - before


#: Other libraries: the module of the adapter, its class and options; whether it is opened as the adapter opens it to be
#: changed (SQLite: WAL and synchronous=FULL); in how many rounds fewer it takes part.
_PEERS: dict[str, tuple[str, str, dict[str, Any], bool, int]] = {
    "sqlite-vec, WAL, synchronous=FULL": ("of_sqlite_vec", "SqliteVec", {}, True, 2),
    "sqlite-vec, as it comes": ("of_sqlite_vec", "SqliteVec", {}, False, 2),
    "LanceDB": ("of_lancedb", "LanceDB", {"cells": 16, "fields": 16}, True, 20),
    "FAISS Flat + save": ("of_faiss", "Faiss", {"factory": "Flat"}, True, 20),
}


def _peer(run: Run, name: str) -> dict[str, Any]:
    """Another library by turns with bare LMDB, which writes 8 pages."""
    shelf, (module, kind, options, change, fewer) = run.shelf, _PEERS[name]
    try:
        adapter = getattr(importlib.import_module(f"bench.peers.{module}"), kind)
    except ImportError:
        return {"note": "not installed"}
    folder = shelf.directory / "peer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    peer, stored = adapter("cosine", shelf.dim, **options), np.asarray(shelf.stored, np.float32)
    peer.build(folder, stored, stored)
    peer.open(folder, change=change)

    def add(number: int) -> float:
        vector, names = shelf.new(5_000 + number), np.array([run.plan.stored + 5_000 + number])

        def durable() -> None:
            peer.add(names, vector)
            peer.save(folder)

        return timed(durable)[1]

    with _Bare(folder / "bare", 8) as bare:
        turns: dict[str, Callable[[int], Any]] = {name: add, BARE: lambda number: timed(bare.write, number)[1]}
        times = by_turns(turns, max(2, run.plan.rounds // fewer))
    peer.close()
    shutil.rmtree(folder, ignore_errors=True)
    return _told(times[name], times[BARE])


def one_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    row = next((row for row in rows.of("one") if row.system == OURS), None)
    yield at_most("a durable add of one vector / a bare LMDB transaction of as many pages", 1.6, value(row, "ratio"))


# -- threads: one vector each, many at once ----------------------------------------------------------------------------


def threads(run: Run) -> Iterator[Question]:
    for count in (1, run.plan.threads):
        yield run.ask(OURS, {"threads": count, "stored": run.plan.stored}, run.together, count, _threads)


def _threads(run: Run) -> dict[int, dict[str, Any]]:
    """One thread and many by turns."""
    shelf, plan = run.shelf, run.plan
    with Index.open(shelf.copy("threads")) as index:
        vectors = shelf.new(7, 1_000)

        def together(count: int, each: int) -> float:
            def work(first: int) -> None:
                for i in range(each):
                    index.add(vectors[(first + i) % 1_000][None])

            workers = [threading.Thread(target=work, args=(37 * i,)) for i in range(count)]

            def run_all() -> None:
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()

            return timed(run_all)[1] / (count * each)

        many = plan.threads
        turns = {
            1: lambda number: together(1, 2 * plan.each),
            many: lambda number: together(many, plan.each),
        }
        times = by_turns(turns, 5)
    return {
        count: {"adds/s": 1 / median(own), "µs an add": 1e6 * median(own), **ratios(times[1], own)}
        for count, own in times.items()
    }


def thread_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    row = next((row for row in rows.of("threads") if row["threads"] == plan.threads), None)
    yield at_least(f"adds/s of {plan.threads} threads / of one", 6, value(row, "ratio"))


# -- bulk: threads, ids, size ------------------------------------------------------------------------------------------

KINDS = tuple(Kind(ids) for ids in ("rising", "random", "str"))


def bulk(run: Run) -> Iterator[Question]:
    for kind in KINDS:
        for count in (1, 2):
            parameters = {"ids": kind.ids, "threads": count, "vectors": run.plan.bulk}
            yield run.ask(OURS, parameters, run.together, count, _bulk, kind)


def _bulk(run: Run, kind: Kind) -> dict[int, dict[str, Any]]:
    """Encoding alone, and adds with one and with two threads, by turns; each add to an index with as many rows."""
    shelf, n = run.shelf, run.plan.bulk
    encoder = _trained(run)
    ids: Any = "str" if kind.ids == "str" else "int"
    sizes: list[float] = []

    def add(count: int, number: int) -> float:
        with shelf.create("bulk", encoder=encoder, keep_vectors=None, ids=ids, subset=None) as index:
            seconds = 0.0
            for part in range(3):  # the last add is to an index that has rows
                first = (3 * (number + 1) + part) * n
                vectors, names = shelf.new(first, n), kind.names(first, n)
                seconds = timed(lambda: index.add(vectors, names, threads=count))[1]  # noqa: B023
            needed = len(index) * kind.row_bytes(index.stats()["code_bytes"], shelf.dim)
            file = (shelf.directory / "bulk.lsq").stat().st_size
            sizes.append((file - len(to_bytes(encoder))) / needed)
        return seconds

    vectors = shelf.new(0, n)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    turns = {
        0: lambda number: timed(lambda: encoder.encode(vectors, threads=1))[1],
        1: lambda number: add(1, number),
        2: lambda number: add(2, number),
    }
    times = by_turns(turns, run.plan.bulks)
    outside = 1 - median(times[0]) / median(times[1])
    return {
        count: {
            "vectors/s": n / median(times[count]),
            "speed-up": median(times[1]) / median(times[count]),
            "outside": outside if count == 1 else None,
            "file / needed": median(sizes),
        }
        for count in (1, 2)
    }


def _trained(run: Run) -> Any:
    with Index.open(run.shelf.copy("trained")) as index:
        if not index.is_trained:
            index.train()
        return index.encoder


def bulk_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for kind in KINDS:
        own = {row["threads"]: row for row in rows.of("bulk") if row["ids"] == kind.ids}
        yield at_least(f"{kind}: vectors/s with 2 threads / with 1", 1.7, value(own.get(2), "speed-up"))
        yield below(f"{kind}: share of the time outside encoding, 1 thread", 0.25, value(own.get(1), "outside"))
        yield at_most(f"{kind}: file / bytes needed, not compacted", 1.2, value(own.get(1), "file / needed"))


# -- payloads: large ones beside others --------------------------------------------------------------------------------


def payloads(run: Run) -> Iterator[Question]:
    there, added = run.plan.payloads
    yield run.ask(OURS, {"stored": there, "added": added}, _payloads, run)


def _payloads(run: Run) -> dict[str, Any]:
    there, added = run.plan.payloads
    with run.shelf.create("payloads", keep_vectors=None, subset=None) as index:
        given = [{"text": os.urandom(100_000).hex()} for _ in range(there)]
        index.add(run.shelf.new(1, there), payloads=given)
        seconds: list[float] = []

        def add() -> None:
            for number in range(added):
                vector, payload = run.shelf.new(10 + number), [{"text": os.urandom(100_000).hex()}]
                seconds.append(timed(index.add, vector, None, payload)[1])

        written = _written(add) / added
    return {"MB written": written / 1e6, "ms": 1000 * median(seconds), "ratio": written / 200_000}


def payload_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    row = next(iter(rows.of("payloads")), None)
    yield at_most("bytes written by an add of 200 KB / 200 KB", 1.5, value(row, "ratio"))


# -- deleted: does the file grow? --------------------------------------------------------------------------------------


def deleted(run: Run) -> Iterator[Question]:
    yield run.ask(OURS, {"stored": run.plan.stored, "share": 0.9}, _deleted, run)


def _deleted(run: Run) -> dict[str, Any]:
    path = run.shelf.copy("deleted")
    before, largest = path.stat().st_size, 0
    with Index.open(path) as index:
        gone = np.random.default_rng(SEED).permutation(index.ids())[: len(index) * 9 // 10]
        for some in np.array_split(gone, 100):
            index.delete(some)
            largest = max(largest, path.stat().st_size)
        after = path.stat().st_size
        index.compact()
        left = len(index)
    sizes = {"before MB": before, "largest MB": largest, "after MB": after, "compacted MB": path.stat().st_size}
    return {"left": left, **{name: size / 1e6 for name, size in sizes.items()}, "ratio": largest / before}


def deleted_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    row = next(iter(rows.of("deleted")), None)
    yield at_most("the largest file while nine of ten vectors are deleted / before", 1.0, value(row, "ratio"))


# -- the benchmark -----------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Section[Plan, Run]] = {
    "one": Section(
        one,
        ("system", "stored", "pages", "ms", "adds/s", "ratio", "low", "high", "of medians", "note"),
        "Durable adds of one vector, by turns. bare LMDB: a transaction that changes values in as many pages as an add "
        "of lsqindex writes, with sync. ratio: of the time to that of bare LMDB in the same round (other libraries: of "
        "8 pages), its median and quartiles. Other libraries store float32 and do not encode; FAISS writes its whole "
        "file after each add.",
        bars=one_bars,
    ),
    "threads": Section(
        threads,
        ("threads", "stored", "adds/s", "µs an add", "ratio", "low", "high"),
        "Threads that add one vector at a time, each durably. ratio: adds/s over those of one thread.",
        bars=thread_bars,
    ),
    "bulk": Section(
        bulk,
        ("ids", "threads", "vectors", "vectors/s", "speed-up", "outside", "file / needed"),
        "One add of so many vectors to an index that has twice as many, without cells and kept vectors. outside: the "
        "share of the time that is not encoding, with one thread. needed: codes and ids; the encoder is left out.",
        bars=bulk_bars,
    ),
    "payloads": Section(
        payloads,
        ("stored", "added", "MB written", "ms", "ratio"),
        "An add of one vector with a payload of 200 KB, beside so many of that size. ratio: bytes handed to the system "
        "over those of the payload.",
        bars=payload_bars,
    ),
    "deleted": Section(
        deleted,
        ("stored", "share", "left", "before MB", "largest MB", "after MB", "compacted MB", "ratio"),
        "Nine of ten vectors deleted at random, in 100 calls. ratio: the largest file on the way over that before.",
        bars=deleted_bars,
    ),
}


def _facts(plan: Plan) -> dict[str, str]:
    facts = {name: value for name, value in machine_facts().items() if name not in ("faiss", "queries")}
    return {**facts, "lmdb": ".".join(map(str, lmdb.version())), "codes": f"lsq, {plan.bits} bits"}


def _begin(plan: Plan, rows: Rows, work: Path) -> Run:
    return Run(rows, plan=plan, shelf=Shelf(work / plan.name, plan))


def _needs(plan: Plan, section: str) -> tuple[str, ...]:
    return () if plan.data == "synthetic" else (plan.data,)


BENCHMARK = Benchmark("Writes", FULL, QUICK, SECTIONS, _facts, _begin, _needs)
run, add_arguments = BENCHMARK.run, add_work
