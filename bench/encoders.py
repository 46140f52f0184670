"""The encoders against FAISS and against the rate–distortion bound; one thread each.

Sections: recall, lengths, distortion, speed, kernels. What the rows say: ``_py``.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lsqindex._compiled import encoding as _kernels
from lsqindex.encoders import Encoder, make_encoder
from lsqindex.encoders.base import Distance

from .framework.bars import Verdict
from .framework.benchmark import Benchmark, Section
from .framework.page import Curve, Plot
from .framework.report import Rows, machine_facts
from .framework.runner import Question, Sheet, ask, timed
from .material import data, faiss_systems, kernels
from .material.faiss_systems import FaissIndex
from .material.measure import rank, recall10_at_10
from .material.rate_distortion import gaussian_bound, relative_error


@dataclass(frozen=True)
class Plan:
    """What is measured on which data."""

    #: The name of the result files.
    name: str
    #: What a reader of the results should know first.
    remark: str
    #: Data sets of the sections recall and distortion.
    data: tuple[str, ...]
    #: Rivals of FAISS for each budget of bits; the first budget is the main one.
    faiss: Mapping[int, tuple[str, ...]]
    #: The data set of the section speed.
    speed: str
    #: Data sets and budgets of the section lengths.
    lengths: tuple[str, ...]
    lengths_bits: tuple[int, ...]

    @property
    def bits(self) -> int:
        """The main budget of bits."""
        return next(iter(self.faiss))

    @property
    def opq(self) -> str:
        """The OPQ that speed is compared with: the first rival at the main budget."""
        return self.faiss[self.bits][0]


@dataclass
class Run(Sheet):
    """One run of the benchmark."""

    plan: Plan = field(kw_only=True)
    #: FAISS indexes trained so far, by data and system.
    indexes: dict[tuple[str, str], FaissIndex] = field(default_factory=dict)


FULL = Plan(
    name="encoders",
    remark="One thread each. FAISS and lsqindex learn from the same vectors and spend the same bytes per row.",
    data=("minilm-wordnet", "fashion-mnist"),
    faiss={
        256: ("OPQ32x8", "OPQ64x4", "PQ32x8", "PQ64x4", "ITQ256"),
        128: ("OPQ16x8", "OPQ32x4", "PQ16x8"),
        512: ("OPQ64x8", "PQ64x8"),
    },
    speed="minilm-wordnet",
    lengths=("minilm-wordnet", "digits"),
    lengths_bits=(64, 128, 256),
)
QUICK = Plan(
    name="encoders-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    data=("digits",),
    faiss={64: ("OPQ16x4", "PQ16x4", "ITQ64"), 32: ("OPQ8x4", "PQ8x4")},
    speed="digits",
    lengths=("digits",),
    lengths_bits=(64,),
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


SPEED_REPEATS = 3

# -- recall: asymmetric, at equal bytes per row ------------------------------------------------------------------------


def recall(run: Run) -> Iterator[Question]:
    for name in run.plan.data:
        for bits, systems in run.plan.faiss.items():
            for other in (Other("lsq", "lsq", {"bits": bits}, ""), *(others(bits) if bits == run.plan.bits else ())):
                encoder = make_encoder(other.name, **other.parameters)
                parameters = {**encoder.config, "bits": bits}
                yield ask(name, other.label, parameters, _recall_of_encoder, encoder, name, bits, other.distance)
            for system in systems if faiss_systems.AVAILABLE else ():
                yield ask(name, f"faiss {system}", {"bits": bits}, _recall_of_faiss, run, system, name, bits)


def _recall_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Against the best of FAISS; then our versions of known methods against FAISS's, where both are measured."""
    for name in plan.data:
        yield from (_recall_verdict(rows, name, bits, plan.bits) for bits in plan.faiss)
    pairs = [(name, other) for name in plan.data for other in others(plan.bits) if other.rival]
    found = (_parity_verdict(rows, name, other.label, other.rival, plan.bits) for name, other in pairs)
    yield from (verdict for verdict in found if verdict is not None)


def _recall_plots(rows: Rows) -> Iterator[Plot]:
    """recall10@10 against bits, a plot for each data set, of what was measured at several budgets."""
    found = rows.of("recall")
    for name in dict.fromkeys(row.data for row in found):
        points: dict[str, list[tuple[int, float]]] = {}
        for row in found:
            if row.data == name:
                points.setdefault(_method(row.system), []).append((row["bits"], row["recall10@10"]))
        ordered = sorted(points, key=lambda method: (method != "lsq", -len(points[method])))
        curves = [Curve.through(method, points[method]) for method in ordered if len(points[method]) > 1]
        yield Plot(f"recall-{name}", f"recall10@10, {name}", "bits per vector", "recall10@10", curves, log_x=True)


