"""codes.h, fields.h: codes where they lie."""

from libc.stdint cimport int64_t

from column cimport lsq_column
from filter cimport lsq_filter


cdef extern from "fields.h" nogil:
    ctypedef struct lsq_fields:
        int64_t count
        const int64_t *starts
        const int64_t *bits
        const int64_t *levels

cdef extern from "codes.h" nogil:
    ctypedef struct lsq_codes:
        lsq_column column
        int64_t width
        int64_t head
        lsq_fields fields
        lsq_filter filter
