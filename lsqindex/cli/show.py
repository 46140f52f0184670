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
from itertools import chain, islice
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_ENDLESS = 10_000
#: Rows from which on a table is long.
_LONG = 1000
_NUMBER = re.compile(r"[–]?|-?[0-9][0-9.,]*(e[-+]?[0-9]+)?")


class _Out(Console):
    """The console for answers."""

    def on_broken_pipe(self) -> None:
        """Let the caller know. (Rich would end the process here, with the exit code 1 and what was not written.)"""
        raise BrokenPipeError


def out() -> Console:
    """The console for answers."""
    # Rich would cut the lines of a pipe at 80 characters.
    width = None if sys.stdout.isatty() else _ENDLESS
    return _Out(width=width, highlight=False, soft_wrap=width is not None)


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
    """A table; a column whose cells are all numbers is set to the right. ``strong(i)``: row i stands out.

    A long table is printed as its rows come, with columns as wide as its beginning needs.
    """
    rest = iter(rows)
    cells = [[text_of(cell) for cell in row] for row in islice(rest, _LONG)]
    if len(cells) == _LONG:
        _print_long(columns, cells, rest)
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(cells) and all(_NUMBER.fullmatch(row[i]) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for i, row in enumerate(cells):
        table.add_row(*map(escape, row), style="bold green" if strong and strong(i) else None)
    out().print(table)


def _print_long(columns: Sequence[str], first: list[list[str]], rest: Iterable[Sequence[Any]]) -> None:
    widths = [max(len(name), *(len(row[i]) for row in first)) for i, name in enumerate(columns)]
    numeric = [all(_NUMBER.fullmatch(row[i]) for row in first) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        cells = zip(row, widths, numeric, strict=True)
        return "   ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()

    print(line(columns))
    print("─" * (sum(widths) + 3 * (len(widths) - 1)))
    for row in chain(first, ([text_of(cell) for cell in row] for row in rest)):
        print(line(row))


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


class Work:
    """A bar on stderr while a command works; nothing where stderr is no terminal.

    Its methods are the callbacks that the index takes: ``rows(done, total)``, and ``training(step, steps, error)``
    while an encoder trains. Once it is trained, the stored vectors are encoded: then the bar only moves.
    """

    def __init__(self, bar: Progress, what: str, total: int | None) -> None:
        self._bar = bar
        self._total = total
        self._shown: str | None = None
        self._rows = bar.add_task(what, total=total)
        self._others = {name: bar.add_task(name, total=None, visible=False) for name in ("training", "encoding")}

    def rows(self, done: int, total: int | None) -> None:
        """So many rows are done."""
        self._show(None)
        self._bar.update(self._rows, completed=done, total=total)

    def training(self, step: int, steps: int, error: float) -> None:
        """So many steps of training are done."""
        told = "" if error != error else f"error {error:.4f}"
        self._bar.update(self._others["training"], completed=step, total=steps, told=told)
        self._show("training" if step < steps else "encoding")

    def _show(self, name: str | None) -> None:
        """Show the bar of this name; that of the rows stays beside it if it can tell how many are left."""
        if name == self._shown:
            return
        self._shown = name
        self._bar.update(self._rows, visible=name is None or self._total is not None)
        for other, task in self._others.items():
            self._bar.update(task, visible=other == name)
        self._bar.refresh()


@contextlib.contextmanager
def working(what: str, total: int | None = None) -> Iterator[Work]:
    """A bar for the time of a command."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), _Done(), _Told(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Work(bar, what, total)


class _Done(MofNCompleteColumn):
    """How much is done, where it is known how much there is."""

    def render(self, task: Task) -> Text:
        return Text("") if task.total is None and not task.completed else super().render(task)


class _Told(ProgressColumn):
    """What was told of the last step, or else the rows per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        told = task.fields.get("told", "" if speed is None else f"{speed:,.0f}/s")
        return Text(told, style="progress.data.speed")
