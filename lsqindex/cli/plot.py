"""A small plot in text: recall against bytes per vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 64, 13


def scatter(points: Sequence[tuple[float, float, str]], wanted: float) -> list[str]:
    """Lines of a plot of (bytes, recall, mark); bytes by their logarithm, a dotted line where recall is ``wanted``.

    A later point hides an earlier one at the same place.

    >>> for line in scatter([(16, 0.5, "a"), (256, 1.0, "b")], wanted=0.75)[:3]:
    ...     print(line[:12].rstrip())
    recall
     1.00 │
     0.96 │
    """
    low = math.floor(10 * min([wanted, *(recall for _, recall, _ in points)])) / 10
    low = min(low, 0.9)
    smallest, largest = (f(size for size, _, _ in points) for f in (min, max))
    span = math.log(largest / smallest) or 1.0

    def column(size: float) -> int:
        return round((_WIDTH - 1) * math.log(size / smallest) / span)

    def line(recall: float) -> int:
        return round((_HEIGHT - 1) * (1 - (recall - low) / (1 - low)))

    cells = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    cells[line(wanted)] = list("┄" * _WIDTH)
    for size, recall, mark in points:
        cells[line(recall)][column(size)] = mark
    step = (1 - low) / (_HEIGHT - 1)
    lines = [f" {1 - i * step:.2f} │{''.join(row)}".rstrip() for i, row in enumerate(cells)]
    ticks = [2**power for power in range(math.ceil(math.log2(smallest)), math.floor(math.log2(largest)) + 1)]
    axis, names = ["─"] * _WIDTH, [" "] * (_WIDTH + 8)
    free = 0
    for tick in ticks:
        at = column(tick)
        if at >= free:
            axis[at] = "┴"
            names[at : at + len(str(tick))] = str(tick)
            free = at + len(str(tick)) + 2
    return [
        "recall",
        *lines,
        f"      └{''.join(axis)}",
        f"       {''.join(names).rstrip()}",
        "       bytes per vector",
    ]
