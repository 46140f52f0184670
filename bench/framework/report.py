"""Rows of results: kept in a JSON file as they come, printed as tables."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lsqindex
from lsqindex._compiled import encoding as _kernels

from ..material import faiss_systems
from ..material.data import HELD_OUT
from .errors import UserError


@dataclass(frozen=True)
class Row:
    """One measurement: what was measured (the first four) and what came out."""

    section: str
    data: str
    system: str
    parameters: Mapping[str, Any]
    values: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        """A value, a parameter, or ``data`` and ``system``; None if the row has none such."""
        named = {"data": self.data, "system": self.system}
        return {**named, **self.parameters, **self.values}.get(column)

    def is_of(self, section: str, data: str, system: str, parameters: Mapping[str, Any]) -> bool:
        """Whether this row is the answer to that question."""
        return (self.section, self.data, self.system, self.parameters) == (section, data, system, parameters)


class Rows:
    """The rows of a benchmark, written to ``path`` after each, so that a broken run goes on where it was."""

    def __init__(
        self,
        path: Path,
        forget: Sequence[str] = (),
        facts: Mapping[str, str] | None = None,
        seed: int | None = None,
        may_differ: Sequence[str] = (),
    ) -> None:
        """``facts``: what these numbers depend on, the machine's where not given; ``seed``: of all rows, if one.

        ``may_differ``: facts that rows of one file need not share; all that took part are told, "A; B".
        """
        self._path = path
        self._depends: dict[str, Any] = {"machine": dict(machine_facts() if facts is None else facts)}
        if seed is not None:
            self._depends["seed"] = seed
        self._rows: list[Row] = []
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._rows = [row for row in (Row(**fields) for fields in stored["rows"]) if row.section not in forget]
            machine = self._depends["machine"]
            for name in may_differ if self._rows else ():
                told = stored["machine"][name].split("; ")
                machine[name] = stored["machine"][name] = "; ".join(dict.fromkeys([*told, machine[name]]))
            # A file may be older than the mention of the seed.
            if self._rows and any(stored.get(name, value) != value for name, value in self._depends.items()):
                raise UserError(
                    f"{path} has rows of another machine, other versions or other data; choose another --out, or "
                    "measure all sections again with --fresh"
                )

    @classmethod
    def read(cls, path: Path) -> Rows:
        """The rows of ``path``, wherever and whenever they were measured."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        return cls(path, facts=stored["machine"], seed=stored.get("seed"))

    @property
    def facts(self) -> dict[str, str]:
        """What these numbers depend on."""
        return dict(self._depends["machine"])

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def find(self, section: str, data: str, system: str, parameters: Mapping[str, Any]) -> Row | None:
        """The row that answers this question, if there is one."""
        return next((row for row in self._rows if row.is_of(section, data, system, parameters)), None)

    def of(self, section: str, **columns: Any) -> list[Row]:
        """The rows of a section in which these columns have these values."""
        wanted = columns.items()
        return [row for row in self._rows if row.section == section and all(row[name] == v for name, v in wanted)]

    def one(self, section: str, **columns: Any) -> Row | None:
        """The first of these, if there is one."""
        return next(iter(self.of(section, **columns)), None)

    def add(self, row: Row) -> None:
        """Keep ``row``, also in the file."""
        self._rows.append(row)
        self._write()

    def forget(self, unwanted: Callable[[Row], bool]) -> None:
        """Drop the unwanted rows, also from the file."""
        self._rows = [row for row in self._rows if not unwanted(row)]
        self._write()

    def _write(self) -> None:
        record = {**self._depends, "rows": [asdict(row) for row in self._rows]}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A whole new file, then one step to its name: an interruption leaves the old or the new one.
        fresh = self._path.with_suffix(".json.new")
        fresh.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self._path)


def machine_facts() -> dict[str, str]:
    """What the numbers depend on besides the code."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "faiss": faiss_systems.version(),
        "lsqindex": lsqindex.__version__,
        "SIMD": _kernels.simd_level(),
        "BLAS threads": os.environ.get("OPENBLAS_NUM_THREADS", "not set"),
        **({"queries": "held-out"} if HELD_OUT else {}),
    }


def table(columns: Sequence[str], rows: Iterable[Mapping[str, Any] | Row]) -> str:
    """A markdown table, aligned so that it reads well as plain text too.

    >>> print(table(["a", "b"], [{"a": "x", "b": 0.5}]))
    | a | b      |
    |---|--------|
    | x | 0.5000 |
    """
    shown = [list(columns), *cells(columns, rows)]
    widths = [max(len(line[j]) for line in shown) for j in range(len(columns))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in shown]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def cells(columns: Sequence[str], rows: Iterable[Mapping[str, Any] | Row]) -> list[list[str]]:
    """What a table shows, line by line.

    >>> cells(["a", "b"], [{"a": "x", "b": 0.5}])
    [['x', '0.5000']]
    """
    return [[show(_value(row, column)) for column in columns] for row in rows]


def show(value: Any) -> str:
    """A number, a yes or no, or a text, as a table shows it.

    >>> [show(v) for v in (True, 256, 0.71234, 12.345, 18047.3, None)]
    ['yes', '256', '0.7123', '12.35', '18,047', '']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def _value(row: Mapping[str, Any] | Row, column: str) -> Any:
    return row[column] if isinstance(row, Row) else row.get(column)


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
