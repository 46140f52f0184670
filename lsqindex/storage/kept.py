"""Kept vectors: how the numbers of a vector become the bytes of a row, and numbers again.

    float32   dim numbers
    float16   dim numbers
    int8      a float32 scale, dim numbers: each times the scale; the largest is ±127

All little-endian. Format 1; docs/format.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What ``keep_vectors`` may be.
KINDS = ("float16", "float32", "int8")

_SCALE = np.dtype("<f4")
_LARGEST = 127


def width(dim: int, kind: str) -> int:
    """Bytes of a row.

    >>> width(384, "float16"), width(384, "int8")
    (768, 388)
    """
    return dim * np.dtype(kind).itemsize + (_SCALE.itemsize if kind == "int8" else 0)


def to_bytes(vectors: NDArray[Any], kind: str) -> NDArray[np.uint8]:
    """Vectors (n, dim) as rows (n, width), rounded to the nearest; what is beyond float16 becomes infinite.

    >>> to_bytes(np.array([[127.0, -1.0, 0.4]], np.float32), "int8")[0, 4:].view(np.int8)
    array([127,  -1,   0], dtype=int8)
    """
    if kind != "int8":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(vectors, np.dtype(kind).newbyteorder("<")).view(np.uint8)
    scales = (np.abs(vectors).max(axis=1, keepdims=True) / _LARGEST).astype(_SCALE)
    # A scale of 0 is that of zeros, or of numbers smaller than float32 can divide.
    steps = vectors / np.where(scales > 0, scales, 1).astype(np.float64)
    numbers = np.clip(np.rint(steps), -_LARGEST, _LARGEST).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), numbers.view(np.uint8)], axis=1)


def from_bytes(rows: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """The vectors (n, dim), float32, of rows (n, width)."""
    if kind != "int8":
        return rows.view(np.dtype(kind).newbyteorder("<")).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # of a damaged scale, which check() finds
        return rows[:, _SCALE.itemsize :].view(np.int8).astype(np.float32) * _scales(rows)


def sound(rows: NDArray[np.uint8], kind: str) -> bool:
    """Whether rows are such as :func:`to_bytes` makes of vectors: all numbers finite, and no scale negative."""
    fine = bool(np.isfinite(from_bytes(rows, kind)).all())
    if kind == "int8":
        scales = _scales(rows)
        fine = fine and bool((np.isfinite(scales) & ~np.signbit(scales)).all())
    return fine


def _scales(rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    scales: NDArray[np.float32] = np.ascontiguousarray(rows[:, : _SCALE.itemsize]).view(_SCALE).astype(np.float32)
    return scales
