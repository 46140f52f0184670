"""The scan: queries per second and recall beside FAISS, threads, growth, and how close to the memory's speed it is.

Systems that are compared take turns in one process (``framework/turns.py``).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .framework import runner, turns
from .framework.bars import Verdict, above, at_least, at_most, told, value
from .framework.benchmark import Benchmark, Section, add_work
from .framework.page import Curve, Plot
from .framework.report import Row, Rows, machine_facts
from .framework.runner import Question, ask, timed
from .material import faiss_systems, inside, systems
from .material.data import SEED
from .material.faiss_systems import FaissHamming
from .material.plain_read import reader
from .material.shelf import Collection, Kind, Shelf
from .material.systems import MODES, K, Mode, System

#: Names of systems, as the tables have them.
WHOLE, PROGRESSIVE = "lsq, whole scan", "lsq, progressive scan"
ITQ_HAMMING, FLAT, FLAT_CODING = "itq, Hamming", "faiss BinaryFlat", "faiss BinaryFlat, coding the query"
NOT_AGAIN, AGAIN = "lsq", "lsq, rerank"
PLAIN_READ, SEARCH, KERNEL, TABLES = "plain read", "search", "the kernel alone", "the tables alone"
#: Where the codes are when they are read: where the call before has left them, or in memory alone.
CACHES = WARM, FLUSHED = "warm", "flushed"


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: The data set, and how many vectors are made from it.
    data: str
    mixed: int
    #: Indexes of the first so many of these: time per query against their number.
    growth: tuple[int, ...]
    bits: int
    #: FAISS's scan of as many bytes per row.
    faiss: str
    #: Rounds of batches; of single queries, whose turns are short: others on the machine spoil some, not all.
    rounds: int
    single_rounds: int
    #: Single queries of a turn; on the smallest index; and those that are compared with plain reads.
    singles: int
    calls: int
    reads: int
    #: Threads against one.
    threads: int = 2
    #: Best rows that are ordered again by kept vectors.
    rerank: int = 100

    @property
    def lsq(self) -> Kind:
        """Codes alone."""
        return Kind("lsq", self.bits, metric="cosine")

    @property
    def kept(self) -> Kind:
        """The same codes, and the vectors."""
        return replace(self.lsq, keep_vectors="float16")

    @property
    def hamming(self) -> Kind:
        """Binary codes: their symmetric distance is the Hamming distance, and under l2 nothing else."""
        return Kind("itq", self.bits)

    @cached_property
    def real(self) -> Collection:
        """The data set as it is."""
        return Collection(self.data)

    @cached_property
    def large(self) -> Collection:
        """Vectors made from it."""
        return Collection(self.data, self.mixed)


FULL = Plan(
    name="scan",
    remark="Codes of 256 bits, k = 10, one thread each unless said. lsqindex searches files, through `Index.search`.",
    data="minilm-wordnet",
    mixed=1_000_000,
    growth=(10_000, 115_033, 1_000_000),
    bits=256,
    faiss="PQ64x4fs",
    rounds=11,
    single_rounds=45,
    singles=50,
    calls=100,
    reads=20,
)
QUICK = Plan(
    name="scan-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    data="digits",
    mixed=4_000,
    growth=(500, 1_597, 4_000),
    bits=64,
    faiss="PQ16x4fs",
    rounds=3,
    single_rounds=5,
    singles=20,
    calls=20,
    reads=5,
)


Run = runner.Run[Plan, Shelf]

# -- lsq: the whole scan and the progressive one against FAISS's fast scan ---------------------------------------------


def lsq(run: Run) -> Iterator[Question]:
    rival = f"faiss {run.plan.faiss}"
    names = [WHOLE, PROGRESSIVE]
    for collection in (run.plan.real, run.plan.large):
        for mode in MODES:
            for name in [*names, *([rival] if faiss_systems.AVAILABLE else [])]:
                yield ask(collection.name, name, _of(collection, mode), run.together, name, _lsq, collection, mode)


def speed_plots(rows: Rows) -> Iterator[Plot]:
    """recall10@10 against queries per second, of all systems; from single queries, to the left, to batches."""
    found = [row for section in ("lsq", "hamming", "rerank") for row in rows.of(section)]
    for name, vectors in dict.fromkeys((row.data, row["vectors"]) for row in found):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in found:
            # What re-ranking is compared with is the progressive scan of the same codes once more.
            if (row.data, row["vectors"]) == (name, vectors) and row.system != NOT_AGAIN:
                points.setdefault(row.system, []).append((row["queries/s"], row["recall10@10"]))
        curves = [Curve.through(system, own) for system, own in points.items()]
        speed = "queries per second; left: one at a time, right: a batch"
        yield Plot(f"speed-{vectors}", f"{name}, {vectors:,} vectors", speed, "recall10@10", curves, log_x=True)


def _lsq(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    plan, shelf = run.plan, run.shelf
    rival = f"faiss {plan.faiss}"
    with shelf.index(collection, run.plan.lsq) as index:
        compared = [
            systems.lsqindex(WHOLE, index, progressive=False),
            systems.lsqindex(PROGRESSIVE, index),
        ]
        if faiss_systems.AVAILABLE:
            compared.append(systems.faiss(rival, shelf.faiss(collection, plan.faiss).search))
        return systems.compare(plan, compared, mode, collection.queries, shelf.truth(collection), rival)


# -- hamming: binary codes, the same ones in FAISS ---------------------------------------------------------------------


def hamming(run: Run) -> Iterator[Question]:
    names = (ITQ_HAMMING, *((FLAT, FLAT_CODING) if faiss_systems.AVAILABLE else ()))
    for collection in (run.plan.real, run.plan.large):
        for mode in MODES:
            for name in names:
                parameters = _of(collection, mode)
                yield ask(collection.name, name, parameters, run.together, name, _hamming, collection, mode)


def _hamming(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    shelf, queries = run.shelf, collection.queries
    encoder = shelf.encoder(collection, run.plan.hamming)
    with shelf.index(collection, run.plan.hamming) as index:
        compared = [systems.lsqindex(ITQ_HAMMING, index, distance="symmetric")]
        if faiss_systems.AVAILABLE:
            flat = FaissHamming(shelf.codes(collection, run.plan.hamming))
            compared.append(systems.faiss(FLAT, flat.search, encoder.encode(queries)))
            compared.append(systems.faiss(FLAT_CODING, lambda rows, k: flat.search(encoder.encode(rows), k)))
        found = systems.compare(run.plan, compared, mode, queries, shelf.truth(collection), FLAT)
        if faiss_systems.AVAILABLE:
            found[ITQ_HAMMING]["unequal"] = _unequal(compared[0], compared[1], mode, queries)
    return found


def _unequal(ours: System, theirs: System, mode: Mode, queries: Any) -> int:
    """Queries whose distances differ; of rows equally far either may be returned."""
    distances = [systems.answers(system, mode, queries)[1].astype(np.float64) for system in (ours, theirs)]
    return int((np.sort(distances[0], axis=1) != np.sort(distances[1], axis=1)).any(axis=1).sum())


# -- rerank: the best again by their kept vectors ----------------------------------------------------------------------


def rerank(run: Run) -> Iterator[Question]:
    collection = run.plan.real
    for mode in MODES:
        for name in (NOT_AGAIN, AGAIN):
            parameters = {**_of(collection, mode), "rerank": run.plan.rerank if name == AGAIN else 0}
            yield ask(collection.name, name, parameters, run.together, name, _rerank, collection, mode)


def _rerank(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    with run.shelf.index(collection, run.plan.kept) as index:
        compared = [
            systems.lsqindex(NOT_AGAIN, index, rerank=0),
            systems.lsqindex(AGAIN, index, rerank=run.plan.rerank),
        ]
        truth = run.shelf.truth(collection)
        return systems.compare(run.plan, compared, mode, collection.queries, truth, NOT_AGAIN)


def _of(collection: Collection, mode: Mode) -> dict[str, Any]:
    return {"vectors": collection.size, "queries": mode}


#: Several times what a processor's caches hold.
_FLUSH_BYTES = 256 << 20

# -- threads: several against one --------------------------------------------------------------------------------------


def threads(run: Run) -> Iterator[Question]:
    collection = run.plan.large
    for mode in MODES:
        for count in (1, run.plan.threads):
            parameters = {"vectors": collection.size, "queries": mode, "threads": count}
            yield ask(collection.name, "lsq", parameters, run.together, str(count), _threads, mode)


def _threads(run: Run, mode: Mode) -> dict[str, dict[str, Any]]:
    collection = run.plan.large
    with run.shelf.index(collection, run.plan.lsq) as index:
        compared = [systems.lsqindex(str(count), index, threads=count) for count in (1, run.plan.threads)]
        return systems.compare(run.plan, compared, mode, collection.queries, run.shelf.truth(collection), "1")


# -- growth: time per query against the number of vectors --------------------------------------------------------------


def growth(run: Run) -> Iterator[Question]:
    for mode in MODES:
        for rows in run.plan.growth:
            parameters = {"vectors": rows, "queries": mode}
            yield ask(run.plan.large.name, "lsq", parameters, run.together, rows, _growth, mode)


def growth_plots(rows: Rows) -> Iterator[Plot]:
    """Time a query against the number of vectors, and what it would be if both grew alike."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows.of("growth"):
        points.setdefault(row["queries"], []).append((row["vectors"], row["µs"]))
    curves = []
    for mode, own in points.items():
        (few, least), (many, _) = min(own), max(own)
        alike = [(few, least), (many, least * many / few)]
        curves += [Curve.through(mode, own, mode), Curve.through(f"{mode}, proportional", alike, mode)]
    yield Plot("growth", "Time of a query", "vectors", "µs", curves, log_x=True, log_y=True)


