"""Which setting a system is compared with: of all that reach a recall, the one that answers fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index

from ..framework import turns
from ..framework.runner import timed
from . import systems
from .measure import recall10_at_10
from .systems import K, Mode, Plan, System

#: Single queries that tell which setting is the fastest.
_SINGLES = 50

Truth = NDArray[np.int64]
Options = dict[str, Any]


@dataclass(frozen=True)
class Tuned:
    """A system, what it is asked for, and the recall of its batches."""

    system: System
    options: Options
    recall: float


def true_recall(truth: Truth) -> Callable[[Any], float]:
    """The share of the true 10 nearest among those found."""
    return lambda found: recall10_at_10(found[0], truth)


def searches(index: Index) -> Callable[[Options], Callable[[NDArray[Any]], Any]]:
    return lambda options: lambda queries: index.search(queries, K, threads=1, **options)


def fastest(
    name: str,
    search_with: Callable[[Options], Callable[[NDArray[Any]], Any]],
    ladders: Iterable[list[Options]],
    queries: Any,
    recall_of: Callable[[Any], float],
    recall: float,
    mode: Mode,
) -> Tuned:
    """Of each ladder the first rung that reaches the recall; of these the fastest, or the best if none does."""
    enough: list[tuple[float, int, Tuned]] = []
    others: list[tuple[float, int, Tuned]] = []
    for ladder in ladders:
        for options in ladder:
            search = search_with(options)
            found, seconds = timed(search, queries)
            if mode == "single":
                _, seconds = timed(lambda search=search: [search(query) for query in queries[:_SINGLES]])
            own = recall_of(found)
            tuned = Tuned(System(name, search), options, own)
            if own >= recall:
                enough.append((seconds, len(enough), tuned))
                break
            others.append((-own, len(others), tuned))
    return min(enough)[2] if enough else min(others)[2]


def by_turns(plan: Plan, tuned: Sequence[Tuned], mode: Mode, queries: Any, rival: str) -> dict[str, dict[str, Any]]:
    """Queries per second of each; ratios are to ``rival``'s."""
    by_name = {own.system.name: systems.turn(plan, own.system, mode, queries) for own in tuned}
    times = turns.by_turns(by_name, systems.rounds(plan, mode))
    return {
        own.system.name: {
            "recall10@10": own.recall,
            **{name: value for name, value in own.options.items() if name in ("probes", "candidates", "rerank")},
            **systems.speed(times[own.system.name], systems.queries_of_turn(plan, mode, queries)),
            **(turns.ratios(times[rival], times[own.system.name]) if own.system.name != rival else {}),
        }
        for own in tuned
    }
