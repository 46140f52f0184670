# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The scan over stored codes, and the order of what it found; see scan.h. The GIL is released."""

import numpy as np

from cpython.pycapsule cimport PyCapsule_New
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from codes cimport lsq_codes
from column cimport column_of
from filter cimport allow_rows, delete_rows
from nearest cimport float_limit, lsq_nearest, lsq_nearest_copy, wanted

from lsqindex._compiled import encoding


cdef extern from "scan.h" nogil:
    int LSQ_LOOKUPS
    ctypedef struct lsq_query:
        const float *values
        float bias
    ctypedef struct lsq_hits:
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
        float limit
        lsq_query *queries
        lsq_hits *hits
        lsq_nearest *nearest
    int lsq_scan_make(lsq_scan *scan, int64_t nq, int64_t parts)
    int lsq_distances(int level, const lsq_codes *codes, int nibbles, const float *values, float bias, const uint32_t *rows,
                      int64_t n, float *work, float *out)
    int lsq_scan_prepare(lsq_scan *scan, double z)
    int lsq_scan_run(const lsq_scan *scan, int64_t part, int64_t first, int64_t last)
    int lsq_scan_finish(const lsq_scan *scan, int64_t q, uint8_t *sure)
    void lsq_scan_free(lsq_scan *scan)
    ctypedef struct lsq_scanner:
        pass
    const lsq_scanner *lsq_scanner_here()

cdef extern from "glue.h":
    pass

#: For other extensions: holds the address of the lsq_scanner.
scanner = PyCapsule_New(<void *>lsq_scanner_here(), "lsq_scanner", NULL)


cdef class Codes:
    """Where codes lie: records of rows in blocks of 32 by column, their fields, and which of them are deleted.

    ``deleted`` are the addresses of the bits of each segment of ``segment_rows`` rows, 0 where there are none.
    """

    cdef lsq_codes codes
    #: How many rows there are, deleted ones included.
    cdef readonly int64_t rows
    #: For other extensions: holds the address of the lsq_codes.
    cdef readonly object capsule
    cdef object _arrays

    def __init__(self, const uint32_t[::1] starts not None, const uint32_t[::1] counts not None,
                 const uint64_t[::1] addresses not None, int64_t width, int64_t head,
                 const int64_t[::1] field_starts not None, const int64_t[::1] field_bits not None,
                 const int64_t[::1] field_levels not None, const uint64_t[::1] deleted not None, uint32_t segment_rows):
        cdef int64_t fields = field_levels.shape[0], i
        self.codes.column = column_of(starts, counts, addresses)
        if fields < 1 or field_starts.shape[0] < fields or field_bits.shape[0] != fields + 1:
            raise ValueError("scan: shapes do not fit")
        if (field_bits[fields] + 7) // 8 != width or not 1 <= head <= width or segment_rows < 1:
            raise ValueError("scan: sizes do not fit")
        self._arrays = (starts, counts, addresses, field_starts, field_bits, field_levels, deleted)
        self.rows = 0
        for i in range(counts.shape[0]):
            self.rows += counts[i]
        self.codes.width, self.codes.head = width, head
        self.codes.fields.count, self.codes.fields.starts = fields, &field_starts[0]
        self.codes.fields.bits, self.codes.fields.levels = &field_bits[0], &field_levels[0]
        delete_rows(&self.codes.filter, deleted, segment_rows)
        self.capsule = PyCapsule_New(&self.codes, "lsq_codes", NULL)

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

    It finds the ``k`` nearest rows of those no farther than ``limit``; all of these, where ``k`` is None. ``allowed``
    has a bit for each row that may be found, or is None for all. ``z`` is the margin of the progressive scan, or None
    for the scan that misses nothing.
    """

    cdef lsq_scan scan
    cdef lsq_codes codes
    cdef object _arrays
    cdef uint8_t nothing

    def __init__(self, Codes codes not None, const float[:, ::1] values not None, const float[::1] biases not None,
                 k, bint nibbles, z=None, const uint8_t[::1] allowed=None, int64_t parts=1, double limit=INFINITY):
        cdef int64_t nq = values.shape[0], q
        cdef double margin = 0 if z is None else z
        if self.scan.queries is not NULL:
            raise ValueError("scan: made once already")
        self.scan.k, self.scan.limit = wanted(k), float_limit(limit)
        if biases.shape[0] != nq or not 1 <= parts <= 1 << 16:
            raise ValueError("scan: sizes do not fit")
        _check_values(codes, values)
        if z is not None and not (nibbles and codes.codes.head < codes.codes.width):
            raise ValueError("scan: these codes have no head to begin with")
        self.codes = codes.codes
        if allowed is not None:
            allow_rows(&self.codes.filter, allowed, &self.nothing)
        self.scan.codes, self.scan.level = &self.codes, encoding.simd_level_number()
        self.scan.nibbles, self.scan.progressive = nibbles, z is not None
        if not lsq_scan_make(&self.scan, nq, parts):
            raise MemoryError("scan: no memory for look-ups")
        self._arrays = (codes, values, allowed)
        for q in range(nq):
            self.scan.queries[q].values, self.scan.queries[q].bias = &values[q, 0], biases[q]
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

        Rows come in no order. ``sure`` is 0 where the progressive scan may have missed some: scan again without.
        """
        cdef int64_t nq = self.scan.nq, q, total = 0
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
        if total:
            lsq_nearest_copy(self.scan.nearest, nq, &to_rows[0], &to_distances[0])
        return found, rows, distances, certain
