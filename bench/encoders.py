"""The encoders against FAISS, against the rate–distortion bound, and against the paper; one thread each.

A section is a function that measures row after row. Rows already in the result file are kept, so
an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lsqindex import _kernels
from lsqindex.encoders import Encoder, make_encoder
from lsqindex.encoders.base import Distance

from . import data, faiss_systems, kernels, verdicts
from .faiss_systems import FaissIndex
from .measure import rank, recall10_at_10, recall_curve
from .rate_distortion import gaussian_bound, relative_error
from .report import Rows, machine_facts, table
from .runner import Plan, Run, chosen_sections, timed

FULL = Plan(
    name="encoders",
    remark="One thread each. FAISS and lsqindex learn from the same vectors and spend the same bytes a row.",
    data=("minilm-wordnet", "fashion-mnist"),
    faiss={
        256: ("OPQ32x8", "OPQ64x4", "PQ32x8", "PQ64x4", "ITQ256"),
        128: ("OPQ16x8", "OPQ32x4", "PQ16x8"),
        512: ("OPQ64x8", "PQ64x8"),
    },
    paper="cifar-10",
    speed="minilm-wordnet",
)
QUICK = Plan(
    name="encoders-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    data=("digits",),
    faiss={64: ("OPQ16x4", "PQ16x4", "ITQ64"), 32: ("OPQ8x4", "PQ8x4")},
    paper="digits",
    speed="digits",
)


@dataclass(frozen=True)
class Other:
    """An encoder beside lsq, measured at the main budget, and what FAISS calls the same method."""

    label: str
    name: str
    parameters: dict[str, Any]
    rival: str
    distance: Distance = "asymmetric"


def others(bits: int) -> list[Other]:
    return [
        Other("pq", "pq", {"bits": bits}, f"PQ{bits // 8}x8"),
        Other("pq x4", "pq", {"bits": bits, "field_bits": 4}, f"PQ{bits // 4}x4"),
        Other("ckmeans", "ckmeans", {"bits": bits}, f"OPQ{bits // 8}x8"),
        Other("ckmeans x4", "ckmeans", {"bits": bits, "field_bits": 4}, f"OPQ{bits // 4}x4"),
        Other("itq", "itq", {"bits": bits}, ""),
        Other("itq, Hamming", "itq", {"bits": bits}, f"ITQ{bits}", "symmetric"),
        Other("okmeans", "okmeans", {"bits": bits}, ""),
        Other("lsh", "lsh", {"bits": bits}, ""),
    ]


PAPER_FIELD_BITS = (4, 5, 8)
SPEED_REPEATS = 3

# -- recall: asymmetric, at equal bytes a row -----------------------------------------------------


def recall(run: Run) -> None:
    for name in run.plan.data:
        for bits, systems in run.plan.faiss.items():
            for other in (Other("lsq", "lsq", {"bits": bits}, ""), *(others(bits) if bits == run.plan.bits else ())):
                encoder = make_encoder(other.name, **other.parameters)
                arguments = encoder, name, bits, other.distance
                run.row("recall", name, other.label, {**encoder.config, "bits": bits}, _recall_of_encoder, *arguments)
            for system in systems if faiss_systems.AVAILABLE else ():
                run.row("recall", name, f"faiss {system}", {"bits": bits}, _recall_of_faiss, run, system, name, bits)
            print(verdicts.bar_table([verdicts.recall_verdict(run.rows, name, bits, run.plan.bits)]))


def _parity(plan: Plan, rows: Rows) -> list[verdicts.Verdict]:
    """Our versions of known methods against FAISS's, where both are measured."""
    pairs = [(name, other) for name in plan.data for other in others(plan.bits) if other.rival]
    found = (verdicts.parity_verdict(rows, name, other.label, other.rival, plan.bits) for name, other in pairs)
    return [verdict for verdict in found if verdict is not None]


def _recall_of_encoder(encoder: Encoder, name: str, bits: int, distance: Distance) -> dict[str, Any]:
    dataset = data.load(name)
    _, train = timed(encoder.fit, dataset.learn)
    codes, encode = timed(encoder.encode, dataset.base)
    ranking = rank(encoder, codes, dataset, 10, distance)
    return _recall_values(encoder.code_size, bits, recall10_at_10(ranking, dataset.truth), train, len(codes) / encode)


def _recall_of_faiss(run: Run, system: str, name: str, bits: int) -> dict[str, Any]:
    dataset = data.load(name)
    index = FaissIndex(system, dataset.base.shape[1])
    _, train = timed(index.train, dataset.learn)
    _, add = timed(index.add, dataset.base)
    run.indexes[name, system] = index
    ranking = index.search(dataset.queries, 10)
    return _recall_values(index.code_size, bits, recall10_at_10(ranking, dataset.truth), train, len(dataset.base) / add)


def _recall_values(code_size: int, bits: int, recall10: float, train: float, rate: float) -> dict[str, Any]:
    if code_size * 8 != bits:
        raise ValueError(f"{code_size} bytes a row instead of {bits // 8}: no fair comparison")
    return {"bytes/row": code_size, "recall10@10": recall10, "train s": train, "encode/s": rate}


