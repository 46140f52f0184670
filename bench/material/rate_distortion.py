"""How far from the vectors a code must be at least, and how far it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .data import Vectors

_BLOCK = 8192


def gaussian_bound(vectors: Vectors, bits: int) -> float:
    """The least relative distortion of ``bits`` a vector, if the vectors were Gaussian."""
    return water_filling(np.linalg.eigvalsh(_scatter(vectors)), bits)


def water_filling(variances: NDArray[np.floating[Any]], bits: float) -> float:
    """Reverse water-filling: least distortion / total variance of independent Gaussians.

    Variances above the water level w cost log2(variance / w) / 2 bits each and leave w; the
    others are not coded and leave all they have.

    >>> water_filling(np.array([1.0, 1.0]), 2)  # one bit each: a quarter is left
    0.25
    """
    variances = np.sort(variances[variances > variances.max() * 1e-15])[::-1]
    logs = np.log2(variances)
    count = np.arange(1, len(logs) + 1)
    levels = (np.cumsum(logs) - 2 * bits) / count  # log2 of the water level if the first `count` are coded
    level = 2.0 ** levels[int((logs > levels).sum()) - 1]
    return float(np.minimum(variances, level).sum() / variances.sum())


def relative_error(vectors: Vectors, decoded: Vectors) -> float:
    """Squared error of ``decoded``, relative to that of the mean."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    error = spread = 0.0
    for first in range(0, len(vectors), _BLOCK):
        block = vectors[first : first + _BLOCK].astype(np.float64)
        error += float(np.square(block - decoded[first : first + _BLOCK]).sum())
        spread += float(np.square(block - mean).sum())
    return error / spread


def _scatter(vectors: Vectors) -> NDArray[np.float64]:
    mean = vectors.mean(axis=0, dtype=np.float64)
    total = np.zeros((vectors.shape[1], vectors.shape[1]))
    for first in range(0, len(vectors), _BLOCK):
        block = vectors[first : first + _BLOCK].astype(np.float64) - mean
        total += block.T @ block
    return total
