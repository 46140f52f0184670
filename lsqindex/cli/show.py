"""What people see: tables, facts, progress; and JSON for programs.

Answers go to stdout; progress and complaints go to stderr. In a pipe there are no colours, and lines are as long as
they need to be.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..encoders.base import Progress as FitProgress

_ENDLESS = 10_000
_NUMBER = re.compile(r"[–]?|-?[0-9][0-9.,]*(e[-+]?[0-9]+)?")


def out() -> Console:
    """The console for answers."""
    # Rich would cut the lines of a pipe at 80 characters.
    width = None if sys.stdout.isatty() else _ENDLESS
    return Console(width=width, highlight=False, soft_wrap=width is not None)


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"lsqindex: {message}", file=sys.stderr)


def say(message: str) -> None:
    """A line for people."""
    out().print(message, markup=False)


def print_json(value: Any) -> None:
    """A JSON document; what JSON has no word for (infinite distances) is null."""
    print(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """``value`` as JSON."""
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=str)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, strong: Callable[[int], bool] | None = None
) -> None:
    """A table; a column whose cells are all numbers is set to the right. ``strong(i)``: row i stands out."""
    cells = [[text_of(cell) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(cells) and all(_NUMBER.fullmatch(row[i]) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for i, row in enumerate(cells):
        table.add_row(*map(escape, row), style="bold green" if strong and strong(i) else None)
    out().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one in a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), escape(text_of(value)))
    out().print(table)


def text_of(value: Any) -> str:
    """A value as people read it.

    >>> [text_of(value) for value in (None, True, 1234567, 0.25, "x")]
    ['–', 'yes', '1,234,567', '0.25', 'x']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def size_text(count: int) -> str:
    """A number of bytes.

    >>> size_text(999), size_text(1_234_567)
    ('999 bytes', '1.2 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    size, unit = count / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}"


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="progress.data.speed")


@contextlib.contextmanager
def rows(what: str, total: int | None) -> Iterator[Callable[[int, int | None], None]]:
    """A bar with rate and time left, while rows are done: ``report(done, total)``. None where stderr is no terminal."""
    bar = _bar(MofNCompleteColumn(), _Rate())
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def training(what: str) -> Iterator[FitProgress]:
    """A bar while an encoder trains: steps, and the error that is left."""
    bar = _bar(TextColumn("{task.fields[error]}"))
    with bar:
        task = bar.add_task(what, total=None, error="")

        def report(step: int, steps: int, error: float) -> None:
            told = "" if error != error else f"error {error:.4f}"
            bar.update(task, completed=step, total=steps, error=told)

        yield report


def _bar(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
