"""Digits of scikit-learn, and how well they are reconstructed."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from lsqindex import Encoder
from lsqindex._inputs.vectors import Vectors

DIGITS: Vectors = load_digits().data.astype(np.float32)


def relative_error(encoder: Encoder, vectors: Vectors) -> float:
    lost = np.square(vectors - encoder.decode(encoder.encode(vectors)), dtype=np.float64).sum()
    return float(lost / np.square(vectors - vectors.mean(axis=0), dtype=np.float64).sum())
