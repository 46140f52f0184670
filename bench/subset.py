"""The multi-index: what the paper says of it, queries per second beside the scan and FAISS, growth, size.

Systems that are compared take turns in one process (``framework/turns.py``).
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lsqindex import Index, MultiIndex
from lsqindex.encoders import Encoder, make_encoder

from .framework import runner, turns
from .framework.bars import Verdict, at_least, at_most, below, told, value
from .framework.benchmark import Benchmark, Section, add_work
from .framework.page import Curve, Plot
from .framework.report import Rows, machine_facts
from .framework.runner import Question, ask
from .material import data, faiss_systems, inside, scores, systems
from .material.compiled import compiled
from .material.data import SEED
from .material.measure import recall10_at_10, recall_curve
from .material.shelf import Collection, Kind, Shelf
from .material.systems import MODES, K, Mode, System
from .material.tuned import Truth, Tuned, by_turns, fastest, searches, true_recall

#: Names of systems, as the tables have them.
SUBSET, SCAN, LSQ_SCAN = "multi-index", "scan, same codes", "scan, lsq codes"
SUBSET_HAMMING = "multi-index, Hamming"
KERNEL, BARE_LOOP = "accumulation", "bare loop"


#: The recall10@10 at which systems are compared.
RECALL = 0.95


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: The data set; how many vectors are made from it; and the fewer that growth begins with.
    data: str
    mixed: int
    few: int
    #: The data set of the paper's comparison, its bits a table, and the longest answer.
    paper: str
    paper_bits: tuple[int, ...]
    paper_answers: int
    bits: int
    #: Principal axes that planes of lsh are drawn among.
    axes: int
    #: Bits of the tables of FAISS's hashes, and how many bits of a bucket it flips.
    hash_bits: int
    flips: tuple[int, ...]
    #: Codes of random shapes whose scores are compared with the paper's text.
    shapes: int
    rounds: int
    single_rounds: int
    singles: int
    #: Probes and candidates that are tried, and rows that the scan ranks again.
    probes: tuple[int, ...]
    candidates: tuple[int, ...]
    reranks: tuple[int, ...]
    #: Bits of the tables whose size is told.
    size_bits: int = 8

    @cached_property
    def real(self) -> Collection:
        """The data set as it is."""
        return Collection(self.data, unit=False)

    @cached_property
    def large(self) -> Collection:
        """Vectors made from it."""
        return Collection(self.data, self.mixed, unit=False)

    @cached_property
    def small(self) -> Collection:
        """The first of these."""
        return Collection(self.data, self.few, unit=False)

    @cached_property
    def hashes(self) -> Kind:
        """Codes that suit tables."""
        return Kind("lsh", self.bits, (("axes", self.axes),), keep_vectors="float16", subset=MultiIndex())

    @property
    def sized(self) -> Kind:
        """The same codes, in tables whose size is told."""
        return replace(self.hashes, subset=MultiIndex(self.size_bits))

    @cached_property
    def searched(self) -> Kind:
        """The codes that a scan ranks best by."""
        return Kind("lsq", self.bits, keep_vectors="float16")


FULL = Plan(
    name="subset",
    remark="Codes of 256 bits, k = 10, one thread each. lsqindex searches files, through `Index.search`.",
    data="fashion-mnist",
    mixed=1_000_000,
    few=100_000,
    paper="cifar-10",
    paper_bits=(4, 5, 8),
    paper_answers=1_000,
    bits=256,
    axes=64,
    hash_bits=16,
    flips=(0, 1, 2),
    shapes=200,
    rounds=7,
    single_rounds=25,
    singles=40,
    probes=(64, 128, 192, 256, 384, 512),
    candidates=(150, 250, 400, 600, 800, 1000, 1300, 1700),
    reranks=(50, 70, 100, 140, 200, 280, 400, 560),
)
QUICK = Plan(
    name="subset-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    data="digits",
    mixed=20_000,
    few=4_000,
    paper="digits",
    paper_bits=(4, 8),
    paper_answers=100,
    bits=64,
    axes=32,
    hash_bits=8,
    flips=(0, 1),
    shapes=20,
    rounds=3,
    single_rounds=3,
    singles=20,
    probes=(32, 128),
    candidates=(100, 400),
    reranks=(20, 100),
)


Run = runner.Run[Plan, Shelf]

# -- text: scores and order against a plain reading of section 3.2 -----------------------------------------------------


def text(run: Run) -> Iterator[Question]:
    for name, parameters in scores.ENCODERS:
        yield ask("random", name, parameters, scores.compared, name, parameters, run.plan.shapes)


# -- paper: binary against n-ary codes, in the paper's protocol --------------------------------------------------------

RANKS = (1, 10, 100, 1000)


def paper(run: Run) -> Iterator[Question]:
    plan = run.plan
    for system, encoder, bits in _systems(plan.bits, plan.paper_bits):
        parameters = {**encoder.config, "table bits": bits}
        yield ask(plan.paper, system, parameters, _by_score, encoder, bits, plan.paper, plan.paper_answers)


def paper_plots(rows: Rows) -> Iterator[Plot]:
    """recall@R, a colour for each system."""
    curves = []
    for row in sorted(rows.of("paper"), key=lambda row: row.system):
        points = [(rank, row[f"recall@{rank}"]) for rank in RANKS if row[f"recall@{rank}"] is not None]
        curves.append(Curve.through(f"{row.system}, b = {row['table bits']}", points, row.system))
    yield Plot("paper", "By score alone: is the nearest among the first R?", "R", "recall@R", curves, log_x=True)


def _systems(bits: int, table_bits: tuple[int, ...]) -> Iterator[tuple[str, Encoder, int]]:
    published: dict[str, Any] = {"bits": bits, "refine": 0, "scalar": None}
    binary = make_encoder("lsq", levels=2, **published)
    for b in table_bits:
        yield "LSQ(B)", binary, b
        yield "CK-means", make_encoder("ckmeans", bits=bits, field_bits=b), b
        yield "LSQ(N)", make_encoder("lsq", levels=2**b, **published), b


def _by_score(encoder: Encoder, bits: int, name: str, answers: int) -> dict[str, Any]:
    dataset = data.load(name)
    if not encoder.is_fitted:
        encoder.fit(dataset.learn)
    subset = MultiIndex(bits if encoder.layout.binary else None)
    with Index(dataset.base.shape[1], encoder=encoder, subset=subset, keep_vectors=None) as index:
        index.add(dataset.base)
        index.merge()
        found = index.search(dataset.queries, answers, strategy="subset", distance="score", threads=1)
        told = index.explain(dataset.queries, answers, strategy="subset", distance="score", threads=1)
    curve = recall_curve(found.ids, dataset.truth)
    points = {f"recall@{rank}": float(curve[rank - 1]) for rank in RANKS if rank <= answers}
    share = told.rows / len(dataset.queries) / len(dataset.base)
    return {
        "recall10@10": recall10_at_10(found.ids, dataset.truth),
        **points,
        "area": float(curve.mean()),
        "read": share,
    }


# -- speed: the multi-index against the scan ---------------------------------------------------------------------------


def compared_speed(run: Run) -> Iterator[Question]:
    for collection in (run.plan.real, run.plan.large):
        for mode in MODES:
            for name in (SUBSET, SCAN, LSQ_SCAN):
                parameters = {"vectors": collection.size, "queries": mode}
                yield ask(collection.name, name, parameters, run.together, name, _speed, collection, mode)


def _speed(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    plan, shelf, truth = run.plan, run.shelf, run.shelf.truth(collection)
    with ExitStack() as stack:
        index = stack.enter_context(shelf.index(collection, plan.hashes))
        other = stack.enter_context(shelf.index(collection, plan.searched))
        tuned = [
            _by_lists(plan, SUBSET, index, collection, truth, mode),
            _by_scan(plan, SCAN, index, collection, truth, mode),
            _by_scan(plan, LSQ_SCAN, other, collection, truth, mode),
        ]
        return by_turns(plan, tuned, mode, collection.queries, SCAN)


# -- growth: time per query against the number of vectors --------------------------------------------------------------


def growth(run: Run) -> Iterator[Question]:
    for mode in MODES:
        for collection in (run.plan.small, run.plan.large):
            parameters = {"vectors": collection.size, "queries": mode}
            yield ask(collection.name, SUBSET, parameters, run.together, collection.size, _growth, mode)


def _growth(run: Run, mode: Mode) -> dict[int, dict[str, Any]]:
    plan = run.plan
    with ExitStack() as stack:
        tuned = {}
        for collection in (plan.small, plan.large):
            index = stack.enter_context(run.shelf.index(collection, plan.hashes))
            truth = run.shelf.truth(collection)
            tuned[collection.size] = _by_lists(plan, SUBSET, index, collection, truth, mode)
        queries = plan.large.queries
        times = turns.by_turns(
            {size: systems.turn(plan, own.system, mode, queries) for size, own in tuned.items()},
            systems.rounds(plan, mode),
        )
    found: dict[int, dict[str, Any]] = {}
    for size, own in tuned.items():
        found[size] = {
            "recall10@10": own.recall,
            **own.options,
            **systems.speed(times[size], systems.queries_of_turn(plan, mode, queries)),
        }
        if size != plan.few:
            found[size].update(turns.ratios(times[size], times[plan.few]))
    return found


# -- hashes: FAISS's hash tables on the same codes ---------------------------------------------------------------------

#: Who tells the nearest codes.
_EXACT = "BinaryFlat"


def hashes(run: Run) -> Iterator[Question]:
    if not faiss_systems.AVAILABLE:
        return
    collection = run.plan.large
    for rival in faiss_systems.HASHES:
        for flips in run.plan.flips:
            for name in (SUBSET_HAMMING, rival):
                parameters = {"vectors": collection.size, "rival": rival, "flips": flips}
                yield ask(collection.name, name, parameters, run.together, name, _hashes, rival, flips)


def hashes_plots(rows: Rows) -> Iterator[Plot]:
    """Recall of the nearest codes against queries per second, ours beside each rival."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows.of("hashes"):
        points.setdefault((row.system, row["rival"]), []).append((row["queries/s"], row["recall10@10"]))
    curves = [
        Curve.through(system if system == rival else f"{system}, beside {rival}", own, system)
        for (system, rival), own in points.items()
    ]
    yield Plot("hashes", "Hash tables on the same codes", "queries per second", "recall10@10", curves, log_x=True)


