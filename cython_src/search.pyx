# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""A whole search among codes in one call, the GIL released: tables, scan, exact distances, answers; see search.h."""

import numpy as np

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from codes cimport lsq_codes
from column cimport column_of, lsq_column
from filter cimport allow_rows
from nearest cimport float_limit

from lsqindex._compiled import encoding, exact, scan


cdef extern from "answer.h" nogil:
    int LSQ_FINE, LSQ_NO_MEMORY, LSQ_NO_ID, LSQ_NO_VECTOR
    ctypedef struct lsq_ids:
        lsq_column column
        int strings
    ctypedef struct lsq_answer:
        int64_t count
    void lsq_answer_write(const lsq_answer *answer, int64_t k, float least, int64_t *ids, float *distances, int64_t *rows)

cdef extern from "search.h" nogil:
    ctypedef void (*lsq_rerank)()
    ctypedef struct lsq_scanner:
        pass
    ctypedef struct lsq_linear:
        int64_t dim
    ctypedef struct lsq_vectors:
        lsq_column column
        int64_t dim
        int64_t head
    ctypedef struct lsq_prepared:
        lsq_codes codes
        int nibbles
        const uint32_t *rows
        const lsq_linear *linear
        int64_t lookups
        int64_t dim
        const lsq_vectors *kept
        const uint8_t *verified
        int metric
        lsq_ids ids
        int64_t k
        int64_t total
        float limit
        float code_limit
        int64_t depths
        const int64_t *wides
        const double *margins
        double missed
        int64_t at_once
    ctypedef struct lsq_search:
        const lsq_prepared *all
        int level
        const lsq_scanner *scanner
        lsq_rerank rerank
        int64_t nq
        int64_t parts
        const float *queries
        const float *values
        const float *bias
        lsq_answer *answers
        uint8_t *flags
        int64_t some
        int64_t *firsts
        uint32_t *rows
        uint32_t *zeros
        int64_t zero_count
        int64_t scans
        int64_t reranked
    int64_t lsq_lookups_of(const lsq_linear *linear)
    int lsq_search_begin(lsq_search *search, int lifted)
    int lsq_search_scan(const lsq_search *search, int64_t part)
    int lsq_search_collect(lsq_search *search)
    int lsq_search_verified(const lsq_search *search)
    int lsq_search_compare(const lsq_search *search, int64_t part)
    int lsq_search_rank(lsq_search *search, int *more)
    void lsq_search_free(lsq_search *search)

cdef extern from "glue.h":
    pass

cdef const lsq_scanner *_SCANNER = <const lsq_scanner *>PyCapsule_GetPointer(scan.scanner, "lsq_scanner")


cdef int _check(int ended) except -1:
    if ended == LSQ_NO_MEMORY:
        raise MemoryError("search: no memory for candidates")
    if ended == LSQ_NO_ID:
        raise LookupError("ids: a row that is in no record")
    if ended == LSQ_NO_VECTOR:
        raise LookupError("vectors: a row that is in no record")
    return 0


