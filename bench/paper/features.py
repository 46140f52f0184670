"""Codes as feature vectors (sections 2.2.2 and 4.5): a linear SVM on them, and distances between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..material.data import Dataset, Vectors

Features = Callable[[Vectors], NDArray[Any]]

#: How many queries and base vectors distances are compared between.
_PAIRS = (200, 2000)


def accuracy(features: Features, data: Dataset, size: int, seed: int) -> float:
    """The share of vectors not learned from that a linear SVM on their features tells the class of."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    assert data.labels is not None and data.learn_labels is not None
    rng = np.random.default_rng(seed)
    learn, test = (_some(rows, size, rng) for rows in (np.arange(len(data.learn)), data.unseen))
    machine = make_pipeline(StandardScaler(), LinearSVC(dual=False, tol=1e-2))
    machine.fit(features(data.learn[learn]), data.learn_labels[learn])
    return float(machine.score(features(data.base[test]), data.labels[test]))


def correlation(features: Features, data: Dataset, seed: int) -> float:
    """Of Euclidean distances between features with those between the vectors, queries to base."""
    rng = np.random.default_rng(seed)
    queries = data.queries[: _PAIRS[0]]
    base = data.base[_some(np.arange(len(data.base)), _PAIRS[1], rng)]
    return float(np.corrcoef(_distances(queries, base), _distances(features(queries), features(base)))[0, 1])


def _some(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.choice(rows, min(size, len(rows)), replace=False))


def _distances(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    a, b = left.astype(np.float64), right.astype(np.float64)
    squared = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squared, 0)).ravel(), np.float64)
