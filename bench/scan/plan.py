"""How much is measured, and one run of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..runner import Sheet
from .stored import Collection, Shelf

K = 10


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
    #: FAISS's scan of as many bytes a row.
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


@dataclass
class Run(Sheet):
    """One run of the benchmark."""

    plan: Plan = field(kw_only=True)
    shelf: Shelf = field(kw_only=True)