cdef class Prepared:
    """What does not change between the searches of a snapshot and a plan.

    codes, nibbles
        The codes (``scan.Codes``), and whether they are looked up by nibbles.
    linear, dim
        What makes the tables of queries of ``dim`` numbers (``encoding.Linear``), or None where they are given.
    kept
        (``exact.Vectors``, a flag for each record that was verified), or None where codes alone decide.
    ids, strings
        The column of ids, and whether they are strings.
    k, limit, code_limit, total
        How many rows are wanted, how far they may be by their better distance and by their code, and how many there are.
    wides, margins, missed
        Numbers of candidates, ascending; the margin of the progressive scan for each, NaN for none; and the next larger
        one is taken while more than ``missed`` neighbours are expected to be missing.
    allowed, rows
        A bit for each row that may be found. The rows of codes that were copied together.
    at_once
        About so many candidates are compared at a time.
    """

    cdef lsq_prepared all
    cdef object _arrays
    cdef uint8_t nothing

    def __init__(self, codes, bint nibbles, linear, int64_t dim, kept, int metric, ids, bint strings, int64_t k,
                 double limit, double code_limit, int64_t total, const int64_t[::1] wides not None,
                 const double[::1] margins not None, double missed, const uint8_t[::1] allowed=None,
                 const uint32_t[::1] rows=None, int64_t at_once=1 << 22):
        cdef const lsq_codes *own = <const lsq_codes *>PyCapsule_GetPointer(codes.capsule, "lsq_codes")
        cdef const uint8_t[::1] verified
        cdef int64_t i, last = own.fields.count - 1
        self.all.codes, self.all.nibbles, self.all.dim, self.all.metric = own[0], nibbles, dim, metric
        self.all.lookups = own.fields.starts[last] + own.fields.levels[last]
        if linear is not None:
            self.all.linear = <const lsq_linear *>PyCapsule_GetPointer(linear.capsule, "lsq_linear")
            if lsq_lookups_of(self.all.linear) != self.all.lookups or self.all.linear.dim != dim:
                raise ValueError("search: the tables are of other codes")
        if kept is not None:
            verified = kept[1]
            self.all.kept = <const lsq_vectors *>PyCapsule_GetPointer(kept[0].capsule, "lsq_vectors")
            if self.all.kept.dim != dim or self.all.kept.head or verified.shape[0] != self.all.kept.column.records:
                raise ValueError("search: the kept vectors do not fit")
            self.all.verified = &verified[0] if verified.shape[0] else &self.nothing
        self.all.ids.column, self.all.ids.strings = column_of(ids[0], ids[1], ids[2]), strings
        self.all.k, self.all.total, self.all.missed, self.all.at_once = k, total, missed, at_once
        self.all.limit, self.all.code_limit = float_limit(limit), float_limit(code_limit)
        self.all.depths = wides.shape[0]
        if k < 1 or at_once < 1 or wides.shape[0] < 1 or margins.shape[0] != wides.shape[0] or not 0 <= metric <= 2:
            raise ValueError("search: sizes do not fit")
        for i in range(wides.shape[0]):
            if wides[i] < 1 or (margins[i] == margins[i] and not (nibbles and own.head < own.width)):
                raise ValueError("search: numbers of candidates do not fit, or codes have no head to begin with")
        self.all.wides, self.all.margins = &wides[0], &margins[0]
        if allowed is not None:
            allow_rows(&self.all.codes.filter, allowed, &self.nothing)
        if rows is not None:
            self.all.rows = &rows[0] if rows.shape[0] else NULL
        self._arrays = (codes, linear, kept, ids, wides, margins, allowed, rows)

    def search(self, queries, touch, int64_t[:, ::1] ids, float[:, ::1] distances not None, int64_t[:, ::1] rows,
               float least, values=None, bias=None, bint lifted=False):
        """Search, and write the answers; the :class:`Search` tells the rest. See its methods for the arguments."""
        cdef Search search = Search(self, queries, values, bias, 1, lifted)
        search.finish(touch)
        search.write(ids, distances, rows, least)
        return search