def _hashes(run: Run, rival: str, flips: int) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    encoder = run.shelf.encoder(collection, plan.hashes)
    queries = collection.queries[:200]
    theirs, exact = (run.together("index", _faiss_hash, name)["index"] for name in (rival, _EXACT))
    codes = encoder.encode(queries)
    last = exact.search(codes, K)[1][:, -1:]

    def recall_of(found: Any) -> float:
        """The share of rows that are among the 10 nearest codes: of equal distances any may be returned."""
        return float((found[1] <= last).mean())

    search = System(rival, lambda rows: theirs.search(rows, K, flips), codes)
    recall = recall_of(systems.answers(search, "batch", queries))
    with run.shelf.index(collection, plan.hashes) as index:
        ladders = (
            [
                {"strategy": "subset", "distance": "symmetric", "probes": probes, "candidates": c}
                for c in (10, 30, 80, *plan.candidates)
            ]
            for probes in (1, 2, 4, 8, 16, 32, *plan.probes)
        )
        ours = fastest(SUBSET_HAMMING, searches(index), ladders, queries, recall_of, recall, "batch")
        return by_turns(plan, [ours, Tuned(search, {}, recall)], "batch", queries, rival)


def _faiss_hash(run: Run, rival: str) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    print(f"filling FAISS {rival} with {collection.size:,} codes …", flush=True)
    codes = run.shelf.codes(collection, plan.hashes)
    if rival == _EXACT:
        return {"index": {"index": faiss_systems.FaissHamming(codes)}}
    return {"index": {"index": faiss_systems.FaissHash(rival, codes, plan.hash_bits)}}


