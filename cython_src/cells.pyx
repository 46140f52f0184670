# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The search of cells; see cells.h. The GIL is released."""

import numpy as np

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from codes cimport lsq_codes
from column cimport column_of, lsq_column
from filter cimport allow_rows
from nearest cimport float_limit, lsq_nearest

from lsqindex._compiled import encoding, exact


cdef extern from "cells.h" nogil:
    int LSQ_FINE
    int LSQ_NO_MEMORY
    int LSQ_NO_ID
    int LSQ_UNVERIFIED
    int LSQ_COSINE
    double LSQ_SMALL
    int LSQ_TABLES_AT_ONCE
    ctypedef void (*lsq_rerank)()
    ctypedef struct lsq_linear:
        int64_t dim
    ctypedef struct lsq_vectors:
        lsq_column column
        int kind
        int64_t dim
        int64_t head
    ctypedef struct lsq_ids:
        lsq_column column
        int strings
    ctypedef struct lsq_answer:
        void *matches
        int64_t count
    ctypedef struct lsq_cells:
        int64_t count
        const uint64_t *addresses
        const uint32_t *sizes
        int64_t entries
        lsq_column centres
        const uint8_t *centre_codes
        const float *near
        const float *spreads
    ctypedef struct lsq_cells_plan:
        lsq_cells cells
        lsq_codes codes
        uint32_t fresh
        const uint8_t *there
        int64_t chunks
        uint32_t chunk_rows
        int nibbles
        const lsq_linear *linear
        int64_t lookups
        int64_t dim
        const lsq_vectors *kept
        int64_t row_size
        const uint8_t *verified
        int metric
        int level
        lsq_rerank rerank
        int all
        lsq_ids ids
        int64_t k
        float limit
        float reach
        float slope
        float tau
        float misses
        float lost
        int64_t probes
        int64_t depth
    ctypedef struct lsq_visits:
        int64_t cells
        int64_t rows
        int64_t compared
        double left
    ctypedef struct lsq_cells_work:
        lsq_nearest nearest
        uint32_t *rows
        int64_t taken
    int64_t lsq_number_size(int kind)
    int64_t lsq_scale_size(int kind)
    int64_t lsq_lookups_of(const lsq_linear *linear)
    lsq_cells_work *lsq_cells_work_take(lsq_cells_work **spare, const lsq_cells_plan *plan)
    void lsq_cells_work_leave(lsq_cells_work **spare, lsq_cells_work *work)
    void lsq_cells_make(const lsq_cells_plan *plan, lsq_cells_work *work, const float *queries, int64_t n)
    int lsq_cells_search(const lsq_cells_plan *plan, lsq_cells_work *work, const float *query, const float *values, float bias,
                         int64_t made, lsq_visits *visits)
    int lsq_answer_from(lsq_answer *answer, const lsq_ids *ids, const lsq_nearest *nearest, int64_t k)
    void lsq_answer_write(const lsq_answer *answer, int64_t k, float least, int64_t *ids, float *distances, int64_t *rows)


cdef class Visits:
    """What a search of cells did, for all queries together."""

    #: Cells visited, rows read, rows compared.
    cdef readonly int64_t cells, rows, compared
    #: Rows of cells not visited that are expected to be nearer than the last one found.
    cdef readonly double left
    #: Queries that were left out: their numbers are too small to be multiplied.
    cdef readonly list short

    def __cinit__(self):
        self.short = []


