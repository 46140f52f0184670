"""Kept vectors: how the numbers of a vector become the bytes of a row, and numbers again.

    keep_vectors   layout           a row
    float32        float32          dim numbers
    float16        scaled-float16   a float32 scale, a power of two; dim float16 numbers
    int8           int8             a float32 scale; dim int8 numbers, the largest of them ±127
    float16        float16          dim float16 numbers: files made before format 4

A number of the vector is the stored number times the scale. All are little-endian; see docs/format.md.

float16 covers 2⁻²⁴ to 65,504 only. The scale lets a row hold any vector, each number with an error of at most 2⁻¹¹ of
the largest. Vectors of ordinary size have scale 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import VectorError

#: What ``keep_vectors`` may be.
KINDS = ("float16", "float32", "int8")

#: How rows are laid out, for each of these in a new file; and what ``keep_vectors`` was, for each layout.
LAYOUTS = {"float16": "scaled-float16", "float32": "float32", "int8": "int8"}
NAMES = {"float16": "float16", **{layout: kind for kind, layout in LAYOUTS.items()}}

_NUMBERS = {layout: np.dtype(kind).newbyteorder("<") for layout, kind in NAMES.items()}
_SCALED = ("scaled-float16", "int8")
_SCALE = np.dtype("<f4")
_LARGEST = 127

#: Vectors whose largest number is between these have scale 1. float16 rounds 65,520 and more to infinity.
_ORDINARY = (2.0**-10, 65520.0)
#: A power of two below this is not a normal float32, and no smaller one is needed: a float16 goes 24 powers lower.
_LEAST_SCALE = 2.0**-126


@lru_cache
def width(dim: int, layout: str) -> int:
    """Bytes of a row.

    >>> width(384, "scaled-float16"), width(384, "int8")
    (772, 388)
    """
    return dim * _NUMBERS[layout].itemsize + (_SCALE.itemsize if layout in _SCALED else 0)


def to_bytes(vectors: NDArray[Any], layout: str, first: int = 0) -> NDArray[np.uint8]:
    """Vectors (n, dim) as rows (n, width), each number rounded to the nearest.

    VectorError where float16 without a scale cannot hold a number; ``first`` is the number of the first vector, for
    the message.

    >>> to_bytes(np.array([[127.0, -1.0, 0.4]], np.float32), "int8")[0, 4:].view(np.int8)
    array([127,  -1,   0], dtype=int8)
    >>> to_bytes(np.array([[2.0**60, 1.5 * 2.0**59]], np.float32), "scaled-float16")[0, 4:].view(np.float16)
    array([1.  , 0.75], dtype=float16)
    """
    if layout not in _SCALED:
        return _plain(vectors, layout, first)
    largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
    scales = (largest / _LARGEST if layout == "int8" else _powers(largest)).astype(_SCALE)
    if layout == "scaled-float16" and (scales == 1).all():  # nearly always, and much faster
        numbers = np.ascontiguousarray(vectors, _NUMBERS[layout])
        return np.concatenate([scales.view(np.uint8), numbers.view(np.uint8)], axis=1)
    # An int8 scale of 0 means that all numbers are 0, or so small that float32 cannot hold a 127th of them.
    steps = vectors / np.where(scales > 0, scales, 1).astype(np.float64)
    if layout == "int8":
        steps = np.clip(np.rint(steps), -_LARGEST, _LARGEST)
    numbers = steps.astype(_NUMBERS[layout])
    return np.concatenate([scales.view(np.uint8), numbers.view(np.uint8)], axis=1)


def _plain(vectors: NDArray[Any], layout: str, first: int) -> NDArray[np.uint8]:
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(vectors, _NUMBERS[layout])
    if layout == "float16" and not np.isfinite(numbers).all():
        fit = np.isfinite(numbers).all(axis=1)
        raise VectorError(
            f"vectors: row {first + int(np.argmin(fit))} has numbers beyond the range of float16 (±65504), and a file "
            "that an older version created has no scales; scale the vectors, or build a new index"
        )
    return numbers.view(np.uint8)


def _powers(largest: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scale of each float16 row: 1, or the power of two that brings the largest number to between 1 and 2."""
    ordinary = ((largest >= _ORDINARY[0]) & (largest < _ORDINARY[1])) | (largest == 0)
    exponents = np.frexp(largest)[1] - 1
    return np.where(ordinary, 1.0, np.maximum(np.ldexp(1.0, exponents), _LEAST_SCALE))


def from_bytes(rows: NDArray[np.uint8], layout: str) -> NDArray[np.float32]:
    """The vectors (n, dim), float32, of rows (n, width)."""
    if layout not in _SCALED:
        return rows.view(_NUMBERS[layout]).astype(np.float32)
    numbers = np.ascontiguousarray(rows[:, _SCALE.itemsize :]).view(_NUMBERS[layout])
    with np.errstate(over="ignore", invalid="ignore"):  # a damaged scale may give NaN; check() reports it
        return numbers.astype(np.float32) * _scales(rows)


def sound(rows: NDArray[np.uint8], layout: str) -> bool:
    """Whether :func:`to_bytes` can have made these rows: all numbers are finite, and the scales are possible."""
    fine = bool(np.isfinite(from_bytes(rows, layout)).all())
    if layout in _SCALED:
        scales = _scales(rows)
        fine = fine and bool((np.isfinite(scales) & ~np.signbit(scales)).all())
        if layout == "scaled-float16":
            fine = fine and bool((np.frexp(scales)[0] == 0.5).all())
    return fine


def _scales(rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    scales: NDArray[np.float32] = np.ascontiguousarray(rows[:, : _SCALE.itemsize]).view(_SCALE).astype(np.float32)
    return scales
