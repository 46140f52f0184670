"""FAISS: flat, product quantizers by fast scan, inverted lists with refinement, HNSW, and binary codes of ITQ.

Its metric is L2; on unit vectors its order is that of cosine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from .adapter import Ids, NotPossible, Peer, Vectors, in_place, replaced

_FILE = "index.faiss"
_CODER = "coder.faiss"


class _Faiss(Peer):
    """What both have in common: files, and ids that FAISS numbers anew when some are removed."""

    package = "faiss-cpu"
    why = (
        "Concurrent searches are supported. Concurrent search/add or add/add are not supported (its FAQ); an index is "
        "of one process"
    )

    def __init__(self, metric: str, dim: int) -> None:
        super().__init__(metric, dim)
        faiss.omp_set_num_threads(1)
        self._index: Any = None
        #: The id of each vector, in FAISS's order, once that is not the number.
        self._names: NDArray[np.int64] | None = None

    def add(self, ids: Ids, vectors: Vectors) -> None:
        self._index.add(self._input(vectors))
        if self._names is not None:
            self._names = np.concatenate([self._names, ids])

    def delete(self, ids: Ids) -> None:
        names = np.arange(self._index.ntotal) if self._names is None else self._names
        gone = np.isin(names, ids)
        try:
            self._index.remove_ids(np.flatnonzero(gone))
        except RuntimeError as error:
            raise NotPossible(str(error).rpartition(": ")[2].strip()) from error
        if not self._keeps_ids():
            self._names = names[~gone]

    def give_back(self, folder: Path) -> str:
        return "remove_ids shrinks it; the saved file is as small"

    def _keeps_ids(self) -> bool:
        """Whether ids stay what they were when some are removed."""
        return False

    def _input(self, vectors: Vectors) -> Any:
        return np.ascontiguousarray(vectors)

    def _named(self, found: Ids) -> Ids:
        return found if self._names is None else np.where(found < 0, -1, self._names[found])


class Faiss(_Faiss):
    """An index of FAISS's factory; ``fields`` of 4 bits each are put in for «M», and the vectors padded to them."""

    def __init__(
        self, metric: str, dim: int, factory: str, fields: int = 64, lists: int = 512, learn: int | None = None
    ) -> None:
        super().__init__(metric, dim)
        wide = -(-dim // fields) * fields
        # Fields must divide the dimensions: OPQ's rotation sees to that, others are padded with zeros.
        pad = f"Pad{wide}," if wide != dim and "M" in factory and "OPQ" not in factory else ""
        spec = factory.replace("OPQ«M»", f"OPQ{fields}_{dim // fields * fields}")
        self._spec = pad + spec.replace("«M»", str(fields)).replace("«L»", str(lists))
        self._fields, self._learn = fields, learn

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        self._index = faiss.index_factory(self.dim, self._spec)
        if "HNSW" in self._spec:
            self._index.hnsw.efConstruction = 200
        if "OPQ" in self._spec:
            # Left alone, the rotation is trained for fields of 8 bits, whatever those of the index.
            rotation: Any = faiss.downcast_VectorTransform(self._index.chain.at(0))
            quantizer = faiss.ProductQuantizer(rotation.d_out, self._fields, 4)
            rotation.pq = quantizer
        self._index.train(learn[: self._learn])
        self._index.add(vectors)
        self.save(folder)

    def save(self, folder: Path) -> None:
        faiss.write_index(self._index, str(replaced(folder / _FILE)))
        in_place(folder / _FILE)

    def open(self, folder: Path, change: bool = False) -> None:
        self._index = faiss.read_index(str(folder / _FILE))

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        index = self._index
        if "k_factor" in setting:
            index.k_factor = setting["k_factor"]
        if "nprobe" in setting:
            faiss.extract_index_ivf(self._inner()).nprobe = setting["nprobe"]
        if "efSearch" in setting:
            index.hnsw.efSearch = setting["efSearch"]
        return self._named(index.search(queries, k)[1])

    def _inner(self) -> Any:
        """The index that a refinement refines."""
        return faiss.downcast_index(self._index.base_index) if "RFlat" in self._spec else self._index

    def _keeps_ids(self) -> bool:
        return "IVF" in self._spec


class FaissBinary(_Faiss):
    """Codes of ITQ, compared by Hamming distance: all of them, or those in the query's bucket and near ones."""

    def __init__(self, metric: str, dim: int, bits: int = 256, hash_bits: int = 0) -> None:
        super().__init__(metric, dim)
        self._bits, self._hash_bits = min(bits, dim), hash_bits
        self._coder: Any = None

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        self._coder = faiss.index_factory(self.dim, f"ITQ{self._bits},LSH")
        self._coder.train(learn)
        spec = f"BHash{self._hash_bits}" if self._hash_bits else "BFlat"
        self._index = faiss.index_binary_factory(self._bits, spec)
        self._index.add(self._input(vectors))
        faiss.write_index(self._coder, str(replaced(folder / _CODER)))
        in_place(folder / _CODER)
        self.save(folder)

    def save(self, folder: Path) -> None:
        faiss.write_index_binary(self._index, str(replaced(folder / _FILE)))
        in_place(folder / _FILE)

    def open(self, folder: Path, change: bool = False) -> None:
        self._coder = faiss.read_index(str(folder / _CODER))
        self._index = faiss.read_index_binary(str(folder / _FILE))

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        if "nflip" in setting:
            self._index.nflip = setting["nflip"]
        return self._named(self._index.search(self._input(queries), k)[1])

    def _input(self, vectors: Vectors) -> Any:
        return self._coder.sa_encode(np.ascontiguousarray(vectors))
