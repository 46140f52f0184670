# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Posting lists: made, checked, searched; see lists.h, probes.h, scores.h. The GIL is released."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from codes cimport lsq_codes, lsq_fields
from column cimport column_of
from filter cimport allow_rows, delete_rows, lsq_filter

from lsqindex._compiled import encoding


cdef extern from "scores.h" nogil:
    int LSQ_SPAN
    int LSQ_TABLE_BITS
    ctypedef struct lsq_list_work:
        uint32_t buckets[2][65024]
        uint16_t rows[2][65024]
    int64_t lsq_list_size(int bits, int64_t count)
    int64_t lsq_buckets(const lsq_codes *codes, int64_t bit, int bits, uint32_t first, uint32_t end, uint32_t *buckets,
                        uint16_t *rows)
    void lsq_list_build(lsq_list_work *work, int64_t n, int bits, uint8_t *out)
    int lsq_list_sound(const uint8_t *list, int64_t size, int bits, uint32_t count, uint32_t span)
    ctypedef struct lsq_table:
        int64_t field
        int64_t fields
        int bits
    ctypedef struct lsq_probes:
        int64_t found
    ctypedef struct lsq_lists:
        const uint32_t *firsts
        const uint32_t *spans
        const uint32_t *counts
        const uint64_t *addresses
        int64_t blocks
        int64_t tables
        const lsq_table *table
        const uint8_t *there
        int64_t chunks
        int64_t chunk_rows
        lsq_filter filter
    ctypedef struct lsq_best:
        uint32_t *rows
        uint16_t *scores
        int64_t count
    ctypedef struct lsq_scorer:
        lsq_probes probes
        lsq_best best
        int counting
        int64_t postings
        int64_t touched
    int lsq_scorer_begin(lsq_scorer *scorer, const lsq_lists *lists, const lsq_fields *fields, int64_t wanted)
    void lsq_scorer_free(lsq_scorer *scorer)
    void lsq_probes_begin(lsq_probes *p, const float *values)
    int lsq_score(int level, const lsq_lists *lists, lsq_scorer *scorer, int64_t probes, uint32_t weight)
    int lsq_score_expanding(int level, const lsq_lists *lists, lsq_scorer *scorer, int64_t k, int64_t probes, int64_t most,
                            uint32_t weight)
    void lsq_accumulate(const lsq_lists *lists, int64_t block, lsq_scorer *scorer)
    int lsq_best_append(lsq_best *all, const lsq_best *own)

cdef extern from "glue.h":
    pass


def build(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
          const uint64_t[::1] addresses not None, int64_t width, int64_t head, int64_t first_bit, int bits,
          uint32_t first, uint32_t end):
    """(count, payload): the lists of one table, ``bits`` bits of the code from ``first_bit`` on, for the rows from
    ``first`` to ``end`` that the records of a column of codes hold."""
    cdef lsq_codes codes
    cdef int64_t n
    codes.column = column_of(starts, counts, addresses)
    if not 1 <= bits <= LSQ_TABLE_BITS or first_bit < 0 or first_bit + bits > 8 * width or not 1 <= head <= width:
        raise ValueError("build: sizes do not fit")
    if not first <= end or end - first > <uint32_t>LSQ_SPAN:
        raise ValueError(f"build: a block has at most {LSQ_SPAN} rows")
    codes.width, codes.head = width, head
    cdef lsq_list_work *work = <lsq_list_work *>malloc(sizeof(lsq_list_work))
    if work is NULL:
        raise MemoryError("build: no memory for lists")
    cdef uint8_t[::1] out
    try:
        with nogil:
            n = lsq_buckets(&codes, first_bit, bits, first, end, work.buckets[0], work.rows[0])
        payload = np.empty(lsq_list_size(bits, n), np.uint8)
        out = payload
        with nogil:
            lsq_list_build(work, n, bits, &out[0])
    finally:
        free(work)
    return n, payload


def sound(const uint8_t[::1] payload not None, uint32_t count, int bits, uint32_t span):
    """Whether a payload is such as :func:`build` makes of ``count`` of the ``span`` rows of a block."""
    cdef bint fine
    if payload.shape[0] == 0:
        return False
    with nogil:
        fine = lsq_list_sound(&payload[0], payload.shape[0], bits, count, span)
    return bool(fine)