# -- what to ask for ---------------------------------------------------------------------------------------------------


def _by_lists(plan: Plan, name: str, index: Index, collection: Collection, truth: Truth, mode: Mode) -> Tuned:
    """The multi-index, its best candidates ranked by their vectors."""
    ladders = (
        [{"strategy": "subset", "probes": probes, "candidates": c, "rerank": c} for c in plan.candidates]
        for probes in plan.probes
    )
    return fastest(name, searches(index), ladders, collection.queries, true_recall(truth), RECALL, mode)


def _by_scan(plan: Plan, name: str, index: Index, collection: Collection, truth: Truth, mode: Mode) -> Tuned:
    """The scan, its best rows ranked again by their vectors."""
    ladder = [{"strategy": "scan", "rerank": rows} for rows in (12, 16, 20, 25, 35, *plan.reranks)]
    return fastest(name, searches(index), [ladder], collection.queries, true_recall(truth), RECALL, mode)


# -- accumulate: postings per second beside a bare loop ----------------------------------------------------------------

_SOURCE = Path(__file__).with_name("material") / "bare_loop.c"
_TIMES = 10
_QUERIES = 5


def accumulate(run: Run) -> Iterator[Question]:
    bits = run.plan.size_bits
    for name in (KERNEL, BARE_LOOP):
        parameters = {"vectors": run.plan.mixed, "table bits": bits, "probes": max(run.plan.probes)}
        yield ask(run.plan.large.name, name, parameters, run.together, name, _accumulate)


