"""What an index stores codes with: its encoder, or, until it is trained, the vectors as they are.

``StoredEncoder`` is the record in the file.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import Vectors
from .._storage.format.meta import StoredEncoder
from .._storage.format.records import REMEDY
from .._threads.cached import cached_property
from .._threads.pool import in_parallel
from ..errors import (
    DamagedError,
    DuplicateEncoderError,
    LsqIndexError,
    NewerEncoderError,
    PluginError,
    UnknownEncoderError,
)
from ..metrics import METRICS
from . import Encoder, Layout, encoder_class, from_bytes, make_encoder, registry, to_bytes
from .base import Config, Metric
from .serial import install_hint
from .zero_code import zero_code

#: Rows that a thread encodes at a time: few enough that threads finish together, and that all of it stays in the cache.
PART_ROWS = 1024


class Coder:
    """An encoder, fitted or not, for vectors of one metric."""

    #: Whether the encoder can be used here, and if not, why; see :class:`Absent`.
    present, why = True, ""
    #: Whether to read the record again.
    outdated = False

    def __init__(self, encoder: Encoder, dim: int, metric: Metric) -> None:
        self.encoder, self.dim, self.metric = encoder, dim, metric
        #: Whether only directions count: vectors are encoded at length 1.
        self.unit = METRICS[metric].unit
        #: Whether codes are the encoder's; until then they are the vectors, float32.
        self.trained = encoder.is_fitted
        #: What the stored codes look like, and the bytes of one.
        self.layout: Layout = encoder.layout if self.trained else Layout.of_floats(dim)
        self.code_size = self.layout.code_size
        #: Whether codes are the vectors as they are, float32.
        self.floats = self.layout.floats

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.encoder.name

    @property
    def config(self) -> Config:
        """The encoder's parameters."""
        return self.encoder.config

    def check_present(self) -> None:
        """Raise the error that says what to install, where the encoder cannot be used here."""

    @property
    def head(self) -> int:
        """How many leading bytes of a code are stored apart; 0 for vectors, which lie one after another.

        Where part of a code ranks nearly as well as all of it (the progressive scan) it is that part; elsewhere
        nothing is gained by reading only some.
        """
        return 0 if self.layout.floats else self.layout.head or self.code_size

    def encode(self, vectors: Vectors, threads: int) -> NDArray[np.uint8]:
        """Codes of checked float32 vectors."""
        if self.floats:
            return np.ascontiguousarray(vectors, "<f4").view(np.uint8)
        if len(vectors) <= PART_ROWS:
            return self._encode_part(vectors)
        parts = [vectors[first : first + PART_ROWS] for first in range(0, len(vectors), PART_ROWS)]
        return np.concatenate(in_parallel(self._encode_part, parts, threads))

    def _encode_part(self, vectors: Vectors) -> NDArray[np.uint8]:
        codes = self.layout.pack(self.encoder._encode(self.prepare(vectors) if self.unit else vectors))
        if self.unit:
            zeros = ~vectors.any(axis=1)
            if zeros.any():
                codes[zeros] = self._zero_code
        return codes

    @cached_property
    def _zero_code(self) -> NDArray[np.uint8]:
        return zero_code(self.encoder)

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Vectors of codes."""
        if self.floats:
            return np.ascontiguousarray(codes).view("<f4").astype(np.float32)
        return self.encoder.decode(codes)

    def prepare(self, vectors: Vectors) -> Vectors:
        """As the encoder sees them: of length 1 where only the direction counts."""
        return METRICS[self.metric].prepare(vectors)

    def to_record(self) -> bytes:
        """As stored."""
        encoder = self.encoder
        came_from = list(registry.distribution_of(type(encoder)))
        fitted = to_bytes(encoder) if self.trained else None
        return StoredEncoder(encoder.name, encoder.config, came_from, fitted).to_record()


class Absent(Coder):
    """The coder of an encoder that cannot be used here: its plugin is missing, cannot be loaded, or is too old.

    It knows what the file says without the encoder. Whatever needs the encoder asks for ``encoder``, which raises the
    error that tells what to install.
    """

    present = False

    def __init__(
        self, stored: StoredEncoder, dim: int, metric: Metric, code_size: int, head: int, error: LsqIndexError
    ) -> None:
        self.dim, self.metric, self.unit = dim, metric, METRICS[metric].unit
        self.trained, self.floats, self.code_size = stored.fitted is not None, head == 0, code_size
        self._stored, self._head, self._error = stored, head, error
        self.why = str(error)

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """Raises the error that says why there is none."""
        # A new error each time, for threads must not share a traceback.
        raise type(self._error)(self.why) from self._error.__cause__

    def check_present(self) -> None:
        """Raise the error that says why there is no encoder."""
        self.encoder  # noqa: B018

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self._stored.name

    @property
    def config(self) -> Config:
        """The encoder's parameters."""
        return self._stored.config

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """What stored vectors look like; of codes only the encoder knows it."""
        return Layout.of_floats(self.dim) if self.floats else self.encoder.layout

    @property
    def outdated(self) -> bool:  # type: ignore[override]
        """Whether an encoder of this name has been registered in the meantime."""
        return registry.is_registered(self.name) and not isinstance(self._error, NewerEncoderError)


