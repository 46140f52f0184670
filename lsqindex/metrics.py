"""The metrics: how far two vectors are from each other. Smaller is nearer in every one.

A metric is one object, and nothing else in the package lists them. Whatever depends on the metric asks this object; it
is known by its name everywhere else (in files, in ``Index(metric=…)``, in the methods of an encoder).

    name     distance                  look-up tables of an encoder estimate
    l2       ‖q − x‖², squared          the same
    cosine   1 − cos(q, x)              half of l2, of vectors of length 1
    ip       −q·x                      the same

An encoder knows two distances only, ``l2`` and ``ip`` (:attr:`Metric.base`). The kernels (``cython_src/exact.h``) know
each metric by its number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import ParameterError, shown

#: What a metric may be called.
MetricName = Literal["l2", "cosine", "ip"]
#: The two distances that an encoder knows.
Base = Literal["l2", "ip"]

#: float32 rows, wider for the type checker; see ``lsqindex._inputs.vectors``.
_Vectors = NDArray[np.floating[Any]]


class Metric(ABC):
    """How far two vectors are from each other."""

    name: ClassVar[MetricName]
    #: The number by which the kernels know it (``cython_src/exact.h``).
    number: ClassVar[int]
    #: Which distance the tables of an encoder are made for, and what to multiply them by.
    base: ClassVar[Base]
    share: ClassVar[float] = 1.0
    #: Whether only the direction of a vector counts. A vector of zeros then has none: it is at distance 1 from all.
    unit: ClassVar[bool] = False
    #: No distance is less. An estimate, or a sum in floats, may be a little below and is returned as this.
    least: ClassVar[float] = 0.0

    def prepare(self, vectors: _Vectors) -> _Vectors:
        """Stored vectors as an encoder sees them."""
        return vectors

    def lift(self, queries: _Vectors) -> _Vectors:
        """Queries as they are searched for: equal ones, whose products with others float32 can hold."""
        return queries

    @abstractmethod
    def distances(self, query: _Vectors, vectors: _Vectors) -> NDArray[np.float64]:
        """The distance of one query, shape (dim,), from each of ``vectors``, shape (n, dim), in float64."""

    @abstractmethod
    def pairs(self, queries: _Vectors, vectors: _Vectors) -> NDArray[Any]:
        """All distances at once, shape (nq, n), by one matrix product: as precise as their dtype allows."""

    @abstractmethod
    def similarities(self, distances: NDArray[np.float32]) -> NDArray[np.float32]:
        """Distances as programs want them for which larger is nearer."""

    def relevance(self, distance: float) -> float:
        """The cosine of two vectors of length 1 at that distance, between 0 and 1."""
        cosine = 1 - distance / (2 * self.share) if self.base == "l2" else -distance / self.share
        return min(max(cosine, 0.0), 1.0)

    def clamp(self, distances: NDArray[np.float32]) -> NDArray[np.float32]:
        """Distances of an answer, none below the least; in place."""
        if self.least > -np.inf:
            np.maximum(distances, np.float32(self.least), out=distances)
        return distances


class L2(Metric):
    """The squared Euclidean distance."""

    name, number, base = "l2", 0, "l2"

    def distances(self, query: _Vectors, vectors: _Vectors) -> NDArray[np.float64]:
        """‖q − x‖² of each.

        >>> METRICS["l2"].distances(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 2.0]]))
        array([0., 5.])
        """
        difference = np.asarray(vectors, np.float64) - np.asarray(query, np.float64)
        return _squares(difference)

    def pairs(self, queries: _Vectors, vectors: _Vectors) -> NDArray[Any]:
        """‖q‖² − 2 q·x + ‖x‖²."""
        pairs: NDArray[Any] = queries @ vectors.T
        pairs *= -2
        pairs += _squares(queries)[:, None]
        pairs += _squares(vectors)
        return pairs

    def similarities(self, distances: NDArray[np.float32]) -> NDArray[np.float32]:
        """Minus the squared distance."""
        return -distances


class Cosine(Metric):
    """One minus the cosine of the angle."""

    name, number, base, share, unit = "cosine", 2, "l2", 0.5, True

    def prepare(self, vectors: _Vectors) -> _Vectors:
        """Of length 1, zeros excepted. For such vectors ‖q − x‖² = 2 (1 − cos)."""
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
        return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)

    def lift(self, queries: _Vectors) -> _Vectors:
        """Short queries are made longer, which changes no cosine."""
        small = _squares(queries) < _SMALL
        return queries * np.where(small, _LIFT, np.float32(1))[:, None] if small.any() else queries

    def distances(self, query: _Vectors, vectors: _Vectors) -> NDArray[np.float64]:
        """1 − q·x / (‖q‖ ‖x‖), and 1 where a length is 0.

        >>> METRICS["cosine"].distances(np.array([3.0, 0.0]), np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
        array([0., 1., 1.])
        """
        one, rows = np.asarray(query, np.float64), np.asarray(vectors, np.float64)
        norms = np.sqrt(_squares(rows) * (one @ one))
        products: NDArray[np.float64] = np.einsum("ij,j->i", rows, one)
        return 1 - np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)

    def pairs(self, queries: _Vectors, vectors: _Vectors) -> NDArray[Any]:
        """1 − q·x / (‖q‖ ‖x‖), and 1 where a length is 0."""
        norms = np.sqrt(_squares(queries)[:, None] * _squares(vectors))
        products: NDArray[Any] = queries @ vectors.T
        pairs: NDArray[Any] = 1 - np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
        return pairs

    def similarities(self, distances: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine."""
        return 1 - distances


class InnerProduct(Metric):
    """Minus the inner product."""

    name, number, base, least = "ip", 1, "ip", -np.inf

    def distances(self, query: _Vectors, vectors: _Vectors) -> NDArray[np.float64]:
        """−q·x of each.

        >>> METRICS["ip"].distances(np.array([3.0, 1.0]), np.array([[1.0, 0.0], [0.0, 2.0]]))
        array([-3., -2.])
        """
        products: NDArray[np.float64] = np.einsum("ij,j->i", np.asarray(vectors, np.float64), np.asarray(query, float))
        return -products

    def pairs(self, queries: _Vectors, vectors: _Vectors) -> NDArray[Any]:
        """−q·x."""
        pairs: NDArray[Any] = queries @ vectors.T
        np.negative(pairs, out=pairs)
        return pairs

    def similarities(self, distances: NDArray[np.float32]) -> NDArray[np.float32]:
        """The inner product."""
        return -distances


#: Every metric, by its name; and these names.
METRICS: dict[str, Metric] = {metric.name: metric for metric in (L2(), Cosine(), InnerProduct())}
NAMES: tuple[MetricName, ...] = tuple(metric.name for metric in METRICS.values())


def check_metric(name: Any) -> None:
    """ParameterError unless there is a metric of this name; it may be any object, an array for example."""
    if not isinstance(name, str) or name not in METRICS:
        raise ParameterError(f"metric={shown(name)}: one of {', '.join(METRICS)} is needed")


#: Under cosine, a query whose squares add up to less than the first is multiplied by the second: products with such
#: small numbers are too small for float32.
_SMALL, _LIFT = 2.0**-80, np.float32(2.0**100)


def _squares(vectors: _Vectors) -> NDArray[Any]:
    squares: NDArray[Any] = np.einsum("ij,ij->i", vectors, vectors)
    return squares
