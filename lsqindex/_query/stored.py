"""Vectors of rows that are in the index: as they were added, where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._inputs.payloads import Payload, unpack
from .._storage.format import kept
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from ..encoders.coder import Coder
from ..errors import NoVectorsError


def vectors_of(store: Store, coder: Coder, rows: RowNumbers) -> NDArray[np.float32]:
    """The vectors of rows: as they are stored untrained, as they were kept, or reconstructed."""
    kind = store.options.keep_vectors
    if kind and not coder.floats:
        return kept.from_bytes(store.vectors().gather(rows), kind)
    return coder.decode(store.codes().gather(rows))


def payloads_of(store: Store, rows: RowNumbers) -> list[Payload | None]:
    """The payloads of rows."""
    return [unpack(packed) for packed in store.payloads_of(rows)]


def found_payloads(store: Store, rows: NDArray[np.int64]) -> list[list[Payload | None]]:
    """The payloads of what was found for each query, None where nothing was: row −1."""
    there = np.flatnonzero(rows >= 0)
    flat: list[Payload | None] = [None] * rows.size
    for at, payload in zip(there.tolist(), payloads_of(store, rows.ravel()[there].astype(np.uint32)), strict=True):
        flat[at] = payload
    return [flat[i * rows.shape[1] : (i + 1) * rows.shape[1]] for i in range(len(rows))]


def need_vectors(store: Store, coder: Coder, what: str) -> None:
    """NoVectorsError where only codes are left."""
    if store.state.count and not store.options.keep_vectors and not coder.floats:
        raise NoVectorsError(
            f"{what}: the index holds codes only, and codes cannot be encoded again; create it with "
            "keep_vectors='float16', or build it anew from the vectors"
        )


class StoredVectors:
    """The living vectors of an index as something ``fit`` can read: shape, dtype, slices, lists of places."""

    def __init__(self, store: Store, coder: Coder) -> None:
        self._store, self._coder, self._rows = store, coder, store.living()
        self.shape, self.dtype = (len(self._rows), store.options.dim), np.dtype(np.float32)

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return vectors_of(self._store, self._coder, self._rows[where])


class Joined:
    """Two sets of vectors, one after the other."""

    def __init__(self, first: Any, second: Any) -> None:
        self.shape, self.dtype = (first.shape[0] + second.shape[0], first.shape[1]), np.dtype(np.float32)
        self._first, self._second = first, second

    def __getitem__(self, where: Any) -> NDArray[Any]:
        places = np.arange(self.shape[0])[where]
        n = self._first.shape[0]
        parts = [self._first[places[places < n]], self._second[places[places >= n] - n]]
        return np.concatenate([np.asarray(part, np.float32) for part in parts])
