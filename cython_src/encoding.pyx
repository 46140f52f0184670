# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The compiled kernels: checked pointers in, the GIL released, no NumPy C API.

Every function has its twin in ``lsqindex/testing/reference``, bit-equal on every instruction set. The
SIMD lives in the headers beside this file; see simd.h.
"""

import os

import numpy as np

from cpython.pycapsule cimport PyCapsule_New
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

cdef extern from "bits.h" nogil:
    ctypedef struct lsq_bits:
        int64_t dim
        int64_t d
        int64_t m
        int32_t stride
        int32_t steps
        int32_t low
        const float *mean
        const float *to_axes
        const float *to_targets
        const float *columns
        const float *to_residual
        const int32_t *twice
        const int32_t *diagonal
        float noise
        float scale
        int32_t levels
        int32_t learned
        const float *to_coded
        const float *rho
        const float *shift
        float rho_rest
        float below
        float lowest
        float step
    int64_t lsq_bits_work(const lsq_bits *own)
    void lsq_bits_of(int level, const lsq_bits *own, const float *vectors, int64_t n, uint16_t *fields,
                     uint8_t *longer, float *work)

cdef extern from "tables.h" nogil:
    ctypedef struct lsq_linear:
        int64_t dim
        int64_t m
        int64_t levels
        int64_t steps
        int64_t rows
        const float *packed
        const float *centre
        const float *known
        const float *theta
        int unit
        float constant
        float frontier
        float length
        float spread
    int64_t lsq_lookups_of(const lsq_linear *linear)
    int64_t lsq_tables_work(const lsq_linear *linear, int64_t n)
    void lsq_tables_of(int level, const lsq_linear *linear, const float *queries, int64_t n, float *values, float *bias,
                       float *work)

cdef extern from "pack.h" nogil:
    void lsq_pack(uint8_t *codes, const uint16_t *fields, const uint8_t *widths, int64_t n, int64_t m, int64_t size)
    void lsq_unpack(uint16_t *fields, const uint8_t *codes, const uint8_t *widths, int64_t n, int64_t m, int64_t size)

cdef extern from "glue.h":
    pass


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


cdef class Packed:
    """A matrix as :func:`product` reads it: packing it costs as much as multiplying a hundred rows with it."""

    cdef int64_t m, k
    cdef object _matrix
    cdef float[::1] _packed

    def __init__(self, matrix not None):
        cdef const float[:, ::1] own = np.ascontiguousarray(matrix, np.float32)
        self.m, self.k, self._matrix = own.shape[0], own.shape[1], matrix
        self._packed = np.empty(max(1, lsq_packed_size(self.m, self.k)), np.float32)
        if self.m and self.k:
            with nogil:
                lsq_pack_matrix(&own[0, 0], self.m, self.k, &self._packed[0])

    def __reduce__(self):
        return Packed, (self._matrix,)


def product(rows not None, matrix not None):
    """``rows @ matrixᵀ``, float32; a row of the result depends on that row alone; see product.h.

    ``matrix``: an array, or :class:`Packed` if it is multiplied often.
    """
    cdef const float[:, ::1] left = np.ascontiguousarray(rows, np.float32)
    cdef Packed right = matrix if isinstance(matrix, Packed) else Packed(matrix)
    cdef int64_t n = left.shape[0], k = left.shape[1]
    if right.k != k:
        raise ValueError("product: shapes do not fit")
    result = np.zeros((n, right.m), np.float32)
    if n == 0 or k == 0 or right.m == 0:
        return result
    cdef float[:, ::1] out = result
    with nogil:
        lsq_product(_level, &left[0, 0], &right._packed[0], n, k, right.m, &out[0, 0])
    return result


#: A call that takes less than some ten microseconds keeps the GIL: to take it again could take longer.
cdef int64_t _FEW = 4


cdef class Bits:
    """Vectors to the bits of a linear code, and to the row scalar, in one call; see bits.h.

    ``search``: (mean, axes, targets, columns, noise, scale, twice, diagonal, steps), as :mod:`lsqindex.encoders.lsq_codes`
    has them. ``scalar``: (levels, columns of V and what bits tell, rho, shift, rho_rest, below, lowest, step); rho and
    shift are None where the scalar is the length of the reconstruction. None: there is no scalar.
    """

    cdef lsq_bits own
    cdef object _arguments, _held

    def __init__(self, tuple search not None, scalar=None):
        mean, axes, targets, columns, noise, scale, twice, diagonal, steps = search
        cdef const float[::1] middle = mean
        cdef const float[:, ::1] plain = columns
        cdef const int32_t[:, ::1] g2 = twice
        cdef const int32_t[::1] gjj = diagonal
        cdef Packed to_axes = Packed(axes), to_targets = Packed(targets), to_residual = Packed(columns), to_coded
        cdef const float[::1] slopes, shifts
        cdef int64_t dim = middle.shape[0], d = to_axes.m, m = plain.shape[0]
        if (to_axes.k != dim or to_targets.m != m or to_targets.k != d or plain.shape[1] != m or dim < 1 or d < 1
                or m < 1 or g2.shape[0] != m + 1 or g2.shape[1] < m or g2.shape[1] % LSQ_LANES or gjj.shape[0] != m
                or steps < 0):
            raise ValueError("bits: shapes do not fit")
        self._arguments, self._held = (search, scalar), [mean, columns, twice, diagonal, to_axes, to_targets, to_residual]
        self.own.dim, self.own.d, self.own.m, self.own.stride, self.own.steps = dim, d, m, <int32_t>g2.shape[1], steps
        self.own.low = 1
        while self.own.low < self.own.stride:
            self.own.low *= 2
        self.own.low -= 1
        self.own.mean, self.own.columns, self.own.twice, self.own.diagonal = (
            &middle[0], &plain[0, 0], &g2[0, 0], &gjj[0])
        self.own.to_axes, self.own.to_targets = &to_axes._packed[0], &to_targets._packed[0]
        self.own.to_residual, self.own.noise, self.own.scale = &to_residual._packed[0], noise, scale
        if scalar is not None:
            levels, coded, rho, shift, rest, below, lowest, step = scalar
            to_coded = Packed(coded)
            if to_coded.k != m or to_coded.m != d + 1 or not 2 <= levels <= 65536:
                raise ValueError("bits: shapes do not fit")
            self.own.levels, self.own.learned, self.own.to_coded = levels, rho is not None, &to_coded._packed[0]
            self.own.rho_rest, self.own.below, self.own.lowest, self.own.step = rest, below, lowest, step
            self._held += [to_coded, rho, shift]
            if rho is not None:
                slopes, shifts = rho, shift
                if slopes.shape[0] != d or shifts.shape[0] != d:
                    raise ValueError("bits: shapes do not fit")
                self.own.rho, self.own.shift = &slopes[0], &shifts[0]

    def __reduce__(self):
        return Bits, self._arguments

    def of(self, const float[:, ::1] vectors not None):
        """(fields, flags): the bits of each vector, after its scalar if there is one; and which are too long for it."""
        cdef int64_t n = vectors.shape[0]
        if vectors.shape[1] != self.own.dim:
            raise ValueError("bits: shapes do not fit")
        fields, flags = np.empty((n, self.own.m + (self.own.levels > 0)), np.uint16), np.zeros(n, np.uint8)
        if n == 0:
            return fields, flags
        cdef uint16_t[:, ::1] to = fields
        cdef uint8_t[::1] longer = flags
        cdef float[::1] work = np.empty(lsq_bits_work(&self.own), np.float32)
        if n < _FEW:
            lsq_bits_of(_level, &self.own, &vectors[0, 0], n, &to[0, 0], &longer[0], &work[0])
        else:
            with nogil:
                lsq_bits_of(_level, &self.own, &vectors[0, 0], n, &to[0, 0], &longer[0], &work[0])
        return fields, flags


cdef int64_t _bytes(const uint8_t[::1] widths) except -1:
    cdef int64_t total = 0, j
    for j in range(widths.shape[0]):
        if not 1 <= widths[j] <= 16:
            raise ValueError("a field has 1 to 16 bits")
        total += widths[j]
    return (total + 7) // 8


def pack(numbers not None, const uint8_t[::1] widths not None, int64_t size):
    """Field numbers (n, m) as codes (n, size); see pack.h."""
    cdef const uint16_t[:, ::1] fields = np.ascontiguousarray(numbers, np.uint16)
    if fields.shape[1] != widths.shape[0] or _bytes(widths) != size:
        raise ValueError("pack: shapes do not fit")
    codes = np.zeros((fields.shape[0], size), np.uint8)
    cdef uint8_t[:, ::1] out = codes
    if 0 < fields.shape[0] < _FEW and size:
        lsq_pack(&out[0, 0], &fields[0, 0], &widths[0], fields.shape[0], fields.shape[1], size)
    elif fields.shape[0] and size:
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


cdef class Linear:
    """The look-up tables of a linear code for one metric; see tables.h.

    ``matrix`` has the m rows of the code, then the row of the bias and that of the frontier, where there are such.
    ``known`` are the look-ups of the row scalar, and those of each dimension for each of ``theta``. ``centre`` is
    subtracted from queries; ``unit``: only their direction counts.
    """

    cdef lsq_linear linear
    #: For other extensions: holds the address of the lsq_linear.
    cdef readonly object capsule
    cdef object _packed, _arguments

    def __init__(self, matrix, int64_t m, theta, known, centre=None, bint unit=False,
                 float constant=0, float frontier=1, float length=1, float spread=0):
        cdef const float[:, ::1] own = matrix
        cdef const float[::1] levels_of = theta, told = known, middle = centre
        cdef int64_t rows = own.shape[0], dim = own.shape[1], levels = levels_of.shape[0]
        if not (1 <= m <= rows <= m + 2 and dim >= 1 and levels >= 2 and told.shape[0] >= m * levels):
            raise ValueError("linear: shapes do not fit")
        if (middle is not None and (middle.shape[0] != dim or rows > m or unit)) or (middle is None and rows == m):
            raise ValueError("linear: either queries are centred, or a row is for the bias")
        cdef float[::1] packed = np.empty(lsq_packed_size(rows, dim), np.float32)
        lsq_pack_matrix(&own[0, 0], rows, dim, &packed[0])
        self._packed, self._arguments = packed, (matrix, m, theta, known, centre, unit, constant,
                                                 frontier, length, spread)
        self.linear.dim, self.linear.m, self.linear.levels = dim, m, levels
        self.linear.rows, self.linear.steps = rows, told.shape[0] - m * levels
        self.linear.packed, self.linear.theta, self.linear.known = &packed[0], &levels_of[0], &told[0]
        self.linear.centre = &middle[0] if middle is not None else NULL
        self.linear.unit, self.linear.constant, self.linear.frontier = unit, constant, frontier
        self.linear.length, self.linear.spread = length, spread
        self.capsule = PyCapsule_New(&self.linear, "lsq_linear", NULL)

    def __reduce__(self):
        return Linear, self._arguments

    def of(self, const float[:, ::1] queries not None):
        """(values, bias): the tables of ``queries``, float32."""
        cdef int64_t n = queries.shape[0]
        if queries.shape[1] != self.linear.dim:
            raise ValueError("linear: shapes do not fit")
        values, bias = np.empty((n, lsq_lookups_of(&self.linear)), np.float32), np.empty(n, np.float32)
        if n == 0:
            return values, bias
        cdef float[:, ::1] to_values = values
        cdef float[::1] to_bias = bias, work = np.empty(lsq_tables_work(&self.linear, n), np.float32)
        with nogil:
            lsq_tables_of(_level, &self.linear, &queries[0, 0], n, &to_values[0, 0], &to_bias[0], &work[0])
        return values, bias
