"""Subset indexing (section 3.2 of the paper): the rows that share most buckets with the query.

Each table of the multi-index returns the rows of the query's bucket, and of the buckets nearest to it; a row's score is
the number of tables that return it. The kernel (``cython_src/probes.h``, ``scores.h``) takes the cheapest buckets of
all tables together, and reads posting lists where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..._compiled.multi_index import Lists
from ..._threads.pool import Pool
from ...encoders.layout import Layout
from .codes import Sharing, sharing

__all__ = ["Lists", "Probing", "Scored", "best", "lists_of"]

#: So many probes are tried at most before the rest of the rows that are lacking is scanned for.
MOST_PROBES = 1 << 16

#: So many postings are worth a thread.
_THREAD_WORK = 1 << 16


class Stored(Protocol):
    """Where posting lists lie, block by block and table by table, such as ``storage.lists.Lists``."""

    @property
    def firsts(self) -> NDArray[np.uint32]: ...
    @property
    def spans(self) -> NDArray[np.uint32]: ...
    @property
    def counts(self) -> NDArray[np.uint32]: ...
    @property
    def addresses(self) -> NDArray[np.uint64]: ...
    @property
    def first_bits(self) -> NDArray[np.int64]: ...
    @property
    def bits(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Probing:
    """How to look for rows, whatever the queries are."""

    #: Buckets to look into, of all tables together.
    probes: int
    #: Rows of the best scores that are wanted.
    wanted: int
    #: At least so many rows: one bucket more at a time until they are there.
    least: int
    #: Whether a hit counts the more, the nearer its bucket is.
    weigh: bool
    #: A bit for each row that may be found, or None for all.
    allowed: NDArray[np.uint8] | None = None
    #: Whether to count the rows that any list returned.
    counting: bool = False


@dataclass(frozen=True)
class Scored:
    """For each query the rows of the best scores, ties included, in no order."""

    counts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    scores: NDArray[np.uint16]
    #: For each query: probes, postings, rows that any list returned (0 where they were not counted).
    figures: NDArray[np.int64]


def lists_of(
    stored: Stored,
    layout: Layout,
    deleted: NDArray[np.uint64],
    there: NDArray[np.uint8],
    *,
    segment_rows: int,
    chunk_rows: int,
) -> Lists:
    """Posting lists for the kernel. ``deleted`` and ``there`` as :class:`Lists` wants them."""
    fields = np.append(np.searchsorted(layout.bit_starts, stored.first_bits), len(layout.bits)).astype(np.int64)
    return Lists(
        stored.firsts,
        stored.spans,
        stored.counts,
        stored.addresses,
        fields,
        stored.bits.astype(np.uint8),
        layout.starts,
        layout.level_counts,
        deleted,
        segment_rows,
        there,
        chunk_rows,
    )


def best(
    lists: Lists, values: NDArray[np.float32], probing: Probing, *, threads: int = 1, share: Sharing = nullcontext
) -> Scored:
    """The best rows of each query, whose probe tables ``values`` are; the same for every number of threads.

    ``share`` as in :func:`scan.nearest`.
    """
    nq = len(values)
    workers = max(1, min(threads, nq, nq * probing.probes * 16 // _THREAD_WORK))
    step = -(-nq // workers)
    slices = [values[first : first + step] for first in range(0, nq, step)]

    def one(some: NDArray[np.float32]) -> Scored:
        least = min(probing.least, probing.wanted)
        limits = (probing.probes, probing.wanted, probing.weigh, least, MOST_PROBES)
        return Scored(*lists.best(some, *limits, probing.allowed, probing.counting))

    if len(slices) == 1:
        return one(slices[0])
    with Pool(workers) as pool:
        return _joined(pool.map(sharing(share, one), slices))


def _joined(parts: Iterator[Scored]) -> Scored:
    counts, rows, scores, figures = zip(
        *((part.counts, part.rows, part.scores, part.figures) for part in parts), strict=True
    )
    return Scored(*(np.concatenate(arrays) for arrays in (counts, rows, scores, figures)))
