# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The order of what a search found, and the nearest of it; see nearest.h. The GIL is released."""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, qsort

from nearest cimport (
    float_limit,
    lsq_nearest,
    lsq_nearest_free,
    lsq_nearest_init,
    lsq_nearest_prune,
    lsq_offer,
    wanted,
)


cdef struct Entry:
    float distance
    int64_t name
    int64_t place


cdef int compare(const void *left, const void *right) noexcept nogil:
    cdef const Entry *a = <const Entry *>left
    cdef const Entry *b = <const Entry *>right
    if a.distance != b.distance:
        return -1 if a.distance < b.distance else 1
    return (a.name > b.name) - (a.name < b.name)


def order(const int64_t[::1] counts not None, const float[::1] distances not None, const int64_t[::1] names not None,
          int64_t k):
    """(counts, places): for each query the places of its k nearest, by distance and then by name."""
    cdef int64_t nq = counts.shape[0], total = distances.shape[0], q, i, first = 0, at = 0, most = 0, count
    for q in range(nq):
        if counts[q] < 0:
            raise ValueError("order: a count is negative")
        most = max(most, counts[q])
        first += counts[q]
    if names.shape[0] != total or first != total or k < 0:
        raise ValueError("order: shapes do not fit")
    kept, places = np.empty(nq, np.int64), np.empty(total, np.int64)
    cdef int64_t[::1] to_kept = kept, to_places = places
    cdef Entry *entries = <Entry *>malloc(max(most, 1) * sizeof(Entry))
    if entries is NULL:
        raise MemoryError("order: no memory")
    first = 0
    with nogil:
        for q in range(nq):
            count = counts[q]
            for i in range(count):
                entries[i].distance, entries[i].name, entries[i].place = distances[first + i], names[first + i], first + i
            qsort(entries, count, sizeof(Entry), compare)
            first += count
            to_kept[q] = min(count, k)
            for i in range(to_kept[q]):
                to_places[at] = entries[i].place
                at += 1
    free(entries)
    return kept, places[:at]


def cut(const int64_t[::1] counts not None, const float[::1] distances not None, k, double limit=INFINITY):
    """(counts, places): for each query the places of its k nearest within ``limit``, ties included, as they come.

    All within ``limit`` where ``k`` is None.
    """
    cdef int64_t nq = counts.shape[0], total = distances.shape[0], q, i, first = 0, at = 0, most = wanted(k)
    cdef float farthest = float_limit(limit)
    cdef lsq_nearest nearest
    cdef bint fine = True
    for q in range(nq):
        if not 0 <= counts[q] <= total - first:
            raise ValueError("cut: shapes do not fit")
        first += counts[q]
    if first != total:
        raise ValueError("cut: shapes do not fit")
    kept, places = np.empty(nq, np.int64), np.empty(total, np.int64)
    cdef int64_t[::1] to_kept = kept, to_places = places
    first = 0
    with nogil:
        for q in range(nq):
            fine = lsq_nearest_init(&nearest, most, farthest)
            for i in range(counts[q]):
                fine = fine and lsq_offer(&nearest, <uint32_t>i, distances[first + i])
            fine = fine and lsq_nearest_prune(&nearest)
            to_kept[q] = nearest.count
            for i in range(nearest.count if fine else 0):
                to_places[at] = first + nearest.rows[i]
                at += 1
            lsq_nearest_free(&nearest)
            first += counts[q]
            if not fine:
                break
    if not fine:
        raise MemoryError("cut: no memory")
    return kept, places[:at]
