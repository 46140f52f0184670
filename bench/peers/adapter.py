"""What every system does here: the few calls that the benchmark makes of it, with one thread each.

    build ──▶ files in a directory ──▶ open ──▶ search, and add, delete, save, give_back where the library can

Ids are the numbers of the base vectors. A system with files of its own (a database) has written when a call returns;
one that lives in memory writes all of itself in ``save``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

#: How one can be read while it is changed: from another process, from another thread, or not at all.
Beside = Literal["process", "thread", "not possible"]


class NotPossible(Exception):  # noqa: N818
    """What a library cannot do; the text is its own reason."""


class Peer(ABC):
    """An index of one library, for vectors of ``dim`` numbers; those of ``cosine`` have unit length."""

    #: The name of its distribution.
    package: ClassVar[str]
    #: How it can be read while it is changed, and if it cannot, or only from a thread, in whose words.
    beside: ClassVar[Beside] = "not possible"
    why: ClassVar[str] = ""
    #: Whether what was added is in its files when ``add`` returns; else ``save`` writes everything.
    durable: ClassVar[bool] = False

    def __init__(self, metric: str, dim: int) -> None:
        self.metric, self.dim = metric, dim

    @abstractmethod
    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        """Learn from ``learn``, add ``vectors``, and leave it all in the empty ``folder``."""

    @abstractmethod
    def open(self, folder: Path, change: bool = False) -> None:
        """What was built or saved there; to ``change`` it, or to read alone."""

    @abstractmethod
    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        """The ids of the ``k`` nearest of each query, shape (queries, k), padded with −1."""

    @abstractmethod
    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Add vectors under ids that are not there."""

    def delete(self, ids: Ids) -> None:
        """Remove these."""
        raise NotPossible("it has no such call")

    def save(self, folder: Path) -> None:  # noqa: B027
        """Put everything that was changed into the folder's files."""

    def give_back(self, folder: Path) -> str:
        """Return the space of what was deleted, in the library's own way; the name of that way."""
        raise NotPossible("it has no such call")

    def close(self) -> None:  # noqa: B027
        """Let go of its files."""


def padded(found: Sequence[Sequence[int]], k: int) -> Ids:
    """Answers of any length as an array, short ones padded with −1.

    >>> padded([[4, 2], [7]], 2)
    array([[ 4,  2],
           [ 7, -1]])
    """
    ids = np.full((len(found), k), -1, np.int64)
    for row, own in zip(ids, found, strict=True):
        row[: len(own)] = own[:k]
    return ids


def replaced(path: Path) -> Path:
    """A name beside ``path`` to write to; ``in_place`` gives it its own."""
    return path.with_name(path.name + ".new")


def in_place(path: Path) -> None:
    """What was written beside ``path`` becomes it, durably: as an application must do that saves a whole index."""
    fresh = replaced(path)
    with fresh.open("rb+") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk, where the system can do that."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
