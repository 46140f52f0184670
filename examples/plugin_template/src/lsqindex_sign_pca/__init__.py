"""Signs of principal components: a whole encoder plugin, as small as they come.

    x  ──fit──▶  mean μ, principal axes A (a row each), and how far vectors lie along them, s
    bit j of x's code     =  whether x lies beyond the mean along axis j
    reconstruction of it  =  μ + Σ_j ±s_j A_j

Input is checked before it comes here, and output is packed, stored and searched by lsqindex.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from lsqindex._inputs.vectors import Vectors
from lsqindex.encoders import Encoder, Layout, Tables
from lsqindex.encoders.base import Config, Fields, Progress, State, StateReader, check_int
from lsqindex.errors import ParameterError

__all__ = ["SignPCA"]


class SignPCA(Encoder):
    """One bit per principal axis: on which side of the mean a vector lies.

    ``bits`` is the number of axes, and at most the number of dimensions.

    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> encoder = SignPCA(bits=16).fit(vectors)
    >>> encoder.encode(vectors).shape
    (500, 2)
    """

    #: To be raised when the arrays of ``_state`` change their meaning.
    version = 1

    def __init__(self, bits: int = 16) -> None:
        self.bits = check_int("bits", bits, 1, 4096)

    # -- what it is -----------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The constructor's arguments: plain values, from which the encoder can be made again."""
        return {"bits": self.bits}

    def _make_layout(self, dim: int) -> Layout:
        """``bits`` fields of two values. A distance is linear in them, so the scan may cut them anywhere."""
        if self.bits > dim:
            raise ParameterError(f"sign-pca has one bit per dimension at most: bits={self.bits} > {dim}")
        return Layout.uniform(2, self.bits, linear=True)

    # -- what it learns -------------------------------------------------------------------------

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        """Find the mean, the axes along which vectors differ most, and how far from the mean they lie along these."""
        self._mean = sample.mean(axis=0)
        centred = (sample - self._mean).astype(np.float64)
        found = np.linalg.svd(centred, full_matrices=False)[2][: self.bits]
        # Fewer vectors than bits have fewer axes: the others are zero, and cost nothing.
        axes = np.zeros((self.bits, sample.shape[1]))
        axes[: len(found)] = found
        self._axes = axes.astype(np.float32)
        self._sizes = np.abs(centred @ axes.T).mean(axis=0).astype(np.float32)
        progress(1, 1, float("nan"))  # one step of one; it has no error to tell

    def _state(self) -> State:
        """What was learned, as named arrays; an index keeps them in its file."""
        return {"mean": self._mean, "axes": self._axes, "sizes": self._sizes}

    def _restore(self, state: StateReader) -> None:
        """The way back; ``state.array`` refuses what is missing, of another shape or not finite."""
        dim = self.dim or 0
        self._mean = state.array("mean", (dim,))
        self._axes = state.array("axes", (self.bits, dim))
        self._sizes = state.array("sizes", (self.bits,))

    # -- vectors to fields and back -------------------------------------------------------------

    def _encode(self, block: Vectors) -> Fields:
        """Field numbers of each row: here 0 or 1."""
        # A vector must have one code. einsum sums every row in the same order, however many there are; ``@`` does not.
        along: Vectors = np.einsum("ij,kj->ik", block - self._mean, self._axes)
        return (along >= 0).astype(np.uint16)

    def _decode(self, fields: Fields) -> Vectors:
        """The vectors that field numbers stand for."""
        along = (2 * fields.astype(np.float32) - 1) * self._sizes
        decoded: Vectors = (self._mean + along @ self._axes).astype(np.float32)
        return decoded

    # -- distances ------------------------------------------------------------------------------

    def _tables(self, queries: Vectors, metric: Literal["l2", "ip"], symmetric: bool) -> Tables:
        """What each value of each field adds to the distance, and what every row has in common.

        With y = μ + Σ_j h_j s_j A_j, h_j = ±1 and orthonormal axes,

            ‖q − y‖²  =  ‖q − μ‖² + Σ_j s_j²  −  2 Σ_j h_j s_j ⟨A_j, q − μ⟩
            −⟨q, y⟩   =  −⟨q, μ⟩  −  Σ_j h_j s_j ⟨A_j, q⟩
        """
        if symmetric:  # the query's own code instead of the query
            queries = self._decode(self._encode(queries))
        if metric == "ip":
            of_one = -(queries @ self._axes.T) * self._sizes
            bias = -(queries @ self._mean)
        else:
            centred = queries - self._mean
            of_one = -2 * (centred @ self._axes.T) * self._sizes
            bias = np.square(centred).sum(axis=1) + np.square(self._sizes).sum()
        # Two look-ups a field, those of 0 and of 1, field after field.
        values = np.stack([-of_one, of_one], axis=2).reshape(len(queries), 2 * self.bits)
        return Tables(values, bias)
