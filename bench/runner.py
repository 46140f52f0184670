"""Running measurements: each is made once, kept, and printed as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .errors import UserError
from .faiss_systems import FaissIndex
from .report import Row, Rows, show

Result = TypeVar("Result")


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
    #: The data set of the section paper, and that of the section speed.
    paper: str
    speed: str

    @property
    def bits(self) -> int:
        """The main budget of bits."""
        return next(iter(self.faiss))

    @property
    def opq(self) -> str:
        """The OPQ that speed is compared with: the first rival at the main budget."""
        return self.faiss[self.bits][0]


@dataclass
class Sheet:
    """The rows of one run of a benchmark, as they are asked for."""

    rows: Rows
    #: The columns each section shows.
    columns: Mapping[str, tuple[str, ...]]
    _asked: list[Row] = field(default_factory=list)
    _together: dict[Any, dict[Any, dict[str, Any]]] = field(default_factory=dict)

    def row(
        self,
        section: str,
        data: str,
        system: str,
        parameters: Mapping[str, Any],
        measure: Callable[..., dict[str, Any]],
        *arguments: Any,
    ) -> None:
        """Measure ``measure(*arguments)``, unless an earlier run has done it, and print it."""
        row = self.rows.find(section, data, system, parameters)
        elapsed = "kept from an earlier run"
        if row is None:
            values, seconds = timed(measure, *arguments)
            row = Row(section, data, system, parameters, values)
            self.rows.add(row)
            elapsed = f"{seconds:.1f} s"
        self._asked.append(row)
        shown = {name: row[name] for name in self.columns[section] if row[name] is not None}
        text = ", ".join(f"{name} {show(value)}" for name, value in shown.items() if name not in ("data", "system"))
        print(f"{section}  {data}  {system}: {text}  [{elapsed}]", flush=True)

    def together(self, name: Any, measure: Callable[..., dict[Any, dict[str, Any]]], *arguments: Any) -> dict[str, Any]:
        """The values of one row of several that ``measure(self, *arguments)`` measures by turns, once a run."""
        key = (measure, arguments)
        if key not in self._together:
            self._together[key] = measure(self, *arguments)
        return self._together[key][name]

    def finish(self, section: str) -> None:
        """Forget rows of the section that were not asked for: those of encoders whose defaults have changed."""
        self.rows.forget(lambda row: row.section == section and row not in self._asked)


@dataclass
class Run(Sheet):
    """One run of the encoders' benchmark."""

    plan: Plan = field(kw_only=True)
    #: FAISS indexes trained so far, by data and system.
    indexes: dict[tuple[str, str], FaissIndex] = field(default_factory=dict)


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
