# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Posting lists: made, checked, searched; see lists.h. The GIL is released."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc


cdef extern from "lists.h" nogil:
    int LSQ_SPAN
    int LSQ_TABLE_BITS
    ctypedef struct lsq_column:
        const uint32_t *starts
        const uint32_t *counts
        const uint64_t *addresses
        int64_t records
    ctypedef struct lsq_codes:
        lsq_column column
        int64_t width
        int64_t head
    ctypedef struct lsq_list_work:
        uint32_t buckets[2][65024]
        uint16_t rows[2][65024]
    int64_t lsq_list_size(int bits, int64_t count)
    int64_t lsq_buckets(const lsq_codes *codes, int64_t bit, int bits, uint32_t first, uint32_t end, uint32_t *buckets,
                        uint16_t *rows)
    void lsq_list_build(lsq_list_work *work, int64_t n, int bits, uint8_t *out)
    int lsq_list_sound(const uint8_t *list, int64_t size, int bits, uint32_t count, uint32_t span)


def build(const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
          const uint64_t[::1] addresses not None, int64_t width, int64_t head, int64_t first_bit, int bits,
          uint32_t first, uint32_t end):
    """(count, payload): the lists of one table, ``bits`` bits of the code from ``first_bit`` on, for the rows from
    ``first`` to ``end`` that the records of a column of codes hold."""
    cdef lsq_codes codes
    cdef int64_t records = starts.shape[0], n
    if counts.shape[0] != records or addresses.shape[0] != records:
        raise ValueError("build: a column's arrays differ in length")
    if not 1 <= bits <= LSQ_TABLE_BITS or first_bit < 0 or first_bit + bits > 8 * width or not 1 <= head <= width:
        raise ValueError("build: sizes do not fit")
    if not first <= end or end - first > <uint32_t>LSQ_SPAN:
        raise ValueError(f"build: a block has at most {LSQ_SPAN} rows")
    codes.column.records, codes.width, codes.head = records, width, head
    if records:
        codes.column.starts, codes.column.counts, codes.column.addresses = &starts[0], &counts[0], &addresses[0]
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
