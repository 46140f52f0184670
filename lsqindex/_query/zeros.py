"""Vectors of zeros, where only directions count: they have none, and are at distance 1 from every vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._storage.format import sorted_ids
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from ..encoders.coder import Coder
from .found import Answer, Found, merged, together
from .ranking import ids_of, order, ranked
from .stored import vectors_of

if TYPE_CHECKING:
    from .search import Search

# -- queries --------------------------------------------------------------------------------------


def with_short_queries(one: Search, answer: Callable[[Search], Answer]) -> Answer:
    """Short queries are made longer, which changes no cosine. Queries of zeros are at distance 1 from every row."""
    lifted = one.snapshot.metric.lift(one.vectors)
    if lifted is one.vectors:
        return answer(one)
    one, zeros = one.of(lifted), np.logical_not(lifted.any(axis=1))
    if not zeros.any():
        return answer(one)
    first = _first_by_id(one, one.rows, one.plan.k) if one.plan.limit >= 1 else np.empty(0, np.uint32)
    n = int(zeros.sum())
    by_id = Answer(
        np.full(n, len(first)),
        np.tile(first, n),
        np.ones(n * len(first), np.float32),
        np.tile(ids_of(one.snapshot, first), n),
    )
    if zeros.all():
        return by_id
    others = answer(one.of(lifted[~zeros]))
    nobody = Answer(np.zeros(len(zeros), np.int64), first[:0], by_id.distances[:0], by_id.ids[:0])
    return merged(merged(nobody, by_id, np.flatnonzero(zeros)), others, np.flatnonzero(~zeros))


def _first_by_id(one: Search, rows: RowNumbers | None, k: int) -> RowNumbers:
    """Of ``rows``, or all for None, the k of the smallest ids, in their order."""
    if rows is None:
        found: list[RowNumbers] = []
        for _, block in sorted_ids.blocks(one.store.source):
            found.append(block[: k - sum(map(len, found))])
            if sum(map(len, found)) == k:
                break
        return np.concatenate(found)
    _, places = order(np.array([len(rows)]), np.ones(len(rows), np.float32), ids_of(one.snapshot, rows), k)
    return rows[places]


# -- rows -----------------------------------------------------------------------------------------


def without_crowds(
    one: Search, answer: Answer, counts: NDArray[np.int64], rows: RowNumbers, exact: NDArray[np.float32], wide: int
) -> tuple[Answer, NDArray[np.intp]]:
    """Better answers to queries whose candidates, ``counts`` of ``rows``, have zeros among them; and which these are.

    Zeros share a code, so many of them can take the places of all other candidates. So these queries are searched
    among the other rows, and the first zeros by id join what is found, at their distance of 1.
    """
    zeros = _zeros_among(one, rows[exact == 1])
    if not len(zeros):
        return answer, np.empty(0, np.intp)
    crowded = np.unique(np.repeat(np.arange(len(counts)), counts)[np.isin(rows, zeros)])
    return merged(answer, _without(one.only(crowded), zeros, wide), crowded), crowded


def _zeros_among(one: Search, rows: RowNumbers) -> RowNumbers:
    """All rows of zeros that have the same code as one of ``rows``, which are at distance 1 from a query."""
    if not len(rows):
        return rows
    snapshot, store = one.snapshot, one.store
    rows = np.unique(rows)
    found = rows[~vectors_of(store, snapshot.coder, rows).any(axis=1)]
    same = [rows[:0]]
    for code in np.unique(store.codes().gather(found), axis=0):
        name = code.tobytes()
        if name not in snapshot.zeros:
            snapshot.zeros[name] = _zeros(store, snapshot.coder, code)
        same.append(snapshot.zeros[name])
    return np.concatenate(same)


def _zeros(store: Store, coder: Coder, code: NDArray[np.uint8]) -> RowNumbers:
    """All rows of zeros with that code."""
    living, found = store.living(), []
    for first in range(0, len(living), 1 << 16):
        rows = living[first : first + (1 << 16)]
        rows = rows[(store.codes().gather(rows) == code).all(axis=1)]
        found.append(rows[~vectors_of(store, coder, rows).any(axis=1)])
    return np.concatenate(found)


def _without(one: Search, zeros: RowNumbers, wide: int) -> Answer:
    """The answer to queries among all rows but ``zeros``, and the first of these by id."""
    snapshot, k = one.snapshot, one.plan.k
    everything = one.store.living() if one.rows is None else one.rows
    zero = np.zeros(snapshot.state.rows, np.bool_)
    zero[zeros] = True
    left, n = everything[~zero[everything]], len(one.vectors)
    first = _first_by_id(one, everything[zero[everything]], k)
    found = Found(np.full(n, len(first)), np.tile(first, n), np.ones(n * len(first), np.float32))
    if len(left):
        others = one.among(left, min(wide, len(left)))
        found = together([Found(others.counts, others.rows, others.distances), found])
    return ranked(snapshot, found, k, one.plan.limit)
