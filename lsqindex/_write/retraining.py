"""Automatic training, and training again when the vectors have changed since.

An index that trains itself does so on the vectors it has at that time. If they were added topic by topic, later ones
are of another kind, and the encoder does not suit them. So the index looks again as it grows:

    training   a random sample of all vectors; a part of it is held out, and tells the error to expect
    review     when an eighth as many rows again were added: the error now, on a random sample of all vectors
                 clearly larger than expected, or a sample that was small → fit another encoder
    rewriting  its codes are written beside the valid ones, some after each later add (``catch_up``); the
               transaction that writes the last ones makes them valid

Some vectors are harder to code than others, so an error says little alone. What is expected follows the error of an
ideal code of as many bits, which is known from the vectors' covariances (``ideal_error``). Otherwise an encoder would
seem to do well when vectors come that are easy to code, and that it codes badly.

The encoder is fitted while no transaction is open: other writers go on. What one add rewrites does not depend on how
much the index holds. Searches use the old codes until the switch.
``train()`` and ``reencode()`` drop a rewriting that is not finished, and what they did is never repeated here: only
an index that trained itself has the record that this starts from (``storage.meta.Training``).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._inputs.options import flat, thread_count
from .._inputs.vectors import Vectors, sample_rows
from .._query.stored import StoredVectors, vectors_of
from .._storage.format import keys, records
from .._storage.format.columns import CHUNK_ROWS
from .._storage.format.meta import MAX_ERROR, MAX_ROWS, Options, Training, read_training, review_due
from .._storage.lmdb.known import Slot
from .._storage.lmdb.reader import Reader
from .._storage.lmdb.writer import COMMIT_BYTES, Writer
from .._storage.store import Store
from ..encoders import Encoder
from ..encoders.base import Progress
from ..encoders.coder import Coder, read_coder
from ..encoders.lsq_training import water_level
from ..errors import Committed, DamagedError, LsqIndexError
from .training import better_flat, encode_all, fit, switch, warn_if_lost

#: Errors are measured on so many vectors.
_MEASURED = 2048

#: An encoder is fitted again on a sample of so many vectors; on more, up to the second number, if it was at first.
_SAMPLED, _MOST_SAMPLED = 8192, 16_384

#: The error of an ideal code is computed from so many vectors; from fewer it would be too small.
_IDEAL_OF = 1024

#: Look again when this share of the vectors, one in so many, was added since the last look; ``merge()`` looks sooner.
LOOK, LOOK_SOON = 8, 64

#: The error is clearly larger than expected above this ratio. On shuffled vectors the ratio stays below 1.01; on
#: vectors sorted by topic it is 1.07 when half as many rows again were added, and rises (bench/order_of_adds.py).
_DRIFT = 1.03

#: A sample was small if one of so many times its size can be drawn now.
_OUTGROWN = 4

#: Another encoder is taken only where its error is below this share of the error now.
_GAIN = 0.98

#: A transaction rewrites so many codes, and so many for each row that it added: rewriting overtakes adding.
_STEP, _STEP_SHARE = 512, 5

_ROWS_AT_ONCE = 4 * CHUNK_ROWS


# -- training -------------------------------------------------------------------------------------


def fit_sample(
    encoder: Encoder, rows: Any, coder: Coder, reviewed: int, most: int | None = None, progress: Progress | None = None
) -> tuple[Coder, Training]:
    """An encoder fitted on a random sample of ``rows``, at most ``most``, and its record.

    A part of the sample, if there are enough vectors, is held out: the error on it is what to expect of vectors that
    the encoder has not seen.
    """
    n, least = int(rows.shape[0]), max(1, encoder._min_vectors()[0])
    size = min(n, encoder._sample_size() if most is None else most)
    rng = np.random.default_rng(encoder.config.get("seed", 0))
    chosen = rng.choice(n, size, replace=False)
    held = min(_MEASURED, size // 8, max(0, size - least))
    new = fit(encoder, _Picked(rows, np.sort(chosen[held:])), coder, progress)
    measured = chosen[:held] if held else chosen[:_MEASURED]
    error = error_of(new, _Picked(rows, np.sort(measured))[:])
    ideal = ideal_error(new, _Picked(rows, np.sort(chosen[:_IDEAL_OF]))[:])
    return new, Training(size, n, error, error, reviewed, ideal)


def train(writer: Writer, options: Options, coder: Coder, threads: int) -> None:
    """Train on what the index holds, encode everything, and commit: the first training, if it is due after a batch."""
    new, known = first_fit(writer, options, coder, StoredVectors(Store(writer, options), coder), 0)
    encode_all(writer, options, coder, new, threads, known)


def first_fit(
    writer: Writer, options: Options, coder: Coder, rows: Any, added: int, progress: Progress | None = None
) -> tuple[Coder, Training | None]:
    """The coder that the index gets when it trains itself on ``rows``, of which ``added`` are not stored yet."""
    if better_flat(writer, options, coder.encoder):  # only in files of older versions: now, such indexes begin so
        return Coder(flat(options.dim), coder.dim, coder.metric), None
    new, known = fit_sample(coder.encoder, rows, coder, writer.state.rows + added, progress=progress)
    warn_if_lost(writer, options, coder, new)
    return new, known


def error_of(coder: Coder, vectors: Vectors) -> float:
    """The squared reconstruction error of vectors, relative to their squared lengths."""
    seen = coder.prepare(np.asarray(vectors, np.float32))
    found = coder.decode(coder.encode(vectors, 1))
    lost = float(np.square(seen - found, dtype=np.float64).sum())
    whole = float(np.square(seen, dtype=np.float64).sum())
    return min(lost / whole, MAX_ERROR) if whole else 0.0


def ideal_error(coder: Coder, vectors: Vectors) -> float:
    """The error of an ideal code of as many bits for a Gaussian with the covariances of ``vectors``, as error_of.

    That is the least possible one (rate–distortion theory, reverse water-filling). 0 of too few vectors.
    """
    if len(vectors) < _IDEAL_OF:
        return 0.0
    some = vectors[:: len(vectors) // _IDEAL_OF]  # from first to last: they may be in the order of their rows
    seen = coder.prepare(np.asarray(some, np.float32)).astype(np.float64)
    whole, centred = float(np.square(seen).sum()), seen - seen.mean(axis=0)
    products = centred.T @ centred if seen.shape[1] < len(seen) else centred @ centred.T
    variances = np.maximum(np.linalg.eigvalsh(products), 0.0)
    lost = float(np.minimum(variances, water_level(variances, 8 * coder.code_size)).sum())
    return min(lost / whole, MAX_ERROR) if whole else 0.0


class _Picked:
    """Some rows of something that ``fit`` can read."""

    def __init__(self, rows: Any, places: NDArray[np.int64]) -> None:
        self.shape, self.dtype = (len(places), int(rows.shape[1])), np.dtype(np.float32)
        self._rows, self._places = rows, places

    def __getitem__(self, where: Any) -> Vectors:
        with np.errstate(over="ignore"):  # the encoder refuses what is infinite
            return np.asarray(self._rows[self._places[where]], np.float32)


# -- review ---------------------------------------------------------------------------------------


def review(writer: Writer, options: Options, coder: Coder, added: Any = None) -> None:
    """Measure the encoder's error, and begin to rewrite the codes if it is too large; commits.

    Where no vectors are kept, the error is that of the vectors ``added`` last, and codes cannot be rewritten.
    No transaction is open before or after. What the caller did is durable by now: a failure here is a warning.
    """
    try:
        _review(writer, options, coder, added)
    except Exception as error:
        writer.abort()
        warnings.warn(f"training the index again failed ({error}); it keeps its encoder", RuntimeWarning, stacklevel=2)
        with contextlib.suppress(LsqIndexError):
            writer.begin()
            _postpone(writer)
        writer.abort()


def _review(writer: Writer, options: Options, coder: Coder, added: Any) -> None:
    writer.begin()
    known = read_training(writer)
    if known is None or writer.state.next_generation or not coder.present:
        writer.abort()
        return
    kept = options.keep_vectors is not None and not coder.floats
    rows = StoredVectors(Store(writer, options), coder) if kept else added
    if rows is None or not rows.shape[0]:
        writer.abort()  # nothing to measure the error on
        return
    rng = np.random.default_rng([writer.state.rows, writer.state.count])
    known = _measured(known, coder, sample_rows(rows, _MEASURED, rng), writer.state.rows)
    n = int(rows.shape[0])
    most = min(n, coder.encoder._sample_size(), max(_SAMPLED, min(known.sampled, _MOST_SAMPLED)))
    outgrown = most >= _OUTGROWN * known.sampled
    if kept and n >= coder.encoder._min_vectors()[0] and (outgrown or known.now > _DRIFT * known.error + 1e-9):
        sample = sample_rows(rows, most, rng)
        generation, reviewed = writer.state.generation, writer.state.rows
        writer.abort()
        new, fresh = fit_sample(coder.encoder, sample, coder, reviewed)
        writer.begin()
        if writer.state.generation != generation or writer.state.next_generation:
            writer.abort()  # somebody else has trained it
            return
        if fresh.error < _GAIN * known.now:
            writer.run(partial(_begin, options, new, replace(fresh, vectors=n)))
        else:
            # Another encoder would do no better: this error is what to expect from now on.
            known = replace(known, error=max(known.now, known.error), sampled=max(fresh.sampled, known.sampled))
    writer.run(partial(_put, known))
    writer.commit()


def _measured(known: Training, coder: Coder, sample: Vectors, rows: int) -> Training:
    """The record after a look at a sample of the vectors."""
    now, ideal = error_of(coder, sample), ideal_error(coder, sample)
    if not ideal:
        return replace(known, now=now, reviewed=rows)
    expected = min(known.error * ideal / known.ideal, MAX_ERROR) if known.ideal else known.error
    return replace(known, now=now, error=expected, ideal=ideal, reviewed=rows)


def _postpone(writer: Writer) -> None:
    """Look again later; commits."""
    known = read_training(writer)
    if known is not None:
        writer.run(partial(_put, replace(known, reviewed=writer.state.rows)))
    writer.commit()


def _put(training: Training, writer: Writer) -> None:
    writer.put(keys.META, keys.TRAINING, training.to_record())


def _begin(options: Options, new: Coder, training: Training, writer: Writer) -> None:
    Store(writer, options).begin_next(new.code_size, new.head)
    writer.put(keys.META, keys.NEXT_ENCODER, new.to_record())
    writer.put(keys.META, keys.NEXT_TRAINING, training.to_record())


# -- rewriting ------------------------------------------------------------------------------------


#: The coder of the next generation, and the generation and record that it was read from.
_NEXT_CODER: Slot[tuple[tuple[int, tuple[int, int]], Coder]] = Slot("next coder")


def next_coder(source: Reader | Writer, coder: Coder) -> Coder | None:
    """The coder of the generation that is being written; None where there is none."""
    number = source.state.next_generation
    if not number:
        return None
    value = source.get(keys.META, keys.NEXT_ENCODER)
    if value is None or read_training(source, keys.NEXT_TRAINING) is None:
        raise DamagedError(f"next encoder: missing, although codes are being rewritten by it; {records.REMEDY}")
    key = (number, records.peek(value, "next encoder"))
    known = source.env.known.get(_NEXT_CODER)
    if known is None or known[0] != key or known[1].outdated:
        state = source.state
        made = read_coder(value, coder.dim, coder.metric, state.next_size, state.next_head)
        known = (key, made)
        source.env.known.keep(_NEXT_CODER, known)
    return known[1]


def catch_up(writer: Writer, options: Options, coder: Coder, threads: int, added: int | None = None) -> None:
    """Rewrite what an add of ``added`` rows rewrites, or everything, in as many transactions as it takes.

    No transaction is open before or after.
    """
    left = MAX_ROWS if added is None else _STEP + _STEP_SHARE * added
    while writer.state.next_generation and left > 0:
        writer.begin()
        done = _advance(writer, options, coder, threads, left)
        writer.commit()
        if not done:
            break
        left -= done


def _advance(writer: Writer, options: Options, coder: Coder, threads: int, most: int) -> int:
    """Rewrite at most ``most`` codes, and no more than a transaction should write; how many were."""
    new = next_coder(writer, coder)
    if new is None or not new.present:  # without its plugin nothing can be encoded: the next writer that has it goes on
        return 0
    done, most = 0, min(most, max(1, COMMIT_BYTES // new.code_size))
    while done < most:
        count: int = writer.run(partial(_rewrite, options, coder, new, min(_ROWS_AT_ONCE, most - done), threads))
        done += count
        if not count:
            break
    store = Store(writer, options)
    column = store.next_codes()
    if column is not None and not len(store.rows_to_recode(1)):
        switch(writer, options, new, column, writer.state.count, read_training(writer, keys.NEXT_TRAINING))
    return done


def _rewrite(options: Options, old: Coder, new: Coder, most: int, threads: int, writer: Writer) -> int:
    store = Store(writer, options)
    rows = store.rows_to_recode(most)
    if len(rows):
        store.append_next(rows, new.encode(vectors_of(store, old, rows), threads))
    return len(rows)


def after_add(writer: Writer, options: Options, coder: Coder, added: Any, threads: int, n: int, *, look: bool) -> None:
    """After ``n`` rows, the vectors ``added`` among them, were added: ``look``: a review is due. And rewrite.

    What cannot be rewritten now (a full disk), later adds rewrite. No transaction is open before or after.
    """
    with Committed("the vectors were added"):
        if look:
            review(writer, options, coder, added)
        catch_up(writer, options, coder, threads, n)
    writer.abort()


def after_batch(writer: Writer, opened: Callable[[Writer], tuple[Options, Coder]], added: int) -> None:
    """After a batch of ``added`` rows: train if there are enough vectors now, or again if they have changed.

    If that fails, the next add tries again. No transaction is open before or after.
    """
    with Committed("the batch was committed"):
        writer.begin()
        options, coder = opened(writer)
        if not coder.trained:
            if writer.state.count >= options.train_size:
                train(writer, options, coder, thread_count(None))
        else:
            due = review_due(writer, LOOK)
            writer.abort()
            if due:
                review(writer, options, coder)
            catch_up(writer, options, coder, thread_count(None), added)
    writer.abort()


def told(source: Reader) -> dict[str, Any] | None:
    """What ``stats()`` tells of the last automatic training."""
    known, state = read_training(source), source.state
    if known is None:
        return None
    return {
        "sampled": known.sampled,
        "vectors": known.vectors,
        "error": known.error,
        "now": known.now,
        "outdated": known.now > _DRIFT * known.error + 1e-9,
        "rewritten": state.recoded / max(1, state.rows) if state.next_generation else None,
    }
