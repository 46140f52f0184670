"""ScaNN: a tree of leaves, codes that weigh errors by score, and the best ranked again by their vectors."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from scann import scann_ops_pybind

from .adapter import Ids, NotPossible, Peer, Vectors, padded, sync_folder

_FOLDER = "searcher"


class Scann(Peer):
    """About two leaves for each root of the number of vectors; 2 dimensions a block of the codes, as in its guide."""

    package = "scann"
    why = "it tells nothing of searches while upsert changes the searcher; one process"

    def __init__(self, metric: str, dim: int) -> None:
        super().__init__(metric, dim)
        self._searcher: Any = None

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        cosine = self.metric == "cosine"
        builder = scann_ops_pybind.builder(vectors, 10, "dot_product" if cosine else "squared_l2")
        threshold = {"anisotropic_quantization_threshold": 0.2} if cosine else {}
        self._searcher = (
            builder.set_n_training_threads(1)
            .tree(num_leaves=2 * math.isqrt(len(vectors)), num_leaves_to_search=20, training_sample_size=len(vectors))
            .score_ah(2, **threshold)
            .reorder(100)
            .build()
        )
        self._searcher.set_num_threads(1)
        self.save(folder)

    def save(self, folder: Path) -> None:
        fresh = folder / f"{_FOLDER}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        self._searcher.serialize(str(fresh), relative_path=True)
        shutil.rmtree(folder / _FOLDER, ignore_errors=True)
        fresh.rename(folder / _FOLDER)
        sync_folder(folder)

    def open(self, folder: Path, change: bool = False) -> None:
        self._searcher = scann_ops_pybind.load_searcher(str(folder / _FOLDER))
        self._searcher.set_num_threads(1)
        if change and self._searcher.docids is None:
            names = list(range(self._searcher.size()))
            self._searcher = scann_ops_pybind.ScannSearcher(self._searcher.searcher, names)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        leaves, reorder = setting.get("leaves", 20), max(k, setting.get("reorder", 100))
        if len(queries) == 1:
            found = [self._searcher.search(queries[0], k, reorder, leaves)[0]]
        else:
            found = self._searcher.search_batched(queries, k, reorder, leaves)[0]
        return padded(found, k)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        self._searcher.upsert(ids.tolist(), vectors)

    def delete(self, ids: Ids) -> None:
        self._searcher.delete(ids.tolist())

    def give_back(self, folder: Path) -> str:
        raise NotPossible("what is deleted is gone at once; the saved files are as small")
