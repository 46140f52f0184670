"""header.h, checksum.h: the header of a record, and its checksum."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "header.h" nogil:
    enum: LSQ_HEADER
    ctypedef struct lsq_header:
        uint8_t kind
        uint32_t count
        uint64_t first
        uint32_t width
        uint32_t generation
        uint64_t size
        uint32_t head
        uint32_t zero
        uint64_t checksum

cdef extern from "checksum.h" nogil:
    uint64_t lsq_checksum(const uint8_t *p, uint64_t size, uint64_t seed)
