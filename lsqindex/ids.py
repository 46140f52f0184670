"""The door for ids: whatever the user has becomes an int64 array, or a list of str, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DuplicateIdError, IdError, shown
from .storage.keys import MAX_ID_BYTES

#: int64 array, or list of str.
Ids = Any


def read_ids(ids: Any, kind: str, *, n: int | None = None, known: bool = False) -> Ids:
    """``ids`` as the index stores them; IdError for a wrong kind or, where ``n`` is given, another number.

    ``known``: they only name what may be there; then −1 and None, which fill up answers, name nothing.

    >>> read_ids([3, 1], "int")
    array([3, 1])
    """
    if isinstance(ids, Mapping | bytes | bytearray | memoryview):
        raise IdError(f"ids: a sequence of ids is needed, got {type(ids).__name__}")
    if isinstance(ids, Iterable) and not isinstance(ids, str | np.ndarray | list | tuple):
        ids = list(ids)
    names = _ints(ids, known) if kind == "int" else _strings(ids, known)
    if n is not None and len(names) != n:
        raise IdError(f"ids: {n} are needed, one for each vector, got {len(names)}")
    return names


def is_one(ids: Any) -> bool:
    """Whether this is one id, not several."""
    return isinstance(ids, str | int | np.generic) or (isinstance(ids, np.ndarray) and ids.ndim == 0)


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


def _ints(ids: Any, known: bool) -> NDArray[np.int64]:
    try:
        array = np.atleast_1d(np.asarray(ids))
    except (TypeError, ValueError, OverflowError) as error:
        raise IdError(f"ids: cannot be read as whole numbers ({error})") from error
    if array.ndim != 1:
        raise IdError(f"ids: a flat sequence is needed, got shape {array.shape}")
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        items = array.tolist() if isinstance(ids, np.ndarray) else np.atleast_1d(np.array(ids, object)).tolist()
        if all(type(item) is int for item in items):
            raise IdError(f"ids: {shown(max(items, key=abs))} does not fit into 64 bits")
        odd = next(item for item in items if type(item) is not int)
        raise IdError(
            f"ids: whole numbers are needed, got {shown(odd)}; Index.create(…, ids='str') makes an index with string "
            "ids"
        )
    if array.dtype.kind == "u" and int(array.max()) >= 1 << 63:
        raise IdError(f"ids: {int(array.max())} does not fit into 64 bits with a sign")
    if not known and (array == -1).any():
        raise IdError("ids: -1 stands for 'nothing found' in answers and cannot be an id")
    return np.ascontiguousarray(array, np.int64)


def _strings(ids: Any, known: bool) -> list[str]:
    if isinstance(ids, str):
        ids = [ids]
    elif isinstance(ids, np.ndarray):
        if ids.ndim > 1:
            raise IdError(f"ids: a flat sequence is needed, got shape {ids.shape}")
        ids = np.atleast_1d(ids).tolist()
    if not isinstance(ids, list | tuple):
        raise IdError(f"ids: a sequence of strings is needed, got {type(ids).__name__}")
    names = [name for name in ids if not (known and name is None)]
    for name in names:
        if not isinstance(name, str):
            raise IdError(
                f"ids: strings are needed, got {shown(name)} ({type(name).__name__}); this index was created with "
                "ids='str'"
            )
    names = [str.__str__(name) for name in names]  # numpy.str_ and the like
    try:
        longest = max((len(name.encode()) for name in names), default=0)
    except UnicodeEncodeError as error:
        raise IdError(f"ids: {shown(error.object)} has a lone surrogate and cannot be stored as UTF-8") from error
    if longest > MAX_ID_BYTES and not known:
        raise IdError(f"ids: at most {MAX_ID_BYTES} bytes of UTF-8 are possible, got {longest}; use a digest of it")
    return [name for name in names if len(name.encode()) <= MAX_ID_BYTES] if longest > MAX_ID_BYTES else names