cdef class Prepared:
    """All that searches in the cells of a snapshot share.

    cells
        (counts, addresses, centres, codes, near, spreads): of each cell and its tail the entries and where their payloads
        begin; centres as float16 numbers, and their codes in blocks of 32; mean cosines and spreads (cells.h).
    codes, nibbles, fresh
        The codes of all rows (``scan.Codes``), whether they are looked up by nibbles, and the first row in no cell.
    there, chunk_rows
        For each chunk of rows, whether it is stored: cells may name rows of one that was given back.
    linear, dim
        What makes the tables of queries of ``dim`` numbers (``encoding.Linear``), or None where they are given.
    kept
        (``exact.Vectors``, a flag for each record that was verified), or None where codes alone decide.
    ids, strings
        The column of ids, and whether they are strings.
    k, limit
        How many rows are wanted, and how far they may be.
    rule
        (reach, slope, tau, misses, lost): see cells.h.
    probes, depth
        How many cells to visit, and rows to compare, instead of the rule; 0 for the rule.
    allowed
        A bit for each row that may be found; None for all.
    """

    cdef lsq_cells_plan plan
    cdef lsq_cells_work *spare
    cdef object _arrays
    cdef uint8_t nothing
    cdef uint32_t _start[1]
    cdef uint32_t _count[1]
    cdef uint64_t _address[1]

    def __init__(self, cells, codes, bint nibbles, uint32_t fresh,
                 const uint8_t[::1] there not None, uint32_t chunk_rows, linear, int64_t dim, kept, int metric, ids, bint strings,
                 int64_t k, double limit, rule, int64_t probes=0, int64_t depth=0, const uint8_t[::1] allowed=None):
        cdef const uint32_t[:, ::1] counts = cells[0]
        cdef const uint64_t[:, ::1] addresses = cells[1]
        cdef const uint8_t[:, ::1] centres = cells[2]
        cdef const uint8_t[::1] centre_codes = cells[3]
        cdef const float[::1] near = cells[4], spreads = cells[5]
        cdef const lsq_codes *own = <const lsq_codes *>PyCapsule_GetPointer(codes.capsule, "lsq_codes")
        cdef const uint8_t[::1] verified = None
        cdef int64_t n = counts.shape[0], last = own.fields.count - 1, i
        if n < 1 or addresses.shape[0] != n or counts.shape[1] != 2 or addresses.shape[1] != 2 or centres.shape[0] != n:
            raise ValueError("cells: shapes do not fit")
        if near.shape[0] != n or spreads.shape[0] != n or centres.shape[1] != 2 * dim:
            raise ValueError("cells: shapes do not fit")
        if centre_codes.shape[0] != (n + 31) // 32 * 32 * own.width or k < 1 or probes < 0 or depth < 0:
            raise ValueError("cells: sizes do not fit")
        if chunk_rows < 1:
            raise ValueError("cells: sizes do not fit")
        if not 0 <= metric <= 2:
            raise ValueError("cells: there is no such metric")
        self.plan.cells.count, self.plan.cells.sizes, self.plan.cells.addresses = n, &counts[0, 0], &addresses[0, 0]
        for i in range(n):
            self.plan.cells.entries += counts[i, 0] + counts[i, 1]
        self._start[0], self._count[0], self._address[0] = 0, <uint32_t>n, <uint64_t>&centres[0, 0]
        self.plan.cells.centres.starts, self.plan.cells.centres.counts = self._start, self._count
        self.plan.cells.centres.addresses, self.plan.cells.centres.records = self._address, 1
        self.plan.cells.centre_codes, self.plan.cells.near, self.plan.cells.spreads = &centre_codes[0], &near[0], &spreads[0]
        self.plan.codes, self.plan.nibbles, self.plan.fresh, self.plan.dim = own[0], nibbles, fresh, dim
        self.plan.there, self.plan.chunks = &there[0] if there.shape[0] else NULL, there.shape[0]
        self.plan.chunk_rows = chunk_rows
        self.plan.lookups = own.fields.starts[last] + own.fields.levels[last]
        if linear is not None:
            self.plan.linear = <const lsq_linear *>PyCapsule_GetPointer(linear.capsule, "lsq_linear")
            if lsq_lookups_of(self.plan.linear) != self.plan.lookups or self.plan.linear.dim != dim:
                raise ValueError("cells: the tables are of other codes")
        if kept is not None:
            verified = kept[1]
            self.plan.kept = <const lsq_vectors *>PyCapsule_GetPointer(kept[0].capsule, "lsq_vectors")
            if self.plan.kept.dim != dim or self.plan.kept.head or verified.shape[0] != self.plan.kept.column.records:
                raise ValueError("cells: the kept vectors do not fit")
            self.plan.row_size = dim * lsq_number_size(self.plan.kept.kind) + lsq_scale_size(self.plan.kept.kind)
            self.plan.verified = &verified[0] if verified.shape[0] else NULL
        self.plan.metric, self.plan.level = metric, encoding.simd_level_number()
        self.plan.rerank = <lsq_rerank>PyCapsule_GetPointer(exact.rerank(), "lsq_rerank")
        self.plan.ids.column, self.plan.ids.strings = column_of(ids[0], ids[1], ids[2]), strings
        self.plan.k, self.plan.limit, self.plan.probes, self.plan.depth = k, float_limit(limit), probes, depth
        self.plan.reach, self.plan.slope, self.plan.tau, self.plan.misses, self.plan.lost = rule
        if allowed is not None:
            allow_rows(&self.plan.codes.filter, allowed, &self.nothing)
        self.plan.all = allowed is None
        for i in range(there.shape[0]):
            self.plan.all &= there[i] != 0
        for i in range(own.filter.segments):
            self.plan.all &= own.filter.deleted[i] is NULL
        self._arrays = (there, counts, addresses, centres, centre_codes, near, spreads, codes, linear, kept, verified, ids, allowed)

    def __dealloc__(self):
        if self.spare is not NULL:
            lsq_cells_work_leave(&self.spare, NULL)

    def search(self, const float[:, ::1] queries not None, touch, int64_t[:, ::1] ids, float[:, ::1] distances not None,
               int64_t[:, ::1] rows, float least, const float[:, ::1] values=None, const float[::1] bias=None,
               bint lifted=False):
        """Search, and write the answers into arrays of shape (nq, k), as far as they are given.

        Where fewer rows were found −1, inf and −1 follow; no distance is below ``least``. ``touch`` is called with rows
        whose kept vectors were not verified yet. ``values`` and ``bias`` are the tables, where they are not made here.
        ``lifted``: short queries have been made longer. The :class:`Visits` tell what was done.
        """
        cdef int64_t nq = queries.shape[0], k = distances.shape[1], q = 0, made = -1, i
        cdef bint given = self.plan.linear is NULL, short
        cdef int ended = LSQ_FINE
        cdef double square
        cdef lsq_cells_work *work
        cdef lsq_visits visits
        cdef lsq_answer answer
        error = None
        if queries.shape[1] != self.plan.dim or distances.shape[0] != nq or k < 1:
            raise ValueError("cells: sizes do not fit")
        if ids is not None and (ids.shape[0] != nq or ids.shape[1] != k):
            raise ValueError("cells: sizes do not fit")
        if rows is not None and (rows.shape[0] != nq or rows.shape[1] != k):
            raise ValueError("cells: sizes do not fit")
        if given and (values is None or bias is None or values.shape[0] != nq or bias.shape[0] != nq or values.shape[1] < self.plan.lookups):
            raise ValueError("cells: tables are missing")
        cdef Visits done = Visits()
        answer.matches, answer.count = NULL, 0
        with nogil:
            work = lsq_cells_work_take(&self.spare, &self.plan)
            if work is NULL:
                ended = LSQ_NO_MEMORY
            while q < nq and ended == LSQ_FINE:
                if not given and q // LSQ_TABLES_AT_ONCE != made:
                    made = q // LSQ_TABLES_AT_ONCE
                    lsq_cells_make(&self.plan, work, &queries[q, 0], min(nq - q, <int64_t>LSQ_TABLES_AT_ONCE))
                short = False
                if self.plan.metric == LSQ_COSINE and not lifted:
                    square = 0
                    for i in range(self.plan.dim):
                        square += <double>queries[q, i] * queries[q, i]
                    short = square < LSQ_SMALL
                if short:
                    answer.count = 0
                    with gil:
                        done.short.append(q)
                else:
                    ended = lsq_cells_search(&self.plan, work, &queries[q, 0], &values[q, 0] if given else NULL,
                                             bias[q] if given else 0, q % LSQ_TABLES_AT_ONCE, &visits)
                    if ended == LSQ_UNVERIFIED:
                        with gil:
                            error = _touched(touch, work)
                            if error is not None:
                                break
                        ended = LSQ_FINE
                        continue  # the same query again
                    if ended == LSQ_FINE:
                        ended = lsq_answer_from(&answer, &self.plan.ids, &work.nearest, self.plan.k)
                    done.cells += visits.cells
                    done.rows += visits.rows
                    done.compared += visits.compared
                    done.left += visits.left
                if ended == LSQ_FINE:
                    lsq_answer_write(&answer, k, least, &ids[q, 0] if ids is not None else NULL, &distances[q, 0],
                                     &rows[q, 0] if rows is not None else NULL)
                q += 1
            if work is not NULL:
                lsq_cells_work_leave(&self.spare, work)
            free(answer.matches)
        if error is not None:
            raise error
        if ended == LSQ_NO_MEMORY:
            raise MemoryError("cells: no memory")
        if ended != LSQ_FINE:
            raise LookupError("ids: a row that is not there" if ended == LSQ_NO_ID else "vectors: a row that is not there")
        return done


cdef object _touched(touch, lsq_cells_work *work):
    """The error of verifying the vectors of rows that are to be compared, or None."""
    try:
        touch(np.array(<uint32_t[:work.taken]>work.rows))
    except BaseException as error:
        return error
