"""Bars: what a measurement must reach, and whether it does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .report import Row, show, table

BAR_COLUMNS = ("what", "bar", "measured", "met")


@dataclass(frozen=True)
class Verdict:
    """A bar, and whether it is met; without a measurement, ``measured`` is None, without a bar, only ``met``."""

    what: str
    bar: str
    measured: float | None
    met: bool | None

    def cells(self) -> dict[str, str]:
        """As a line of a table."""
        met = "not measured" if self.measured is None else show(self.met)
        return {"what": self.what, "bar": self.bar, "measured": show(self.measured), "met": met}


def bar_table(bars: Iterable[Verdict]) -> str:
    """The bars as a table."""
    return table(BAR_COLUMNS, [bar.cells() for bar in bars])


def at_least(what: str, limit: float, measured: float | None) -> Verdict:
    """A bar that a measurement must reach."""
    return Verdict(what, f">= {limit:g}", measured, None if measured is None else measured >= limit)


def at_most(what: str, limit: float, measured: float | None) -> Verdict:
    """A bar that a measurement must not exceed."""
    return Verdict(what, f"<= {limit:g}", measured, None if measured is None else measured <= limit)


def below(what: str, limit: float, measured: float | None) -> Verdict:
    """A bar that a measurement must stay under."""
    return Verdict(what, f"< {limit:g}", measured, None if measured is None else measured < limit)


def above(what: str, limit: float, measured: float | None) -> Verdict:
    """A bar that a measurement must exceed."""
    return Verdict(what, f"> {limit:g}", measured, None if measured is None else measured > limit)


def told(what: str, measured: float | None) -> Verdict:
    """A figure without a bar."""
    return Verdict(what, "", measured, None)


def value(row: Row | None, column: str) -> float | None:
    """What a row measured; None where there is no row."""
    return None if row is None else row[column]
