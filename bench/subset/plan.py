"""How much is measured, and one run of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..runner import Sheet
from .stored import Collection, Kind, Shelf

K = 10
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
        return Collection(self.data)

    @cached_property
    def large(self) -> Collection:
        """Vectors made from it."""
        return Collection(self.data, self.mixed)

    @cached_property
    def small(self) -> Collection:
        """The first of these."""
        return Collection(self.data, self.few)

    @cached_property
    def hashes(self) -> Kind:
        """Codes that suit tables."""
        return Kind("lsh", self.bits, (("axes", self.axes),))

    @cached_property
    def searched(self) -> Kind:
        """The codes that a scan ranks best by."""
        return Kind("lsq", self.bits)


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


@dataclass
class Run(Sheet):
    """One run of the benchmark."""

    plan: Plan = field(kw_only=True)
    shelf: Shelf = field(kw_only=True)