# -- distortion: the reconstruction error against the Gaussian bound ------------------------------


def distortion(run: Run) -> None:
    bits, opq = run.plan.bits, run.plan.opq
    for name in run.plan.data:
        run.row("distortion", name, "bound", {"bits": bits}, _bound, name, bits)
        lsq = [make_encoder("lsq", bits=bits, scalar=None, **refine) for refine in ({}, {"refine": 512})]
        for encoder in (*lsq, *(make_encoder(other, bits=bits) for other in ("ckmeans", "pq", "itq"))):
            run.row("distortion", name, encoder.name, encoder.config, _distortion_of_encoder, run, encoder, name)
        key = ("distortion", name, f"faiss {opq}", {"bits": bits, "trained on": "learn"})
        if (name, opq) in run.indexes or run.rows.find(*key):
            run.row(*key, _distortion_of_faiss, run, opq, name)
        else:
            print(f"distortion  {name}  faiss {opq}: left out, section recall has not trained it in this run")
        print(verdicts.bar_table(verdicts.distortion_verdicts(run.rows, name)))


def _bound(name: str, bits: int) -> dict[str, Any]:
    return {"relative error": gaussian_bound(data.load(name).base, bits), "ratio": 1.0}


def _distortion_of_encoder(run: Run, encoder: Encoder, name: str) -> dict[str, Any]:
    base = data.load(name).base
    decoded = encoder.fit(base).decode(encoder.encode(base))
    return _distortion_values(run, name, relative_error(base, decoded))


def _distortion_of_faiss(run: Run, system: str, name: str) -> dict[str, Any]:
    base = data.load(name).base
    return _distortion_values(run, name, relative_error(base, run.indexes[name, system].reconstruct(base)))


def _distortion_values(run: Run, name: str, error: float) -> dict[str, Any]:
    (bound,) = run.rows.of("distortion", data=name, system="bound")
    return {"relative error": error, "ratio": error / bound["relative error"]}


# -- paper: its protocol, symmetric distance ------------------------------------------------------


def paper(run: Run) -> None:
    bits, name = run.plan.bits, run.plan.paper
    published = {"bits": bits, "refine": 0, "scalar": None}
    encoders = {
        "LSQ(B)": make_encoder("lsq", levels=2, **published),
        "ITQ": make_encoder("itq", bits=bits),
        "OK-means": make_encoder("okmeans", bits=bits),
    }
    for b in PAPER_FIELD_BITS:
        encoders[f"LSQ(N) b={b}"] = make_encoder("lsq", levels=2**b, **published)
        encoders[f"LSQ(N)+search b={b}"] = make_encoder("lsq", levels=2**b, bits=bits, scalar=None)
        encoders[f"ckmeans b={b}"] = make_encoder("ckmeans", bits=bits, field_bits=b)
    for label, encoder in encoders.items():
        run.row("paper", name, label, encoder.config, _symmetric_recall, encoder, name)
    print("\n".join(verdicts.paper_sentences(run.rows)))


def _symmetric_recall(encoder: Encoder, name: str) -> dict[str, Any]:
    dataset = data.load(name)
    codes = encoder.fit(dataset.learn).encode(dataset.base)
    ranking = rank(encoder, codes, dataset, 100, "symmetric")
    curve = recall_curve(ranking, dataset.truth)
    points = {f"recall@{r}": float(curve[r - 1]) for r in (1, 10, 100)}
    return {"recall10@10": recall10_at_10(ranking, dataset.truth), **points, "area": float(curve.mean())}


# -- speed: training and encoding against FAISS OPQ -----------------------------------------------


def speed(run: Run) -> None:
    bits, name, opq = run.plan.bits, run.plan.speed, run.plan.opq
    pair = f"lsq / faiss {opq}" if faiss_systems.AVAILABLE else "lsq"
    run.row("speed", name, pair, {"bits": bits, "what": "train"}, _training_speed, run)
    run.row("speed", name, pair, {"bits": bits, "what": "encode"}, _encoding_speed, run)
    print(verdicts.bar_table(verdicts.speed_verdicts(run.rows)))


def _training_speed(run: Run) -> dict[str, Any]:
    bits, opq, dataset = run.plan.bits, run.plan.opq, data.load(run.plan.speed)
    _, ours = timed(make_encoder("lsq", bits=bits).fit, dataset.learn)
    if not faiss_systems.AVAILABLE:
        return {"lsq": ours, "faiss": None, "ratio": None}
    earlier = run.rows.find("recall", dataset.name, f"faiss {opq}", {"bits": bits})
    if earlier is not None:
        theirs, note = float(earlier["train s"]), "seconds; FAISS: as measured in section recall"
    else:
        _, theirs = timed(FaissIndex(opq, dataset.learn.shape[1]).train, dataset.learn)
        note = "seconds"
    return {"lsq": ours, "faiss": theirs, "ratio": ours / theirs, "note": note}


