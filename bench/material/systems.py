"""Systems that answer queries, and their comparison: single queries and batches, by turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index

from ..framework import turns
from .data import Vectors
from .measure import recall10_at_10

#: Neighbours that are asked for.
K = 10

Mode = Literal["single", "batch"]
MODES: tuple[Mode, ...] = ("single", "batch")

#: Ids and distances of a query, shape (k,), or of several, (queries, k).
Answer = tuple[NDArray[Any], NDArray[Any]]


class Plan(Protocol):
    """How much is measured: rounds of batches and of single queries, and the single queries of a turn."""

    @property
    def rounds(self) -> int: ...
    @property
    def single_rounds(self) -> int: ...
    @property
    def singles(self) -> int: ...


@dataclass(frozen=True)
class System:
    """A name, and what answers one query, of shape (dim,), or a batch, (queries, dim)."""

    name: str
    search: Callable[[NDArray[Any]], Answer]
    #: What it is asked; the queries themselves where None.
    queries: NDArray[Any] | None = None


def lsqindex(name: str, index: Index, **options: Any) -> System:
    """An index of ours; on one thread, unless the options say another number."""
    options = {"threads": 1, **options}
    return System(name, lambda queries: index.search(queries, K, **options))


def faiss(name: str, search: Callable[[NDArray[Any], int], Any], queries: NDArray[Any] | None = None) -> System:
    """An index of FAISS: it knows batches only."""

    def answer(asked: NDArray[Any]) -> Answer:
        found = search(asked if asked.ndim == 2 else asked[None], K)
        ids, distances = found if isinstance(found, tuple) else (found, found)
        return (ids, distances) if asked.ndim == 2 else (ids[0], distances[0])

    return System(name, answer, queries)


def compare(
    plan: Plan, systems: Sequence[System], mode: Mode, queries: Vectors, truth: NDArray[np.int64], rival: str
) -> dict[str, dict[str, Any]]:
    """Queries per second of each system and its recall; ratios are those of queries per second to ``rival``'s."""
    recalls = {system.name: recall10_at_10(answers(system, mode, queries)[0], truth) for system in systems}
    times = turns.by_turns({system.name: turn(plan, system, mode, queries) for system in systems}, rounds(plan, mode))
    return {
        name: {
            "recall10@10": recalls[name],
            **speed(found, queries_of_turn(plan, mode, queries)),
            **(turns.ratios(times[rival], found) if rival in times and rival != name else {}),
        }
        for name, found in times.items()
    }


def turn(plan: Plan, system: System, mode: Mode, queries: Vectors) -> turns.Turn:
    """A batch of all queries, or some single ones, others in every round."""
    asking, search = _asked(system, queries), system.search
    if mode == "batch":
        return lambda number: search(asking)
    rows, count = list(asking), queries_of_turn(plan, mode, queries)

    def one_by_one(number: int) -> None:
        for i in range(number * count, (number + 1) * count):
            search(rows[i % len(rows)])

    return one_by_one


def rounds(plan: Plan, mode: Mode) -> int:
    """How many rounds are measured."""
    return plan.rounds if mode == "batch" else plan.single_rounds


def queries_of_turn(plan: Plan, mode: Mode, queries: Vectors) -> int:
    """How many queries are answered in a turn."""
    return len(queries) if mode == "batch" else min(plan.singles, len(queries))


def speed(times: Sequence[float], queries: int) -> dict[str, float]:
    """Of turns of so many queries each."""
    median = statistics.median(times)
    return {"queries/s": queries / median, "µs": 1e6 * median / queries, "spread": turns.spread(times)}


def answers(system: System, mode: Mode, queries: Vectors) -> Answer:
    """What it answers to all queries, in one call or one by one."""
    asking = _asked(system, queries)
    if mode == "batch":
        return system.search(asking)
    ids, distances = zip(*(system.search(query) for query in asking), strict=True)
    return np.stack(ids), np.stack(distances)


def _asked(system: System, queries: Vectors) -> NDArray[Any]:
    return queries if system.queries is None else system.queries
