"""Data sets that are files: ann-benchmarks' HDF5, TEXMEX's .fvecs, .npy, and whatever else the command line reads.

x.hdf5           train, test, and the metric it says            (ann-benchmarks)
x_base.fvecs     beside it x_query.fvecs, x_learn.fvecs         (TEXMEX; any format may be named like that)
x.npy            queries are some of its rows, and not in the base
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lsqindex.cli.source import Wanted
from lsqindex.cli.sources import open_source
from lsqindex.encoders.base import Metric
from lsqindex.errors import LsqIndexError

from ..framework.errors import UserError

Vectors = NDArray[np.float32]

#: Queries that are taken out of a file that has none; of a small one a tenth.
QUERIES = 1_000
_BLOCK = 16_384
#: ann-benchmarks' word for a metric.
_METRICS: dict[str, Metric] = {"euclidean": "l2", "angular": "cosine"}


@dataclass(frozen=True)
class Found:
    """What a file, or the files beside it, hold; without vectors to learn from, ``learn`` is None."""

    metric: Metric
    base: Vectors
    queries: Vectors
    learn: Vectors | None = None

    def changed(self, change: Callable[[Vectors], Vectors]) -> Found:
        """All vectors changed alike."""
        learn = None if self.learn is None else change(self.learn)
        return Found(self.metric, change(self.base), change(self.queries), learn)


def read(path: Path) -> Found:
    """The data set in ``path``; UserError where there is none."""
    try:
        if path.suffix.lower() in (".hdf5", ".h5"):
            return _hdf5(path)
        beside = {part: _beside(path, part) for part in ("query", "learn")}
        base = _all(path)
        if (query := beside["query"]) is not None:
            learn = beside["learn"]
            return Found("l2", base, _all(query), None if learn is None else _all(learn))
        return _some_as_queries("l2", base)
    except (LsqIndexError, OSError) as error:
        raise UserError(str(error)) from error


def _hdf5(path: Path) -> Found:
    base = _all(path)
    import h5py

    with h5py.File(path, "r") as file:
        told, has_queries = str(file.attrs.get("distance", "euclidean")), "test" in file
    if told not in _METRICS:
        raise UserError(f"{path}: its distance is {told}; there are {', '.join(_METRICS)}")
    if not has_queries:
        return _some_as_queries(_METRICS[told], base)
    return Found(_METRICS[told], base, _all(path, "test"))


def _all(path: Path, dataset: str | None = None) -> Vectors:
    with open_source(str(path), Wanted(dataset=dataset)) as source:
        return np.concatenate([np.asarray(block.vectors, np.float32) for block in source.blocks(_BLOCK)])


def _beside(path: Path, part: str) -> Path | None:
    """The file of another part: x_base.fvecs → x_query.fvecs."""
    head, base, _ = path.stem.rpartition("base")
    other = path.with_name(f"{head}{part}{path.suffix}")
    return other if base and other.is_file() else None


def _some_as_queries(metric: Metric, vectors: Vectors) -> Found:
    """The same rows every time, whatever the seed of a run."""
    order = np.random.default_rng(0).permutation(len(vectors))
    count = min(QUERIES, len(vectors) // 10)
    return Found(metric, vectors[np.sort(order[count:])], vectors[order[:count]])
