# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Exact distances between queries and kept vectors where they lie; see exact.h. The GIL is released."""

import numpy as np

from libc.stdint cimport int64_t, uint32_t, uint64_t

from lsqindex._compiled import encoding


cdef extern from "rows.h" nogil:
    ctypedef struct lsq_column:
        const uint32_t *starts
        const uint32_t *counts
        const uint64_t *addresses
        int64_t records

cdef extern from "exact.h" nogil:
    int LSQ_FLOAT32, LSQ_FLOAT16, LSQ_INT8, LSQ_SCALED_FLOAT16, LSQ_L2, LSQ_IP, LSQ_COSINE, LSQ_WIDE
    ctypedef struct lsq_kept:
        const lsq_column *column
        int kind
        int metric
        int64_t dim
    int lsq_converts_halves()
    int64_t lsq_distances(int level, const lsq_kept *kept, const float *query, float *q, const uint32_t *rows,
                          int64_t n, float *out)

cdef extern from "misses.h" nogil:
    double lsq_expected_misses(const float *x, const float *y, int64_t n, double kth, int64_t total)

_KINDS = {
    "float32": LSQ_FLOAT32,
    "float16": LSQ_FLOAT16,
    "int8": LSQ_INT8,
    "scaled-float16": LSQ_SCALED_FLOAT16,
}
# Asked once: in a virtual machine it takes as long as a search.
cdef bint _HALVES = lsq_converts_halves()
_METRICS = {"l2": LSQ_L2, "ip": LSQ_IP, "cosine": LSQ_COSINE}


def distances(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
              const uint64_t[::1] addresses not None, kind, int64_t dim, metric, const float[:, ::1] queries not None,
              const int64_t[::1] found not None, const uint32_t[::1] rows not None):
    """The distance of each of ``rows`` from its query, float32: ``found[0]`` rows for the first query, and so on.

    LookupError for a row that no record holds.
    """
    cdef int level = encoding.simd_level_number() if _HALVES else 0
    cdef int64_t nq = queries.shape[0], total = rows.shape[0], records = starts.shape[0], q, at = 0, missing = -1
    cdef lsq_column column
    cdef lsq_kept kept
    if kind not in _KINDS or metric not in _METRICS:
        raise ValueError(f"distances: an unknown kind or metric: {kind!r}, {metric!r}")
    if counts.shape[0] != records or addresses.shape[0] != records:
        raise ValueError("distances: a column's arrays differ in length")
    if queries.shape[1] != dim or dim < 1 or found.shape[0] != nq:
        raise ValueError("distances: shapes do not fit")
    for q in range(nq):
        if not 0 <= found[q] <= total - at:
            raise ValueError("distances: the rows do not fit their numbers")
        at += found[q]
    if at != total:
        raise ValueError("distances: the rows do not fit their numbers")
    out = np.empty(total, np.float32)
    if total == 0:
        return out
    cdef float[::1] to = out
    cdef float[::1] query = np.empty((dim + LSQ_WIDE - 1) // LSQ_WIDE * LSQ_WIDE, np.float32)
    column.records, column.starts, column.counts, column.addresses = records, NULL, NULL, NULL
    if records:
        column.starts, column.counts, column.addresses = &starts[0], &counts[0], &addresses[0]
    kept.column, kept.kind, kept.metric, kept.dim = &column, _KINDS[kind], _METRICS[metric], dim
    with nogil:
        at = 0
        for q in range(nq):
            if found[q]:
                missing = lsq_distances(level, &kept, &queries[q, 0], &query[0], &rows[at], found[q], &to[at])
                if missing >= 0:
                    break
                at += found[q]
    if missing >= 0:
        raise LookupError(f"row {rows[at + missing]} is in no record")
    return out


def expected_misses(const float[:, ::1] estimates not None, const float[:, ::1] exact not None,
                    const float[::1] kth not None, int64_t total):
    """For each query, how many rows that were not compared exactly are expected to be nearer than the ``kth``; float64.

    ``estimates`` and ``exact`` are distances, shape (nq, n), of the n rows that are nearest by their estimates, in
    ascending order of these; ``total`` is the number of rows that could have been found.
    """
    cdef int64_t nq = estimates.shape[0], n = estimates.shape[1], q
    if exact.shape[0] != nq or exact.shape[1] != n or kth.shape[0] != nq or n < 3:
        raise ValueError("expected_misses: shapes do not fit")
    out = np.empty(nq, np.float64)
    cdef double[::1] to = out
    with nogil:
        for q in range(nq):
            to[q] = lsq_expected_misses(&estimates[q, 0], &exact[q, 0], n, kth[q], total)
    return out
