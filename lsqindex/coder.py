"""What an index stores codes with: its encoder, or, until it is trained, the vectors as they are.

The record in the file: {"name", "config", "distribution", "fitted": bytes or nil}; ``fitted`` is
:func:`lsqindex.encoders.to_bytes`, nil before training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from .encoders import Encoder, Layout, from_bytes, make_encoder, registry, to_bytes
from .encoders.base import Metric
from .errors import DamagedError, LsqIndexError, UnknownEncoderError
from .storage import meta
from .storage.records import REMEDY
from .vectors import Vectors
from .zero_code import zero_code


@dataclass(frozen=True)
class Coder:
    """An encoder, fitted or not, for vectors of one metric."""

    encoder: Encoder
    dim: int
    metric: Metric

    @property
    def trained(self) -> bool:
        """Whether codes are the encoder's; until then they are the vectors, float32."""
        return self.encoder.is_fitted

    @property
    def layout(self) -> Layout:
        """What the stored codes look like."""
        return self.encoder.layout if self.trained else Layout.of_floats(self.dim)

    @property
    def code_size(self) -> int:
        """Bytes of a code."""
        return self.layout.code_size

    @property
    def head(self) -> int:
        """How many leading bytes of a code are stored apart; 0 for vectors, which lie one after another.

        Where part of a code ranks nearly as well as all of it (the progressive scan) it is that part; elsewhere
        nothing is gained by reading only some.
        """
        return 0 if self.layout.floats else self.layout.head or self.code_size

    def encode(self, vectors: Vectors, threads: int) -> NDArray[np.uint8]:
        """Codes of checked float32 vectors."""
        if self.layout.floats:
            return np.ascontiguousarray(vectors, "<f4").view(np.uint8)
        codes = self.encoder.encode(self.prepare(vectors), threads=threads)
        if self.metric == "cosine":
            zeros = ~vectors.any(axis=1)
            if zeros.any():
                codes[zeros] = self._zero_code
        return codes

    @cached_property
    def _zero_code(self) -> NDArray[np.uint8]:
        return zero_code(self.encoder)

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Vectors of codes."""
        if self.layout.floats:
            return np.ascontiguousarray(codes).view("<f4").astype(np.float32)
        return self.encoder.decode(codes)

    def prepare(self, vectors: Vectors) -> Vectors:
        """As the encoder sees them: of length 1 where only the direction counts."""
        return unit(vectors) if self.metric == "cosine" else vectors

    def to_record(self) -> bytes:
        """As stored."""
        encoder = self.encoder
        return meta.pack(
            {
                "name": encoder.name,
                "config": encoder.config,
                "distribution": list(registry.distribution_of(type(encoder))),
                "fitted": to_bytes(encoder) if self.trained else None,
            }
        )

    @classmethod
    def from_record(cls, value: Any, dim: int, metric: Metric) -> Coder:
        """From the stored record; an encoder whose plugin is missing says what to install."""
        record = meta.unpack(value, "encoder")
        name, config, fitted = (record.get(key) for key in ("name", "config", "fitted"))
        if not (
            record.keys() == {"name", "config", "distribution", "fitted"}
            and isinstance(name, str)
            and isinstance(config, dict)
            and all(isinstance(key, str) for key in config)
            and isinstance(fitted, bytes | None)
        ):
            raise DamagedError(f"encoder: fields are missing or of a wrong type; {REMEDY}")
        try:
            encoder = make_encoder(name, **config) if fitted is None else from_bytes(fitted)
        except UnknownEncoderError as error:
            raise UnknownEncoderError(f"{error}{install_hint(record)}") from None
        except (LsqIndexError, TypeError) as error:  # TypeError: a parameter that no constructor takes
            raise DamagedError(f"encoder: {error}; {REMEDY}") from error
        same = encoder.name == name and msgpack.packb(encoder.config) == msgpack.packb(config)
        if not same or (encoder.is_fitted and encoder.dim != dim):
            raise DamagedError(f"encoder: is not for {dim} dimensions, or not as the file says; {REMEDY}")
        return cls(encoder, dim, metric)


def check_known(value: Any) -> None:
    """UnknownEncoderError if the encoder of a stored record is not installed here."""
    record = meta.unpack(value, "encoder")
    try:
        registry.check_known(str(record.get("name")))
    except UnknownEncoderError as error:
        raise UnknownEncoderError(f"{error}{install_hint(record)}") from None


def check_fits(coder: Coder, code_size: int, head: int) -> None:
    """DamagedError where stored codes are not of this coder's size."""
    if (coder.code_size, coder.layout.floats) != (code_size, head == 0):
        raise DamagedError(f"encoder: makes codes of {coder.code_size} bytes, and {code_size} are stored; {REMEDY}")


def install_hint(record: dict[str, Any]) -> str:
    """What to install, if the record tells."""
    distribution = record.get("distribution")
    if isinstance(distribution, list) and len(distribution) == 2 and distribution[0]:
        return f" It was written with {distribution[0]} {distribution[1]}: pip install {distribution[0]}"
    return ""


def unit(vectors: Vectors) -> Vectors:
    """Vectors of length 1; those of length 0 as they are."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


class Prepared:
    """Rows of any array as an encoder sees them, converted when they are read: for ``fit``.

    Under cosine vectors of zeros have nothing to teach, and would bend what is learned towards them: each is replaced
    by another row of those read with it.
    """

    def __init__(self, rows: Any, coder: Coder) -> None:
        self.shape, self.dtype = tuple(rows.shape), np.dtype(np.float32)
        self._rows, self._coder = rows, coder

    def __getitem__(self, where: Any) -> Vectors:
        with np.errstate(over="ignore"):  # what becomes inf here is refused by the encoder's own door
            block = np.ascontiguousarray(self._rows[where], np.float32)
        if not np.isfinite(block).all():
            return block
        if self._coder.metric == "cosine":
            there = block.any(axis=1)
            if there.any() and not there.all():
                block = block[np.where(there, np.arange(len(block)), np.resize(np.flatnonzero(there), len(block)))]
        return self._coder.prepare(block)
