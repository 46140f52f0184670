"""No compression: the code is the vector. The exact baseline, and the state before training."""

from __future__ import annotations

import numpy as np

from .._inputs.vectors import Vectors
from ..errors import CodeError
from ..metrics import Base
from .base import Config, Encoder, Fields, Progress, State, StateReader
from .layout import Layout, Tables
from .registry import register_encoder


@register_encoder("flat")
class Flat(Encoder):
    """Vectors as they are, float32; distances are exact.

    >>> import numpy as np
    >>> vectors = np.eye(3, dtype=np.float32)
    >>> flat = Flat().fit(vectors)
    >>> bool((flat.decode(flat.encode(vectors)) == vectors).all()), flat.code_size
    (True, 12)
    """

    @property
    def config(self) -> Config:
        """No arguments."""
        return {}

    def _min_vectors(self) -> tuple[int, str]:
        return 0, ""

    def _sample_size(self) -> int:
        return 1

    def _make_layout(self, dim: int) -> Layout:
        return Layout.of_floats(dim)

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        progress(1, 1, 0.0)

    def _state(self) -> State:
        return {}

    def _restore(self, state: StateReader) -> None:
        pass

    @property
    def embed_dim(self) -> int:
        """The feature vector is the vector."""
        return self._fitted_dim()

    def _encode(self, block: Vectors) -> Fields:
        return np.ascontiguousarray(block, "<f4").view("<u2").astype(np.uint16)

    def _decode(self, fields: Fields) -> Vectors:
        vectors = fields.astype("<u2").view("<f4").astype(np.float32)
        if not np.isfinite(vectors).all():
            raise CodeError("codes: NaN or infinite numbers; this encoder did not make these codes")
        return vectors

    def _embed(self, fields: Fields) -> Vectors:
        return self._decode(fields)

    def _tables(self, queries: Vectors, metric: Base, symmetric: bool) -> Tables:
        del metric, symmetric
        return Tables(queries, np.zeros(len(queries), np.float32))