def _accumulate(run: Run) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    library = compiled(_SOURCE, run.shelf.made_here)
    if library is None:
        return {name: {"postings/s": None} for name in (KERNEL, BARE_LOOP)}
    library.bare_loop.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    counted = np.zeros(1 << 16, np.uint8)
    probes = max(plan.probes)
    with run.shelf.index(collection, plan.sized) as index, inside.posting_lists(index) as lists:
        values = index.encoder.probe_tables(collection.queries[:_QUERIES], index.metric).values
        rows = [lists.rows(own, probes) for own in values]
        counts = [sum(len(block) for block in own) for own in rows]

        def ours(number: int) -> None:
            at = number % _QUERIES
            assert lists.kernel.accumulate(values[at], probes, _TIMES) == _TIMES * counts[at]

        def bare(number: int) -> None:
            for _ in range(_TIMES):
                for block in rows[number % _QUERIES]:
                    library.bare_loop(block.ctypes.data, len(block), counted.ctypes.data)

        times = turns.by_turns({KERNEL: ours, BARE_LOOP: bare}, 4 * plan.rounds)
    rates = {
        name: statistics.median(_TIMES * counts[i % _QUERIES] / seconds for i, seconds in enumerate(found))
        for name, found in times.items()
    }
    return {
        KERNEL: {
            "postings": int(np.mean(counts)),
            "postings/s": rates[KERNEL],
            **turns.ratios(times[BARE_LOOP], times[KERNEL]),
        },
        BARE_LOOP: {"postings": int(np.mean(counts)), "postings/s": rates[BARE_LOOP]},
    }


# -- size: what posting lists take -------------------------------------------------------------------------------------


def size(run: Run) -> Iterator[Question]:
    parameters = {"vectors": run.plan.mixed, "table bits": run.plan.size_bits}
    yield ask(run.plan.large.name, "posting lists", parameters, _size, run)


def _size(run: Run) -> dict[str, Any]:
    with run.shelf.index(run.plan.large, run.plan.sized) as index:
        stats = index.stats()
        each = stats["posting_bytes"] / (len(index) * stats["tables"])
    return {"tables": stats["tables"], "MB": stats["posting_bytes"] / 1e6, "bytes per row and table": each}


# -- bars --------------------------------------------------------------------------------------------------------------


def text_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Scores and order as the paper's text has them."""
    found = rows.of("text")
    wrong = sum(row["unequal"] for row in found) if found else None
    yield at_most("scores or order unlike the paper's text, queries", 0, wrong)


def paper_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """The paper's finding: binary codes are ahead of n-ary ones. No bar: what is true is told."""
    for bits in plan.paper_bits:
        ours = rows.one("paper", system="LSQ(B)", **{"table bits": bits})
        for other in ("CK-means", "LSQ(N)"):
            theirs = rows.one("paper", system=other, **{"table bits": bits})
            points = None if ours is None or theirs is None else 100 * (ours["area"] - theirs["area"])
            yield told(f"LSQ(B) minus {other}, b = {bits}, area under recall@R, points", points)


def speed_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Recall, and queries per second against the scan of the same codes; against that of lsq codes there is no bar."""
    for collection, least in ((plan.real, 1.0), (plan.large, 3.0)):
        for mode in MODES:
            of = {"data": collection.name, "queries": mode}
            ours, lsq = (rows.one("speed", system=name, **of) for name in (SUBSET, LSQ_SCAN))
            where = f"{collection.size:,} vectors, {mode}"
            yield at_least(f"multi-index, recall10@10, {where}", RECALL, value(ours, "recall10@10"))
            yield at_least(f"multi-index / scan of the same codes, queries/s, {where}", least, value(ours, "ratio"))
            other = None if ours is None or lsq is None else ours["queries/s"] / lsq["queries/s"]
            yield told(f"multi-index / scan of lsq codes, queries/s, {where}", other)


def growth_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Time per query, the larger index against the smaller."""
    for mode in MODES:
        row = rows.one("growth", queries=mode, vectors=plan.mixed)
        what = f"time a query, {plan.few:,} to {plan.mixed:,} vectors, {mode}"
        measured = value(row, "ratio")
        yield below(what, 5, measured)


