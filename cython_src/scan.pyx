# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The scan over stored codes, and the order of what it found; see scan.h. The GIL is released."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy

from lsqindex._compiled import encoding


cdef extern from "scan.h" nogil:
    float lsq_kth_float(float *values, int64_t count, int64_t k)
    int LSQ_GROUP
    int LSQ_LOOKUPS
    int LSQ_PAIR
    ctypedef struct lsq_column:
        const uint32_t *starts
        const uint32_t *counts
        const uint64_t *addresses
        int64_t records
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
        lsq_column column
        int64_t width
        int64_t head
        lsq_fields fields
        lsq_filter filter
    ctypedef struct lsq_query:
        const float *values
        float bias
        float *exact
    ctypedef struct lsq_hits:
        int64_t count
    ctypedef struct lsq_nearest:
        float *distances
        uint32_t *rows
        int64_t count
    ctypedef struct lsq_scan:
        const lsq_codes *codes
        int level
        int nibbles
        int progressive
        int streams
        int64_t nq
        int64_t k
        int64_t parts
        lsq_query *queries
        float *exact
        uint8_t *tables
        lsq_hits *hits
        lsq_nearest *nearest
    int64_t lsq_pairs(const lsq_codes *codes)
    int lsq_distances(int level, const lsq_codes *codes, int nibbles, const float *values, float bias, const uint32_t *rows,
                      int64_t n, float *work, float *out)
    int lsq_scan_prepare(lsq_scan *scan, double z)
    int lsq_scan_run(const lsq_scan *scan, int64_t part, int64_t first, int64_t last)
    int lsq_scan_finish(const lsq_scan *scan, int64_t q, uint8_t *sure)
    void lsq_scan_free(lsq_scan *scan)


cdef class Codes:
    """Where codes lie: records of rows in blocks of 32 by column, their fields, and which of them are deleted.

    ``deleted`` are the addresses of the bits of each segment of ``segment_rows`` rows, 0 where there are none.
    """

    cdef lsq_codes codes
    #: How many rows there are, deleted ones included.
    cdef readonly int64_t rows
    cdef object _arrays

    def __init__(self, const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
                 const uint64_t[::1] addresses not None, int64_t width, int64_t head,
                 const int64_t[::1] field_starts not None, const int64_t[::1] field_bits not None,
                 const int64_t[::1] field_levels not None, const uint64_t[::1] deleted not None, uint32_t segment_rows):
        cdef int64_t records = starts.shape[0], fields = field_levels.shape[0], i
        if counts.shape[0] != records or addresses.shape[0] != records:
            raise ValueError("scan: a column's arrays differ in length")
        if fields < 1 or field_starts.shape[0] < fields or field_bits.shape[0] != fields + 1:
            raise ValueError("scan: shapes do not fit")
        if (field_bits[fields] + 7) // 8 != width or not 1 <= head <= width or segment_rows < 1:
            raise ValueError("scan: sizes do not fit")
        self._arrays = (starts, counts, addresses, field_starts, field_bits, field_levels, deleted)
        self.codes.column.records = records
        if records:
            self.codes.column.starts, self.codes.column.counts = &starts[0], &counts[0]
            self.codes.column.addresses = &addresses[0]
        self.rows = 0
        for i in range(records):
            self.rows += counts[i]
        self.codes.width, self.codes.head = width, head
        self.codes.fields.count, self.codes.fields.starts = fields, &field_starts[0]
        self.codes.fields.bits, self.codes.fields.levels = &field_bits[0], &field_levels[0]
        self.codes.filter.segments, self.codes.filter.segment_rows = deleted.shape[0], segment_rows
        self.codes.filter.deleted = <const uint8_t *const *>&deleted[0] if deleted.shape[0] else NULL
        self.codes.filter.allowed, self.codes.filter.allowed_rows = NULL, 0


    def distances(self, const float[:, ::1] values not None, const float[::1] biases not None, bint nibbles,
                  const int64_t[::1] found not None, const uint32_t[::1] rows not None):
        """Exact distances of ``rows``, so many (``found``) for each query."""
        cdef int64_t nq = values.shape[0], q, at = 0
        for q in range(found.shape[0]):
            if not 0 <= found[q] <= rows.shape[0] - at:
                raise ValueError("scan: sizes do not fit")
            at += found[q]
        if biases.shape[0] != nq or found.shape[0] != nq or rows.shape[0] != at:
            raise ValueError("scan: sizes do not fit")
        _check_values(self, values)
        out = np.empty(at, np.float32)
        cdef float[::1] to = out, work = np.empty(self.codes.width * LSQ_LOOKUPS, np.float32)
        cdef bint fine = True
        cdef int level = encoding.simd_level_number()
        if at == 0:
            return out
        at = 0
        with nogil:
            for q in range(nq):
                if found[q]:
                    fine = fine and lsq_distances(level, &self.codes, nibbles, &values[q, 0], biases[q], &rows[at], found[q],
                                                  &work[0], &to[at])
                at += found[q]
        if not fine:
            raise LookupError("a row that is not there")
        return out


cdef _check_values(Codes codes, const float[:, ::1] values):
    cdef int64_t last = codes.codes.fields.count - 1
    if values.shape[1] < codes.codes.fields.starts[last] + codes.codes.fields.levels[last]:
        raise ValueError("scan: look-ups are missing")


