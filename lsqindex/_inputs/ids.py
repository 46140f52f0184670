"""The door for ids: whatever the user has becomes an int64 array, or a list of str, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._storage.format.keys import MAX_ID_BYTES
from ..errors import DuplicateIdError, IdError, shown

#: int64 array, or list of str.
Ids = Any


def read_ids(ids: Any, kind: str, *, n: int | None = None, known: bool = False, ordered: bool = False) -> Ids:
    """``ids`` as the index stores them; IdError for a wrong kind or, where ``n`` is given, another number.

    ``known``: they only name what may be there; then −1 and None, which fill up answers, name nothing.
    ``ordered``: something else comes in the same order, so they cannot be a set.

    >>> read_ids([3, 1], "int")
    array([3, 1])
    """
    if isinstance(ids, Mapping | bytes | bytearray | memoryview):
        raise IdError(f"ids: a sequence of ids is needed, got {type(ids).__name__}")
    if getattr(ids, "ndim", 1) > 1:
        raise IdError(f"ids: a flat sequence is needed, got shape {tuple(ids.shape)}")
    if ordered and isinstance(ids, set | frozenset):
        raise IdError("ids: a set has no order, so ids cannot be matched to vectors; pass a list")
    if isinstance(ids, Iterable) and not isinstance(ids, str | np.ndarray | list | tuple):
        ids = list(ids)
    names = _ints(ids, known) if kind == "int" else _strings(ids, known)
    if n is not None and len(names) != n:
        raise IdError(f"ids: {n} are needed, one per vector, got {len(names)}")
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
        raise DuplicateIdError(f"ids: {twice[0]!r} occurs more than once in this call; pass each id once")


def new_ids(ids: Any, kind: str, n: int | None = None) -> Ids:
    """Ids for ``n`` vectors, each once; None names none, which only an index with int ids can give itself."""
    if ids is None:
        raise IdError("ids: this index has string ids, which cannot be made up; pass one for each vector")
    names = read_ids(ids, kind, n=n, ordered=True)
    check_once(names)
    return names


def once(ids: Ids) -> Ids:
    """``ids`` sorted as the file sorts them, without repetitions."""
    return np.unique(ids) if isinstance(ids, np.ndarray) else sorted(set(ids))


def _ints(ids: Any, known: bool) -> NDArray[np.int64]:
    # NumPy takes True for 1 where it stands among numbers.
    if isinstance(ids, list | tuple) and {bool, np.bool_} & {*map(type, ids)}:
        raise _no_whole_number(next(one for one in ids if isinstance(one, bool | np.bool_)))
    if np.ma.is_masked(ids):
        raise IdError("ids: some values are masked; pass only ids that are not, with their vectors")
    try:
        array = np.atleast_1d(np.asarray(ids))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        inner = (
            next((one for one in ids if isinstance(one, list | tuple)), None) if isinstance(ids, list | tuple) else None
        )
        why = error if inner is None else f"got {shown(inner)} as one of them"
        raise IdError(f"ids: a flat sequence of whole numbers is needed ({why})") from error
    if array.ndim != 1:
        raise IdError(f"ids: a flat sequence is needed, got shape {array.shape}")
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        # (As they were given: beside a number of more than 64 bits NumPy may make floats of all of them.)
        items = list(ids) if isinstance(ids, list | tuple) else array.tolist()
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int | np.integer):
                raise _no_whole_number(item)
        array = np.array([int(item) for item in items], object)
    if array.dtype.kind in "uO":
        least, most = int(array.min()), int(array.max())
        large = most if most >= 1 << 63 else least
        if not -(1 << 63) <= large < 1 << 63:
            raise IdError(
                f"ids: {shown(large)} does not fit into a signed 64-bit integer; use smaller numbers, or ids='str'"
            )
    if not known and (array == -1).any():
        raise IdError("ids: -1 means 'nothing found' in results and cannot be an id; use another number")
    return np.ascontiguousarray(array, np.int64)


def _no_whole_number(item: Any) -> IdError:
    """The error for something that is not a whole number, with what to do about it."""
    item, remedy = item.item() if isinstance(item, np.generic) else item, "remove or convert it"
    if isinstance(item, str):
        remedy = "Index.create(…, ids='str') makes an index with string ids"
    elif isinstance(item, float):
        remedy = "convert them first, for example with astype('int64')"
    return IdError(f"ids: whole numbers are needed, got {shown(item)}; {remedy}")


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
        raise IdError(
            f"ids: {shown(error.object)} has a lone surrogate and cannot be stored as UTF-8; remove it"
        ) from error
    if longest > MAX_ID_BYTES and not known:
        raise IdError(
            f"ids: a string id has at most {MAX_ID_BYTES} bytes of UTF-8, got {longest}; use a hash of it instead"
        )
    return [name for name in names if len(name.encode()) <= MAX_ID_BYTES] if longest > MAX_ID_BYTES else names
