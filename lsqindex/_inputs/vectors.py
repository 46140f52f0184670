"""The door for vectors: whatever the user has becomes checked float32 rows.

Large inputs (memory maps, HDF5 datasets, anything with ``shape`` and slicing) are never converted
whole: :func:`open_rows` looks at their shape only, and :func:`read_rows` converts a block of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, ValuesView
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

# NumPy imports its parts when they are first used. If a process is forked while a thread does that, the child would
# wait for ever: so they are imported here.
import numpy.linalg
import numpy.ma
import numpy.random
from numpy.typing import ArrayLike, NDArray

from ..errors import VectorError, shown

#: float32 rows. (Wider for the type checker: NumPy's types lose the width in a matrix product.)
Vectors = NDArray[np.floating[Any]]

#: Larger numbers are refused: their squares, summed, would leave float32.
MAX_MAGNITUDE = 1e15

#: Rows converted and encoded at a time: large enough for BLAS, small enough for the L2 cache.
BLOCK_ROWS = 4096

#: Kinds of dtypes that float32 can hold: float, int, unsigned, bool.
_NUMBERS = "fiub"

#: What other libraries raise when NumPy asks for their numbers: a tensor on a GPU, one that records gradients.
_FAILURES = (TypeError, ValueError, RuntimeError, BufferError, OverflowError)


def open_rows(vectors: ArrayLike, dim: int | None = None, *, what: str = "vectors") -> Any:
    """Something with ``shape == (n, dim)`` whose slices :func:`read_rows` can convert.

    >>> open_rows([[1, 2, 3]]).shape
    (1, 3)
    """
    rows = as_array(vectors, what=what)
    shape = tuple(rows.shape)
    if dim is not None and shape in ((0,), (0, 0)):
        return np.empty((0, dim), np.float32)  # an empty list has no dimensions, and needs none
    if len(shape) != 2:
        hint = "; one vector is written vector[None, :]" if len(shape) == 1 and shape[0] else ""
        raise VectorError(f"{what}: shape (n, dim) is needed, got {shape}{hint}")
    if shape[1] == 0:
        raise VectorError(f"{what}: a vector needs at least one dimension, got shape {shape}")
    if dim is not None and shape[1] != dim:
        raise VectorError(f"{what}: {dim} dimensions are needed, got {shape[1]} (shape {shape})")
    return rows


def read_queries(queries: ArrayLike, dim: int) -> tuple[Vectors, bool]:
    """Checked rows, shape (nq, dim), and whether they are one query, given as a vector.

    >>> read_queries([1, 2], 2)
    (array([[1., 2.]], dtype=float32), True)
    """
    if type(queries) is np.ndarray and queries.dtype == np.float32 and queries.shape == (dim,):
        row = np.ascontiguousarray(queries)
        with np.errstate(over="ignore"):
            square = row.dot(row)
        if square <= MAX_MAGNITUDE:  # then so is every number, and none is NaN; most queries are such
            return row[None], True
    vectors = as_array(queries, what="queries")
    single = len(vectors.shape) == 1 and vectors.shape[0] > 0  # (An empty list is no query at all.)
    rows = open_rows(vectors[None] if single else vectors, dim, what="queries")
    return read_rows(rows, what="queries"), single


def as_array(vectors: ArrayLike, *, what: str = "vectors") -> Any:
    """Numbers with a shape and a dtype: ``vectors`` as they are where they are a matrix, else a NumPy array of them."""
    if type(vectors) is np.ndarray and vectors.dtype.kind in _NUMBERS:
        return vectors
    array = _opened(vectors, what)
    kind = np.dtype(array.dtype).kind
    if kind == "O" and isinstance(array, np.ndarray):
        array = _from_objects(array, what)
        kind = array.dtype.kind
    if kind in "UST":
        raise VectorError(
            f"{what}: numbers are needed, got strings ({array.dtype}); convert them first, such as with astype(float)"
        )
    if kind not in _NUMBERS:
        raise VectorError(f"{what}: real numbers are needed, got dtype {array.dtype}; convert to float32 first")
    return array


def _opened(vectors: Any, what: str) -> Any:
    """A matrix as it is, whatever library it is of; else a NumPy array, of objects perhaps."""
    if hasattr(vectors, "toarray"):
        raise VectorError(f"{what}: a sparse matrix cannot be stored ({type(vectors).__name__}); pass its toarray()")
    if isinstance(vectors, np.ma.MaskedArray):
        if np.ma.is_masked(vectors):
            raise VectorError(f"{what}: some values of the masked array are masked; fill them, or remove their rows")
        return vectors.data
    try:
        if all(hasattr(vectors, name) for name in ("shape", "dtype", "__getitem__")) and len(vectors.shape) == 2:
            np.dtype(vectors.dtype)
            return vectors
    except TypeError:
        pass  # a tensor of another library, with dtypes of its own
    try:
        if hasattr(vectors, "__dlpack__") and not hasattr(vectors, "__array__"):
            return np.from_dlpack(vectors)
        array = np.asarray(vectors)
    except _FAILURES as error:
        if isinstance(vectors, list | tuple):
            return _stacked(vectors, what)  # which tells the row
        raise VectorError(
            f"{what}: a {type(vectors).__name__} cannot be read as an array ({error}); pass a NumPy array of shape "
            "(n, dim)"
        ) from error
    if array.ndim == 0 and array.dtype.kind not in _NUMBERS:
        if isinstance(vectors, ValuesView):
            return _opened(list(vectors), what)
        raise VectorError(f"{what}: an array of shape (n, dim) is needed, got {shown(vectors)}")
    return array


def _from_objects(array: NDArray[Any], what: str) -> NDArray[Any]:
    """The numbers in an array of objects, which are numbers (a DataFrame of mixed columns) or vectors (a Series)."""
    if array.ndim == 1 and any(hasattr(one, "__len__") and not isinstance(one, str | bytes) for one in array):
        array = _stacked(array.tolist(), what)
        if array.dtype != object:
            return array
    for place, one in enumerate(array.flat):
        if not isinstance(one, Real | Decimal | np.bool_):
            row = place // max(1, math.prod(array.shape[1:]))
            raise VectorError(f"{what}: numbers are needed, got {shown(one)} in row {row}; remove or convert it")
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise VectorError(f"{what}: a number is too large for a float64 ({error}); scale the vectors") from error


def _stacked(rows: Sequence[Any], what: str) -> NDArray[Any]:
    """Vectors on top of each other; VectorError where they are no vectors, or not of the same length."""
    arrays: list[NDArray[Any]] = []
    for number, row in enumerate(rows):
        try:
            array = np.asarray(row)
        except _FAILURES as error:
            raise VectorError(f"{what}: row {number} cannot be read as an array ({error})") from error
        if array.ndim != (arrays[0].ndim if arrays else max(1, array.ndim)):
            raise VectorError(
                f"{what}: row {number} is not a vector like the others: {shown(row)}; pass rows of equal length"
            )
        if arrays and array.shape != arrays[0].shape:
            raise VectorError(
                f"{what}: rows must have equal length; row 0 has {len(arrays[0])} numbers, row {number} has "
                f"{len(array)}"
            )
        arrays.append(array)
    return np.stack(arrays)


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
            f"±{MAX_MAGNITUDE:g}; {int((~fit).sum())} such rows in this block; remove, repair or scale them"
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