cdef class Scan:
    """One search among codes: ``run`` each part, at the same time where that serves, and then ``finish``.

    ``allowed`` has a bit for each row that may be found, or is None for all. ``z`` is the margin of the progressive
    scan, or None for the scan that misses nothing.
    """

    cdef lsq_scan scan
    cdef lsq_codes codes
    cdef object _arrays
    cdef uint8_t nothing

    def __init__(self, Codes codes not None, const float[:, ::1] values not None, const float[::1] biases not None,
                 int64_t k, bint nibbles, z=None, const uint8_t[::1] allowed=None, int64_t parts=1):
        cdef int64_t nq = values.shape[0], q, size
        cdef double margin = 0 if z is None else z
        if self.scan.queries is not NULL:
            raise ValueError("scan: made once already")
        if biases.shape[0] != nq or not 1 <= k <= 1 << 32 or not 1 <= parts <= 1 << 16:
            raise ValueError("scan: sizes do not fit")
        _check_values(codes, values)
        if z is not None and not (nibbles and codes.codes.head < codes.codes.width):
            raise ValueError("scan: these codes have no head to begin with")
        self.codes = codes.codes
        if allowed is not None:
            self.codes.filter.allowed = &allowed[0] if allowed.shape[0] else &self.nothing
            self.codes.filter.allowed_rows = 8 * allowed.shape[0]
        self.scan.codes, self.scan.level = &self.codes, encoding.simd_level_number()
        self.scan.nibbles, self.scan.progressive, self.scan.k = nibbles, z is not None, k
        self.scan.queries = <lsq_query *>calloc(max(nq, 1), sizeof(lsq_query))
        self.scan.hits = <lsq_hits *>calloc(max(parts * nq, 1), sizeof(lsq_hits))
        self.scan.nearest = <lsq_nearest *>calloc(max(parts * nq, 1), sizeof(lsq_nearest))
        if self.scan.queries is NULL or self.scan.hits is NULL or self.scan.nearest is NULL:
            raise MemoryError("scan: no memory for candidates")
        self.scan.nq, self.scan.parts = nq, parts
        size = codes.codes.width * LSQ_LOOKUPS if nibbles else 0
        self.scan.exact = <float *>malloc((nq * size + 1) * sizeof(float))
        self.scan.tables = <uint8_t *>malloc(nq * lsq_pairs(&self.codes) * LSQ_PAIR + 1 if nibbles else 1)
        if self.scan.exact is NULL or self.scan.tables is NULL:
            raise MemoryError("scan: no memory for look-ups")
        self._arrays = (codes, values, allowed)
        for q in range(nq):
            self.scan.queries[q].values, self.scan.queries[q].bias = &values[q, 0], biases[q]
            self.scan.queries[q].exact = self.scan.exact + q * size
        cdef bint fine
        with nogil:
            fine = lsq_scan_prepare(&self.scan, margin)
        if not fine:
            raise MemoryError("scan: no memory for candidates")

    def __dealloc__(self):
        lsq_scan_free(&self.scan)

    def run(self, int64_t part=0):
        """Scan one part of the records."""
        cdef int64_t records = self.codes.column.records, parts = self.scan.parts
        cdef bint fine
        if not 0 <= part < parts:
            raise ValueError("scan: there is no such part")
        with nogil:
            fine = lsq_scan_run(&self.scan, part, part * records // parts, (part + 1) * records // parts)
        if not fine:
            raise MemoryError("scan: no memory for candidates")

    def finish(self):
        """(counts, rows, distances, sure): for each query the rows that are not farther than its k-th nearest.

        ``sure`` is 0 where the progressive scan may have missed some: scan again without.
        """
        cdef int64_t nq = self.scan.nq, q, i, at = 0, total = 0
        cdef bint fine = True
        found, certain = np.empty(nq, np.int64), np.ones(nq, np.uint8)
        cdef int64_t[::1] counts = found
        cdef uint8_t[::1] sure = certain
        if nq == 0:
            return found, np.empty(0, np.uint32), np.empty(0, np.float32), certain
        with nogil:
            for q in range(nq):
                fine = fine and lsq_scan_finish(&self.scan, q, &sure[q])
                counts[q] = self.scan.nearest[q].count
                total += counts[q]
        if not fine:
            raise MemoryError("scan: no memory for candidates")
        rows, distances = np.empty(total, np.uint32), np.empty(total, np.float32)
        cdef uint32_t[::1] to_rows = rows
        cdef float[::1] to_distances = distances
        for q in range(nq):
            for i in range(counts[q]):
                to_rows[at], to_distances[at] = self.scan.nearest[q].rows[i], self.scan.nearest[q].distances[i]
                at += 1
        return found, rows, distances, certain


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


def cut(const int64_t[::1] counts not None, const float[::1] distances not None, int64_t k):
    """(counts, places): for each query the places of all that are no farther than its k-th nearest, as they come."""
    cdef int64_t nq = counts.shape[0], total = distances.shape[0], q, i, first = 0, at = 0, count
    for q in range(nq):
        if not 0 <= counts[q] <= total - first:
            raise ValueError("cut: shapes do not fit")
        first += counts[q]
    if first != total or k < 1:
        raise ValueError("cut: shapes do not fit")
    kept, places = np.empty(nq, np.int64), np.empty(total, np.int64)
    cdef int64_t[::1] to_kept = kept, to_places = places
    cdef float *work = <float *>malloc(max(total, 1) * sizeof(float))
    cdef float limit = 0
    if work is NULL:
        raise MemoryError("cut: no memory")
    first = 0
    with nogil:
        for q in range(nq):
            count = counts[q]
            if count > k:
                memcpy(work, &distances[first], count * sizeof(float))
                limit = lsq_kth_float(work, count, k)
            to_kept[q] = at
            for i in range(first, first + count):
                if count <= k or distances[i] <= limit:
                    to_places[at] = i
                    at += 1
            to_kept[q] = at - to_kept[q]
            first += count
    free(work)
    return kept, places[:at]
