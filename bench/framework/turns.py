"""Measuring on a machine that others use, too: systems take turns, and what is compared is of one round.

    round 0   A B C     every turn is some dozen single queries, or one batch
    round 1   C B A
    round 2   A B C …

A ratio is taken in every round, of turns that lie side by side; the median of these is what the bars look at. The
ratio of the median times stands beside it, and the quartiles of the rounds' ratios tell how far to trust both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .runner import timed

Name = TypeVar("Name")

#: A turn: what is done in the round of that number. One that has taken its own time returns the seconds, a float.
Turn = Callable[[int], Any]


def by_turns(turns: Mapping[Name, Turn], rounds: int) -> dict[Name, list[float]]:
    """Seconds of each turn in each round; one round before them is not counted."""
    times: dict[Name, list[float]] = {name: [] for name in turns}
    for number in range(-1, rounds):
        for name in list(turns) if number % 2 else list(turns)[::-1]:
            own, seconds = timed(turns[name], number)
            if number >= 0:
                times[name].append(own if isinstance(own, float) else seconds)
    return times


def spread(times: Sequence[float]) -> float:
    """The middle half of the times, relative to their median.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    0.6666666666666666
    """
    low, middle, high = quartiles(times)
    return (high - low) / middle


def ratios(above: Sequence[float], below: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """``above`` / ``below`` · ``scale``: the median of the rounds, their quartiles, and the ratio of the medians.

    >>> ratios([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    {'ratio': 2.0, 'low': 2.0, 'high': 2.5, 'of medians': 2.0}
    """
    low, middle, high = quartiles([scale * a / b for a, b in zip(above, below, strict=True)])
    medians = scale * statistics.median(above) / statistics.median(below)
    return {"ratio": middle, "low": low, "high": high, "of medians": medians}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median, the upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
