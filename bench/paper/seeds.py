"""Rows of several seeds as one figure: mean and spread, and differences between codes seed by seed.

A *quantity* takes a number out of a row, or None where the row has none such:

    area by symmetric distance · area by tables of 5 bits · error · accuracy …
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..framework.report import Row

#: Training is over at the first round whose error is above the least one by no more than this share of it.
CONVERGED = 0.01


@dataclass(frozen=True)
class Quantity:
    """A number of a row, under a name."""

    name: str
    of: Callable[[Row], float | None]


def value(name: str) -> Quantity:
    """A value that a row has under its name."""
    return Quantity(name, lambda row: row[name])


def area(distance: str, name: str = "area") -> Quantity:
    """The area under recall@R by distance estimation; ``name``: also that of R up to 100."""
    return Quantity(f"{name}, {distance}", lambda row: (row[distance] or {}).get(name))


def subset_area(bits: int) -> Quantity:
    """The area under recall@R by subset indexing with tables of so many bits."""
    return Quantity(f"area, tables of {bits} bits", lambda row: _tables(row, bits).get("area"))


def recall(distance: str, at: int) -> Quantity:
    """A point of a curve by distance estimation, the ``at``-th of the plan's ranks."""
    return Quantity("recall", lambda row: _point(row[distance] or {}, at))


def subset_recall(bits: int, at: int) -> Quantity:
    """A point of a curve by subset indexing."""
    return Quantity("recall", lambda row: _point(_tables(row, bits), at))


def subset_value(bits: int, name: str) -> Quantity:
    """Another number that is told of tables of so many bits."""
    return Quantity(name, lambda row: _tables(row, bits).get(name))


def _tables(row: Row, bits: int) -> dict[str, Any]:
    return dict((row["subset"] or {}).get(str(bits), {}))


def _point(curve: dict[str, Any], at: int) -> float | None:
    return float(curve["recall"][at]) if curve else None


def _rounds(row: Row) -> float | None:
    history = row["history"]
    if not history:
        return None
    return 1.0 + next(i for i, error in enumerate(history) if error <= min(history) * (1 + CONVERGED))


def _rise(row: Row) -> float | None:
    history = row["history"]
    if not history or len(history) < 2:
        return None
    return max(0.0, *(float(after / before) - 1 for before, after in pairwise(history) if before))


#: Rounds of training until the error is nearly the least one.
ROUNDS = Quantity("rounds", _rounds)
#: The least error of all rounds, whose code is kept.
LEAST = Quantity("least error in training", lambda row: min(row["history"]) if row["history"] else None)
#: The largest share by which a round raised the error.
RISE = Quantity("largest rise", _rise)


@dataclass(frozen=True)
class Summary:
    """The mean of some seeds, and their standard deviation; of one seed it has none."""

    mean: float
    spread: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary | None:
        """None without values."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        return f"{self.mean:.4f}" if self.spread is None else f"{self.mean:.4f} ± {self.spread:.4f}"


class Results:
    """All rows, found by data set, code and budget."""

    def __init__(self, rows: Iterable[Row]) -> None:
        every = list(rows)
        self.rows = [row for row in every if row["impossible"] is None]
        self._impossible = {(row.data, row.system, row["budget"]) for row in every if row["impossible"] is not None}
        self._by: dict[tuple[str, str, int], list[Row]] = {}
        for row in self.rows:
            self._by.setdefault((row.data, row.system, row["budget"]), []).append(row)

    @property
    def data(self) -> list[str]:
        """The data sets there are, by name."""
        return sorted({row.data for row in self.rows})

    def can_be(self, data: str, label: str, budget: int) -> bool:
        """Whether such vectors can have that code, as far as is known."""
        return (data, label, budget) not in self._impossible

    def of(self, data: str, label: str, budget: int) -> list[Row]:
        """The rows of a code, one for each seed."""
        return sorted(self._by.get((data, label, budget), []), key=lambda row: int(row["seed"]))

    def by_seed(self, data: str, label: str, budget: int, quantity: Quantity) -> dict[int, float]:
        """A quantity of a code for each seed that has it."""
        found = {int(row["seed"]): quantity.of(row) for row in self.of(data, label, budget)}
        return {seed: float(number) for seed, number in found.items() if number is not None}

    def summary(self, data: str, label: str, budget: int, quantity: Quantity) -> Summary | None:
        """Mean and spread of a quantity; None where it is not measured."""
        return Summary.of(list(self.by_seed(data, label, budget, quantity).values()))
