"""What the binary encoders share: bits are signs of orthogonal-ish projections, each bit has a size.

    h = sign(R (x − mean)),   x ≈ mean + Rᵀ (size · h)

``itq``, ``okmeans`` and ``lsh`` differ only in how R and the sizes are found. The asymmetric
distance is Σ_j (r_j·(q − mean) − size_j·h_j)² / blocks: for orthonormal rows the squared distance to the
reconstruction within their span, and linear in the bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from .._inputs.vectors import Vectors
from .._threads.cached import cached_property
from ..errors import ParameterError
from ..metrics import Base
from .base import Config, Fields, Metric, Progress, State, StateReader, check_int
from .layout import Layout, Tables
from .linalg import Float32, Packed, mean_of, principal_axes, product
from .linear import LinearEncoder
from .linear_tables import LinearTables
from .probe_tables import ProbeTables


class BinaryEncoder(LinearEncoder):
    """The base of ``itq``, ``okmeans`` and ``lsh``."""

    def __init__(self, bits: int = 256, *, seed: int = 0) -> None:
        self.bits = check_int("bits", bits, 1, 1 << 16)
        self.seed = check_int("seed", seed, 0, 2**63 - 1)

    #: Whether there may be more bits than dimensions.
    _may_exceed_dim = False

    def _make_layout(self, dim: int) -> Layout:
        if self.bits > dim and not self._may_exceed_dim:
            raise ParameterError(
                f"{self.name} has at most one bit per dimension: bits={self.bits} for {dim} dimensions; "
                f"use bits={dim} or less, or an encoder without that limit (lsq, lsh)"
            )
        return Layout.uniform(2, self.bits, linear=True)

    def _set(self, mean: Float32, rotation: Float32, sizes: Float32) -> None:
        """``rotation``: bits × dim, in blocks of orthonormal rows."""
        self._mean, self._rotation, self._sizes = mean, rotation, sizes

    @property
    def _blocks(self) -> float:
        """How often the rows span the space they are in: above 1 with more bits than dimensions."""
        return max(1.0, self.bits / (self.dim or 1))

    def _state(self) -> State:
        return {"mean": self._mean, "rotation": self._rotation, "sizes": self._sizes}

    def _restore(self, state: StateReader) -> None:
        dim = self.dim or 0
        rotation, sizes = state.array("rotation", (self.bits, dim)), state.array("sizes", (self.bits,))
        self._set(state.array("mean", (dim,)), rotation, sizes)

    @cached_property
    def _to_bits(self) -> Packed:
        return Packed(self._rotation)

    def _encode(self, block: Vectors) -> Fields:
        return (product(block - self._mean, self._to_bits) >= 0).astype(np.uint16)

    def _decode(self, fields: Fields) -> Vectors:
        sizes = self._sizes / np.float32(self._blocks)
        return self._mean + product(self._embed(fields) * sizes, self._rotation.T)

    def _embed(self, fields: Fields) -> Vectors:
        return 2 * fields.astype(np.float32) - 1

    def _tables(self, queries: Vectors, metric: Base, symmetric: bool) -> Tables:
        if symmetric and metric == "l2":
            # As `_encode`, by one product: a bit that rounding decides may differ, and a query does not wait for it.
            values = np.empty((len(queries), 2 * self.bits), np.float32)
            values[:, ::2] = (queries - self._mean) @ self._rotation.T >= 0  # Hamming
            np.subtract(1, values[:, ::2], out=values[:, 1::2])
            return Tables(values, np.zeros(len(queries), np.float32))
        return self._linear.of(self._decode(self._encode(queries)) if symmetric else queries, metric)

    def _probe_tables(self, queries: Vectors, metric: Metric) -> Tables:
        return self._probes.of(queries, metric)

    @cached_property
    def _probes(self) -> ProbeTables:
        """By the distance to the planes themselves: sizes would prefer bits of weak directions, and find less."""
        return ProbeTables(self._mean, self._rotation, np.ones(self.bits, np.float32), 2)

    @cached_property
    def _linear(self) -> LinearTables:
        sizes = self._sizes / np.float32(self._blocks)
        return LinearTables(self._mean, sizes[:, None] * self._rotation, 2, constant=float(sizes @ self._sizes))


class RotationEncoder(BinaryEncoder):
    """The base of ``itq`` and ``okmeans``: the rotation is learned in rounds."""

    #: Relative reconstruction error on the training sample after each round.
    history_: list[float]

    def __init__(self, bits: int = 256, *, iterations: int = 50, seed: int = 0) -> None:
        super().__init__(bits, seed=seed)
        self.iterations = check_int("iterations", iterations, 1, 10_000)

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {"bits": self.bits, "iterations": self.iterations, "seed": self.seed}

    @abstractmethod
    def _learn_rotation(
        self, centred: Vectors, axes: Float32, rng: np.random.Generator, report: Callable[[float], None]
    ) -> Float32:
        """The rotation, bits × dim, from the first principal axes; ``report`` the variance kept by each round."""

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        mean = mean_of(sample)
        centred = sample - mean
        energy = float(np.square(centred, dtype=np.float64).sum()) / len(sample)
        _, axes = principal_axes(centred)
        # Fewer directions than bits: the other bits share them.
        missing = np.zeros((max(0, self.bits - len(axes)), axes.shape[1]), np.float32)
        self.history_ = []

        def report(kept: float) -> None:
            self.history_.append(max(0.0, 1 - kept / energy) if energy else 0.0)
            progress(len(self.history_), self.iterations, self.history_[-1])

        axes = np.concatenate([axes, missing])[: self.bits]
        rotation = self._learn_rotation(centred, axes, np.random.default_rng(self.seed), report)
        self._set(mean, rotation, mean_sizes(product(centred, rotation)))

    def _restore(self, state: StateReader) -> None:
        super()._restore(state)
        self.history_ = []


def mean_sizes(rotated: Vectors) -> Float32:
    """The size of each bit that fits best: the mean of what it stands for, without signs."""
    sizes: Float32 = np.abs(rotated).mean(axis=0, dtype=np.float64).astype(np.float32)
    return sizes
