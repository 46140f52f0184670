"""nearest.h: what a search collects, the k nearest rows or all within a limit."""

from libc.math cimport isnan
from libc.stdint cimport int64_t, uint32_t


cdef extern from "nearest.h" nogil:
    int64_t LSQ_ALL
    ctypedef struct lsq_nearest:
        float *distances
        uint32_t *rows
        int64_t count
    float lsq_float_limit(double limit)
    int lsq_nearest_init(lsq_nearest *nearest, int64_t k, float limit)
    void lsq_nearest_free(lsq_nearest *nearest)
    int lsq_nearest_prune(lsq_nearest *nearest)
    int lsq_offer(lsq_nearest *nearest, uint32_t row, float distance)
    int lsq_nearest_join(lsq_nearest *nearest, int64_t parts, int64_t nq, int64_t q)
    void lsq_nearest_copy(const lsq_nearest *nearest, int64_t nq, uint32_t *rows, float *distances)


cdef inline int64_t wanted(k) except -1:
    """How many rows a search wants; all within its limit for None."""
    if k is None:
        return LSQ_ALL
    if k < 1:
        raise ValueError(f"k is {k}: it must be at least 1, or None for all rows within the limit")
    return min(k, LSQ_ALL)


cdef inline float float_limit(double limit) except? -1:
    """The limit of a search as float32: distances within the one are within the other."""
    if isnan(limit):
        raise ValueError("limit: not a number")
    return lsq_float_limit(limit)
