"""How much is measured, and one run of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .. import data
from ..runner import Sheet
from .stored import Shelf
from .systems import System, systems

KS = (10, 100)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: Data sets of the sections size and search; the first is that of the others.
    data: tuple[str, ...]
    #: Bits a code; principal axes of the multi-index's planes; fields and lists of FAISS; what OPQ learns from.
    bits: int
    axes: int
    fields: int
    lists: int
    opq_learn: int
    #: Rounds of turns; seconds of a turn of single queries, and of all turns of batches of a setting together.
    rounds: int
    single: float
    batch: float
    #: Seconds for the recall of a setting, where queries are asked one by one; those of the sections about changes.
    recall: float
    change: float
    #: Fresh processes for each time of opening.
    processes: int
    #: Vectors stored in the smaller index that is added to.
    few: int

    def systems(self, name: str) -> list[System]:
        """Those that are installed, and for the metric of the data set."""
        made = systems(self.bits, self.axes, self.fields, self.lists, self.opq_learn)
        metric = data.load(name).metric
        return [system for system in made if system.installed and metric in system.metrics]


FULL = Plan(
    name="peers",
    remark="One thread and one core each, every system in a process of its own, its index built, saved and opened "
    "again. Vectors of MiniLM-WordNet have unit length, so systems without a cosine use L2.",
    data=("minilm-wordnet", "fashion-mnist"),
    bits=256,
    axes=64,
    fields=64,
    lists=512,
    opq_learn=10_000,
    rounds=5,
    single=0.1,
    batch=4.0,
    recall=3.0,
    change=4.0,
    processes=3,
    few=10_000,
)
QUICK = Plan(
    name="peers-quick",
    remark="A smoke test: does everything run? Its numbers say nothing.",
    data=("digits",),
    bits=64,
    axes=32,
    fields=16,
    lists=16,
    opq_learn=1_000,
    rounds=1,
    single=0.002,
    batch=0.01,
    recall=0.2,
    change=0.1,
    processes=1,
    few=1_597,
)


@dataclass
class Run(Sheet):
    """One run of the benchmark."""

    plan: Plan = field(kw_only=True)
    shelf: Shelf = field(kw_only=True)

    def cases(self) -> Iterator[tuple[str, System]]:
        """All data sets, each with its systems."""
        for name in self.plan.data:
            for system in self.plan.systems(name):
                yield name, system

    def first_cases(self) -> Iterator[tuple[str, System]]:
        """Those of the first data set alone, and one of systems that change alike."""
        name = self.plan.data[0]
        return ((name, system) for system in self.plan.systems(name) if not system.alike)
