"""The door for ids: whatever the user has becomes an int64 array, or a list of str, each once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DuplicateIdError, IdError
from .storage.keys import MAX_ID_BYTES

#: int64 array, or list of str.
Ids = Any


def read_ids(ids: Any, kind: str, *, n: int | None = None) -> Ids:
    """``ids`` as the index stores them; IdError for a wrong kind or, where ``n`` is given, another number.

    >>> read_ids([3, 1], "int")
    array([3, 1])
    """
    names = _ints(ids) if kind == "int" else _strings(ids)
    if n is not None and len(names) != n:
        raise IdError(f"ids: {n} are needed, one for each vector, got {len(names)}")
    return names


def check_once(ids: Ids) -> None:
    """DuplicateIdError where an id comes twice."""
    if isinstance(ids, np.ndarray):
        values, counts = np.unique(ids, return_counts=True)
        twice: list[Any] = values[counts > 1].tolist()
    else:
        counted: Counter[str] = Counter(ids)
        twice = [name for name, count in counted.items() if count > 1]
    if twice:
        raise DuplicateIdError(f"ids: {twice[0]!r} comes more than once in this call; keep one of each")


def once(ids: Ids) -> Ids:
    """``ids`` without repetitions."""
    return np.unique(ids) if isinstance(ids, np.ndarray) else sorted(set(ids))


def _ints(ids: Any) -> NDArray[np.int64]:
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise IdError(f"ids: cannot be read as whole numbers ({error})") from error
    array = np.atleast_1d(array)
    if array.ndim != 1:
        raise IdError(f"ids: a flat sequence is needed, got shape {array.shape}")
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise IdError(
            f"ids: whole numbers are needed, got {_sample(array)}; Index.create(…, ids='str') makes an index "
            "with string ids"
        )
    if array.dtype.kind == "u" and int(array.max()) >= 1 << 63:
        raise IdError(f"ids: {int(array.max())} does not fit into 63 bits")
    if int(array.min()) == -1 or -1 in array:
        raise IdError("ids: -1 stands for 'nothing found' in answers and cannot be an id")
    return np.ascontiguousarray(array, np.int64)


def _strings(ids: Any) -> list[str]:
    if isinstance(ids, str):
        ids = [ids]
    elif isinstance(ids, np.ndarray):
        ids = ids.ravel().tolist() if ids.ndim <= 1 else ids
    try:
        names = list(ids)
    except TypeError as error:
        raise IdError(f"ids: a sequence of strings is needed, got {type(ids).__name__}") from error
    for name in names:
        if not isinstance(name, str):
            raise IdError(
                f"ids: strings are needed, got {name!r} ({type(name).__name__}); this index was created with ids='str'"
            )
    names = [str(name) for name in names]  # numpy.str_ and the like
    try:
        longest = max((len(name.encode()) for name in names), default=0)
    except UnicodeEncodeError as error:
        raise IdError(f"ids: {error.object!r} has a lone surrogate and cannot be stored as UTF-8") from error
    if longest > MAX_ID_BYTES:
        raise IdError(f"ids: at most {MAX_ID_BYTES} bytes of UTF-8 are possible, got {longest}; use a digest of it")
    return names


def _sample(array: NDArray[Any]) -> str:
    return f"{array.flat[0]!r} ({array.dtype})"
