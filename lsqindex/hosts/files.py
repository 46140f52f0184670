"""What adapters share: settings of making and of searching, values of payloads, and files of an index."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import IndexExistsError, ParameterError
from ..index import Index

Made = TypeVar("Made", Index, Index | None)

#: Settings of a search; all others are those of :meth:`Index.create`.
_SEARCH = ("strategy", "distance", "rerank", "probes", "candidates", "progressive", "threads")


def making(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that create an index; the metric is cosine unless they say otherwise."""
    return {"metric": "cosine", **{name: value for name, value in settings.items() if name not in _SEARCH}}


def searching(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a search."""
    return {name: value for name, value in settings.items() if name in _SEARCH}


def absolute(path: str | Path) -> str:
    """The path of a file from the root, since the process may change its directory later."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ParameterError(f"path={path!r}: not the name of a file; pass a str or a Path")
    return str(Path(path).absolute())


def value_at(payload: Any, name: str) -> Any:
    """The value under a name, or under a path of names with dots between them; None where there is none.

    >>> value_at({"meta": {"year": 2020}}, "meta.year"), value_at({}, "year")
    (2020, None)
    """
    if not isinstance(payload, Mapping):
        return None
    if name in payload:
        return payload[name]
    head, _, rest = name.partition(".")
    return value_at(payload.get(head), rest) if rest else None


def save_over(index: Index, path: str | Path) -> None:
    """Save to ``path``, also where a file of another kind is: it is the host's to give."""
    try:
        index.save(path)
    except IndexExistsError:
        if not Path(path).is_file():
            raise
        Path(path).unlink()
        index.save(path)


def in_own_folder(make: Callable[[Path], Made]) -> Made:
    """The index that ``make`` makes at a path, whose folder goes when the index goes."""
    folder = tempfile.mkdtemp(prefix="lsqindex-")
    index = None
    try:
        index = make(Path(folder, "index"))
    finally:
        if index is None:
            shutil.rmtree(folder)
        else:
            weakref.finalize(index, _remove, folder, os.getpid())
    return index


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        shutil.rmtree(folder, ignore_errors=True)
