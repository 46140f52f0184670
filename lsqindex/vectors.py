"""The door for vectors: whatever the user has becomes checked float32 rows.

Large inputs (memory maps, HDF5 datasets, anything with ``shape`` and slicing) are never converted
whole: :func:`open_rows` looks at their shape only, and :func:`read_rows` converts a block of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import VectorError

#: float32 rows. (Wider for the type checker: NumPy's types lose the width in a matrix product.)
Vectors = NDArray[np.floating[Any]]

#: Larger numbers are refused: their squares, summed, would leave float32.
MAX_MAGNITUDE = 1e15

#: Rows converted and encoded at a time: large enough for BLAS, small enough for the L2 cache.
BLOCK_ROWS = 4096


def open_rows(vectors: ArrayLike, dim: int | None = None, *, what: str = "vectors") -> Any:
    """Something with ``shape == (n, dim)`` whose slices :func:`read_rows` can convert.

    >>> open_rows([[1, 2, 3]]).shape
    (1, 3)
    """
    rows = as_array(vectors, what=what)
    if len(rows.shape) != 2:
        hint = "; one vector is written vector[None, :]" if len(rows.shape) == 1 else ""
        raise VectorError(f"{what}: shape (n, dim) is needed, got {tuple(rows.shape)}{hint}")
    if np.dtype(rows.dtype).kind not in "fiub":
        raise VectorError(f"{what}: numbers are needed, got dtype {rows.dtype}; convert to float32 first")
    if rows.shape[1] == 0:
        raise VectorError(f"{what}: a vector needs at least one dimension, got shape {tuple(rows.shape)}")
    if dim is not None and rows.shape[1] != dim:
        raise VectorError(f"{what}: {dim} dimensions are needed, got {rows.shape[1]} (shape {tuple(rows.shape)})")
    return rows


def as_array(vectors: ArrayLike, *, what: str = "vectors") -> Any:
    """``vectors`` if they have a shape, a dtype and slices; else a NumPy array of them."""
    try:
        if all(hasattr(vectors, name) for name in ("shape", "dtype", "__getitem__")):
            np.dtype(vectors.dtype)  # type: ignore[union-attr]
            return vectors
    except TypeError:
        pass  # a tensor of another library, with dtypes of its own
    try:
        return np.asarray(vectors)
    except (TypeError, ValueError) as error:
        raise VectorError(
            f"{what}: cannot be read as an array ({error}); pass rows of equal length, shape (n, dim)"
        ) from error


def read_rows(rows: Any, where: Any = slice(None), *, what: str = "vectors", first: int = 0) -> Vectors:
    """A part of ``rows`` as C-contiguous, finite float32; ``first`` is its number, for the message."""
    try:
        if rows.dtype == np.float32:
            block = np.ascontiguousarray(rows[where], dtype=np.float32)
        else:
            # A float64 beyond float32's range becomes inf here and is reported below.
            with np.errstate(over="ignore"):
                block = np.ascontiguousarray(rows[where], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise VectorError(f"{what}: cannot be read as an array of numbers ({error})") from error
    if block.ndim != 2:
        raise VectorError(f"{what}: cannot be read as an array of numbers ({type(rows).__name__}); pass a NumPy array")
    # NaN, infinities and what is too large: none of them is within the limits.
    if block.size and not (block.max() <= MAX_MAGNITUDE and block.min() >= -MAX_MAGNITUDE):
        fit = (np.abs(block) <= MAX_MAGNITUDE).all(axis=1)
        raise VectorError(
            f"{what}: row {first + int(np.argmin(fit))} has NaN, infinite numbers or numbers beyond "
            f"±{MAX_MAGNITUDE:g}; {int((~fit).sum())} such rows here: drop, repair or scale them"
        )
    return block


def blocks(rows: Any, size: int = BLOCK_ROWS, *, what: str = "vectors") -> Iterator[tuple[int, Vectors]]:
    """``(first row, checked block)`` over all rows."""
    for first in range(0, rows.shape[0], size):
        yield first, read_rows(rows, slice(first, first + size), what=what, first=first)


def sample_rows(rows: Any, size: int, rng: np.random.Generator, *, what: str = "vectors") -> Vectors:
    """At most ``size`` rows, drawn without replacement, in their stored order (kind to a disk)."""
    n = rows.shape[0]
    if n <= size:
        return read_rows(rows, what=what)
    # Sorting makes the read sequential; the choice is a function of the seed alone.
    chosen = np.sort(rng.choice(n, size=size, replace=False))
    out = np.empty((size, rows.shape[1]), np.float32)
    for first in range(0, size, BLOCK_ROWS):
        part = chosen[first : first + BLOCK_ROWS]
        try:
            out[first : first + BLOCK_ROWS] = read_rows(rows, part, what=what)
        except VectorError:
            # Tell the row's own number, not its place in the sample.
            for row in part.tolist():
                read_rows(rows, slice(row, row + 1), what=what, first=row)
            raise
    return out
