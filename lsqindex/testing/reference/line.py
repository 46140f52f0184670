"""Lines through points, and the normal distribution: cython_src/line.h."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """y = start + slope · x, give or take ``around``; the mean of x."""

    start: float
    slope: float
    around: float
    mean: float


class Points:
    """Points, by sums of their differences from the first, in double, one after another."""

    def __init__(self) -> None:
        self.n = 0
        self.first = self.sums = (0.0, 0.0)
        self.squares = (0.0, 0.0, 0.0)

    def add(self, x: Sequence[float], y: Sequence[float]) -> None:
        """More points."""
        if not self.n and x:
            self.first = (float(x[0]), float(y[0]))
        for a, b in zip(x, y, strict=True):
            dx, dy = a - self.first[0], b - self.first[1]
            self.sums = (self.sums[0] + dx, self.sums[1] + dy)
            xx, xy, yy = self.squares
            self.squares = (xx + dx * dx, xy + dx * dy, yy + dy * dy)
        self.n += len(x)

    def line(self) -> Line:
        """By least squares, one standard error flatter.

        >>> points = Points()
        >>> points.add([0, 1, 2], [1.0, 3.0, 5.0])
        >>> points.line()
        Line(start=1.0, slope=2.0, around=0.0, mean=1.0)
        """
        n = self.n
        if n < 3:
            return Line(0.0, 0.0, math.inf, 0.0)
        x, y = self.sums[0] / n, self.sums[1] / n
        xx, xy, yy = (
            self.squares[0] - self.sums[0] * x,
            self.squares[1] - self.sums[0] * y,
            self.squares[2] - self.sums[1] * y,
        )
        mean, slope = self.first[0] + x, xy / xx if xx > 0 else 0.0
        rest = yy - slope * xy
        around = math.sqrt(rest / (n - 2)) if rest > 0 else 0.0
        if xx > 0:
            slope -= around / math.sqrt(xx)
        return Line(self.first[1] + y - slope * mean, slope, around, mean)


def below(line: Line, sums: list[int], y: float, margin: float) -> float:
    """The x below which most points at ``y`` are; ``sums``: the x of all points."""
    count = float(len(sums)) or 1.0
    centre = sum(sums) / count
    wide = max(0.0, sum(own * own for own in sums) / count - centre * centre)
    both = line.slope * line.slope * wide + line.around * line.around
    if not both > 0:
        return centre
    mean = centre + line.slope * wide / both * (y - line.start - line.slope * centre)
    return mean + margin * line.around * math.sqrt(wide / both)


def normal_quantile(p: float) -> float:
    """Above which z there is p of the normal distribution (Abramowitz and Stegun, 26.2.23)."""
    if not p < 0.5:
        return 0.0
    t = math.sqrt(-2 * math.log(p))
    return t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
