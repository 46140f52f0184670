"""Product Quantization: the dimensions cut into parts, each coded by its nearest centre (section 2.1)."""

from __future__ import annotations

import numpy as np

from .._inputs.vectors import Vectors
from ..errors import ParameterError
from ..metrics import Base
from .base import Config, Encoder, Fields, Progress, State, StateReader, check_int
from .clustering import Codebooks, kmeans
from .layout import Layout, Tables
from .registry import register_encoder


@register_encoder("pq")
class PQ(Encoder):
    """Product Quantization (Jégou et al.).

    Parameters
    ----------
    bits
        Bits of a code; ``bits // field_bits`` parts.
    field_bits
        Bits of each part: 2 ** field_bits centres.
    iterations, seed
        Rounds of k-means in each part; the seed.

    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((1000, 10))
    >>> PQ(bits=16, field_bits=4).fit(vectors).encode(vectors[:3]).shape
    (3, 2)
    """

    def __init__(self, bits: int = 256, *, field_bits: int = 8, iterations: int = 25, seed: int = 0) -> None:
        self.field_bits = check_int("field_bits", field_bits, 1, 12)
        self.bits = check_int("bits", bits, 1, 1 << 16)
        if self.bits < self.field_bits:
            raise ParameterError(f"bits={bits}: a part needs {field_bits} bits; use more bits or a smaller field_bits")
        self.iterations = check_int("iterations", iterations, 1, 10_000)
        self.seed = check_int("seed", seed, 0, 2**63 - 1)

    @property
    def m(self) -> int:
        """Parts of a code."""
        return self.bits // self.field_bits

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {"bits": self.bits, "field_bits": self.field_bits, "iterations": self.iterations, "seed": self.seed}

    def _min_vectors(self) -> tuple[int, str]:
        return 1 << self.field_bits, "pass more vectors or use a smaller field_bits"

    def _make_layout(self, dim: int) -> Layout:
        if self.m > dim:
            raise ParameterError(
                f"bits={self.bits} with field_bits={self.field_bits} makes {self.m} parts of {dim} dimensions; "
                f"use bits={dim * self.field_bits} or less, or a larger field_bits"
            )
        return Layout.uniform(1 << self.field_bits, self.m)

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        self._codebooks = Codebooks(sample.shape[1], self.m, 1 << self.field_bits)
        for j, part in enumerate(self._codebooks.parts):
            vectors = np.ascontiguousarray(sample[:, part])
            self._codebooks.books[j] = kmeans(vectors, 1 << self.field_bits, self.iterations, rng)
            progress(j + 1, self.m, float("nan"))

    def _state(self) -> State:
        return {"centres": self._codebooks.flat()}

    def _restore(self, state: StateReader) -> None:
        self._codebooks = Codebooks(self.dim or 0, self.m, 1 << self.field_bits)
        self._codebooks.restore(state)

    def _encode(self, block: Vectors) -> Fields:
        return self._codebooks.encode(block)

    def _decode(self, fields: Fields) -> Vectors:
        return self._codebooks.decode(fields)

    def _embed(self, fields: Fields) -> Vectors:
        return self._codebooks.embed(fields)

    def _tables(self, queries: Vectors, metric: Base, symmetric: bool) -> Tables:
        if symmetric:
            queries = self._decode(self._encode(queries))
        return self._codebooks.tables(queries, metric)
