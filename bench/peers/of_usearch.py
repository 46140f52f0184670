"""USearch: a graph over float32, float16 or int8 vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from usearch.index import Index

from .adapter import Ids, Peer, Vectors, in_place, padded, replaced

_FILE = "index.usearch"


class USearch(Peer):
    """Read by mapping its file (``view``), changed in memory; the library's own parameters."""

    package = "usearch"
    beside = "thread"
    why = "an index that is mapped (view) does not change; one that changes is in the memory of one process"

    def __init__(self, metric: str, dim: int, dtype: str = "f32") -> None:
        super().__init__(metric, dim)
        self._dtype = dtype
        self._index: Any = None

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        metric = "cos" if self.metric == "cosine" else "l2sq"
        self._index = Index(ndim=self.dim, metric=metric, dtype=self._dtype)
        self._index.add(np.arange(len(vectors)), vectors, threads=1)
        self.save(folder)

    def save(self, folder: Path) -> None:
        self._index.save(str(replaced(folder / _FILE)))
        in_place(folder / _FILE)

    def open(self, folder: Path, change: bool = False) -> None:
        self._index = Index.restore(str(folder / _FILE), view=not change)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        # It looks at as many as are wanted at least.
        self._index.expansion_search = max(k, setting.get("expansion", 64))
        found = self._index.search(queries, k, threads=1)
        if len(queries) == 1:
            return padded([found.keys.tolist()], k)
        keys = np.asarray(found.keys).astype(np.int64)
        return np.where(np.arange(k) < np.asarray(found.counts)[:, None], keys, -1)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        self._index.add(ids, vectors, threads=1)

    def delete(self, ids: Ids) -> None:
        self._index.remove(ids, threads=1)

    def give_back(self, folder: Path) -> str:
        self._index.remove(np.zeros(0, np.uint64), compact=True, threads=1)
        return "remove(compact=True)"
