"""lsqindex."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lsqindex import Index, make_encoder

from .adapter import Ids, Peer, Vectors

_FILE = "index.lsq"


class LsqIndex(Peer):
    """Codes of an encoder, with vectors kept beside them or not, with cells, a multi-index or neither."""

    package = "lsqindex"
    beside = "process"
    durable = True

    def __init__(
        self,
        metric: Literal["l2", "cosine"],
        dim: int,
        encoder: str = "lsq",
        keep_vectors: Literal["float16", "int8"] | None = None,
        subset: Literal["cells", "multi-index"] | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__(metric, dim)
        self._metric: Literal["l2", "cosine"] = metric
        self._keep: Literal["float16", "int8"] | None = keep_vectors
        self._subset: Literal["cells", "multi-index"] | None = subset
        self._encoder, self._parameters = encoder, parameters
        self._index: Index

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        encoder = make_encoder(self._encoder, **self._parameters).fit(learn)
        index = Index.create(
            folder / _FILE, self.dim, metric=self._metric, encoder=encoder, keep_vectors=self._keep, subset=self._subset
        )
        with index:
            index.add(vectors, threads=1)
            index.merge()

    def open(self, folder: Path, change: bool = False) -> None:
        self._index = Index.open(folder / _FILE, read_only=not change)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        found: Ids = self._index.search(queries, k, threads=1, **setting).ids
        return found

    def add(self, ids: Ids, vectors: Vectors) -> None:
        self._index.add(vectors, ids, threads=1)

    def delete(self, ids: Ids) -> None:
        self._index.delete(ids)

    def give_back(self, folder: Path) -> str:
        self._index.compact()
        return "compact()"

    def close(self) -> None:
        self._index.close()
