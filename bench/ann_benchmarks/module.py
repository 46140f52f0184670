"""lsqindex under the runner of ann-benchmarks; it lies in ``ann_benchmarks/algorithms/lsqindex/`` there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index

from ..base.module import BaseANN

_METRICS: dict[str, Any] = {"euclidean": "l2", "angular": "cosine"}

Rows = NDArray[np.int64]


class LsqIndex(BaseANN):  # type: ignore[misc]
    """An index in a file; ``kind`` is what ``Index.create`` takes, with ``axes`` for vectors that have as many."""

    def __init__(self, metric: str, kind: dict[str, Any]) -> None:
        if metric not in _METRICS:
            raise NotImplementedError(f"lsqindex has no metric {metric}; it has {', '.join(_METRICS)}")
        self._metric, self._kind = _METRICS[metric], dict(kind)
        self._options: dict[str, Any] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._index: Index | None = None
        self._found: list[Rows] = []

    def fit(self, X: NDArray[np.floating[Any]]) -> None:
        """Train on the vectors, and add them; their numbers are their ids."""
        vectors = np.ascontiguousarray(X, np.float32)
        dim = vectors.shape[1]
        kind = {name: value for name, value in self._kind.items() if name != "axes" or value < dim}
        self._folder = tempfile.TemporaryDirectory(prefix="lsqindex-")
        index = Index.create(Path(self._folder.name) / "index.lsq", dim, metric=self._metric, **kind)
        index.train(vectors)
        index.add(vectors)
        index.merge()
        self._index = index

    def set_query_arguments(self, options: dict[str, Any]) -> None:
        """Options of ``Index.search`` for all queries that follow."""
        self._options = dict(options)

    def query(self, q: NDArray[np.floating[Any]], n: int) -> Rows:
        """The nearest ``n``, on one thread; fewer where the subset structure returned fewer."""
        return _without_padding(self._opened.search(q, n, threads=1, **self._options).ids)

    def batch_query(self, X: NDArray[np.floating[Any]], n: int) -> None:
        """All queries in one call, on all processors."""
        self._found = [_without_padding(own) for own in self._opened.search(X, n, **self._options).ids]

    def get_batch_results(self) -> list[Rows]:
        """What the last batch found."""
        return self._found

    def get_memory_usage(self) -> float:
        """Kilobytes of the file: it is mapped, so the memory of the process tells what was read of it, not its size."""
        return 0.0 if self._index is None else self._index.stats()["file_bytes"] / 1024

    def get_additional(self) -> dict[str, Any]:
        """Numbers to keep with the results."""
        stats = self._opened.stats()
        return {name: stats[name] for name in ("code_bytes", "tables", "posting_bytes")}

    def done(self) -> None:
        """Close the index and remove its file."""
        if self._index is not None:
            self._index.close()
            self._index = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __str__(self) -> str:
        told = ", ".join(f"{name}={value}" for name, value in {**self._kind, **self._options}.items())
        return f"LsqIndex({told})"

    @property
    def _opened(self) -> Index:
        assert self._index is not None, "fit comes first"
        return self._index


def _without_padding(ids: Rows) -> Rows:
    return ids[ids >= 0]
