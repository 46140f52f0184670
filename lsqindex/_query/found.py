"""What a source finds, and what is made of it: rows of several queries, one query after another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._storage.format.columns import RowNumbers


class Found(NamedTuple):
    """Candidates: the rows that were found for each query, the first ``counts[0]`` for the first, and so on."""

    counts: NDArray[np.int64]
    rows: RowNumbers
    #: None where a source leaves it to re-ranking to tell how far they are.
    distances: NDArray[np.float32] | None
    #: Whether they come nearest first, and no more than were wanted; otherwise in no order, ties included.
    ordered: bool = False


class Answer(NamedTuple):
    """What is returned: rows by distance and then by id, no more than were asked for."""

    counts: NDArray[np.int64]
    rows: RowNumbers
    distances: NDArray[np.float32]
    #: int64, or an array of str objects.
    ids: NDArray[Any]


def joined(parts: list[Answer]) -> Answer:
    """The answers to some queries, and to the next ones, as one."""
    return parts[0] if len(parts) == 1 else Answer(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def merged(own: Answer, other: Answer, queries: NDArray[Any]) -> Answer:
    """``own``, and for some queries, by their places, what ``other`` has instead."""
    counts = own.counts.copy()
    counts[queries] = other.counts
    mine = np.repeat(np.arange(len(counts)), own.counts)
    kept = ~np.isin(mine, queries)
    order = np.argsort(np.concatenate([mine[kept], np.repeat(queries, other.counts)]), kind="stable")
    return Answer(counts, *(np.concatenate([a[kept], b])[order] for a, b in zip(own[1:], other[1:], strict=True)))


def together(parts: list[Found]) -> Found:
    """What several sources found for the same queries, as one, in no order."""
    some = [part for part in parts if len(part.rows)] or parts[:1]
    if len(some) == 1:
        return some[0]
    counts = np.sum([part.counts for part in some], axis=0)
    queries = np.arange(len(counts))
    order = np.argsort(np.concatenate([np.repeat(queries, part.counts) for part in some]), kind="stable")
    far = [part.distances for part in some if part.distances is not None]
    distances = np.concatenate(far)[order] if len(far) == len(some) else None
    return Found(counts, np.concatenate([part.rows for part in some])[order], distances)