def _growth(run: Run, mode: Mode) -> dict[int, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    queries, sizes = collection.queries, run.plan.growth
    with ExitStack() as stack:
        compared: dict[int, System] = {}
        for rows in sizes:
            index = stack.enter_context(run.shelf.index(collection, run.plan.lsq, rows))
            compared[rows] = systems.lsqindex("lsq", index)
        by_size = {rows: systems.turn(plan, system, mode, queries) for rows, system in compared.items()}
        times = turns.by_turns(by_size, systems.rounds(plan, mode))
    found: dict[int, dict[str, Any]] = {}
    for before, rows in zip((None, *sizes), sizes, strict=False):
        found[rows] = systems.speed(times[rows], systems.queries_of_turn(plan, mode, queries))
        found[rows]["ns per vector"] = 1000 * found[rows]["µs"] / rows
        if before is not None:
            found[rows].update(turns.ratios(times[rows], times[sizes[0]], scale=sizes[0] / rows))
            found[rows]["step"] = turns.ratios(times[rows], times[before], scale=before / rows)["ratio"]
    return found


# -- memory: gigabytes of codes per second -----------------------------------------------------------------------


def memory(run: Run) -> Iterator[Question]:
    collection = run.plan.large
    for caches in CACHES:
        for name in (PLAIN_READ, SEARCH, KERNEL):
            parameters = {"vectors": collection.size, "caches": caches}
            yield ask(collection.name, name, parameters, run.together, name, _memory, caches)


def _memory(run: Run, caches: str) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    queries = list(collection.queries)
    count = plan.reads if caches == WARM else max(1, plan.reads // 4)
    with run.shelf.index(collection, run.plan.lsq) as index, inside.stored_codes(index) as stored:
        who, read = reader(stored.rows, run.shelf.made_here)
        search = systems.lsqindex(SEARCH, index, progressive=False).search
        scan = inside.kernel(stored, K)
        tables = [inside.tables_of(index)(query) for query in queries]
        take = _calls if caches == WARM else _calls_from_memory
        by_name = {
            PLAIN_READ: take(lambda _: read(), queries, count),
            SEARCH: take(search, queries, count),
            KERNEL: take(scan, tables, count),
        }
        times = turns.by_turns(by_name, plan.single_rounds)
        size = collection.size * stored.width
    return {
        name: {
            "MB": size / 1e6,
            "GB/s": size * count / statistics.median(found) / 1e9,
            "spread": turns.spread(found),
            **(turns.ratios(times[PLAIN_READ], found) if name != PLAIN_READ else {"read by": who}),
        }
        for name, found in times.items()
    }


# -- call: what one search costs beside its kernel, on few vectors -----------------------------------------------------


def call(run: Run) -> Iterator[Question]:
    rows = run.plan.growth[0]
    for name in (SEARCH, KERNEL, TABLES):
        yield ask(run.plan.large.name, name, {"vectors": rows}, run.together, name, _call)


def _call(run: Run) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    queries = list(collection.queries)
    with run.shelf.index(collection, run.plan.lsq, plan.growth[0]) as index, inside.stored_codes(index) as stored:
        make_tables, scan = inside.tables_of(index), inside.kernel(stored, K)
        search = systems.lsqindex(SEARCH, index, progressive=False).search
        tables = [make_tables(query) for query in queries]

        by_name = {
            SEARCH: _calls(search, queries, plan.calls),
            KERNEL: _calls(scan, tables, plan.calls),
            TABLES: _calls(make_tables, queries, plan.calls),
        }
        times = turns.by_turns(by_name, plan.single_rounds)
    found: dict[str, dict[str, Any]] = {
        name: {"µs": 1e6 * statistics.median(seconds) / plan.calls, "spread": turns.spread(seconds)}
        for name, seconds in times.items()
    }
    beside = [1e6 * (a - b) / plan.calls for a, b in zip(times[SEARCH], times[KERNEL], strict=True)]
    low, middle, high = turns.quartiles(beside)
    found[SEARCH].update({"beside the kernel, µs": middle, "low": low, "high": high})
    return found


@cache
def _others() -> NDArray[np.int64]:
    return np.ones(_FLUSH_BYTES // 8, np.int64)


def _calls(function: Callable[[Any], Any], arguments: list[Any], count: int) -> turns.Turn:
    """So many calls, with other arguments in every round."""

    def turn(number: int) -> None:
        for i in range(number * count, (number + 1) * count):
            function(arguments[i % len(arguments)])

    return turn


def _calls_from_memory(function: Callable[[Any], Any], arguments: list[Any], count: int) -> turns.Turn:
    """As :func:`_calls`; before each, so much else is read that no cache has kept the codes. Its own seconds."""
    others = _others()

    def turn(number: int) -> float:
        total = 0.0
        for i in range(number * count, (number + 1) * count):
            others.sum()
            total += timed(function, arguments[i % len(arguments)])[1]
        return total

    return turn


# -- bars --------------------------------------------------------------------------------------------------------------


def lsq_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Queries per second and recall against FAISS's scan of as many bytes; what the progressive scan loses."""
    for collection, mode in _cases(plan):
        whole, progressive, theirs = (
            _one(rows, "lsq", collection, system, mode) for system in (WHOLE, PROGRESSIVE, f"faiss {plan.faiss}")
        )
        where = f"{collection.size:,} vectors, {mode}"
        for row, name, least in ((whole, WHOLE, 1.0), (progressive, PROGRESSIVE, 2.0)):
            yield at_least(f"{name} / FAISS {plan.faiss}, queries/s, {where}", least, value(row, "ratio"))
            points = _points(row, theirs)
            yield above(f"{name} minus FAISS {plan.faiss}, recall10@10, points, {where}", 0, points)
        yield at_least(f"progressive minus whole scan, recall10@10, points, {where}", -0.5, _points(progressive, whole))


def hamming_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Queries per second against FAISS on the same codes, with coding the query in ours only; and the same answers."""
    for collection, mode in _cases(plan):
        row = _one(rows, "hamming", collection, ITQ_HAMMING, mode)
        where = f"{collection.size:,} vectors, {mode}"
        yield at_least(f"Hamming scan / FAISS BinaryFlat, queries/s, {where}", 1.0, value(row, "ratio"))
        yield at_most(f"Hamming scan: queries whose distances are not FAISS's, {where}", 0, value(row, "unequal"))


def rerank_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Recall by kept vectors, and what it costs."""
    for mode in MODES:
        row = rows.one("rerank", system=AGAIN, queries=mode)
        yield at_least(f"rerank, float16 kept, recall10@10, {mode}", 0.97, value(row, "recall10@10"))
        yield at_least(f"rerank / without, queries/s, {mode}", 0.6, value(row, "ratio"))


def threads_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Several threads against one; single queries have no bar."""
    for mode in MODES:
        row = rows.one("threads", queries=mode, threads=plan.threads)
        what = f"{plan.threads} threads / one, queries/s, {plan.mixed:,} vectors, {mode}"
        measured = value(row, "ratio")
        yield at_least(what, 1.8, measured) if mode == "batch" else told(what, measured)


def growth_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Time per query over the number of vectors, the largest index against the smallest; steps have no bar."""
    small, large = plan.growth[0], plan.growth[-1]
    for mode in MODES:
        row = rows.one("growth", queries=mode, vectors=large)
        what = f"time a query / number of vectors, {small:,} to {large:,}, {mode}"
        yield at_most(what, 1.0, value(row, "ratio"))
        what = f"time a query / number of vectors, {plan.growth[-2]:,} to {large:,}, {mode}"
        yield told(what, value(row, "step"))


def memory_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Bytes of codes per second against those of a plain read; the kernel alone has no bar."""
    for caches, name in product(CACHES, (SEARCH, KERNEL)):
        row = rows.one("memory", system=name, caches=caches)
        what = f"single query, whole scan, GB/s of codes / plain read, caches {caches}: {name}"
        measured = value(row, "ratio")
        yield at_least(what, 0.8, measured) if name == SEARCH else told(what, measured)


def call_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """What a search costs beside its kernel."""
    row = rows.one("call", system=SEARCH)
    vectors = f", {row['vectors']:,} vectors" if row else ""
    yield at_most(f"one search less its kernel, µs{vectors}", 50.0, value(row, "beside the kernel, µs"))


def _cases(plan: Plan) -> Iterator[tuple[Collection, str]]:
    yield from ((collection, mode) for collection in (plan.real, plan.large) for mode in MODES)


def _one(rows: Rows, section: str, collection: Collection, system: str, mode: str) -> Row | None:
    return rows.one(section, data=collection.name, system=system, queries=mode)


def _points(row: Row | None, other: Row | None) -> float | None:
    return None if row is None or other is None else 100 * (row["recall10@10"] - other["recall10@10"])


# -- the benchmark -----------------------------------------------------------------------------------------------------

_SPEED = ("queries/s", "µs", "spread")
_RATIO = ("ratio", "low", "high", "of medians")
_CASE = ("data", "vectors", "queries", "system")

SECTIONS: dict[str, Section[Plan, Run]] = {
    "lsq": Section(
        lsq,
        (*_CASE, "recall10@10", *_SPEED, *_RATIO),
        "Asymmetric distances. ratio: of queries/s to FAISS's, which has learned from the same vectors and spends the "
        "same bytes per row. Answers and recall are those of the measured way, single or batch.",
        bars=lsq_bars,
        plots=speed_plots,
    ),
    "hamming": Section(
        hamming,
        (*_CASE, "recall10@10", "unequal", *_SPEED, *_RATIO),
        "The same codes of itq in both. ratio: to FAISS that is given coded queries, while ours codes them itself; the "
        "third system lets our encoder code them for FAISS. unequal: queries whose distances differ from FAISS's.",
        bars=hamming_bars,
    ),
    "rerank": Section(
        rerank,
        (*_CASE, "rerank", "recall10@10", *_SPEED, *_RATIO),
        "float16 vectors kept. ratio: to the same index without re-ranking.",
        bars=rerank_bars,
    ),
    "threads": Section(
        threads,
        ("data", "vectors", "queries", "threads", "recall10@10", *_SPEED, *_RATIO),
        "ratio: of queries/s to one thread's.",
        bars=threads_bars,
    ),
    "growth": Section(
        growth,
        ("data", "vectors", "queries", *_SPEED, "ns per vector", "ratio", "low", "high", "of medians", "step"),
        "Indexes of the first so many vectors. ratio: how often the time of the smallest index, over how often its "
        "number of vectors; step: the same against the index before. 1 is proportional.",
        bars=growth_bars,
        plots=growth_plots,
    ),
    "memory": Section(
        memory,
        ("data", "vectors", "caches", "system", "read by", "MB", "GB/s", "spread", *_RATIO),
        "One query at a time, all bytes of all codes (the progressive scan off). The plain read adds up the same bytes "
        "in the same mapped pages, 64 bits at a time. ratio: to the plain read. caches: warm, call after call on the "
        "same codes, which may stay in a large cache; flushed, by reading 256 MB of something else before every call.",
        bars=memory_bars,
    ),
    "call": Section(
        call,
        ("data", "vectors", "system", "µs", "spread", "beside the kernel, µs", "low", "high"),
        "One query, whole scan. The kernel alone is given the query's tables and the addresses of the codes. beside "
        "the kernel: the difference of turns of one round, median and quartiles.",
        bars=call_bars,
    ),
}


def _facts(plan: Plan) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    return {
        **machine_facts(),
        "vectors": f"{plan.data}, normalized; mixed: {plan.mixed:,} made from it, random pairs with random weights, "
        f"normalized, seed {SEED}; queries are the data set's own",
        "rounds": f"{plan.rounds} of batches, {plan.single_rounds} of single queries, a turn of each system in each; "
        "medians; spread: the middle half of the rounds over their median; ratio, low, high: median and quartiles of "
        "the rounds' ratios; of medians: ratio of median times",
    }


BENCHMARK = Benchmark(
    title="Scan",
    full=FULL,
    quick=QUICK,
    sections=SECTIONS,
    facts=_facts,
    begin=lambda plan, rows, work: Run(rows, plan=plan, shelf=Shelf(work / plan.name)),
    needs=lambda plan, section: [plan.data],
)
run, add_arguments = BENCHMARK.run, add_work
