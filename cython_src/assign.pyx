# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Cells: the nearest centres of vectors, and the entries of cells as records; see assign.h, entries.h.

The GIL is released.
"""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from header cimport LSQ_HEADER, lsq_checksum, lsq_header

from lsqindex._compiled import encoding


cdef extern from "assign.h" nogil:
    enum: LSQ_ASSIGN_ROWS
    int64_t lsq_packed_size(int64_t m, int64_t k)
    void lsq_pack_matrix(const float *matrix, int64_t m, int64_t k, float *packed)
    void lsq_nearest_centres(int level, const float *rows, int64_t n, int64_t dim, const float *centres,
                             const float *packed, const float *halves, int64_t m, int64_t k, float *scores,
                             uint32_t *work, uint32_t *labels, float *squares)
    void lsq_apart(int level, const float *x, const float *centres, const uint32_t *labels, int64_t k, int64_t dim,
                   float *squares)
    int64_t lsq_spill(int level, const float *x, int64_t dim, const float *centres, const uint32_t *labels,
                      const float *squares, int64_t k, float *products)

cdef extern from "entries.h" nogil:
    uint64_t lsq_entries_size(uint64_t count, uint64_t width)
    void lsq_entries_pack(const uint8_t *codes, const uint32_t *rows, uint64_t count, uint64_t width, uint64_t head,
                          uint8_t *to)
    void lsq_entries_unpack(const uint8_t *payload, uint64_t count, uint64_t width, uint64_t head, uint8_t *codes,
                            uint32_t *rows)
    int lsq_entries_sound(const uint8_t *payload, uint64_t count, uint64_t width, uint32_t limit)
    int lsq_record_is(const uint8_t *record, uint64_t size, uint8_t kind, uint64_t first, uint32_t width,
                      uint32_t generation, uint32_t head)

cdef extern from "glue.h":
    pass


cdef class Centres:
    """Centres, ready for looking up which are near."""

    cdef readonly object centres
    cdef const float[:, ::1] _centres
    cdef float[::1] _packed, _halves

    def __init__(self, const float[:, ::1] centres not None):
        cdef int64_t m = centres.shape[0], dim = centres.shape[1], i, j
        cdef double square
        if not m or not dim:
            raise ValueError("Centres: there are none")
        self.centres, self._centres = np.asarray(centres), centres
        self._packed, self._halves = np.empty(lsq_packed_size(m, dim), np.float32), np.empty(m, np.float32)
        with nogil:
            lsq_pack_matrix(&centres[0, 0], m, dim, &self._packed[0])
            for i in range(m):
                square = 0
                for j in range(dim):
                    square += <double>centres[i, j] * centres[i, j]
                self._halves[i] = <float>(square / 2)

    def __len__(self):
        return self._centres.shape[0]

    def nearest(self, const float[:, ::1] vectors not None, int64_t k=1):
        """(labels, squares), (n, k): the k nearest centres of each vector, nearest first, and their squared distances."""
        cdef int64_t n = vectors.shape[0], m = self._centres.shape[0], dim = self._centres.shape[1], at, some
        cdef int level = encoding.simd_level_number()
        if vectors.shape[1] != dim or not 1 <= k <= m:
            raise ValueError("nearest: shapes do not fit")
        labels, squares = np.empty((n, k), np.uint32), np.empty((n, k), np.float32)
        cdef uint32_t[:, ::1] to = labels
        cdef float[:, ::1] away = squares
        cdef uint32_t *work = <uint32_t *>malloc(<size_t>k * sizeof(uint32_t))
        cdef float *scores = <float *>malloc(<size_t>(LSQ_ASSIGN_ROWS * m) * sizeof(float))
        try:
            if work == NULL or scores == NULL:
                raise MemoryError
            with nogil:
                at = 0
                while at < n:
                    some = min(n - at, LSQ_ASSIGN_ROWS)
                    lsq_nearest_centres(level, &vectors[at, 0], some, dim, &self._centres[0, 0], &self._packed[0],
                                        &self._halves[0], m, k, scores, work, &to[at, 0], &away[at, 0])
                    at += some
        finally:
            free(work)
            free(scores)
        return labels, squares

    def among(self, const float[:, ::1] vectors not None, const uint32_t[:, ::1] candidates not None):
        """(labels, squares), (n,): the nearest of each vector's candidates, the first of them where several are."""
        cdef int64_t n = vectors.shape[0], m = self._centres.shape[0], dim = self._centres.shape[1], i, j, best
        cdef int64_t k = candidates.shape[1]
        cdef int level = encoding.simd_level_number()
        if vectors.shape[1] != dim or candidates.shape[0] != n or not k:
            raise ValueError("among: shapes do not fit")
        _check(candidates, m)
        labels, squares = np.empty(n, np.uint32), np.empty(n, np.float32)
        cdef uint32_t[::1] to = labels
        cdef float[::1] away = squares
        cdef float *apart = <float *>malloc(<size_t>k * sizeof(float))
        if apart == NULL:
            raise MemoryError
        with nogil:
            for i in range(n):
                lsq_apart(level, &vectors[i, 0], &self._centres[0, 0], &candidates[i, 0], k, dim, apart)
                best = 0
                for j in range(1, k):
                    if apart[j] < apart[best]:
                        best = j
                to[i], away[i] = candidates[i, best], apart[best]
        free(apart)
        return labels, squares

    def spill(self, const float[:, ::1] vectors not None, const uint32_t[:, ::1] labels not None,
              const float[:, ::1] squares not None):
        """Where among its nearest centres, as :meth:`nearest` found at least two, each vector's second cell is."""
        cdef int64_t n = vectors.shape[0], m = self._centres.shape[0], dim = self._centres.shape[1], i
        cdef int64_t k = labels.shape[1]
        cdef int level = encoding.simd_level_number()
        if vectors.shape[1] != dim or labels.shape[0] != n or k < 2 or squares.shape[0] != n or squares.shape[1] != k:
            raise ValueError("spill: shapes do not fit")
        _check(labels, m)
        places = np.empty(n, np.int64)
        cdef int64_t[::1] to = places
        cdef float *products = <float *>malloc(<size_t>k * sizeof(float))
        if products == NULL:
            raise MemoryError
        with nogil:
            for i in range(n):
                to[i] = lsq_spill(level, &vectors[i, 0], dim, &self._centres[0, 0], &labels[i, 0], &squares[i, 0], k,
                                  products)
        free(products)
        return places


