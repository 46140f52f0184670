# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Exact distances between queries and vectors where they lie: of some rows, or the nearest of all. The GIL is released.

See exact.h (distances), rerank.h (of some rows), compare.h (of all rows), misses.h.
"""

import numpy as np

from cpython.pycapsule cimport PyCapsule_New
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from column cimport column_of, lsq_column
from filter cimport allow_rows, delete_rows, lsq_filter
from nearest cimport (
    float_limit,
    lsq_nearest,
    lsq_nearest_copy,
    lsq_nearest_free,
    lsq_nearest_init,
    lsq_nearest_join,
    wanted,
)

from lsqindex._compiled import encoding


cdef extern from "exact.h" nogil:
    int LSQ_FLOAT32, LSQ_FLOAT16, LSQ_INT8, LSQ_SCALED_FLOAT16, LSQ_L2, LSQ_IP, LSQ_COSINE, LSQ_LEVELS
    ctypedef struct lsq_target:
        pass
    int lsq_converts_halves()
    int64_t lsq_padded(int64_t dim)
    lsq_target lsq_target_of(int metric, const float *query, int64_t dim, float *room)

cdef extern from "rerank.h" nogil:
    ctypedef int64_t (*lsq_rerank)(int kind, int metric, const lsq_column *column, int64_t dim, const lsq_target *query,
                                   const uint32_t *rows, int64_t n, float *out)
    lsq_rerank lsq_rerank_at(int level)

cdef extern from "compare.h" nogil:
    ctypedef struct lsq_vectors:
        lsq_column column
        int kind
        int64_t dim
        int64_t head
        lsq_filter filter
    ctypedef struct lsq_comparison:
        const lsq_vectors *vectors
        int level
        int metric
        int64_t nq
        int64_t parts
        lsq_target *queries
        lsq_nearest *nearest
    int lsq_compare(const lsq_comparison *all, int64_t part, int64_t first, int64_t last)

cdef extern from "misses.h" nogil:
    double lsq_expected_misses(const float *x, const float *y, int64_t n, double kth, int64_t total)

cdef extern from "glue.h":
    pass

_KINDS = {
    "float32": LSQ_FLOAT32,
    "float16": LSQ_FLOAT16,
    "int8": LSQ_INT8,
    "scaled-float16": LSQ_SCALED_FLOAT16,
}
# Asked once: in a virtual machine it takes as long as a search.
cdef bint _HALVES = lsq_converts_halves()


cdef int _level() except -1:
    return encoding.simd_level_number() if _HALVES else 0


cdef object _capsule(int level):
    return PyCapsule_New(<void *>lsq_rerank_at(level), "lsq_rerank", NULL)


cdef list _RERANK = [_capsule(level) for level in range(LSQ_LEVELS)]


def rerank():
    """What compares rows here, for other extensions: a capsule with the address of the function."""
    return _RERANK[_level()]


cdef int _kind(name) except -1:
    if name not in _KINDS:
        raise ValueError(f"exact: {name!r} is unknown; known are {', '.join(_KINDS)}")
    return _KINDS[name]


cdef int _metric(int number) except -1:
    """The number of a metric, which metrics.py gives."""
    if number not in (LSQ_L2, LSQ_IP, LSQ_COSINE):
        raise ValueError(f"exact: metric {number} is unknown")
    return number


def distances(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
              const uint64_t[::1] addresses not None, kind, int64_t dim, int metric, const float[:, ::1] queries not None,
              const int64_t[::1] found not None, const uint32_t[::1] rows not None):
    """The distance of each of ``rows`` from its query, float32: ``found[0]`` rows for the first query, and so on.

    LookupError for a row that no record holds.
    """
    cdef int layout = _kind(kind), how = _metric(metric)
    cdef lsq_rerank compare = lsq_rerank_at(_level())
    cdef int64_t nq = queries.shape[0], total = rows.shape[0], q, at = 0, missing = -1
    cdef lsq_column column = column_of(starts, counts, addresses)
    cdef lsq_target query
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
    cdef float[::1] room = np.empty(lsq_padded(dim), np.float32)
    with nogil:
        at = 0
        for q in range(nq):
            if found[q]:
                query = lsq_target_of(how, &queries[q, 0], dim, &room[0])
                missing = compare(layout, how, &column, dim, &query, &rows[at], found[q], &to[at])
                if missing >= 0:
                    break
                at += found[q]
    if missing >= 0:
        raise LookupError(f"row {rows[at + missing]} is in no record")
    return out


cdef class Vectors:
    """Where vectors lie: records of rows, how their numbers are laid out, and which rows are deleted.

    ``kind`` is the layout of a row (``_storage/format/kept.py``). ``head`` is 0 where rows lie one after another; where
    they lie as codes do, in blocks of 32 rows by byte, it is the size of the code's head, and ``kind`` is "float32".
    ``deleted`` are the addresses of the bits of each segment of ``segment_rows`` rows, 0 where there are none.
    """

    cdef lsq_vectors vectors
    #: How many rows there are, deleted ones included.
    cdef readonly int64_t rows
    #: For other extensions: holds the address of the lsq_vectors.
    cdef readonly object capsule
    cdef object _arrays

    def __init__(self, const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
                 const uint64_t[::1] addresses not None, kind, int64_t dim, int64_t head,
                 const uint64_t[::1] deleted not None, uint32_t segment_rows):
        cdef int64_t i
        self.vectors.column = column_of(starts, counts, addresses)
        self.vectors.kind, self.vectors.dim, self.vectors.head = _kind(kind), dim, head
        if dim < 1 or segment_rows < 1 or not 0 <= head <= 4 * dim or (head and self.vectors.kind != LSQ_FLOAT32):
            raise ValueError("vectors: sizes do not fit")
        delete_rows(&self.vectors.filter, deleted, segment_rows)
        self._arrays = (starts, counts, addresses, deleted)
        self.capsule = PyCapsule_New(&self.vectors, "lsq_vectors", NULL)
        self.rows = 0
        for i in range(counts.shape[0]):
            self.rows += counts[i]


cdef class Scan:
    """One search among vectors: ``run`` each part, at the same time where that serves, and then ``finish``.

    It finds the ``k`` nearest rows of those no farther than ``limit``; all of these, where ``k`` is None. ``allowed``
    has a bit for each row that may be found, or is None for all. A row's distance is that of :func:`distances`, bit for
    bit.
    """

    cdef lsq_comparison all
    cdef lsq_vectors vectors
    cdef float *numbers
    cdef object _arrays
    cdef uint8_t nothing

    def __init__(self, Vectors vectors not None, int metric, const float[:, ::1] queries not None, k,
                 const uint8_t[::1] allowed=None, int64_t parts=1, double limit=INFINITY):
        cdef int64_t nq = queries.shape[0], dim = vectors.vectors.dim, size = lsq_padded(dim), q, most = wanted(k)
        cdef float farthest = float_limit(limit)
        cdef bint fine = True
        if self.all.nearest is not NULL:
            raise ValueError("exact: made once already")
        if queries.shape[1] != dim or not 1 <= parts <= 1 << 16:
            raise ValueError("exact: sizes do not fit")
        self.vectors = vectors.vectors
        if allowed is not None:
            allow_rows(&self.vectors.filter, allowed, &self.nothing)
        self._arrays = (vectors, allowed)
        self.all.vectors, self.all.level, self.all.metric = &self.vectors, _level(), _metric(metric)
        self.all.nearest = <lsq_nearest *>calloc(max(parts * nq, 1), sizeof(lsq_nearest))
        self.all.queries = <lsq_target *>malloc(max(nq, 1) * sizeof(lsq_target))
        self.numbers = <float *>malloc(max(nq * size, 1) * sizeof(float))
        if self.all.nearest is NULL or self.all.queries is NULL or self.numbers is NULL:
            raise MemoryError("exact: no memory for queries")
        self.all.nq, self.all.parts = nq, parts
        with nogil:
            for q in range(nq):
                self.all.queries[q] = lsq_target_of(self.all.metric, &queries[q, 0], dim, self.numbers + q * size)
            for q in range(parts * nq):
                fine = fine and lsq_nearest_init(&self.all.nearest[q], most, farthest)
        if not fine:
            raise MemoryError("exact: no memory for candidates")

    def __dealloc__(self):
        cdef int64_t i
        if self.all.nearest is not NULL:
            for i in range(self.all.parts * self.all.nq):
                lsq_nearest_free(&self.all.nearest[i])
        free(self.all.nearest)
        free(self.all.queries)
        free(self.numbers)

    def run(self, int64_t part=0):
        """Compare one part of the records."""
        cdef int64_t records = self.vectors.column.records, parts = self.all.parts
        cdef bint fine
        if not 0 <= part < parts:
            raise ValueError("exact: there is no such part")
        with nogil:
            fine = lsq_compare(&self.all, part, part * records // parts, (part + 1) * records // parts)
        if not fine:
            raise MemoryError("exact: no memory for candidates")

    def finish(self):
        """(counts, rows, distances): for each query the rows that are not farther than its k-th nearest, in no order."""
        cdef int64_t nq = self.all.nq, q, total = 0
        cdef bint fine = True
        found = np.empty(nq, np.int64)
        cdef int64_t[::1] counts = found
        with nogil:
            for q in range(nq):
                fine = fine and lsq_nearest_join(self.all.nearest, self.all.parts, nq, q)
                counts[q] = self.all.nearest[q].count
                total += counts[q]
        if not fine:
            raise MemoryError("exact: no memory for candidates")
        rows, distances = np.empty(total, np.uint32), np.empty(total, np.float32)
        cdef uint32_t[::1] to_rows = rows
        cdef float[::1] to_distances = distances
        if total:
            lsq_nearest_copy(self.all.nearest, nq, &to_rows[0], &to_distances[0])
        return found, rows, distances


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