def read_coder(value: Any, dim: int, metric: Metric, code_size: int, head: int) -> Coder:
    """The coder of a stored record, for codes of ``code_size`` bytes; :class:`Absent` without its encoder."""
    stored = StoredEncoder.from_record(value)
    coder: Coder
    try:
        coder = Coder(_read_encoder(stored, dim), dim, metric)
        fits = (coder.code_size, coder.floats) == (code_size, head == 0)
    except (UnknownEncoderError, PluginError, DuplicateEncoderError, NewerEncoderError) as error:
        coder = Absent(stored, dim, metric, code_size, head, error)
        fits = code_size == 4 * dim if coder.floats else coder.trained
    if not fits:
        raise DamagedError(f"encoder: its codes do not have the {code_size} bytes of the stored ones; {REMEDY}")
    return coder


def _read_encoder(stored: StoredEncoder, dim: int) -> Encoder:
    try:
        encoder_class(stored.name)
        encoder = make_encoder(stored.name, **stored.config) if stored.fitted is None else from_bytes(stored.fitted)
    except UnknownEncoderError as error:
        raise UnknownEncoderError(f"{error}{install_hint(stored.distribution)}") from None
    except (PluginError, DuplicateEncoderError, NewerEncoderError):
        raise
    except (LsqIndexError, TypeError) as error:  # TypeError: a parameter that no constructor takes
        raise DamagedError(f"encoder: {error}; {REMEDY}") from error
    same = encoder.name == stored.name and msgpack.packb(encoder.config) == msgpack.packb(stored.config)
    if not same or (encoder.is_fitted and encoder.dim != dim):
        raise DamagedError(f"encoder: it is not for {dim} dimensions, or does not match the file; {REMEDY}")
    return encoder


class Prepared:
    """Rows of any array as an encoder sees them, converted when they are read: for ``fit``.

    Where only directions count, vectors of zeros have nothing to teach, and would bend what is learned towards them:
    each is replaced by another row of those read with it.
    """

    def __init__(self, rows: Any, coder: Coder) -> None:
        self.shape, self.dtype = tuple(rows.shape), np.dtype(np.float32)
        self._rows, self._coder = rows, coder

    def __getitem__(self, where: Any) -> Vectors:
        with np.errstate(over="ignore"):  # what becomes inf here is refused by the encoder's own door
            block = np.ascontiguousarray(self._rows[where], np.float32)
        if not np.isfinite(block).all():
            return block
        if self._coder.unit:
            there = block.any(axis=1)
            if there.any() and not there.all():
                block = block[np.where(there, np.arange(len(block)), np.resize(np.flatnonzero(there), len(block)))]
        return self._coder.prepare(block)