def _method(system: str) -> str:
    """A name for the same method at all budgets.

    >>> _method("faiss OPQ32x8"), _method("faiss ITQ256"), _method("pq x4")
    ('faiss OPQ x8', 'faiss ITQ', 'pq x4')
    """
    return re.sub(r"(?<=[A-Z])\d+(x\d)?", lambda fields: f" {fields[1]}" if fields[1] else "", system)


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
        raise ValueError(f"{code_size} bytes per row instead of {bits // 8}: no fair comparison")
    return {"bytes/row": code_size, "recall10@10": recall10, "train s": train, "encode/s": rate}


# -- lengths: inner products of rows whose lengths vary ----------------------------------------------------------------

#: Deviations of the logarithm of the length, and rows of the base at most.
SIGMAS, LENGTHS_ROWS = (0.5, 1.0), 20_000


def lengths(run: Run) -> Iterator[Question]:
    for name in run.plan.lengths:
        for sigma in SIGMAS:
            for bits in run.plan.lengths_bits:
                for system in ("lsq", "pq", "ckmeans"):
                    parameters = {"bits": bits, "sigma": sigma}
                    yield ask(name, system, parameters, _recall_of_lengths, system, name, bits, sigma)


def _recall_of_lengths(system: str, name: str, bits: int, sigma: float) -> dict[str, Any]:
    dataset = data.load(name).with_lengths(sigma, LENGTHS_ROWS)
    # As an index with this metric trains it.
    encoder = make_encoder(system, bits=bits).for_metric("ip").fit(dataset.learn)
    ranking = rank(encoder, encoder.encode(dataset.base), dataset, 10)
    return {"bytes/row": encoder.code_size, "recall10@10": recall10_at_10(ranking, dataset.truth)}


# -- distortion: the reconstruction error against the Gaussian bound ---------------------------------------------------


def distortion(run: Run) -> Iterator[Question]:
    bits, opq = run.plan.bits, run.plan.opq
    for name in run.plan.data:
        yield ask(name, "bound", {"bits": bits}, _bound, name, bits)
        lsq = [make_encoder("lsq", bits=bits, scalar=None, **refine) for refine in ({}, {"refine": 512})]
        for encoder in (*lsq, *(make_encoder(other, bits=bits) for other in ("ckmeans", "pq", "itq"))):
            yield ask(name, encoder.name, encoder.config, _distortion_of_encoder, run, encoder, name)
        if faiss_systems.AVAILABLE:
            parameters = {"bits": bits, "trained on": "learn"}
            yield ask(name, f"faiss {opq}", parameters, _distortion_of_faiss, run, opq, name)


def _distortion_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for name in plan.data:
        yield from _distortion_verdicts(rows, name)


def _bound(name: str, bits: int) -> dict[str, Any]:
    return {"relative error": gaussian_bound(data.load(name).base, bits), "ratio": 1.0}


def _distortion_of_encoder(run: Run, encoder: Encoder, name: str) -> dict[str, Any]:
    base = data.load(name).base
    decoded = encoder.fit(base).decode(encoder.encode(base))
    return _distortion_values(run, name, relative_error(base, decoded))


def _distortion_of_faiss(run: Run, system: str, name: str) -> dict[str, Any]:
    dataset = data.load(name)
    index = run.indexes.get((name, system))
    if index is None:  # section recall has not trained it in this run
        index = FaissIndex(system, dataset.base.shape[1])
        index.train(dataset.learn)
    return _distortion_values(run, name, relative_error(dataset.base, index.reconstruct(dataset.base)))


def _distortion_values(run: Run, name: str, error: float) -> dict[str, Any]:
    (bound,) = run.rows.of("distortion", data=name, system="bound")
    return {"relative error": error, "ratio": error / bound["relative error"]}


# -- speed: training and encoding against FAISS OPQ --------------------------------------------------------------------


def speed(run: Run) -> Iterator[Question]:
    bits, name, opq = run.plan.bits, run.plan.speed, run.plan.opq
    pair = f"lsq / faiss {opq}" if faiss_systems.AVAILABLE else "lsq"
    yield ask(name, pair, {"bits": bits, "what": "train"}, _training_speed, run)
    yield ask(name, pair, {"bits": bits, "what": "encode"}, _encoding_speed, run)


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
    note = f"vectors per second; median of {SPEED_REPEATS}, interleaved"
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


# -- kernels -----------------------------------------------------------------------------------------------------------


def compiled(run: Run) -> Iterator[Question]:
    for level in _kernels.simd_levels():
        for kernel in kernels.KERNELS:
            yield ask("random", kernel.name, {"simd": level}, kernels.measure, kernel, level)


# -- all together ------------------------------------------------------------------------------------------------------


def _needs(plan: Plan, section: str) -> tuple[str, ...]:
    return {"speed": (plan.speed,), "kernels": (), "lengths": plan.lengths}.get(section, plan.data)


# -- bars --------------------------------------------------------------------------------------------------------------


