"""Vectors of zeros, where only directions count: they have none, and are at distance 1 from every vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .._storage.format import sorted_ids
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from ..encoders.coder import Coder
from .found import Answer, Found, empty_answer, together
from .ranking import ids_of, order, ranked
from .stored import vectors_of

if TYPE_CHECKING:
    from .search import Search
    from .sources.scan import Scan

# -- queries --------------------------------------------------------------------------------------


def with_short_queries(one: Search, answer: Callable[[Search], Answer]) -> Answer:
    """Short queries are made longer, which changes no cosine. Queries of zeros are at distance 1 from every row."""
    lifted = one.snapshot.metric.lift(one.vectors)
    if lifted is one.vectors:
        return answer(one)
    one, zeros = one.of(lifted), np.logical_not(lifted.any(axis=1))
    if not zeros.any():
        return answer(one)
    k, own = one.plan.k, empty_answer(len(lifted), one.plan.k, strings=one.strings)
    first = _first_by_id(one, one.rows, k) if one.plan.limit >= 1 else np.empty(0, np.uint32)
    at = np.flatnonzero(zeros)[:, None], np.arange(len(first))
    own.ids[at], own.distances[at], own.rows[at] = ids_of(one.snapshot, first), 1, first
    if not zeros.all():
        own.put(np.flatnonzero(~zeros), answer(one.of(lifted[~zeros])))
    return own


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


def without_crowds(one: Search, scan: Scan, met: RowNumbers) -> Answer:
    """The answer to queries that have rows of zeros, ``met``, among their candidates.

    Zeros share a code, so many of them can take the places of all other candidates. So these queries are searched
    among the other rows, and the first zeros by id join what is found, at their distance of 1.
    """
    snapshot, k, plan = one.snapshot, one.plan.k, one.plan
    everything = one.store.living() if one.rows is None else one.rows
    zero = np.zeros(snapshot.state.rows, np.bool_)
    zero[_zeros_like(one, met)] = True
    left, n = everything[~zero[everything]], len(one.vectors)
    first = _first_by_id(one, everything[zero[everything]], k)
    found = Found(np.full(n, len(first)), np.tile(first, n), np.ones(n * len(first), np.float32))
    if len(left):
        others = scan.among(one, left)
        depth = plan.depth._replace(wide=min(plan.depth.wide, len(left)))
        others.prepare(snapshot, k, plan.limit, plan.code_limit, depth)
        nearest = others.answer(one.among(left), lifted=True)
        there = nearest.rows >= 0
        rows = nearest.rows[there].astype(np.uint32)
        found = together([Found(there.sum(axis=1), rows, nearest.distances[there]), found])
    return ranked(snapshot, found, k, plan.limit)


def _zeros_like(one: Search, rows: RowNumbers) -> RowNumbers:
    """All rows of zeros that have the same code as one of ``rows``."""
    snapshot, store, same = one.snapshot, one.store, []
    for code in np.unique(store.codes().gather(np.unique(rows)), axis=0):
        name = code.tobytes()
        if name not in snapshot.zeros:
            snapshot.zeros[name] = _zeros(store, snapshot.coder, code)
        same.append(snapshot.zeros[name])
    return np.concatenate(same)


def _zeros(store: Store, coder: Coder, code: RowNumbers) -> RowNumbers:
    """All rows of zeros with that code."""
    living, found = store.living(), []
    for first in range(0, len(living), 1 << 16):
        rows = living[first : first + (1 << 16)]
        rows = rows[(store.codes().gather(rows) == code).all(axis=1)]
        found.append(rows[~vectors_of(store, coder, rows).any(axis=1)])
    return np.concatenate(found)
