"""The vectors of rows as k-means sees them: kept ones, or those that codes stand for; of length 1 where the metric
is of directions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._storage.format import deleted, kept, keys, records
from ..._storage.format.columns import CHUNK_ROWS, RowNumbers
from ..._storage.format.meta import Options
from ..._storage.format.rows import Rows
from ..._storage.lmdb.known import Slot
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ..._storage.store import Store
from ...encoders.coder import Coder, read_coder
from ...encoders.linalg import lengths
from ...errors import DamagedError
from ...metrics import METRICS

#: The coder of the stored codes, and the generation and record that it was read from.
_CODER: Slot[tuple[tuple[int, tuple[int, int]], Coder]] = Slot("coder of cells")


class RowVectors:
    """The vectors and codes of the rows of a transaction; until it writes."""

    def __init__(self, source: Reader | Writer) -> None:
        self.options = options_of(source)
        self._source, self._store, self.state = source, Store(source, self.options), source.state
        self.codes = self._store.codes()
        self._kept = self._store.vectors() if self.options.keep_vectors else None

    def __getitem__(self, rows: RowNumbers) -> NDArray[np.float32]:
        if self._kept is not None and self.options.keep_vectors is not None:
            vectors = kept.from_bytes(self._kept.gather(rows), self.options.keep_vectors)
        else:
            vectors = coder_of(self._source, self.options).decode(self.codes.gather(rows))
        if METRICS[self.options.metric].unit:
            vectors /= lengths(vectors)
        return np.ascontiguousarray(vectors, np.float32)

    def living(self, rows: RowNumbers) -> NDArray[np.bool_]:
        """Which of ``rows`` are stored and not deleted."""
        return living(self._source, self.codes, rows)


def living(source: Reader | Writer, codes: Rows, rows: RowNumbers) -> NDArray[np.bool_]:
    """Which of ``rows`` are stored and not deleted."""
    chunks = stored_chunks(source, codes)
    return _assign.living(rows, deleted.addresses(source), deleted.SEGMENT_ROWS, chunks, CHUNK_ROWS)


def stored_chunks(source: Reader | Writer, codes: Rows) -> NDArray[np.uint8]:
    """Of each chunk of rows, whether it is stored, or was given back."""
    there = np.zeros(-(-source.state.rows // CHUNK_ROWS), np.uint8)
    there[codes.starts // CHUNK_ROWS] = 1
    return there


def available(source: Reader | Writer) -> bool:
    """Whether vectors can be had: codes alone need their encoder, which may be missing here."""
    options = options_of(source)
    return options.keep_vectors is not None or coder_of(source, options).present


def options_of(source: Reader | Writer) -> Options:
    """The options of the index."""
    value = source.get(keys.META, keys.OPTIONS)
    if value is None:
        raise DamagedError(f"options: missing; {records.REMEDY}")
    return _options(bytes(value))


@lru_cache
def _options(record: bytes) -> Options:
    return Options.from_record(record)


def coder_of(source: Reader | Writer, options: Options) -> Coder:
    """The coder of the stored codes."""
    value, state = source.get(keys.META, keys.ENCODER), source.state
    if value is None:
        raise DamagedError(f"encoder: missing; {records.REMEDY}")
    key = (state.generation, records.peek(value, "encoder"))
    known = source.env.known.get(_CODER)
    if known is None or known[0] != key or known[1].outdated:
        known = key, read_coder(value, options.dim, METRICS[options.metric].name, state.code_size, state.head)
        source.env.known.keep(_CODER, known)
    return known[1]
