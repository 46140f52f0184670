"""hnswlib: the graph of its authors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hnswlib
import numpy as np

from .adapter import Ids, NotPossible, Peer, Vectors, in_place, replaced

_FILE = "index.hnsw"
#: Room for vectors that are added to what was opened: the library has a fixed capacity.
_ROOM = 20_000


class Hnswlib(Peer):
    """M = 16 and ef_construction = 200, its defaults."""

    package = "hnswlib"
    why = "add_items: thread-safe with other add_items calls, but not with knn_query (its README); one process"

    def __init__(self, metric: str, dim: int) -> None:
        super().__init__(metric, dim)
        self._index: Any = self._empty()

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        self._index.init_index(len(vectors), M=16, ef_construction=200)
        self._index.add_items(vectors, np.arange(len(vectors)), num_threads=1)
        self.save(folder)

    def save(self, folder: Path) -> None:
        self._index.save_index(str(replaced(folder / _FILE)))
        in_place(folder / _FILE)

    def open(self, folder: Path, change: bool = False) -> None:
        self._index = self._empty()
        self._index.load_index(str(folder / _FILE))
        if change:
            self._index.resize_index(self._index.get_current_count() + _ROOM)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        self._index.set_ef(max(k, setting.get("ef", 50)))
        return np.asarray(self._index.knn_query(queries, k, num_threads=1)[0], np.int64)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        self._index.add_items(vectors, ids, num_threads=1)

    def delete(self, ids: Ids) -> None:
        for name in ids.tolist():
            self._index.mark_deleted(name)

    def give_back(self, folder: Path) -> str:
        raise NotPossible("deleted elements are marked; later ones may replace them (allow_replace_deleted)")

    def _empty(self) -> Any:
        index = hnswlib.Index(space="cosine" if self.metric == "cosine" else "l2", dim=self.dim)
        index.set_num_threads(1)
        return index
