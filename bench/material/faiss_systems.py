"""What FAISS offers for the same bytes: PQ, OPQ, ITQ, by short names like ``OPQ32x8``; a Hamming scan, hash tables."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .data import Vectors

try:
    faiss: Any = importlib.import_module("faiss")
except ImportError:
    faiss = None

AVAILABLE = faiss is not None
if AVAILABLE:
    faiss.omp_set_num_threads(1)


def version() -> str:
    return str(faiss.__version__) if AVAILABLE else "not installed"


class FaissIndex:
    """``PQ32x8``, ``OPQ32x8`` (32 fields of 8 bits), ``PQ64x4fs`` (fast scan) or ``ITQ256`` for vectors of ``dim``."""

    def __init__(self, system: str, dim: int) -> None:
        self._dim = self._padded = dim
        self._index: Any
        if system.startswith("ITQ"):
            self._index = faiss.index_factory(dim, f"{system},LSH")
            return
        if system.endswith("fs"):
            self._index = faiss.index_factory(dim, system)
            return
        fields, field_bits = (int(number) for number in re.findall(r"\d+", system))
        if system.startswith("PQ"):
            self._padded = -(-dim // fields) * fields
            self._index = faiss.IndexPQ(self._padded, fields, field_bits)
        else:
            # The rotation may drop dimensions, so that the rest divides into fields. "np": without the
            # polysemous training that is the default here, takes long, and is of no use to this search.
            rotated = dim // fields * fields
            self._index = faiss.index_factory(dim, f"OPQ{fields}_{rotated},PQ{fields}x{field_bits}np")
            # Left alone, the rotation is trained for fields of 8 bits, whatever those of the index.
            self._rotation = faiss.downcast_VectorTransform(self._index.chain.at(0))
            self._rotation_pq = faiss.ProductQuantizer(self._rotation.d_out, fields, field_bits)
            self._rotation.pq = self._rotation_pq

    @property
    def code_size(self) -> int:
        """Bytes of a row."""
        return int(self._index.sa_code_size())

    def train(self, vectors: Vectors) -> None:
        self._index.train(self._pad(vectors))

    def train_briefly(self, vectors: Vectors) -> None:
        """One iteration, for OPQ: bad codes, made at the same speed."""
        self._rotation.niter = self._rotation.niter_pq = self._rotation.niter_pq_0 = 1
        faiss.downcast_index(self._index.index).pq.cp.niter = 1
        self.train(vectors)

    def add(self, vectors: Vectors) -> None:
        self._index.add(self._pad(vectors))

    def clear(self) -> None:
        self._index.reset()

    def search(self, queries: Vectors, k: int) -> NDArray[np.int64]:
        return cast("NDArray[np.int64]", self._index.search(self._pad(queries), k)[1])

    def save(self, path: Path) -> None:
        """Write it to a file, trained and filled."""
        faiss.write_index(self._index, str(path))

    def load(self, path: Path) -> None:
        """Become what was saved."""
        self._index = faiss.read_index(str(path))

    def reconstruct(self, vectors: Vectors) -> Vectors:
        """``vectors`` encoded and decoded."""
        decoded = self._index.sa_decode(self._index.sa_encode(self._pad(vectors)))
        return cast("Vectors", decoded[:, : self._dim])

    def _pad(self, vectors: Vectors) -> Vectors:
        if self._padded == self._dim:
            return vectors
        return np.pad(vectors, ((0, 0), (0, self._padded - self._dim)))


class FaissHamming:
    """All codes against all queries by Hamming distance, one after another."""

    def __init__(self, codes: NDArray[np.uint8]) -> None:
        self._index = faiss.IndexBinaryFlat(8 * codes.shape[1])
        self._index.add(codes)

    def search(self, codes: NDArray[np.uint8], k: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows and distances of the ``k`` nearest of each code."""
        distances, rows = self._index.search(codes, k)
        return rows, distances


#: Hash tables of FAISS for binary codes: one table of the first bits, or one for each run of them.
HASHES = ("BinaryHash", "BinaryMultiHash")


class FaissHash:
    """``BinaryHash`` or ``BinaryMultiHash``, with tables of ``bits`` bits, filled with codes."""

    def __init__(self, system: str, codes: NDArray[np.uint8], bits: int) -> None:
        width = 8 * codes.shape[1]
        self._index: Any = (
            faiss.IndexBinaryHash(width, bits)
            if system == "BinaryHash"
            else faiss.IndexBinaryMultiHash(width, width // bits, bits)
        )
        self._index.add(codes)

    def search(self, codes: NDArray[np.uint8], k: int, flips: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows and distances of the ``k`` nearest in the buckets that differ by at most ``flips`` bits."""
        self._index.nflip = flips
        distances, rows = self._index.search(codes if codes.ndim == 2 else codes[None], k)
        return rows, distances
