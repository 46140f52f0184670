"""RaBitQ-Library: inverted lists of RaBitQ codes, and SymphonyQG, a graph whose neighbours have codes beside them.

Its metric is L2; on unit vectors its order is that of cosine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import rabitqlib

from .adapter import Ids, NotPossible, Peer, Vectors, in_place, replaced

_FILE = "index.rabitq"


class _RaBitQ(Peer):
    """What both have in common."""

    package = "rabitqlib"
    why = "it tells nothing of searches while an index changes; one process"
    _index: Any

    def save(self, folder: Path) -> None:
        self._index.save(str(replaced(folder / _FILE)))
        in_place(folder / _FILE)

    def open(self, folder: Path, change: bool = False) -> None:
        self._index = self._kind().load(str(folder / _FILE))

    def give_back(self, folder: Path) -> str:
        raise NotPossible("removed vectors keep their storage (its documentation)")

    def _kind(self) -> Any:
        raise NotImplementedError


class RaBitQIvf(_RaBitQ):
    """``bits`` a dimension: no vectors are kept beside the codes."""

    def __init__(self, metric: str, dim: int, lists: int, bits: int) -> None:
        super().__init__(metric, dim)
        self._lists, self._bits = lists, bits

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        cells = rabitqlib.RaBitQKMeans(self.dim, self._lists, num_threads=1)
        cells.train(vectors)
        self._index = rabitqlib.IvfIndex(self.dim, len(vectors), self._lists, self._bits, "l2")
        self._index.build(vectors, cells.centroids, cells.assignments, num_threads=1)
        self.save(folder)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        return np.asarray(self._index.search(queries, k, setting.get("nprobe", 32), num_threads=1)[0], np.int64)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        # It names what is added by numbers of its own, in order.
        self._index.add(vectors, num_threads=1)

    def delete(self, ids: Ids) -> None:
        self._index.remove(ids.astype(np.uint32))

    def _kind(self) -> Any:
        return rabitqlib.IvfIndex


class SymphonyQG(_RaBitQ):
    """A graph of ``degree`` neighbours each."""

    def __init__(self, metric: str, dim: int, degree: int) -> None:
        super().__init__(metric, dim)
        self._degree = degree

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        self._index = rabitqlib.SymqgIndex(self.dim, self._degree, "l2")
        self._index.build(vectors, 200, num_threads=1)
        self.save(folder)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        ef = max(k, setting.get("ef", 64))
        search = self._index.search if len(queries) == 1 else self._index.search_batch
        return np.asarray(search(queries, k, ef, num_threads=1)[0], np.int64)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        raise NotPossible("it has no such call")

    def _kind(self) -> Any:
        return rabitqlib.SymqgIndex
