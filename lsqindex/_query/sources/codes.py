"""Distance estimation (section 3.1 of the paper): the nearest of all codes, by one look-up per field.

The kernel (``cython_src/scan.h``) reads codes where they lie. Codes whose fields fit nibbles, or whose tables are
affine in their bits (``layout.linear``), are scanned 32 rows at a time; others field after field. Where the encoder
says that the head of a code ranks nearly as well as all of it (``layout.head``), most rows are left after their head.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..._compiled.scan import Codes, Scan
from ..._threads.pool import Pool
from ...encoders.layout import MARGIN_SHARES, Layout, Tables

__all__ = ["Codes", "Found", "Search", "by_nibbles", "margin", "nearest", "sharing"]

#: Calls a function for each of so many parts.
Runner: TypeAlias = Callable[[Callable[[int], None], int], None]

#: Makes a ``with`` block during which what is searched stays where it is.
Sharing: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: Queries that share each load of codes.
_GROUP = 4

#: So many queries are scanned at a time: their tables and candidates stay in the cache.
_AT_ONCE = 256

#: So many comparisons of a query with a row are worth a thread; more where threads share the queries, and so wait for
#: the same memory.
_THREAD_WORK, _SHARED_WORK = 1 << 18, 1 << 22

#: The head is read first where so many rows are, and where codes are not longer: their sums of 8 bits are too coarse.
_HEAD_ROWS, _HEAD_BYTES = 1 << 15, 64


@dataclass(frozen=True)
class Found:
    """For each query the rows that are not farther than its k-th nearest, in no order."""

    counts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    distances: NDArray[np.float32]

    def replaced(self, queries: NDArray[np.intp], other: Found) -> Found:
        """These, and for some queries what ``other`` has."""
        counts = self.counts.copy()
        own = np.repeat(np.arange(len(counts)), counts)
        counts[queries] = other.counts
        kept = ~np.isin(own, queries)
        order = np.argsort(np.concatenate([own[kept], np.repeat(queries, other.counts)]), kind="stable")
        rows, distances = (
            np.concatenate([mine[kept], new])[order]
            for mine, new in ((self.rows, other.rows), (self.distances, other.distances))
        )
        return Found(counts, rows, distances)


@dataclass(frozen=True)
class Search:
    """What to look for among codes, whatever the queries are."""

    k: int
    #: Look-ups by nibbles, or by fields.
    nibbles: bool
    #: The margin of the progressive scan, or None.
    z: float | None = None
    #: A bit for each row that may be found, or None for all.
    allowed: NDArray[np.uint8] | None = None


def by_nibbles(layout: Layout, *, asymmetric: bool) -> bool:
    """Whether a distance can be looked up nibble by nibble."""
    return (layout.linear and asymmetric) or not layout.crosses


def margin(layout: Layout, head: int, k: int, rows: int) -> float | None:
    """How far below the mean the head of a row must be to be looked at further, in standard deviations.

    None where all of every row is to be read: ``head`` bytes stored apart are not the encoder's, there are too few
    ``rows``, or too many of them are wanted.
    """
    if not layout.margins or head != layout.head or rows < _HEAD_ROWS or layout.code_size > _HEAD_BYTES:
        return None
    # The encoder knows it for some shares; in between it is nearly linear in their logarithm.
    decades = math.log10(MARGIN_SHARES[0] * rows / k)
    if decades < 0:
        return None
    below = min(int(decades), len(layout.margins) - 2)
    near, far = layout.margins[below : below + 2]
    return near + (far - near) * min(1.0, decades - below)


def nearest(
    codes: Codes, tables: Tables, search: Search, *, threads: int = 1, share: Sharing = contextlib.nullcontext
) -> Iterator[Found]:
    """The k nearest of each query, ties included, for some queries after others.

    Each thread that helps holds ``share()``, which keeps the codes where they are: if the caller is interrupted, the
    others may still be reading them.

    The same whatever the number of threads: these take queries where there are many, or else parts of the codes.
    """
    values, bias = tables.values, tables.bias
    nq = len(values)
    workers = min(threads, codes.rows * nq // _THREAD_WORK)
    split = workers > 1 and nq >= 2 * _GROUP * workers
    if not split:
        workers = min(threads, codes.rows * nq // _SHARED_WORK)
    step = min(_AT_ONCE, -(-nq // (workers * _GROUP)) * _GROUP) if split else _AT_ONCE
    slices = [slice(first, first + step) for first in range(0, nq, step)]

    def one(at: slice, runner: Runner = _one_by_one, parts: int = 1) -> Found:
        return _scan(codes, values[at], bias[at], search, runner, parts)

    if workers < 2:
        yield from map(one, slices)
        return
    with Pool(workers) as pool:
        if split:
            yield from pool.map(sharing(share, one), slices)
            return

        def together(run: Callable[[int], None], parts: int) -> None:
            list(pool.map(sharing(share, run), range(parts)))

        for at in slices:
            yield one(at, together, workers)


def sharing(share: Sharing, work: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """``work`` as a helping thread does it."""

    def shared(argument: Argument) -> Result:
        with share():
            return work(argument)

    return shared


def _one_by_one(run: Callable[[int], None], parts: int) -> None:
    for part in range(parts):
        run(part)


def _scan(
    codes: Codes,
    values: NDArray[np.float32],
    bias: NDArray[np.float32],
    search: Search,
    runner: Runner,
    parts: int,
) -> Found:
    scan = Scan(codes, values, bias, search.k, search.nibbles, search.z, search.allowed, parts)
    runner(scan.run, parts)
    counts, rows, distances, sure = scan.finish()
    found = Found(counts, rows, distances)
    if search.z is None or sure.all():
        return found
    again = np.flatnonzero(sure == 0)
    whole = Search(search.k, search.nibbles, None, search.allowed)
    return found.replaced(again, _scan(codes, values[again], bias[again], whole, runner, parts))
