"""Training an encoder for an index, and encoding everything anew with it."""

from __future__ import annotations

import contextlib
import warnings
from functools import partial
from typing import Any

import numpy as np

from .._inputs.options import check_dim, flat, worth_encoding
from .._query.stored import StoredVectors, need_vectors, vectors_of
from .._storage.format import keys
from .._storage.format.columns import CHUNK_ROWS, Column, RowNumbers
from .._storage.format.meta import Options, Training
from .._storage.lmdb.writer import COMMIT_BYTES, Writer
from .._storage.store import Store
from .._subsets import stored as subsets
from ..encoders import Encoder
from ..encoders.base import Progress
from ..encoders.coder import Coder, Prepared
from ..errors import CodesOnlyWarning, LsqIndexError

_ROWS_AT_ONCE = 4 * CHUNK_ROWS


def fit(encoder: Encoder, vectors: Any, coder: Coder, progress: Progress | None = None) -> Coder:
    """The coder of a newly trained encoder; ``encoder`` itself stays as it is."""
    meant = encoder.for_metric(coder.metric)
    fresh = type(meant)(**meant.config)
    rows: Any = Prepared(vectors, coder)
    fresh.fit(rows, progress=progress)
    return Coder(fresh, coder.dim, coder.metric)


def retrain(
    writer: Writer,
    options: Options,
    coder: Coder,
    encoder: Encoder | None,
    vectors: Any,
    progress: Progress | None,
    threads: int,
) -> None:
    """Train ``encoder``, None for the index's own, on ``vectors`` or what is stored; encode all anew, and commit.

    An encoder that is fitted already is taken as it is. One whose codes would be as large as the vectors is replaced by
    ``flat``.
    """
    store = Store(writer, options)
    need_vectors(store, coder, "train" if encoder is None else "reencode")
    structure = subsets.read(writer)
    if structure is not None:
        structure.check_encoder(encoder or coder.encoder, options.dim)
        if encoder is not None:
            structure.warn_of(encoder)
    if encoder is not None and encoder.is_fitted:
        check_dim(encoder, options.dim)
        new = Coder(encoder, coder.dim, coder.metric)
    elif better_flat(writer, options, encoder or coder.encoder):
        new = Coder(flat(options.dim), coder.dim, coder.metric)
    else:
        new = fit(
            encoder or coder.encoder, StoredVectors(store, coder) if vectors is None else vectors, coder, progress
        )
        if structure is not None:
            structure.check_encoder(new.encoder, options.dim)
    warn_if_lost(writer, options, coder, new)
    encode_all(writer, options, coder, new, threads)


def warn_if_lost(writer: Writer, options: Options, old: Coder, new: Coder) -> None:
    """Before codes take the place of vectors that are not kept: say so. (A warning made an error changes nothing.)"""
    if options.keep_vectors is None and old.floats and not new.floats:
        where = "an index in memory" if writer.env.memory else writer.env.path
        warnings.warn(
            f"{where} keeps no vectors: after this training only codes of {new.code_size} bytes remain, get() returns "
            "approximations, searches cannot be re-ranked, and the vectors cannot be recovered; create the index with "
            "keep_vectors='float16' to keep them",
            CodesOnlyWarning,
            stacklevel=2,
        )


def better_flat(writer: Writer, options: Options, encoder: Encoder) -> bool:
    """Whether to store vectors as they are instead of codes; not if a structure was asked for that needs codes."""
    structure = subsets.read(writer)
    return (structure is None or not structure.needs_codes) and not worth_encoding(encoder, options.dim)


def encode_all(
    writer: Writer, options: Options, old: Coder, new: Coder, threads: int, training: Training | None = None
) -> None:
    """Encode everything with ``new``, switch to it, and commit."""
    try:
        recode(writer, options, old, new, threads, writer.state.count, training)
        writer.commit()
    except BaseException:
        discard(writer, options)
        raise
    subsets.settle(writer)


def recode(
    writer: Writer, options: Options, old: Coder, new: Coder, threads: int, n: int, training: Training | None
) -> None:
    """Encode everything with ``new``, and switch to it; the transaction with the switch is left open.

    ``n`` and ``training`` as in :func:`switch`.
    """
    switch(writer, options, new, write_codes(writer, options, old, new, threads), n, training)


def write_codes(writer: Writer, options: Options, old: Coder, new: Coder, threads: int) -> Column:
    """All codes by ``new`` beside the old ones, a generation that nobody sees yet; its column.

    What is too large for one transaction is committed on the way.
    """
    column: Column = writer.run(lambda writer: Store(writer, options).replace_codes(new.code_size, new.head))
    ids = Store(writer, options).ids()
    written = 0
    for first, end in ids.runs():
        for at in range(first, end, _ROWS_AT_ONCE):
            rows = np.arange(at, min(end, at + _ROWS_AT_ONCE), dtype=np.uint32)
            writer.run(partial(_encode, options, old, new, column, rows, threads))
            written += len(rows) * new.code_size
            if written > COMMIT_BYTES:
                writer.commit()
                writer.begin()
                written = 0
    return column


def switch(
    writer: Writer, options: Options, new: Coder, column: Column, n: int, training: Training | None = None
) -> None:
    """Make written codes valid, and the encoder that wrote them.

    ``n`` is how many vectors there will be; ``training`` the record of an automatic training, None of any other.
    """
    writer.run(partial(_switch, options, new, column, n, training))


def _encode(
    options: Options, old: Coder, new: Coder, column: Column, rows: RowNumbers, threads: int, writer: Writer
) -> None:
    vectors = vectors_of(Store(writer, options), old, rows)
    column.append(writer, int(rows[0]), new.encode(vectors, threads))


def _switch(options: Options, new: Coder, column: Column, n: int, training: Training | None, writer: Writer) -> None:
    structure = subsets.read(writer)
    places = None
    if structure is not None:
        places = structure.places(writer)
        structure.clear(writer)
    Store(writer, options).publish_codes(column)
    writer.put(keys.META, keys.ENCODER, new.to_record())
    if training is not None:
        writer.put(keys.META, keys.TRAINING, training.to_record())
    elif writer.get(keys.META, keys.TRAINING) is not None:
        writer.delete(keys.META, keys.TRAINING)
    if structure is not None:
        chosen = structure.chosen_for(new, n)
        subsets.put(writer, chosen)
        chosen.restore(writer, places)


def discard(writer: Writer, options: Options) -> None:
    """Undo what was committed of something unfinished; if that fails too, the next writer does it."""
    writer.abort()
    with contextlib.suppress(LsqIndexError):
        writer.begin()
        writer.run(lambda writer: Store(writer, options).tidy())
        writer.commit()