def _recall_verdict(rows: Rows, data: str, bits: int, main_bits: int) -> Verdict:
    """How far the recall of lsq is above the best of FAISS, in points, at the same bytes per row."""
    ours = rows.of("recall", data=data, bits=bits, system="lsq")
    theirs = [row for row in rows.of("recall", data=data, bits=bits) if row.system.startswith("faiss ")]
    needed = 3.0 if bits == main_bits else 0.0
    bar = f">= +{needed}" if needed else "> 0"
    what = f"recall10@10, {data}, {bits} bits: lsq minus best of FAISS, points"
    if not (ours and theirs):
        return Verdict(what, bar, None, None)
    best = max(theirs, key=lambda row: float(row["recall10@10"]))
    points = 100 * (ours[-1]["recall10@10"] - best["recall10@10"])
    return Verdict(f"{what} ({best.system[6:]})", bar, points, points >= needed if needed else points > 0)


def _parity_verdict(rows: Rows, data: str, system: str, rival: str, bits: int) -> Verdict | None:
    """Whether our version of a method is within a point of recall of FAISS's; None if either is not measured."""
    ours = rows.of("recall", data=data, bits=bits, system=system)
    theirs = rows.of("recall", data=data, bits=bits, system=f"faiss {rival}")
    if not (ours and theirs):
        return None
    points = 100 * (ours[-1]["recall10@10"] - theirs[-1]["recall10@10"])
    return Verdict(f"recall10@10, {data}, {bits} bits: {system} minus {rival}, points", ">= -1", points, points >= -1)


def _distortion_verdicts(rows: Rows, data: str) -> Iterator[Verdict]:
    """How close the reconstruction error of lsq is to the Gaussian bound."""
    found = rows.of("distortion", data=data, system="lsq")
    what = f"distortion / bound, {data}, lsq"
    for row in found:
        yield Verdict(f"{what} refine={row['refine']}", "<= 1.2", row["ratio"], row["ratio"] <= 1.2)
    if not found:
        yield Verdict(what, "<= 1.2", None, None)


def _speed_verdicts(rows: Rows) -> Iterator[Verdict]:
    """Training and encoding time against FAISS OPQ."""
    for what, bar, limit in (("train", "<= 0.1", 0.1), ("encode", ">= 2", 2.0)):
        found = [row for row in rows.of("speed", what=what) if row["ratio"] is not None]
        if not found:
            yield Verdict(f"{what}: lsq / FAISS OPQ", bar, None, None)
        for row in found:
            met = row["ratio"] <= limit if what == "train" else row["ratio"] >= limit
            unit = "seconds" if what == "train" else "vectors per second"
            yield Verdict(f"{what} {unit}, {row.data}: {row.system}", bar, row["ratio"], met)


def _kernel_verdict(rows: Rows) -> Verdict:
    """Whether every kernel equals its reference on every SIMD level."""
    found = rows.of("kernels")
    wrong = sum(int(row["unequal"]) for row in found)
    what = "kernels: cases that differ from the reference"
    return Verdict(what, "0", wrong, wrong == 0) if found else Verdict(what, "0", None, None)


BENCHMARK = Benchmark[Plan, Run](
    title="Encoders",
    full=FULL,
    quick=QUICK,
    facts=lambda plan: machine_facts(),
    needs=_needs,
    begin=lambda plan, rows, work: Run(rows, plan=plan),
    sections={
        "recall": Section(
            recall,
            ("data", "system", "bits", "bytes/row", "recall10@10", "train s", "encode/s"),
            "recall10@10: the share of the true 10 nearest among the 10 returned, by asymmetric distance (ITQ of "
            "FAISS: Hamming). FAISS trains without its polysemous permutation, and its OPQ for the field bits of the "
            "index.",
            bars=_recall_bars,
            plots=_recall_plots,
        ),
        "lengths": Section(
            lengths,
            ("data", "system", "bits", "sigma", "bytes/row", "recall10@10"),
            "Inner products by codes alone. Rows have lognormal lengths; sigma is the deviation of their logarithms. "
            "The first 20,000 rows of the base at most; they are learned from, too.",
        ),
        "distortion": Section(
            distortion,
            ("data", "system", "bits", "refine", "trained on", "relative error", "ratio"),
            "Squared reconstruction error of the base, relative to that of its mean. The bound is that of Gaussian "
            "vectors of the same covariance; vectors with more structure than that can be coded below it.",
            bars=_distortion_bars,
        ),
        "speed": Section(
            speed,
            ("data", "system", "what", "lsq", "faiss", "ratio", "note"),
            "ratio: lsq / FAISS; of seconds for training, of vectors per second for encoding.",
            bars=lambda rows, plan: _speed_verdicts(rows),
        ),
        "kernels": Section(
            compiled,
            ("system", "simd", "cases", "unequal", "ns", "per"),
            "unequal: cases whose bits differ from those of lsqindex.testing.reference.",
            bars=lambda rows, plan: [_kernel_verdict(rows)],
        ),
    },
)
run = BENCHMARK.run
