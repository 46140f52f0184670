"""LanceDB: a table of columns in files, with an index of product-quantized cells or of a graph in each cell."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

# Read when it is imported; what it does beside that is kept to one core by the worker.
os.environ["LANCE_CPU_THREADS"] = "1"
os.environ["RUST_LOG"] = "error"

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import HnswSq, IvfPq

from .adapter import Ids, Peer, Vectors

_TABLE = "vectors"
#: Its codebooks have so many centres; it samples so many vectors for each, here as many as others learn from.
_CENTRES = 256
#: Of k-means, as FAISS has them; its own default is twice as many.
_ITERATIONS = 25


class LanceDB(Peer):
    """Rows in a folder; every change is a new version of the table, which other processes see."""

    package = "lancedb"
    beside = "process"
    durable = True

    def __init__(self, metric: str, dim: int, index: str = "IVF_PQ", cells: int = 256, fields: int = 32) -> None:
        super().__init__(metric, dim)
        self._kind, self._cells = index, cells
        # Fields, of 8 bits each, must divide the dimensions.
        self._fields = max(n for n in range(1, min(fields, dim) + 1) if dim % n == 0)
        self._table: Any = None

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        rows = self._rows(np.arange(len(vectors)), vectors)
        self._table = lancedb.connect(folder).create_table(_TABLE, rows)
        config: Any = (
            IvfPq(
                distance_type=self._distance,
                num_partitions=self._cells,
                num_sub_vectors=self._fields,
                max_iterations=_ITERATIONS,
                sample_rate=max(2, len(learn) // _CENTRES),
            )
            if self._kind == "IVF_PQ"
            else HnswSq(distance_type=self._distance, num_partitions=1)
        )
        self._table.create_index("vector", config=config)

    def open(self, folder: Path, change: bool = False) -> None:
        # Zero: every search looks for changes of others.
        self._table = lancedb.connect(folder, read_consistency_interval=timedelta(0)).open_table(_TABLE)

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        asked = self._table.search(queries if len(queries) > 1 else queries[0]).distance_type(self._distance)
        if "nprobes" in setting:
            asked = asked.nprobes(setting["nprobes"])
        if "ef" in setting:
            asked = asked.ef(max(k, setting["ef"]))
        if "refine_factor" in setting:
            asked = asked.refine_factor(setting["refine_factor"])
        found = asked.limit(k).select(["id", "_distance"]).to_arrow()
        ids = np.full((len(queries), k), -1, np.int64)
        names = found["id"].to_numpy()
        if len(queries) == 1:
            ids[0, : len(names)] = names
            return ids
        # Rows of one query follow each other, but queries come in any order.
        number = found["query_index"].to_numpy()
        order = np.argsort(number, kind="stable")
        number, names = number[order], names[order]
        ids[number, np.arange(len(number)) - np.searchsorted(number, number)] = names
        return ids

    def add(self, ids: Ids, vectors: Vectors) -> None:
        self._table.add(self._rows(ids, vectors))

    def delete(self, ids: Ids) -> None:
        for first in range(0, len(ids), 10_000):
            self._table.delete(f"id in ({', '.join(map(str, ids[first : first + 10_000].tolist()))})")

    def give_back(self, folder: Path) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # nobody else reads it
            self._table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
        return "optimize(cleanup_older_than=0)"

    @property
    def _distance(self) -> Any:
        return "cosine" if self.metric == "cosine" else "l2"

    def _rows(self, ids: Ids, vectors: Vectors) -> Any:
        flat = pa.array(np.ascontiguousarray(vectors).ravel())
        return pa.table({"id": pa.array(ids), "vector": pa.FixedSizeListArray.from_arrays(flat, self.dim)})
