"""How far a benchmark is, and the time left: a bar on a terminal, a line for each measurement elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """``with Progress(total, description) as progress``, and ``progress.advance(…)`` after each of ``total`` steps.

    The time left is the mean of the steps measured in this run, for each that is to come. Steps whose results were
    kept from an earlier run take no time and do not count; ``kept`` says how many there will be, where that is known.

    >>> with Progress(3, "storage") as progress:
    ...     progress.advance("open", 0.0, kept=True)
    ...     progress.advance("add", 90.0)
    ...     progress.left
    open  [kept from an earlier run]
    add  [90.0 s, 2 of 3, 2 min left]
    90.0
    """

    def __init__(self, total: int, description: str, kept: int = 0) -> None:
        self.total, self.description = total, description
        self.done = 0
        self._kept, self._kept_so_far = kept, 0
        self._measured: list[float] = []
        self._stack = ExitStack()
        self._bar: Bar | None = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if sys.stdout.isatty() and importlib.util.find_spec("rich"):
            self._bar = self._stack.enter_context(_bar())
            self._task = self._bar.add_task(self.description, total=self.total, left="")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def left(self) -> float | None:
        """Seconds, as far as this run can tell."""
        measured = len(self._measured)
        if not measured:
            return None
        to_come = self.total - max(self._kept, self._kept_so_far) - measured
        return sum(self._measured) / measured * max(0, to_come)

    def advance(self, label: str, seconds: float, kept: bool = False) -> None:
        """A step is done: what it was and how long it took."""
        self.done += 1
        if kept:
            self._kept_so_far += 1
        else:
            self._measured.append(seconds)
        left = "" if self.left is None else f"{_rounded(self.left)} left"
        took = "kept from an earlier run" if kept else f"{seconds:.1f} s, {self.done} of {self.total}, {left}"
        print(f"{label}  [{took}]", flush=True)  # above the bar, where there is one
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, total=max(self.total, self.done), left=left)


def _bar() -> Bar:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    text = TextColumn("{task.description}")
    return Bar(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))


def _rounded(seconds: float) -> str:
    """
    >>> [_rounded(s) for s in (0.4, 59, 90, 3700, 7300)]
    ['0 s', '59 s', '2 min', '62 min', '2.0 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
