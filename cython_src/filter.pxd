"""filter.h: which rows may be found."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "filter.h" nogil:
    ctypedef struct lsq_filter:
        const uint8_t *const *deleted
        int64_t segments
        uint32_t segment_rows
        const uint8_t *allowed
        int64_t allowed_rows


cdef inline void delete_rows(lsq_filter *filter, const uint64_t[::1] deleted, uint32_t segment_rows) noexcept:
    """Let no deleted row be found; ``deleted`` has the address of each segment's bits, 0 where there are none."""
    filter.segments, filter.segment_rows = deleted.shape[0], segment_rows
    filter.deleted = <const uint8_t *const *>&deleted[0] if deleted.shape[0] else NULL
    filter.allowed, filter.allowed_rows = NULL, 0


cdef inline void allow_rows(lsq_filter *filter, const uint8_t[::1] allowed, const uint8_t *nothing) noexcept:
    """Let only rows be found whose bit is set; ``nothing`` is an address that is not NULL."""
    filter.allowed = &allowed[0] if allowed.shape[0] else nothing
    filter.allowed_rows = 8 * allowed.shape[0]
