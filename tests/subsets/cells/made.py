"""Small indexes with cells, and what is in their cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from lsqindex import Index
from lsqindex._compiled import assign
from lsqindex._subsets.cells.found import Cells

DIM = 16


def around(n: int, dim: int = DIM, seed: int = 0, centres: int = 40) -> Any:
    """Vectors around some centres, always the same ones."""
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(99).standard_normal((centres, dim)) * 3
    return (points[rng.integers(0, centres, n)] + rng.standard_normal((n, dim))).astype(np.float32)


def make(**options: Any) -> Index:
    """An index in memory, trained."""
    index = Index(**{"dim": DIM, "encoder": "lsh", "bits": 40, **options})
    return index.train(around(50, index.dim)) if not index.is_trained else index


def entries_of(cells: Cells, code_size: int, head: int) -> list[Any]:
    """The rows of each cell, those of its tail among them."""
    rows, _ = assign.unpack(cells.addresses.ravel(), cells.counts.astype(np.int64).ravel(), code_size, head)
    return [np.sort(own) for own in np.split(rows, np.cumsum(cells.counts.sum(axis=1, dtype=np.int64))[:-1])]