cdef class Search:
    """A search that runs: ``scan`` each part, ``collect``, ``compare`` each part, ``rank``; again while there is more.

    ``values`` and ``bias`` are the tables, where they are given. ``lifted``: short queries have been made longer.
    """

    cdef lsq_search search
    cdef Prepared _prepared
    cdef object _arrays

    def __init__(self, Prepared prepared not None, const float[:, ::1] queries not None, const float[:, ::1] values=None,
                 const float[::1] bias=None, int64_t parts=1, bint lifted=False):
        cdef int64_t nq = queries.shape[0]
        cdef int ended
        if self.search.all is not NULL:
            raise ValueError("search: made once already")
        if queries.shape[1] != prepared.all.dim or nq < 1 or not 1 <= parts <= 1 << 16:
            raise ValueError("search: sizes do not fit")
        if prepared.all.linear is NULL:
            if values is None or bias is None or values.shape[0] != nq or bias.shape[0] != nq:
                raise ValueError("search: tables are missing")
            if values.shape[1] < prepared.all.lookups:
                raise ValueError("search: look-ups are missing")
            # (Rows of tables follow each other, whatever their length is.)
            if values.shape[1] != prepared.all.lookups:
                values = np.ascontiguousarray(np.asarray(values)[:, :prepared.all.lookups])
            self.search.values, self.search.bias = &values[0, 0], &bias[0]
        self._prepared, self._arrays = prepared, (queries, values, bias)
        self.search.all, self.search.nq, self.search.parts = &prepared.all, nq, parts
        self.search.queries = &queries[0, 0]
        self.search.level = encoding.simd_level_number()
        self.search.scanner = _SCANNER
        self.search.rerank = <lsq_rerank>PyCapsule_GetPointer(exact.rerank(), "lsq_rerank")
        with nogil:
            ended = lsq_search_begin(&self.search, lifted)
        _check(ended)

    def __dealloc__(self):
        lsq_search_free(&self.search)

    def scan(self, int64_t part):
        """Scan one part of the records."""
        cdef int ended
        if not 0 <= part < self.search.parts:
            raise ValueError("search: there is no such part")
        with nogil:
            ended = lsq_search_scan(&self.search, part)
        _check(ended)

    def collect(self, touch):
        """The candidates; ``touch`` is called with their rows where a record of them was not verified yet."""
        cdef int ended
        with nogil:
            ended = lsq_search_collect(&self.search)
        _check(ended)
        if not lsq_search_verified(&self.search):
            self._touch(touch)

    cdef int _touch(self, touch) except -1:
        touch(np.array(<uint32_t[:self.search.firsts[self.search.some]]>self.search.rows))

    def compare(self, int64_t part):
        """Compare one part of the candidates."""
        cdef int ended
        if not 0 <= part < self.search.parts:
            raise ValueError("search: there is no such part")
        with nogil:
            ended = lsq_search_compare(&self.search, part)
        _check(ended)

    def rank(self):
        """Rank the candidates; whether queries need another scan."""
        cdef int ended, more = 0
        with nogil:
            ended = lsq_search_rank(&self.search, &more)
        _check(ended)
        return bool(more)

    def finish(self, touch):
        """All of that, where there is one part."""
        cdef int ended = 0, more = self.search.some > 0
        if self.search.parts != 1:
            raise ValueError("search: the parts are for several threads")
        with nogil:
            while more and not ended:
                ended = lsq_search_scan(&self.search, 0)
                if not ended:
                    ended = lsq_search_collect(&self.search)
                if not ended and not lsq_search_verified(&self.search):
                    with gil:
                        self._touch(touch)
                if not ended:
                    ended = lsq_search_compare(&self.search, 0)
                if not ended:
                    ended = lsq_search_rank(&self.search, &more)
        _check(ended)

    def write(self, int64_t[:, ::1] ids, float[:, ::1] distances not None, int64_t[:, ::1] rows, float least):
        """Write the answers into arrays of shape (nq, k), as far as they are given.

        Where fewer rows were found −1, inf and −1 follow. No distance is below ``least``.
        """
        cdef int64_t q, k = distances.shape[1]
        if distances.shape[0] != self.search.nq or k < 1:
            raise ValueError("search: sizes do not fit")
        if ids is not None and (ids.shape[0] != self.search.nq or ids.shape[1] != k):
            raise ValueError("search: sizes do not fit")
        if rows is not None and (rows.shape[0] != self.search.nq or rows.shape[1] != k):
            raise ValueError("search: sizes do not fit")
        with nogil:
            for q in range(self.search.nq):
                lsq_answer_write(&self.search.answers[q], k, least, &ids[q, 0] if ids is not None else NULL,
                                 &distances[q, 0], &rows[q, 0] if rows is not None else NULL)

    @property
    def begun(self):
        """Whether there is anything to scan."""
        return self.search.some > 0

    @property
    def most(self):
        """The rows of the longest answer."""
        cdef int64_t q, most = 0
        for q in range(self.search.nq):
            most = max(most, self.search.answers[q].count)
        return most

    @property
    def scans(self):
        """Scans of all codes, for one query each."""
        return self.search.scans

    @property
    def reranked(self):
        """Rows that were compared exactly."""
        return self.search.reranked

    def left(self):
        """(short, crowded, zeros): queries that are left to the caller; None if there are none.

        Short ones have numbers too small to be multiplied. Crowded ones have ``zeros`` among their candidates.
        """
        cdef int64_t q
        cdef uint8_t any_flag = 0
        for q in range(self.search.nq):
            any_flag |= self.search.flags[q]
        if not any_flag:
            return None
        flags = np.array(<uint8_t[:self.search.nq]>self.search.flags)
        zeros = np.array(<uint32_t[:self.search.zero_count]>self.search.zeros) if self.search.zero_count else \
            np.empty(0, np.uint32)
        return np.flatnonzero(flags == 1), np.flatnonzero(flags == 2), zeros