def hashes_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Queries per second against FAISS's hash tables, at no less recall."""
    for row in rows.of("hashes", system=SUBSET_HAMMING):
        theirs = rows.one("hashes", system=row["rival"], rival=row["rival"], flips=row["flips"])
        fair = theirs is not None and row["recall10@10"] >= theirs["recall10@10"]
        what = f"multi-index / FAISS {row['rival']}, {row['flips']} flips, queries/s"
        verdict = at_least(what if fair else f"{what} (at less recall)", 2.0, row["ratio"])
        yield verdict if fair else replace(verdict, met=False)


def accumulate_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Postings per second against the bare loop."""
    row = rows.one("accumulate", system=KERNEL)
    yield at_least("accumulation / bare loop, postings/s", 0.7, value(row, "ratio"))


def size_bars(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Bytes of posting lists, bucket starts included."""
    row = rows.one("size")
    yield at_most("posting lists, bytes per row and table", 2.2, value(row, "bytes per row and table"))


# -- the benchmark -----------------------------------------------------------------------------------------------------

_SPEED = ("recall10@10", "probes", "candidates", "rerank", "queries/s", "µs", "spread", "ratio", "low", "high")

SECTIONS: dict[str, Section[Plan, Run]] = {
    "text": Section(
        text,
        ("system", "bits", "m", "levels", "field_bits", "queries compared", "unequal"),
        "Random codes: half the indexes have fresh rows only, the other half none. unequal: queries whose scores or "
        "order are not those of a plain reading of section 3.2.",
        bars=text_bars,
    ),
    "paper": Section(
        paper,
        ("data", "system", "table bits", "recall10@10", *(f"recall@{r}" for r in RANKS), "area", "read"),
        "Ranked by score alone, as in the paper; codes of all systems have the same bits (for b = 5 one bit less). "
        "recall@R: queries whose nearest is among the first R. area: under recall@1…1000. read: the share of rows that "
        "any bucket returned.",
        bars=paper_bars,
        plots=paper_plots,
    ),
    "speed": Section(
        compared_speed,
        ("data", "vectors", "queries", "system", *_SPEED),
        f"float16 vectors kept, the best ranked by them. Of all settings tried that reach a recall10@10 of {RECALL}, "
        "each system has the one that answers fastest. ratio: of queries/s to the scan of the same codes.",
        bars=speed_bars,
    ),
    "growth": Section(
        growth,
        ("data", "vectors", "queries", *_SPEED),
        "Settings as in speed, chosen for each number of vectors. ratio: of the time a query to the smaller index's.",
        bars=growth_bars,
    ),
    "hashes": Section(
        hashes,
        ("data", "vectors", "rival", "flips", "system", *_SPEED),
        "The same codes, ranked by Hamming distance alone; 200 queries in one batch. FAISS is given coded queries, "
        "ours codes them itself. recall10@10 here: of the 10 nearest codes, equal distances counted alike. ratio: of "
        "queries/s to the rival's; ours has the fastest setting of no less recall.",
        bars=hashes_bars,
        plots=hashes_plots,
    ),
    "accumulate": Section(
        accumulate,
        ("data", "vectors", "table bits", "probes", "system", "postings", "postings/s", "ratio", "low", "high"),
        "The kernel finds the lists of its probes in all blocks, sets scores to 0 and adds them up; the bare loop adds "
        "1 to the same rows in the same order, which lie one after another for it.",
        bars=accumulate_bars,
    ),
    "size": Section(
        size,
        ("data", "vectors", "table bits", "tables", "MB", "bytes per row and table"),
        "All pages of the database of posting lists, bucket starts, headers and page ends included.",
        bars=size_bars,
    ),
}


def _facts(plan: Plan) -> dict[str, str]:
    """What the numbers depend on besides the code."""
    return {
        **machine_facts(),
        "vectors": f"{plan.data}; mixed: made from it, random pairs of one class with random weights, seed {SEED}; "
        "queries are the data set's own",
        "codes": f"{plan.hashes}: {plan.bits} random planes among the first {plan.axes} principal axes; "
        f"{plan.searched}: its defaults",
        "rounds": f"{plan.rounds} of batches, {plan.single_rounds} of single queries, a turn of each system in each; "
        "medians; spread: the middle half of the rounds over their median; ratio, low, high: median and quartiles of "
        "the rounds' ratios",
    }


BENCHMARK = Benchmark(
    title="Subset indexing",
    full=FULL,
    quick=QUICK,
    sections=SECTIONS,
    facts=_facts,
    begin=lambda plan, rows, work: Run(rows, plan=plan, shelf=Shelf(work / plan.name)),
    needs=lambda plan, section: [plan.data, plan.paper],
)
run, add_arguments = BENCHMARK.run, add_work