cdef _check(const uint32_t[:, ::1] labels, int64_t m):
    cdef int64_t i, j
    cdef bint fine = True
    with nogil:
        for i in range(labels.shape[0]):
            for j in range(labels.shape[1]):
                fine = fine and labels[i, j] < m
    if not fine:
        raise ValueError("a centre that is not there")


def sums(const float[:, ::1] vectors not None, const uint32_t[::1] labels not None, int64_t count):
    """(count, dim) float64: the sum of the vectors of each label, in the order of the vectors."""
    cdef int64_t n = vectors.shape[0], dim = vectors.shape[1], i, j
    cdef bint fine = labels.shape[0] == n
    out = np.zeros((count, dim))
    cdef double[:, ::1] to = out
    with nogil:
        for i in range(n if fine else 0):
            if labels[i] >= count:
                fine = False
                break
            for j in range(dim):
                to[labels[i], j] += vectors[i, j]
    if not fine:
        raise ValueError("sums: shapes do not fit")
    return out


def pack(bytes kind not None, const uint32_t[::1] numbers not None, const int64_t[::1] counts not None,
         const uint32_t[::1] rows not None, const uint8_t[:, ::1] codes not None, uint32_t head, uint32_t generation):
    """The record of each cell, a list: ``counts`` entries each, one cell's after another's in ``rows`` and ``codes``."""
    cdef int64_t i, at = 0, n = numbers.shape[0]
    cdef uint64_t size
    cdef uint32_t width = <uint32_t>codes.shape[1]
    cdef bytes record
    cdef uint8_t *to
    cdef lsq_header *header
    if len(kind) != 1 or counts.shape[0] != n or codes.shape[0] != rows.shape[0] or head > width or not width:
        raise ValueError("pack: shapes do not fit")
    out = []
    for i in range(n):
        if counts[i] < 1 or at + counts[i] > rows.shape[0]:
            raise ValueError("pack: the counts do not fit")
        size = lsq_entries_size(counts[i], width)
        record = PyBytes_FromStringAndSize(NULL, LSQ_HEADER + size)
        to = <uint8_t *>PyBytes_AS_STRING(record)
        header = <lsq_header *>to
        memcpy(to, b"LSQ", 3)
        header.kind, header.count, header.first, header.width = kind[0], <uint32_t>counts[i], numbers[i], width
        header.generation, header.size, header.head, header.zero = generation, size, head, 0
        with nogil:
            lsq_entries_pack(&codes[at, 0], &rows[at], counts[i], width, head, to + LSQ_HEADER)
            header.checksum = lsq_checksum(to + LSQ_HEADER, size, lsq_checksum(to, LSQ_HEADER - 8, 0))
        out.append(record)
        at += counts[i]
    return out


