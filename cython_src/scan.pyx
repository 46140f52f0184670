# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The scan over stored codes, and the order of what it found; see scan.h. The GIL is released."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.math cimport INFINITY

from lsqindex import _kernels


cdef extern from "rows.h" nogil:
    ctypedef struct lsq_column:
        const uint32_t *starts
        const uint32_t *counts
        const uint64_t *addresses
        int64_t records

cdef extern from "scan.h" nogil:
    int LSQ_GROUP
    int LSQ_TABLE
    ctypedef struct lsq_candidate:
        float distance
        uint32_t row
    ctypedef struct lsq_query:
        lsq_candidate *items
        int64_t count
        int64_t capacity
        int64_t k
        float worst
        uint16_t limit
        double base
        double step
        double slack
        const float *exact
        float bias
    ctypedef struct lsq_filter:
        const uint8_t *const *deleted
        int64_t segments
        uint32_t segment_rows
        const uint8_t *allowed
        int64_t allowed_rows
    ctypedef struct lsq_fields:
        int64_t count
        const int64_t *starts
        const int64_t *bits
        const int64_t *levels
    ctypedef struct lsq_codes:
        const lsq_column *column
        int64_t width
        int64_t head
        const lsq_fields *fields
        const lsq_filter *filter
    int lsq_prune(lsq_query *query)
    int lsq_scan_record(int level, const lsq_codes *codes, int64_t record, lsq_query *queries, int nq,
                        const uint8_t *tables)
    void lsq_nibble_tables(const float *values, const lsq_fields *fields, int64_t columns, float *exact, float *bias)
    void lsq_quantize(lsq_query *query, int64_t columns, uint8_t *out, int64_t stride)


def scan(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
         const uint64_t[::1] addresses not None, int64_t width, int64_t head, bint nibbles,
         const int64_t[::1] field_starts not None, const int64_t[::1] field_bits not None,
         const int64_t[::1] field_levels not None, const float[:, ::1] values not None,
         const float[::1] biases not None, const uint64_t[::1] deleted not None, uint32_t segment_rows,
         const uint8_t[::1] allowed, int64_t k):
    """(counts, rows, distances): for each query the rows that are not farther than its k-th nearest.

    ``deleted`` are the addresses of the bits of each segment, 0 where there are none; ``allowed`` a bit for each row
    that may be found, or None for all.
    """
    cdef int level = _kernels.simd_level_number()
    cdef int64_t nq = values.shape[0], q, i, record, fields = field_levels.shape[0], total = 0
    cdef int64_t groups = (nq + LSQ_GROUP - 1) // LSQ_GROUP, group, first, size
    cdef int64_t exact_size = width * LSQ_TABLE, capacity = k + max(<int64_t>16, k // 2)
    if biases.shape[0] != nq or field_starts.shape[0] < fields or field_bits.shape[0] != fields + 1:
        raise ValueError("scan: shapes do not fit")
    if (field_bits[fields] + 7) // 8 != width or not 1 <= head <= width or k < 1 or segment_rows < 1:
        raise ValueError("scan: sizes do not fit")
    cdef lsq_column column
    column.records = starts.shape[0]
    if counts.shape[0] != column.records or addresses.shape[0] != column.records:
        raise ValueError("scan: a column's arrays differ in length")
    if nq == 0 or column.records == 0:
        return np.zeros(nq, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32)
    column.starts, column.counts, column.addresses = &starts[0], &counts[0], &addresses[0]
    cdef lsq_fields by_field
    by_field.count, by_field.starts, by_field.bits = fields, &field_starts[0], &field_bits[0]
    by_field.levels = &field_levels[0]
    cdef lsq_filter filter
    filter.segments, filter.segment_rows = deleted.shape[0], segment_rows
    filter.deleted = <const uint8_t *const *>&deleted[0] if deleted.shape[0] else NULL
    cdef uint8_t nothing = 0
    filter.allowed = NULL if allowed is None else &allowed[0] if allowed.shape[0] else &nothing
    filter.allowed_rows = 8 * allowed.shape[0] if allowed is not None else 0
    cdef lsq_codes codes
    codes.column, codes.width, codes.head, codes.filter = &column, width, head, &filter
    codes.fields = NULL if nibbles else &by_field
    cdef float[::1] exact = np.empty(nq * exact_size if nibbles else 1, np.float32)
    cdef uint8_t[::1] tables = np.empty(groups * LSQ_GROUP * exact_size if nibbles else 1, np.uint8)
    cdef lsq_query *queries = <lsq_query *>malloc(nq * sizeof(lsq_query))
    cdef bint fine = queries is not NULL
    if fine:
        for q in range(nq):
            queries[q].items = <lsq_candidate *>malloc(capacity * sizeof(lsq_candidate))
            fine = fine and queries[q].items is not NULL
    try:
        if not fine:
            raise MemoryError("scan: no memory for candidates")
        with nogil:
            for q in range(nq):
                queries[q].count, queries[q].capacity, queries[q].k = 0, capacity, k
                queries[q].worst, queries[q].bias, queries[q].limit = INFINITY, biases[q], 65535
                queries[q].base, queries[q].step, queries[q].slack = 0, 1, 1
                queries[q].exact = &values[q, 0]
                if nibbles:
                    lsq_nibble_tables(&values[q, 0], &by_field, width, &exact[q * exact_size], &queries[q].bias)
                    queries[q].exact = &exact[q * exact_size]
                    group = q // LSQ_GROUP
                    size = min(<int64_t>LSQ_GROUP, nq - group * LSQ_GROUP)
                    lsq_quantize(&queries[q], width, &tables[group * LSQ_GROUP * exact_size + q % LSQ_GROUP * LSQ_TABLE],
                                 size * LSQ_TABLE)
            # A record stays in the cache while all queries look at it.
            for record in range(column.records):
                for group in range(groups):
                    first = group * LSQ_GROUP
                    size = min(<int64_t>LSQ_GROUP, nq - first)
                    fine = fine and lsq_scan_record(level, &codes, record, &queries[first], <int>size,
                                                    &tables[first * exact_size if nibbles else 0])
                if not fine:
                    break
            for q in range(nq):
                fine = fine and lsq_prune(&queries[q])
                total += queries[q].count
        if not fine:
            raise MemoryError("scan: no memory for candidates")
        found, rows, distances = np.empty(nq, np.int64), np.empty(total, np.uint32), np.empty(total, np.float32)
        _copy(queries, nq, found, rows, distances)
        return found, rows, distances
    finally:
        if queries is not NULL:
            for q in range(nq):
                free(queries[q].items)
            free(queries)


cdef _copy(lsq_query *queries, int64_t nq, int64_t[::1] found, uint32_t[::1] rows, float[::1] distances):
    cdef int64_t q, i, at = 0
    for q in range(nq):
        found[q] = queries[q].count
        for i in range(queries[q].count):
            rows[at], distances[at] = queries[q].items[i].row, queries[q].items[i].distance
            at += 1
