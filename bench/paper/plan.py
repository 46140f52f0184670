"""How much is measured: the paper's sizes, and small ones that run in a moment."""

from __future__ import annotations

from dataclasses import dataclass

#: Where curves are told; their area is the mean over all R from 1 to the last.
RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
#: Rounds of training at most, of every encoder that has rounds: LSQ as published stops when there is no progress.
ROUNDS = 50

#: The experiments of section 4, in the paper's order.
SECTIONS = {
    "estimation": "recall@R by distance estimation",
    "budget": "area under recall@R by distance estimation, against the budget",
    "subset": "recall@R by subset indexing",
    "subset-budget": "area under recall@R by subset indexing, against the budget",
    "binary": "binary codes by subset indexing",
    "convergence": "error against rounds of training",
    "features": "codes as features for a classifier",
}


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    data: tuple[str, ...]
    seeds: int
    #: Vectors to learn from; of CIFAR-10 the paper's 20,000.
    learn: int
    #: Queries at most; of CIFAR-10 the paper's 500.
    queries: int
    #: The main budget in bits, and all of them.
    budget: int
    budgets: tuple[int, ...]
    #: Bits a dimension of n-ary codes at the main budget, and those at all budgets.
    field_bits: tuple[int, ...]
    main_bits: int
    #: Bits a table of subset indexing, of n-ary codes those of a dimension.
    table_bits: tuple[int, ...]
    #: The longest answer: recall@R for R up to it.
    answers: int
    #: Vectors that a classifier learns from and is tested with.
    classified: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """Where curves are told."""
        return tuple(rank for rank in RANKS if rank <= self.answers)


FULL = Plan(
    name="paper",
    remark="Every experiment of section 4 of “On Large-Scale Retrieval: Binary or n-ary Coding?”",
    data=("fashion-mnist", "minilm-wordnet", "cifar-10"),
    seeds=5,
    learn=20_000,
    queries=500,
    budget=256,
    budgets=(64, 128, 256, 512),
    field_bits=(2, 4, 5, 8),
    main_bits=5,
    table_bits=(4, 5, 8),
    answers=1000,
    classified=10_000,
)
QUICK = Plan(
    name="paper-quick",
    remark="A smoke test: does everything run? What it says of the paper's claims means little.",
    data=("digits",),
    seeds=2,
    learn=1_000,
    queries=200,
    budget=32,
    budgets=(16, 32, 64),
    field_bits=(2, 4),
    main_bits=4,
    table_bits=(4,),
    answers=100,
    classified=500,
)