def _encoding_speed(run: Run) -> dict[str, Any]:
    bits, opq, dataset = run.plan.bits, run.plan.opq, data.load(run.plan.speed)
    encoder = make_encoder("lsq", bits=bits).fit(dataset.learn)
    index = _index_to_time(run, opq, dataset) if faiss_systems.AVAILABLE else None
    ours, theirs = [], []
    for _ in range(SPEED_REPEATS):
        ours.append(len(dataset.base) / timed(encoder.encode, dataset.base)[1])
        if index is not None:
            index.clear()
            theirs.append(len(dataset.base) / timed(index.add, dataset.base)[1])
    rate = statistics.median(ours)
    if not theirs:
        return {"lsq": rate, "faiss": None, "ratio": None}
    other = statistics.median(theirs)
    note = f"vectors a second; median of {SPEED_REPEATS}, interleaved"
    if (dataset.name, opq) not in run.indexes:
        note += "; FAISS index of the same shape, trained for one iteration"
    return {"lsq": rate, "faiss": other, "ratio": rate / other, "note": note}


def _index_to_time(run: Run, opq: str, dataset: data.Dataset) -> FaissIndex:
    """A trained index if there is one; else one of the same shape, since speed is all that is asked."""
    index = run.indexes.get((dataset.name, opq))
    if index is None:
        index = FaissIndex(opq, dataset.learn.shape[1])
        index.train_briefly(dataset.learn[:10_000])
    return index


# -- kernels --------------------------------------------------------------------------------------


def compiled(run: Run) -> None:
    for level in _kernels.simd_levels():
        for kernel in kernels.KERNELS:
            run.row("kernels", "random", kernel.name, {"simd": level}, kernels.measure, kernel, level)
    print(verdicts.bar_table([verdicts.kernel_verdict(run.rows)]))


# -- all together ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """What runs, the columns of its table, the data sets it needs, and a word to the reader."""

    run: Callable[[Run], None]
    columns: tuple[str, ...]
    data: Callable[[Plan], tuple[str, ...]]
    note: str


SECTIONS = {
    "recall": Section(
        recall,
        ("data", "system", "bits", "bytes/row", "recall10@10", "train s", "encode/s"),
        lambda plan: plan.data,
        "recall10@10: the share of the true 10 nearest among the 10 returned, by asymmetric distance (ITQ of FAISS: "
        "Hamming). FAISS trains without its polysemous permutation, and its OPQ for the field bits of the index.",
    ),
    "distortion": Section(
        distortion,
        ("data", "system", "bits", "refine", "trained on", "relative error", "ratio"),
        lambda plan: plan.data,
        "Squared reconstruction error of the base, relative to that of its mean. The bound is that of Gaussian vectors "
        "of the same covariance; vectors with more structure than that can be coded below it.",
    ),
    "paper": Section(
        paper,
        ("data", "system", "recall10@10", "recall@1", "recall@10", "recall@100", "area"),
        lambda plan: (plan.paper,),
        "Symmetric distance. recall@R: the share of queries whose true nearest is among the first R; area: its mean "
        "over R = 1..100. LSQ(N) and LSQ(B) as published (refine=0), +search with the default refine.",
    ),
    "speed": Section(
        speed,
        ("data", "system", "what", "lsq", "faiss", "ratio", "note"),
        lambda plan: (plan.speed,),
        "ratio: lsq / FAISS; of seconds for training, of vectors a second for encoding.",
    ),
    "kernels": Section(
        compiled,
        ("system", "simd", "cases", "unequal", "ns", "per"),
        lambda plan: (),
        "unequal: cases whose bits differ from those of lsqindex.reference.",
    ),
}


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all sections or some, then the tables and the bars."""
    plan = QUICK if arguments.quick else FULL
    chosen = chosen_sections(arguments.section, SECTIONS)
    data.require(name for section in chosen for name in SECTIONS[section].data(plan))
    rows = Rows(arguments.out / f"{plan.name}.json", forget=chosen if arguments.fresh else ())
    if not faiss_systems.AVAILABLE:
        print("FAISS is not installed (pip install faiss-cpu): its rows are left out.")
    current = Run(rows, {name: section.columns for name, section in SECTIONS.items()}, plan=plan)
    for name in chosen:
        SECTIONS[name].run(current)
        current.finish(name)
    text = _markdown(plan, rows)
    (arguments.out / f"{plan.name}.md").write_text(text, encoding="utf-8")
    print("\n" + text)


def _markdown(plan: Plan, rows: Rows) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in machine_facts().items())
    parts = [f"# Encoders\n\n{plan.remark}\n\n{facts}"]
    for name, section in SECTIONS.items():
        found = rows.of(name)
        if found:
            parts.append(f"## {name}\n\n{section.note}\n\n{table(section.columns, found)}")
        if name == "paper" and found:
            parts.append("\n".join(f"- {sentence}" for sentence in verdicts.paper_sentences(rows)))
    bars = [*verdicts.all_bars(plan, rows), *_parity(plan, rows)]
    parts.append("## Bars\n\n" + verdicts.bar_table(bars))
    return "\n\n".join(parts) + "\n"
