"""column.h: the records of a column, where they lie."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "column.h" nogil:
    ctypedef struct lsq_column:
        const uint32_t *starts
        const uint32_t *counts
        const uint64_t *addresses
        int64_t records


cdef inline lsq_column column_of(const uint32_t[::1] starts, const uint32_t[::1] counts,
                                 const uint64_t[::1] addresses) except *:
    """A column from its arrays, which must stay where they are."""
    cdef lsq_column column
    column.records = starts.shape[0]
    if counts.shape[0] != column.records or addresses.shape[0] != column.records:
        raise ValueError("a column's arrays differ in length")
    column.starts = &starts[0] if column.records else NULL
    column.counts = &counts[0] if column.records else NULL
    column.addresses = &addresses[0] if column.records else NULL
    return column
