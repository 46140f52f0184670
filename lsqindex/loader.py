"""The writing side of an index: vectors in, trained and encoded, in transactions of bounded size.

A transaction lives in memory until it is committed, so what is large is written in several: first rows, or
a whole generation of codes, that nobody sees, then one last transaction that makes them all visible. Killed
in between, the next writer finds the index as it was and removes what was left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .coder import Coder, Prepared
from .encoders import Encoder
from .encoders.base import Progress as FitProgress
from .errors import NoVectorsError, VectorError
from .ids import Ids
from .storage import keys
from .storage.columns import CHUNK_ROWS, RowNumbers
from .storage.meta import Options
from .storage.rewrite import COMMIT_BYTES
from .storage.store import NewRows, Store
from .storage.writer import Writer
from .vectors import Vectors, blocks, read_rows

#: ``progress(rows done, rows in all)``; None where the number is not known.
Progress = Callable[[int, int | None], None]

_ROWS_AT_ONCE = 4 * CHUNK_ROWS


def kept(vectors: Vectors, dtype: str | None) -> NDArray[np.uint8] | None:
    """Vectors as they are kept, as bytes; VectorError where float16 cannot hold them."""
    if dtype is None:
        return None
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(vectors, np.dtype(dtype).newbyteorder("<"))
    if not np.isfinite(narrow).all():
        row = int(np.argmin(np.isfinite(narrow).all(axis=1)))
        raise VectorError(
            f"vectors: row {row} has numbers beyond the range of float16 (±65504); scale them, or create the "
            "index with keep_vectors='float32'"
        )
    return narrow.view(np.uint8)


def new_rows(vectors: Vectors, ids: Ids, coder: Coder, options: Options, threads: int) -> NewRows:
    """Checked vectors, encoded."""
    return NewRows(ids, coder.encode(vectors, threads), kept(vectors, options.keep_vectors))


def bytes_of(rows: int, coder: Coder, options: Options) -> int:
    """About how much ``rows`` rows take in the file."""
    vectors = options.dim * np.dtype(options.keep_vectors).itemsize if options.keep_vectors else 0
    return rows * (coder.code_size + vectors + 32)


def is_large(rows: int, coder: Coder, options: Options) -> bool:
    """Whether so many rows are too many for one transaction."""
    return bytes_of(rows, coder, options) > COMMIT_BYTES


def check_all(rows: Any, options: Options) -> None:
    """Look at every vector before anything is written."""
    for _, block in blocks(rows):
        kept(block, options.keep_vectors)


def add_large(
    writer: Writer, rows: Any, ids: Ids, coder: Coder, options: Options, upsert: bool, threads: int, progress: Progress
) -> None:
    """Stage rows in several transactions, then make them visible in one."""
    n = rows.shape[0]
    first, at = writer.state.rows, 0
    step = max(CHUNK_ROWS, COMMIT_BYTES // (bytes_of(1, coder, options)) // CHUNK_ROWS * CHUNK_ROWS)
    try:
        while at < n:
            end = min(n, at + step)
            block = read_rows(rows, slice(at, end), first=at)
            part = new_rows(block, ids[at:end], coder, options, threads)
            transact(writer, partial(_stage, options, first + at, part))
            at = end
            progress(at, n)
        transact(writer, lambda writer: Store(writer, options).publish(ids, upsert=upsert))
    except BaseException:
        transact(writer, lambda writer: Store(writer, options).tidy())
        raise


def _stage(options: Options, first: int, part: NewRows, writer: Writer) -> None:
    Store(writer, options).stage(first, part)


def transact(writer: Writer, operation: Callable[[Writer], Any], reserve: int = 0) -> Any:
    """One whole transaction."""
    writer.begin(reserve)
    try:
        result = writer.run(operation)
        writer.commit()
        return result
    finally:
        writer.abort()


# -- vectors of stored rows -----------------------------------------------------------------------


def vectors_of(store: Store, coder: Coder, rows: RowNumbers) -> NDArray[np.float32]:
    """The vectors of rows: as they were kept, as they are stored untrained, or reconstructed."""
    options = store.options
    if options.keep_vectors and not coder.layout.floats:
        found: NDArray[np.uint8] = store.vectors().gather(rows)
        return found.view(np.dtype(options.keep_vectors).newbyteorder("<")).astype(np.float32)
    return coder.decode(store.codes().gather(rows))


def has_vectors(store: Store, coder: Coder) -> bool:
    """Whether the vectors of all rows can be had as they were given."""
    return bool(store.options.keep_vectors) or coder.layout.floats or not store.state.stored


def need_vectors(store: Store, coder: Coder, what: str) -> None:
    """NoVectorsError where only codes are left."""
    if not has_vectors(store, coder):
        raise NoVectorsError(
            f"{what}: the index holds codes only, and codes cannot be encoded again; create it with "
            "keep_vectors='float16', or build it anew from the vectors"
        )


class StoredVectors:
    """The vectors of rows as something ``fit`` can read: shape, dtype, slices and lists of places."""

    def __init__(self, store: Store, coder: Coder, rows: RowNumbers) -> None:
        self.shape, self.dtype = (len(rows), store.options.dim), np.dtype(np.float32)
        self._store, self._coder, self._rows = store, coder, rows

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


def fit(encoder: Encoder, vectors: Any, coder: Coder, progress: FitProgress | None) -> Coder:
    """The coder of a newly trained encoder."""
    fresh = type(encoder)(**encoder.config)
    rows: Any = Prepared(vectors, coder)
    fresh.fit(rows, progress=progress)
    return Coder(fresh, coder.dim, coder.metric)


def recode(writer: Writer, options: Options, old: Coder, new: Coder, threads: int) -> None:
    """In an open transaction: store ``new`` and all codes by it, beside the old codes; then switch.

    The transaction is left open, with the switch in it; what is large was committed before, unseen.
    """

    def begin(writer: Writer) -> Any:
        store = Store(writer, options)
        return store.replace_codes(new.code_size, new.blocked)

    column = writer.run(begin)
    written = 0
    for first, end in _runs(Store(writer, options).ids().starts, Store(writer, options).ids().counts):
        for at in range(first, end, _ROWS_AT_ONCE):
            rows = np.arange(at, min(end, at + _ROWS_AT_ONCE), dtype=np.uint32)

            def operation(writer: Writer, at: int = at, rows: RowNumbers = rows) -> None:
                vectors = vectors_of(Store(writer, options), old, rows)
                column.append(writer, at, new.encode(vectors, threads))

            writer.run(operation)
            written += len(rows) * new.code_size
            if written > COMMIT_BYTES:
                writer.commit()
                writer.begin()
                written = 0

    def switch(writer: Writer) -> None:
        Store(writer, options).publish_codes(column)
        writer.put(keys.META, keys.ENCODER, new.to_record())

    writer.run(switch)


def _runs(starts: RowNumbers, counts: RowNumbers) -> list[tuple[int, int]]:
    """Ranges of rows that follow each other without a gap."""
    runs: list[tuple[int, int]] = []
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], start + count)
        else:
            runs.append((start, start + count))
    return runs
