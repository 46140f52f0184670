"""What a source finds, and what is made of it."""

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
    """What is returned, shape (nq, k) each, by distance and then by id: where fewer were found, padding follows."""

    #: int64, −1 for none; or str objects, None for none.
    ids: NDArray[Any]
    #: inf for none.
    distances: NDArray[np.float32]
    #: −1 for none.
    rows: NDArray[np.int64]

    def put(self, queries: NDArray[np.intp], other: Answer) -> None:
        """Take the answers to some queries, by their places, from ``other``."""
        self.ids[queries], self.distances[queries], self.rows[queries] = other


def empty_answer(nq: int, k: int, *, strings: bool) -> Answer:
    """Nothing found yet."""
    ids = np.full((nq, k), None, object) if strings else np.full((nq, k), -1, np.int64)
    return Answer(ids, np.full((nq, k), np.inf, np.float32), np.full((nq, k), -1, np.int64))


def unwritten_answer(nq: int, k: int, *, strings: bool) -> Answer:
    """For a kernel that writes all of it, but for ids that are strings."""
    ids = np.full((nq, k), None, object) if strings else np.empty((nq, k), np.int64)
    return Answer(ids, np.empty((nq, k), np.float32), np.empty((nq, k), np.int64))


def joined(parts: list[Answer]) -> Answer:
    """The answers to some queries, and to the next ones, as one."""
    return parts[0] if len(parts) == 1 else Answer(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


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