cdef class Lists:
    """Where the posting lists of a snapshot lie, and which of their rows may be found.

    Block i has the rows from ``firsts[i]`` on, ``spans[i]`` of them, of which ``counts[i]`` are in its lists;
    ``addresses`` (blocks, tables) tell where the payloads lie. Table t has the fields from ``table_fields[t]`` up to
    ``table_fields[t + 1]``: several of two values, or one of any; ``table_bits`` are the bits of its buckets' numbers.
    ``deleted`` are the addresses of the bits of each segment, 0 where there are none; ``there`` has a byte for each chunk
    of ``chunk_rows`` rows, 0 where it was given back.
    """

    cdef lsq_lists lists
    cdef lsq_fields fields
    cdef lsq_table *table
    cdef object _arrays
    cdef uint8_t nothing

    def __cinit__(self):
        self.table = NULL

    def __init__(self, const uint32_t[::1] firsts not None, const uint32_t[::1] spans not None,
                 const uint32_t[::1] counts not None, const uint64_t[:, ::1] addresses not None,
                 const int64_t[::1] table_fields not None, const uint8_t[::1] table_bits not None,
                 const int64_t[::1] field_starts not None, const int64_t[::1] field_levels not None,
                 const uint64_t[::1] deleted not None, uint32_t segment_rows, const uint8_t[::1] there not None,
                 int64_t chunk_rows):
        cdef int64_t blocks = firsts.shape[0], tables = table_bits.shape[0], i, t, f, own
        if self.table is not NULL:
            raise ValueError("lists: made once already")
        if spans.shape[0] != blocks or counts.shape[0] != blocks or addresses.shape[0] != blocks \
                or addresses.shape[1] != tables or table_fields.shape[0] != tables + 1 or not 1 <= tables <= 1 << 16:
            raise ValueError("lists: shapes do not fit")
        if segment_rows < 8 or segment_rows % 8 or chunk_rows < 1 or field_starts.shape[0] < field_levels.shape[0]:
            raise ValueError("lists: sizes do not fit")
        for i in range(blocks):
            if spans[i] > <uint32_t>LSQ_SPAN or counts[i] > spans[i] or firsts[i] % 8 or firsts[i] % chunk_rows \
                    or firsts[i] % segment_rows + spans[i] > segment_rows:
                raise ValueError("lists: a block does not fit")
        for t in range(tables):
            own = table_fields[t + 1] - table_fields[t]
            if table_fields[t] < 0 or own < 1 or table_fields[t + 1] > field_levels.shape[0] \
                    or not 1 <= table_bits[t] <= LSQ_TABLE_BITS:
                raise ValueError("lists: a table does not fit")
            for f in range(table_fields[t], table_fields[t + 1]):
                if own > 1 and (field_levels[f] != 2 or own != table_bits[t]) \
                        or not 2 <= field_levels[f] <= 1 << table_bits[t]:
                    raise ValueError("lists: a table's fields do not fit")
        self._arrays = (firsts, spans, counts, addresses, field_starts, field_levels, deleted, there)
        self.table = <lsq_table *>calloc(tables, sizeof(lsq_table))
        if self.table is NULL:
            raise MemoryError("lists: no memory")
        for t in range(tables):
            self.table[t].field, self.table[t].fields = table_fields[t], table_fields[t + 1] - table_fields[t]
            self.table[t].bits = table_bits[t]
        self.lists.blocks, self.lists.tables, self.lists.table = blocks, tables, self.table
        if blocks:
            self.lists.firsts, self.lists.spans, self.lists.counts = &firsts[0], &spans[0], &counts[0]
            self.lists.addresses = &addresses[0, 0]
        self.lists.there = &there[0] if there.shape[0] else &self.nothing
        self.lists.chunks, self.lists.chunk_rows = there.shape[0], chunk_rows
        delete_rows(&self.lists.filter, deleted, segment_rows)
        self.fields.count, self.fields.starts, self.fields.levels = field_levels.shape[0], &field_starts[0], &field_levels[0]

    def __dealloc__(self):
        free(self.table)

    cdef _check(self, int64_t values):
        cdef int64_t last = self.fields.count - 1
        if values < self.fields.starts[last] + self.fields.levels[last]:
            raise ValueError("lists: look-ups are missing")

    def best(self, const float[:, ::1] values not None, int64_t probes, int64_t wanted, bint weigh, int64_t expand=0,
             int64_t most=0, const uint8_t[::1] allowed=None, bint counting=False):
        """(counts, rows, scores, figures): for each query the rows of the ``wanted`` best scores, ties included.

        ``values`` are the query's probe tables. The ``probes`` cheapest buckets are read; while fewer than ``expand``
        rows came, one more at a time, up to ``most``. A hit counts 1, or, with ``weigh``, the more the cheaper its
        bucket. ``allowed`` has a bit for each row that may be found. ``figures`` (queries, 3): probes, postings, and,
        where ``counting``, rows that any list returned.
        """
        cdef int64_t nq = values.shape[0], q
        cdef int level = encoding.simd_level_number()
        cdef uint32_t weight = 255 // self.lists.tables if weigh and self.lists.tables <= 127 else 1
        cdef lsq_lists lists = self.lists
        cdef lsq_scorer scorer
        cdef bint fine = True
        self._check(values.shape[1])
        if probes < 1 or wanted < 1:
            raise ValueError("lists: sizes do not fit")
        if allowed is not None:
            allow_rows(&lists.filter, allowed, &self.nothing)
        found, figures = np.zeros(nq, np.int64), np.zeros((nq, 3), np.int64)
        cdef int64_t[::1] counts = found
        cdef int64_t[:, ::1] numbers = figures
        cdef lsq_best *everything = _nothing()
        if everything is NULL or not lsq_scorer_begin(&scorer, &lists, &self.fields, wanted):
            if everything is not NULL:
                lsq_scorer_free(&scorer)
            free(everything)
            raise MemoryError("lists: no memory for scores")
        scorer.counting = counting
        with nogil:
            for q in range(nq):
                lsq_probes_begin(&scorer.probes, &values[q, 0])
                if expand:
                    fine = lsq_score_expanding(level, &lists, &scorer, expand, probes, most, weight)
                else:
                    fine = lsq_score(level, &lists, &scorer, probes, weight)
                fine = fine and lsq_best_append(everything, &scorer.best)
                if not fine:
                    break
                counts[q] = scorer.best.count
                numbers[q, 0], numbers[q, 1], numbers[q, 2] = scorer.probes.found, scorer.postings, scorer.touched
        lsq_scorer_free(&scorer)
        rows, scores = np.empty(everything.count, np.uint32), np.empty(everything.count, np.uint16)
        cdef uint32_t[::1] to_rows = rows
        cdef uint16_t[::1] to_scores = scores
        if everything.count:
            memcpy(&to_rows[0], everything.rows, everything.count * sizeof(uint32_t))
            memcpy(&to_scores[0], everything.scores, everything.count * sizeof(uint16_t))
        free(everything.rows)
        free(everything.scores)
        free(everything)
        if not fine:
            raise MemoryError("lists: no memory for scores")
        return found, rows, scores, figures

    def accumulate(self, const float[::1] values not None, int64_t probes, int64_t times):
        """Add up the scores of all blocks so many times, and nothing else; how many postings that was. To be timed."""
        cdef lsq_scorer scorer
        cdef int64_t i, block
        cdef bint fine
        cdef int level = encoding.simd_level_number()
        self._check(values.shape[0])
        if probes < 1:
            raise ValueError("lists: sizes do not fit")
        if not lsq_scorer_begin(&scorer, &self.lists, &self.fields, 1):
            lsq_scorer_free(&scorer)
            raise MemoryError("lists: no memory for scores")
        with nogil:
            lsq_probes_begin(&scorer.probes, &values[0])
            fine = lsq_score(level, &self.lists, &scorer, probes, 1)
            scorer.postings = 0
            for i in range(times if fine else 0):
                for block in range(self.lists.blocks):
                    lsq_accumulate(&self.lists, block, &scorer)
        lsq_scorer_free(&scorer)
        if not fine:
            raise MemoryError("lists: no memory for scores")
        return scorer.postings


cdef lsq_best *_nothing() noexcept:
    return <lsq_best *>calloc(1, sizeof(lsq_best))
