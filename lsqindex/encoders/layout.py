"""What a code looks like, and how a distance is read off it.

A code is a row of bits cut into *fields*; a field is one dimension of the code (or a row scalar)
and holds a number below its ``levels``. Field follows field without gaps, lowest bit first:

    byte      0                1                2
    bit       0 1 2 3 4 5 6 7  0 1 2 3 4 5 6 7  0 1 ...
    fields    |-- scalar ----|  |0|1|2|3|4|5 ...          lsq, levels=2
              |-- field 0 ---|  |-- field 1 --|           pq, 8 bits

A distance is always a sum of look-ups, one per field:

    distance(query, row) = bias[query] + sum_j values[query, starts[j] + field_j(row)]

so that searching knows layouts and tables, and no encoder by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .._compiled import encoding as _kernels
from .._threads.cached import cached_property
from ..errors import CodeError, ParameterError

#: A field holds at most this many bits.
MAX_FIELD_BITS = 16

#: The shares k/n of wanted rows that ``Layout.margins`` are for, a tenth from each to the next.
MARGIN_SHARES = (1e-2, 1e-3, 1e-4)


@dataclass(frozen=True)
class Layout:
    """The fields of a code, and what a search may assume about them.

    >>> layout = Layout.uniform(levels=4, m=3)
    >>> layout.bits, layout.code_bits, layout.code_size
    ((2, 2, 2), 6, 1)
    >>> codes = layout.pack(np.array([[3, 0, 1]], np.uint16)); codes
    array([[19]], dtype=uint8)
    >>> layout.unpack(codes)
    array([[3, 0, 1]], dtype=uint16)
    """

    #: Bits of each field.
    bits: tuple[int, ...]
    #: How many values each field takes; at most ``2 ** bits``.
    levels: tuple[int, ...]
    #: How many leading fields are row scalars: part of every distance, but no dimension of the
    #: code, so never a table of the multi-index.
    scalars: int = 0
    #: Asymmetric tables of this code are affine in the bits of their field, so a field may be cut
    #: anywhere: a scan by nibbles serves any number of levels. (Symmetric ones of more than two
    #: levels are squares, and not.)
    linear: bool = False
    #: So many leading bytes of a row, the scalars among them, rank nearly as well as all of it (progressive scan);
    #: 0 where no part does.
    head: int = 0
    #: By how many deviations a row's head must sum to less than the mean row's to be read to the end: for searches
    #: that want the nearest ``MARGIN_SHARES`` of all rows by asymmetric distance. Empty without a head.
    margins: tuple[float, ...] = ()
    #: The code is the vector itself, float32, little-endian (``flat``); no tables, exact distance.
    floats: bool = False

    def __post_init__(self) -> None:
        if self.head or self.margins:
            fits = 0 < self.head < self.code_size and len(self.margins) == len(MARGIN_SHARES)
            if not (fits and self.linear and all(math.isfinite(z) for z in self.margins)):
                raise ParameterError(
                    f"layout: a head is a part of a linear code, with {len(MARGIN_SHARES)} finite margins; got "
                    f"{self.head} of {self.code_size} bytes and {self.margins}"
                )

    @classmethod
    def uniform(cls, levels: int, m: int, *, linear: bool = False) -> Layout:
        """``m`` fields of ``levels`` values each."""
        return cls((field_bits(levels),) * m, (levels,) * m, linear=linear)

    @classmethod
    def of_floats(cls, dim: int) -> Layout:
        """``dim`` float32 numbers as they are, each in two fields."""
        return cls((16,) * (2 * dim), (1 << 16,) * (2 * dim), floats=True)

    @property
    def m(self) -> int:
        """Dimensions of the code (row scalars not counted)."""
        return len(self.bits) - self.scalars

    @cached_property
    def code_bits(self) -> int:
        """Bits of a row, scalars included."""
        return sum(self.bits)

    @property
    def code_size(self) -> int:
        """Bytes of a row."""
        return (self.code_bits + 7) // 8

    @cached_property
    def binary(self) -> bool:
        """Every dimension of the code is one bit: Hamming distance applies."""
        return not self.floats and all(b == 1 for b in self.bits[self.scalars :])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each field's table begins among the values of :class:`Tables`, and their end."""
        return np.concatenate([[0], np.cumsum(self.levels)]).astype(np.int64)

    @cached_property
    def bit_starts(self) -> NDArray[np.int64]:
        """Where each field begins in the row, in bits, and their end."""
        return np.concatenate([[0], np.cumsum(self.bits)]).astype(np.int64)

    @cached_property
    def level_counts(self) -> NDArray[np.int64]:
        """``levels`` as an array."""
        return np.array(self.levels, np.int64)

    @cached_property
    def crosses(self) -> bool:
        """Whether a field lies across nibbles and its symmetric look-ups are not affine in its bits.

        (A row scalar counts for nothing in a symmetric distance: its look-ups are zero, so affine.)
        """
        across = self.bit_starts[:-1] // 4 != (self.bit_starts[1:] - 1) // 4
        return bool(across[self.scalars if self.linear else 0 :].any())

    def by_nibbles(self, distance: str) -> bool:
        """Whether a distance, "asymmetric" or "symmetric", can be looked up nibble by nibble."""
        return (self.linear and distance == "asymmetric") or not self.crosses

    @cached_property
    def _widths(self) -> NDArray[np.uint8]:
        return np.array(self.bits, np.uint8)

    @cached_property
    def pack(self) -> Callable[[NDArray[np.uint16]], NDArray[np.uint8]]:
        """Makes codes, shape (n, code_size), of field numbers, shape (n, fields)."""
        return partial(_kernels.pack, widths=self._widths, size=self.code_size)

    def unpack(self, codes: NDArray[np.uint8]) -> NDArray[np.uint16]:
        """The numbers of all fields of ``codes``, checked against ``levels``."""
        fields = _kernels.unpack(self.check(codes), self._widths)
        if any(level != 1 << bits for level, bits in zip(self.levels, self.bits, strict=True)):
            top = np.array(self.levels, np.int64)
            if len(fields) and (fields.max(axis=0) >= top).any():
                raise CodeError(
                    "codes: a field holds a number beyond its levels; this encoder did not make these codes"
                )
        return fields

    def check(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """``codes`` as C-contiguous uint8 of this layout's width, or a :class:`CodeError`."""
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.dtype != np.uint8 or codes.shape[1] != self.code_size:
            raise CodeError(
                f"codes: uint8 of shape (n, {self.code_size}) is needed, got {codes.dtype} of shape {codes.shape}"
            )
        return np.ascontiguousarray(codes)


@dataclass(frozen=True)
class Tables:
    """Per-query look-up tables of a :class:`Layout`; smaller sums are nearer.

    For a layout of floats ``values`` are the queries themselves, of shape (nq, dim).
    """

    #: float32, shape (nq, layout.starts[-1]).
    values: NDArray[np.float32]
    #: float32, shape (nq,): what no row changes.
    bias: NDArray[np.float32]


def field_bits(levels: int) -> int:
    """Bits of a field of ``levels`` values.

    >>> [field_bits(n) for n in (2, 3, 4, 5, 256)]
    [1, 2, 2, 3, 8]
    """
    if not 2 <= levels <= 1 << MAX_FIELD_BITS:
        raise ParameterError(f"levels={levels}: a whole number from 2 to {1 << MAX_FIELD_BITS} is needed")
    return (levels - 1).bit_length()
