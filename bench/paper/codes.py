"""What is measured: codes, and units of work, each a code trained on one data set with one seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lsqindex.encoders import Encoder, make_encoder

from .plan import ROUNDS, Plan

LSQ_N, LSQ_B, SEARCHED, IMPROVED = "LSQ(N)", "LSQ(B)", "LSQ(N)+search", "LSQ improved"
CK_MEANS, OK_MEANS, ITQ, LSH, PQ = "CK-means", "OK-means", "ITQ", "LSH", "PQ"
#: No code: what features from codes are compared with.
VECTORS = "the vectors themselves"

#: Those of sections 4.3 and 4.4.
COMPARED_BINARY = (LSQ_B, IMPROVED, ITQ, OK_MEANS)
#: Methods whose codes are tried as features.
AS_FEATURES = (LSQ_N, LSQ_B, SEARCHED, IMPROVED, CK_MEANS, OK_MEANS, ITQ, VECTORS)


@dataclass(frozen=True)
class Code:
    """A method, its bits a dimension (1: binary), and the budget of a row."""

    method: str
    field_bits: int
    budget: int

    @property
    def label(self) -> str:
        """As the paper's figures write it: LSQ(N)-5; binary codes by their method alone."""
        return self.method if self.is_binary else f"{self.method}-{self.field_bits}"

    @property
    def is_binary(self) -> bool:
        """Whether every dimension is a bit; PQ has its bits in its name nevertheless."""
        return self.method in (LSQ_B, IMPROVED, OK_MEANS, ITQ, LSH, VECTORS)

    def encoder(self, seed: int) -> Encoder:
        """The encoder, not trained."""
        published: dict[str, Any] = {"refine": 0, "scalar": None, "iterations": ROUNDS}
        name, more = {
            LSQ_N: ("lsq", {"levels": 2**self.field_bits, **published}),
            LSQ_B: ("lsq", {"levels": 2, **published}),
            SEARCHED: ("lsq", {"levels": 2**self.field_bits, "scalar": None}),
            IMPROVED: ("lsq", {}),
            CK_MEANS: ("ckmeans", {"field_bits": self.field_bits, "rotations": ROUNDS}),
            OK_MEANS: ("okmeans", {"iterations": ROUNDS}),
            ITQ: ("itq", {"iterations": ROUNDS}),
            LSH: ("lsh", {}),
            PQ: ("pq", {"field_bits": self.field_bits}),
        }[self.method]
        return make_encoder(name, bits=self.budget, seed=seed, **more)


def codes(plan: Plan) -> Iterator[Code]:
    """Every code of the paper's figures, and LSQ as improved beside them."""
    for budget in plan.budgets:
        main = budget == plan.budget
        for method in (LSH, ITQ, LSQ_B, IMPROVED, OK_MEANS):
            yield Code(method, 1, budget)
        for bits in plan.field_bits if main else (plan.main_bits,):
            yield from (Code(method, bits, budget) for method in (LSQ_N, PQ, CK_MEANS))
            if main:
                yield Code(SEARCHED, bits, budget)
    yield Code(PQ, 1, plan.budget)
    yield Code(VECTORS, 1, plan.budget)


def sections_of(code: Code, plan: Plan) -> set[str]:
    """The experiments that have a use for a code; whichever asks, all is measured."""
    if code.method == VECTORS:
        return {"features"}
    out = {"budget", "subset-budget"} if code.is_binary or code.field_bits == plan.main_bits else set()
    if code.method in COMPARED_BINARY:
        out.add("binary")
    if code.budget == plan.budget:
        out |= {"estimation"}
        out |= {"subset"} if code.is_binary or code.field_bits in plan.table_bits else set()
        out |= {"convergence"} if code.method in COMPARED_BINARY else set()
        out |= {"features"} if code.method in AS_FEATURES else set()
    return out


@dataclass(frozen=True)
class Unit:
    """A code to train on a data set with a seed, and to measure; what is kept when a run is broken off."""

    data: str
    seed: int
    code: Code


def in_order(units: Iterable[Unit], dims: dict[str, int]) -> list[Unit]:
    """The first seed of all data sets, then cheap work first: what there is early says something of everything.

    ``dims``: of the data sets. A further seed counts as so much dearer; the codes of Cartesian k-means, few but slow,
    take about as long as all others together, and come after them.
    """

    def cost(unit: Unit) -> tuple[bool, int, str, int]:
        dear = 2 if unit.code.method == CK_MEANS else 1
        return unit.seed > 0, dims[unit.data] * dear * (1 + unit.seed), unit.data, unit.seed

    return sorted(units, key=cost)
