"""Signs of principal components: a whole encoder plugin, as small as they come."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lsqindex.encoders import Encoder, Layout, Tables
from lsqindex.encoders.base import Config, Fields, Progress, State, StateReader, check_int
from lsqindex.errors import ParameterError
from lsqindex.vectors import Vectors


class SignPCA(Encoder):
    """One bit per principal axis: on which side of the mean a vector lies."""

    def __init__(self, bits: int = 16) -> None:
        self.bits = check_int("bits", bits, 1, 4096)

    @property
    def config(self) -> Config:
        """The constructor's arguments."""
        return {"bits": self.bits}

    def _make_layout(self, dim: int) -> Layout:
        if self.bits > dim:
            raise ParameterError(f"sign-pca has one bit per dimension: {self.bits} > {dim}")
        return Layout.uniform(2, self.bits, linear=True)

    def _fit(self, sample: Vectors, progress: Progress) -> None:
        self._mean = sample.mean(axis=0)
        centred = (sample - self._mean).astype(np.float64)
        axes = np.linalg.svd(centred, full_matrices=False)[2]
        axes = np.concatenate([axes, np.zeros((max(0, self.bits - len(axes)), sample.shape[1]))])[: self.bits]
        self._axes = axes.astype(np.float32)
        self._sizes = np.abs(centred @ axes.T).mean(axis=0).astype(np.float32)
        progress(1, 1, float("nan"))

    def _state(self) -> State:
        return {"mean": self._mean, "axes": self._axes, "sizes": self._sizes}

    def _restore(self, state: StateReader) -> None:
        dim = self.dim or 0
        self._mean = state.array("mean", (dim,))
        self._axes = state.array("axes", (self.bits, dim))
        self._sizes = state.array("sizes", (self.bits,))

    def _encode(self, block: Vectors) -> Fields:
        # einsum sums every row in the same order, whatever the batch: see the conformance tests.
        return (np.einsum("ij,kj->ik", block - self._mean, self._axes) >= 0).astype(np.uint16)

    def _decode(self, fields: Fields) -> Vectors:
        return (self._mean + (self._embed(fields) * self._sizes) @ self._axes).astype(np.float32)

    def _embed(self, fields: Fields) -> Vectors:
        return 2 * fields.astype(np.float32) - 1

    def _tables(self, queries: Vectors, metric: Literal["l2", "ip"], symmetric: bool) -> Tables:
        if symmetric:
            queries = self._decode(self._encode(queries))
        if metric == "ip":
            inner, bias = -(queries @ self._axes.T) * self._sizes, -(queries @ self._mean)
        else:
            centred = queries - self._mean
            inner = -2 * (centred @ self._axes.T) * self._sizes
            bias = np.square(centred).sum(axis=1) + np.square(self._sizes).sum()
        width = int(self.layout.starts[-1])
        return Tables(np.stack([-inner, inner], axis=2).reshape(len(queries), width), bias)