def unpack(const uint64_t[::1] addresses not None, const int64_t[::1] counts not None, int64_t width, int64_t head):
    """(rows, codes) of payloads at ``addresses``, of verified records of so many entries each, one after another."""
    cdef int64_t i, at = 0, n = addresses.shape[0], total = 0
    if counts.shape[0] != n or not 0 <= head <= width or not width:
        raise ValueError("unpack: shapes do not fit")
    for i in range(n):
        if counts[i] < 0:
            raise ValueError("unpack: shapes do not fit")
        total += counts[i]
    rows, codes = np.empty(total, np.uint32), np.empty((total, width), np.uint8)
    cdef uint32_t[::1] names = rows
    cdef uint8_t[:, ::1] to = codes
    with nogil:
        for i in range(n):
            if counts[i]:
                lsq_entries_unpack(<const uint8_t *><uintptr_t>addresses[i], counts[i], width, head, &to[at, 0], &names[at])
                at += counts[i]
    return rows, codes


def rows(const uint64_t[::1] addresses not None, const int64_t[::1] counts not None, int64_t width):
    """The rows of payloads, as :func:`unpack`, without their codes."""
    cdef int64_t i, at = 0, n = addresses.shape[0], total = 0
    if counts.shape[0] != n or width < 1:
        raise ValueError("rows: shapes do not fit")
    for i in range(n):
        if counts[i] < 0:
            raise ValueError("rows: shapes do not fit")
        total += counts[i]
    out = np.empty(total, np.uint32)
    cdef uint32_t[::1] names = out
    with nogil:
        for i in range(n):
            if counts[i]:
                memcpy(&names[at], <const uint8_t *><uintptr_t>addresses[i] + width * ((counts[i] + 31) // 32 * 32),
                       <size_t>counts[i] * sizeof(uint32_t))
                at += counts[i]
    return out


def centres(const uint64_t[::1] addresses not None, int64_t dim):
    """(centres, spreads, sound): of verified payloads of ``dim`` numbers and one more each; whether all are finite, and
    no spread is negative."""
    cdef int64_t i, j, n = addresses.shape[0]
    cdef bint fine = True
    cdef const uint8_t *payload
    if dim < 1:
        raise ValueError("centres: no dimensions")
    points, spreads = np.empty((n, dim), np.float32), np.empty(n, np.float32)
    cdef float[:, ::1] to = points
    cdef float[::1] away = spreads
    with nogil:
        for i in range(n):
            payload = <const uint8_t *><uintptr_t>addresses[i]
            memcpy(&to[i, 0], payload, <size_t>dim * sizeof(float))
            memcpy(&away[i], payload + dim * <int64_t>sizeof(float), sizeof(float))
            for j in range(dim):
                fine = fine and isfinite(to[i, j])
            fine = fine and isfinite(away[i]) and away[i] >= 0
    return points, spreads, bool(fine)


def sound(const uint64_t[::1] addresses not None, const int64_t[::1] sizes not None, const uint32_t[::1] numbers not None,
          uint8_t kind, uint32_t width, uint32_t generation, uint32_t head, uint32_t limit, bint entries):
    """How many of these records, one after another, are what they should be.

    With ``entries`` they are of cells: ``width`` is that of a code, and rows must ascend and be below ``limit``. Other
    records have one entry of ``width`` bytes.
    """
    cdef int64_t i, n = addresses.shape[0]
    cdef const uint8_t *record
    cdef uint64_t count, size
    if sizes.shape[0] != n or numbers.shape[0] != n:
        raise ValueError("sound: the arrays differ in length")
    with nogil:
        for i in range(n):
            record = <const uint8_t *><uintptr_t>addresses[i]
            size = <uint64_t>sizes[i]
            if not lsq_record_is(record, size, kind, numbers[i], width, generation, head):
                break
            count = (<const lsq_header *>record).count
            if count < 1 or size - LSQ_HEADER != (lsq_entries_size(count, width) if entries else width * count):
                break
            if entries and not lsq_entries_sound(record + LSQ_HEADER, count, width, limit):
                break
        else:
            i = n
    return i


def living(const uint32_t[::1] rows not None, const uint64_t[::1] deleted not None, int64_t segment_rows,
           const uint8_t[::1] there not None, int64_t chunk_rows):
    """Which rows are stored and not deleted; the bits of each segment lie at ``deleted``, 0 where nothing is."""
    cdef int64_t i, n = rows.shape[0], segment, at
    cdef const uint8_t *bits
    out = np.zeros(n, np.bool_)
    cdef uint8_t[::1] to = out.view(np.uint8)
    if segment_rows < 1 or chunk_rows < 1:
        raise ValueError("living: an impossible number of rows")
    with nogil:
        for i in range(n):
            segment, at = rows[i] // segment_rows, rows[i] % segment_rows
            if rows[i] // chunk_rows >= there.shape[0] or not there[rows[i] // chunk_rows]:
                continue
            if segment < deleted.shape[0] and deleted[segment]:
                bits = <const uint8_t *><uintptr_t>deleted[segment]
                if bits[at >> 3] >> (at & 7) & 1:
                    continue
            to[i] = 1
    return out
