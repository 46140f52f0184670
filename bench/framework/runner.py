"""Running measurements: each is made once, kept, and printed as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .errors import UserError
from .progress import Progress
from .report import Row, Rows, show

Result = TypeVar("Result")
PlanT = TypeVar("PlanT")
ShelfT = TypeVar("ShelfT")


@dataclass(frozen=True)
class Question:
    """What a row of a section is to tell: its key, and the call that measures its values."""

    data: str
    system: str
    parameters: Mapping[str, Any]
    measure: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...]


def ask(
    data: str, system: str, parameters: Mapping[str, Any], measure: Callable[..., dict[str, Any]], *arguments: Any
) -> Question:
    """For the values ``measure(*arguments)``."""
    return Question(data, system, parameters, measure, arguments)


@dataclass
class Sheet:
    """The rows of one run of a benchmark, as they are asked for."""

    rows: Rows
    _together: dict[Any, dict[Any, dict[str, Any]]] = field(default_factory=dict)

    def known(self, section: str, question: Question) -> Row | None:
        """The row that answers the question, if there is one."""
        return self.rows.find(section, question.data, question.system, question.parameters)

    def answer(self, section: str, question: Question, columns: Sequence[str], progress: Progress) -> Row:
        """Measure, unless an earlier run has done it, and tell ``columns``."""
        row = self.known(section, question)
        kept, seconds = row is not None, 0.0
        if row is None:
            values, seconds = timed(question.measure, *question.arguments)
            row = Row(section, question.data, question.system, question.parameters, values)
            self.rows.add(row)
        shown = {name: row[name] for name in columns if row[name] is not None}
        text = ", ".join(f"{name} {show(value)}" for name, value in shown.items() if name not in ("data", "system"))
        progress.advance(f"{section}  {row.data}  {row.system}: {text}", seconds, kept)
        return row

    def only(self, section: str, answers: Sequence[Row]) -> None:
        """Forget other rows of the section: those of encoders whose defaults have changed."""
        self.rows.forget(lambda row: row.section == section and row not in answers)

    def together(self, name: Any, measure: Callable[..., dict[Any, dict[str, Any]]], *arguments: Any) -> dict[str, Any]:
        """The values of one row of several that ``measure(self, *arguments)`` measures by turns, once a run."""
        key = (measure, arguments)
        if key not in self._together:
            self._together[key] = measure(self, *arguments)
        return self._together[key][name]


@dataclass
class Run(Sheet, Generic[PlanT, ShelfT]):
    """One run of a benchmark: its rows, how much it measures, and what it has filled."""

    plan: PlanT = field(kw_only=True)
    shelf: ShelfT = field(kw_only=True)


def chosen_sections(asked: str | None, there: Iterable[str]) -> list[str]:
    """The sections that ``--section`` names; all without it."""
    names = list(there)
    chosen = asked.split(",") if asked else names
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise UserError(f"no section {', '.join(unknown)}; there are {', '.join(names)}")
    return chosen


def timed(function: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """What ``function(*arguments)`` returns, and the seconds it took."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start
