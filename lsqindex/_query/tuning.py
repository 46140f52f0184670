"""Every constant of searching that a measurement chose, and the benchmark that prints what it gives.

Other numbers follow from the format of the file or from a kernel, and stand where these are.
"""

from __future__ import annotations

# -- which source: python -m bench subset -----------------------------------------------------------

#: A multi-index of fewer rows is not used unless it is asked for: a scan of them is as fast, and misses nothing.
AUTO_ROWS = 1 << 19

#: Where a filter lets through at least one row of so many, all codes are scanned and the others skipped. Otherwise the
#: codes of these rows are copied together.
SCAN_SHARE = 16

#: A search of cells reads about as many rows as so many cells of a mean size would hold, were each row in one. Where a
#: filter leaves a share of the rows, it reads more in that proportion, and at some share copying the codes pays.
VISITED = 32

# -- the multi-index: python -m bench subset ----------------------------------------------------------

#: Without ``probes``: so many for each table. Without ``candidates``: so many times what is asked for, and at least
#: so many.
PROBES, CANDIDATES, LEAST_CANDIDATES = 16, 4, 256

#: So many probes are tried at most before the rest of the rows that are lacking is scanned for.
MOST_PROBES = 1 << 16

#: About so many comparisons of a scan cost as much as one probe. A guess, not measured: it only tells when another
#: thread may help.
PROBE_COST = 64

# -- the scan: python -m bench scan -------------------------------------------------------------------

#: Queries that share each load of codes.
GROUP = 4

#: So many queries are searched at a time: their tables and candidates stay in the cache.
AT_ONCE = 256

#: The head is read first where so many rows are, and where codes are not longer: their sums of 8 bits are too coarse.
HEAD_ROWS, HEAD_BYTES = 1 << 15, 64

# -- threads: python -m bench scan --------------------------------------------------------------------

#: So many comparisons of a query with a code are worth a thread; more where threads share the queries, and so wait for
#: the same memory.
THREAD_WORK, SHARED_WORK = 1 << 18, 1 << 22

#: So many numbers of vectors that are compared exactly are worth a thread. A guess, not measured.
EXACT_WORK = 1 << 20

# -- re-ranking: python -m bench defaults -------------------------------------------------------------

#: A search re-ranks this many times as many rows as before while it expects to miss too many of the k nearest.
DEEPER = 4

#: No query re-ranks more rows than this, unless it is asked for.
DEEPEST = 1 << 16

#: Queries that re-rank many rows are taken in groups that re-rank about so many together.
DEEP_ROWS = 1 << 22


def first_depth(k: int) -> int:
    """How many rows to re-rank at first for the ``k`` nearest.

    >>> first_depth(10)
    100
    """
    return 60 + 4 * k


def missed_share(recall: float) -> float:
    """The share of the k nearest that a search may expect to miss: less than its target allows, for it expects too few.

    >>> round(missed_share(0.95), 3)
    0.03
    """
    return 0.6 * (1 - recall)


# -- filters: no benchmark; anything of this size serves ----------------------------------------------

#: Payloads that are read at a time: they may be large.
PAYLOADS_AT_ONCE = 32

#: Filters whose rows are kept as long as nothing is written.
KEPT_FILTERS = 8
