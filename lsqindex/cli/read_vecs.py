"""The files of the TEXMEX sets: every vector begins with its dimension, an int32.

.fvecs   | dim | dim × float32 | dim | …
.bvecs   | dim | dim × uint8   |
.ivecs   | dim | dim × int32   |
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .source import InputError, Source, Wanted, sliced

_HEAD = 4


class _Rows:
    """The vectors of a memory map of such rows; each slice is looked at before it is given away."""

    def __init__(self, name: str, raw: Any, dim: int, dtype: np.dtype[Any]) -> None:
        self._name, self._raw, self.dtype, self.shape = name, raw, dtype, (len(raw), dim)

    def __getitem__(self, where: Any) -> Any:
        rows = np.ascontiguousarray(self._raw[where])
        dims = rows[:, :_HEAD].view("<i4")[:, 0]
        if (dims != self.shape[1]).any():
            odd = int(dims[dims != self.shape[1]][0])
            raise InputError(
                f"{self._name}: a vector says it has {odd} dimensions, the first has {self.shape[1]}; "
                "the file is damaged, or of another format"
            )
        return np.ascontiguousarray(rows[:, _HEAD:]).view(self.dtype)


def _open(name: str, wanted: Wanted, dtype: np.dtype[Any]) -> Source:
    wanted.only(name)
    size = Path(name).stat().st_size
    if size < _HEAD:
        raise InputError(f"{name}: has no vectors, it has {size} bytes")
    with Path(name).open("rb") as file:
        dim = int.from_bytes(file.read(_HEAD), "little", signed=True)
    if not 1 <= dim <= 1 << 20:
        raise InputError(f"{name}: begins with {dim} as its dimension; the file is damaged, or of another format")
    width = _HEAD + dim * dtype.itemsize
    if size % width:
        raise InputError(
            f"{name}: {size // width:,} vectors of {dim} dimensions and {size % width} bytes of one more; the file is "
            "truncated, or of another format"
        )
    raw = np.memmap(name, np.uint8, "r", shape=(size // width, width))
    return sliced(name, _Rows(name, raw, dim, dtype))


def open_fvecs(name: str, wanted: Wanted, stream: Any) -> Source:
    """float32 vectors."""
    del stream
    return _open(name, wanted, np.dtype("<f4"))


def open_bvecs(name: str, wanted: Wanted, stream: Any) -> Source:
    """Vectors of bytes."""
    del stream
    return _open(name, wanted, np.dtype("u1"))


def open_ivecs(name: str, wanted: Wanted, stream: Any) -> Source:
    """int32 vectors."""
    del stream
    return _open(name, wanted, np.dtype("<i4"))
