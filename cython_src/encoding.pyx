# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The compiled kernels: checked pointers in, the GIL released, no NumPy C API.

Every function has its twin in ``lsqindex/testing/reference.py``, bit-equal on every instruction set. The
SIMD lives in the headers beside this file; see simd.h.
"""

import os

import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t


cdef extern from "levels.h" nogil:
    int LSQ_LANES
    int lsq_simd_available(int level)

cdef extern from "flips.h" nogil:
    void lsq_flips(int level, uint8_t *bits, const int32_t *r, const int32_t *g2, const int32_t *diagonal,
                   int32_t *work, int64_t n, int32_t m, int32_t stride, int32_t steps, int32_t low)

cdef extern from "feedback.h" nogil:
    void lsq_feedback(int level, uint8_t *bits, float *c, const float *columns, int64_t n, int32_t m)

cdef extern from "descend.h" nogil:
    void lsq_descend(int level, uint16_t *levels, float *r, const float *g, int64_t n, int32_t m, int32_t count,
                     int32_t sweeps)

cdef extern from "product.h" nogil:
    int64_t lsq_packed_size(int64_t m, int64_t k)
    void lsq_pack_matrix(const float *matrix, int64_t m, int64_t k, float *packed)
    void lsq_product(int level, const float *rows, const float *packed, int64_t n, int64_t k, int64_t m, float *out)

cdef extern from "pack.h" nogil:
    void lsq_pack(uint8_t *codes, const uint16_t *fields, const uint8_t *widths, int64_t n, int64_t m, int64_t size)
    void lsq_unpack(uint16_t *fields, const uint8_t *codes, const uint8_t *widths, int64_t n, int64_t m, int64_t size)


#: Rows of matrices passed here are padded to a multiple of this.
LANES = LSQ_LANES

_NAMES = ("portable", "avx2", "avx512", "neon")
cdef int _level = 0


def simd_levels():
    """The instruction sets that this machine and this build have, slowest first."""
    return tuple(name for level, name in enumerate(_NAMES) if lsq_simd_available(level))


def simd_level():
    """The instruction set in use."""
    return _NAMES[_level]


def simd_level_number():
    """The number of the instruction set in use, for other extensions; see simd.h."""
    return _level


def use_simd(name):
    """Use this instruction set from now on, in the whole process."""
    global _level
    if name not in simd_levels():
        raise ValueError(f"LSQINDEX_SIMD={name!r}: this machine has {', '.join(simd_levels())}")
    _level = _NAMES.index(name)


use_simd(os.environ.get("LSQINDEX_SIMD") or max(simd_levels(), key=_NAMES.index))


def flips(uint8_t[:, ::1] bits not None, const int32_t[:, ::1] r not None, const int32_t[:, ::1] g2 not None,
          const int32_t[::1] diagonal not None, int steps):
    """Improve the binary codes ``bits`` in place by ``steps`` flips each; see flips.h."""
    cdef int64_t n = bits.shape[0]
    cdef int32_t m = <int32_t>bits.shape[1], stride = <int32_t>g2.shape[1], low = 1
    if r.shape[0] != n or r.shape[1] != m or g2.shape[0] != m + 1 or diagonal.shape[0] != m:
        raise ValueError("flips: shapes do not fit")
    if stride < m or stride % LSQ_LANES or steps < 0:
        raise ValueError(f"flips: the rows of g2 must be padded to a multiple of {LSQ_LANES}")
    if n == 0 or m == 0:
        return
    while low < stride:
        low *= 2
    low -= 1
    cdef int32_t[::1] work = np.empty(4 * stride, np.int32)
    with nogil:
        lsq_flips(_level, &bits[0, 0], &r[0, 0], &g2[0, 0], &diagonal[0], &work[0], n, m, stride, steps, low)


def feedback(float[:, ::1] c not None, const float[:, ::1] columns not None):
    """The first guess of binary codes, uint8 of the shape of ``c``, which becomes c − Lh; see feedback.h."""
    cdef int64_t n = c.shape[0]
    cdef int32_t m = <int32_t>c.shape[1]
    if columns.shape[0] != m or columns.shape[1] != m:
        raise ValueError("feedback: shapes do not fit")
    bits = np.empty((n, m), np.uint8)
    cdef uint8_t[:, ::1] out = bits
    if n and m:
        with nogil:
            lsq_feedback(_level, &out[0, 0], &c[0, 0], &columns[0, 0], n, m)
    return bits


def descend(uint16_t[:, ::1] levels not None, float[:, ::1] r not None, const float[:, ::1] g not None, int count,
            int sweeps):
    """Improve the n-ary codes ``levels`` in place by coordinate descent; ``r`` is used up; see descend.h."""
    cdef int64_t n = levels.shape[0]
    cdef int32_t m = <int32_t>levels.shape[1]
    if r.shape[0] != n or r.shape[1] != m or g.shape[0] != m or g.shape[1] != m or not 2 <= count <= 65536:
        raise ValueError("descend: shapes do not fit")
    if n == 0 or m == 0:
        return
    with nogil:
        lsq_descend(_level, &levels[0, 0], &r[0, 0], &g[0, 0], n, m, count, sweeps)


def product(const float[:, ::1] rows not None, const float[:, ::1] matrix not None):
    """``rows @ matrixᵀ``, float32; a row of the result depends on that row alone; see product.h."""
    cdef int64_t n = rows.shape[0], k = rows.shape[1], m = matrix.shape[0]
    if matrix.shape[1] != k:
        raise ValueError("product: shapes do not fit")
    result = np.zeros((n, m), np.float32)
    if n == 0 or k == 0 or m == 0:
        return result
    cdef float[:, ::1] out = result
    cdef float[::1] packed = np.empty(lsq_packed_size(m, k), np.float32)
    with nogil:
        lsq_pack_matrix(&matrix[0, 0], m, k, &packed[0])
        lsq_product(_level, &rows[0, 0], &packed[0], n, k, m, &out[0, 0])
    return result


cdef int64_t _bytes(const uint8_t[::1] widths) except -1:
    cdef int64_t total = 0, j
    for j in range(widths.shape[0]):
        if not 1 <= widths[j] <= 16:
            raise ValueError("a field has 1 to 16 bits")
        total += widths[j]
    return (total + 7) // 8


def pack(const uint16_t[:, ::1] fields not None, const uint8_t[::1] widths not None, int64_t size):
    """Field numbers (n, m) as codes (n, size); see pack.h."""
    if fields.shape[1] != widths.shape[0] or _bytes(widths) != size:
        raise ValueError("pack: shapes do not fit")
    codes = np.zeros((fields.shape[0], size), np.uint8)
    cdef uint8_t[:, ::1] out = codes
    if fields.shape[0] and size:
        with nogil:
            lsq_pack(&out[0, 0], &fields[0, 0], &widths[0], fields.shape[0], fields.shape[1], size)
    return codes


def unpack(const uint8_t[:, ::1] codes not None, const uint8_t[::1] widths not None):
    """The field numbers (n, m) of codes; see pack.h."""
    if _bytes(widths) != codes.shape[1]:
        raise ValueError("unpack: shapes do not fit")
    fields = np.empty((codes.shape[0], widths.shape[0]), np.uint16)
    cdef uint16_t[:, ::1] out = fields
    if codes.shape[0] and widths.shape[0]:
        with nogil:
            lsq_unpack(&out[0, 0], &codes[0, 0], &widths[0], codes.shape[0], widths.shape[0], codes.shape[1])
    return fields


def length_tables(const float[:, ::1] inner not None, const float[::1] known not None, float length, float z,
                  float[:, ::1] values not None, float[::1] bias not None):
    """Look-ups for inner products of a binary code with lengths; see lsqindex/encoders/lsq_length.py.

    ``inner`` are the products of the query with the m rows of V, the mean of unit vectors and the mean of vectors.
    ``known`` is what the frontier is multiplied with: the steps, then −w and +w for each dimension.
    """
    cdef int64_t n = inner.shape[0], m = inner.shape[1] - 2, s = known.shape[0] - 2 * m, i, j
    cdef float frontier, own
    cdef double square
    if m < 0 or s < 0 or values.shape[0] != n or values.shape[1] != s + 2 * m or bias.shape[0] != n:
        raise ValueError("length_tables: shapes do not fit")
    with nogil:
        for i in range(n):
            square = 0
            for j in range(m):
                square += <double>inner[i, j] * inner[i, j]
            frontier = <float>(inner[i, m + 1] + <double>z * length * sqrt(square))
            for j in range(s):
                values[i, j] = frontier * known[j]
            for j in range(m):
                own = length * inner[i, j]
                values[i, s + 2 * j] = frontier * known[s + 2 * j] + own
                values[i, s + 2 * j + 1] = frontier * known[s + 2 * j + 1] - own
            bias[i] = -frontier - length * inner[i, m]


def bit_tables(const float[:, ::1] inner not None, const float[:, ::1] queries, const float[::1] weights not None,
               const float[::1] steps not None, float constant, float[:, ::1] values not None, float[::1] bias not None):
    """Look-ups of a binary linear code: ``steps``, then for each dimension j −w and +w, w = weights_j − inner_j / length.

    ``length`` is that of the query, or 1 where ``queries`` is None. Where ``inner`` has one more column than
    ``weights``, ``bias`` becomes constant − that / length.
    """
    cdef int64_t n = inner.shape[0], m = weights.shape[0], s = steps.shape[0], i, j
    cdef float w, length = 1
    cdef double square
    cdef bint more = inner.shape[1] == m + 1, divide = queries is not None
    if not m <= inner.shape[1] <= m + 1 or values.shape[0] != n or values.shape[1] != s + 2 * m or bias.shape[0] != n:
        raise ValueError("bit_tables: shapes do not fit")
    if divide and queries.shape[0] != n:
        raise ValueError("bit_tables: shapes do not fit")
    with nogil:
        for i in range(n):
            if divide:
                square = 0
                for j in range(queries.shape[1]):
                    square += <double>queries[i, j] * queries[i, j]
                length = <float>sqrt(square) if square > 0 else 1
            for j in range(s):
                values[i, j] = steps[j]
            for j in range(m):
                w = weights[j] - inner[i, j] / length
                values[i, s + 2 * j] = -w
                values[i, s + 2 * j + 1] = w
            if more:
                bias[i] = constant - inner[i, m] / length
