"""Every built-in encoder keeps the contract of ``lsqindex.testing``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from lsqindex import Encoder, make_encoder, reference
from lsqindex.encoders.base import METRICS
from lsqindex.encoders.layout import Layout
from lsqindex.errors import ParameterError
from lsqindex.testing import EncoderConformance, clustered_vectors, true_distances
from lsqindex.vectors import Vectors

DIGITS: Vectors = load_digits().data.astype(np.float32)


class TestLsq(EncoderConformance):
    """The defaults: 256 bits, more than there are dimensions."""

    dim = 32
    # Many weak bits count as much as the strong ones in a Hamming distance.
    min_symmetric_correlation = 0.15

    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", iterations=6)


class TestLsqOnDigits(EncoderConformance):
    """Columns that never change, whole numbers, many ties."""

    @property
    def vectors(self) -> Vectors:
        return DIGITS[:900]

    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64)


class TestLsqThreeLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=48, levels=3)


class TestLsqFourLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64, levels=4)


class TestLsqSixteenLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64, levels=16)


class TestLsqPublishedBinary(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=24, refine=0)


class TestLsqPublishedSixteenLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", m=20, refine=0, levels=16)


class TestLsqWithoutScalar(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=48, scalar=None)


class TestLsqWithNorm(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=48, scalar="norm", scalar_bits=6)


class TestItq(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("itq", bits=24)


class TestItqOnDigits(EncoderConformance):
    """As many bits as dimensions, fewer directions than bits."""

    @property
    def vectors(self) -> Vectors:
        return DIGITS[:900]

    def make_encoder(self) -> Encoder:
        return make_encoder("itq", bits=64)


class TestOkmeans(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("okmeans", bits=20)


class TestCkmeans(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("ckmeans", bits=24, field_bits=4, rotations=10)


class TestPqNibbles(EncoderConformance):
    """25 dimensions in 8 parts."""

    dim = 25

    def make_encoder(self) -> Encoder:
        return make_encoder("pq", bits=32, field_bits=4)


class TestPqBytes(EncoderConformance):
    """25 dimensions in 3 parts."""

    dim = 25

    def make_encoder(self) -> Encoder:
        return make_encoder("pq", bits=24, field_bits=8)


class TestKmeans(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("kmeans", bits=6)


class TestLsh(EncoderConformance):
    """More bits than dimensions, and no multiple of them."""

    def make_encoder(self) -> Encoder:
        return make_encoder("lsh", bits=100)


class TestFlat(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("flat")


# -- tables are the distances they are said to be ---------------------------------------------------

#: Encoders whose sums of look-ups are the distance to the reconstruction; of lsq only the inner product is.
RECONSTRUCTED: dict[str, tuple[str, dict[str, Any]]] = {
    "itq": ("itq", {"bits": 24}),
    "okmeans, fewer bits": ("okmeans", {"bits": 13}),
    "lsh, fewer bits": ("lsh", {"bits": 9}),
    "pq": ("pq", {"bits": 24, "field_bits": 3}),
    "pq, parts of two lengths": ("pq", {"bits": 28, "field_bits": 4}),
    "pq, parts of two and one": ("pq", {"bits": 34, "field_bits": 2}),
    "ckmeans": ("ckmeans", {"bits": 20, "field_bits": 4, "rotations": 3}),
    "kmeans": ("kmeans", {"bits": 5}),
}
LINEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 64, "iterations": 2}),
    "lsq, three levels": ("lsq", {"bits": 48, "levels": 3, "iterations": 2}),
    "lsq, no scalar": ("lsq", {"bits": 48, "scalar": None, "iterations": 2}),
    "lsq, published": ("lsq", {"bits": 24, "refine": 0, "iterations": 2}),
    "lsh, more bits": ("lsh", {"bits": 60}),
}
ALL = {**RECONSTRUCTED, **LINEAR}


@cache
def fitted(case: str, away: float = 0.0) -> tuple[Encoder, Vectors]:
    name, parameters = ALL[case]
    vectors = clustered_vectors(24) + np.float32(away)
    return make_encoder(name, **parameters).fit(vectors), vectors


def sums(encoder: Encoder, rows: Vectors, queries: Vectors, metric: Any, distance: Any = "asymmetric") -> Any:
    return reference.distances(encoder.encode(rows), encoder.layout, encoder.tables(queries, metric, distance))


@pytest.mark.parametrize(
    ("case", "away"),
    # pq and kmeans have no mean of their own, so nothing to subtract before it hurts.
    [(case, 0.0) for case in RECONSTRUCTED]
    + [(case, 300.0) for case in RECONSTRUCTED if not case.startswith(("pq", "kmeans"))],
)
def test_l2_tables_sum_to_the_distance_to_the_reconstruction(case: str, away: float) -> None:
    """Also where the mean is far from zero, and differences of large numbers would be noise."""
    encoder, vectors = fitted(case, away)
    rows, queries = vectors[:200], vectors[200:220]
    exact = true_distances(queries, encoder.decode(encoder.encode(rows)), "l2")
    assert np.allclose(sums(encoder, rows, queries, "l2"), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("distance", ["asymmetric", "symmetric"])
@pytest.mark.parametrize("case", ALL)
def test_ip_tables_sum_to_the_inner_product_with_the_reconstruction(case: str, distance: str) -> None:
    encoder, vectors = fitted(case)
    rows, queries = vectors[:200], vectors[200:220]
    asked = encoder.decode(encoder.encode(queries)) if distance == "symmetric" else queries
    exact = true_distances(asked, encoder.decode(encoder.encode(rows)), "ip")
    assert np.allclose(sums(encoder, rows, queries, "ip", distance), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ALL)
def test_cosine_tables_are_half_of_those_of_l2_for_the_unit_query(case: str) -> None:
    encoder, vectors = fitted(case)
    unit = vectors[:20] / np.linalg.norm(vectors[:20], axis=1, keepdims=True)
    for distance in encoder.distances("cosine"):
        half, whole = encoder.tables(vectors[:20], "cosine", distance), encoder.tables(unit, "l2", distance)
        assert np.allclose(2 * half.values, whole.values, rtol=1e-4, atol=1e-4)
        assert np.allclose(2 * half.bias, whole.bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e-12, 1e12])
@pytest.mark.parametrize("case", ["lsq", "itq", "pq"])
def test_the_length_of_a_query_is_nothing_to_cosine(case: str, scale: float) -> None:
    encoder, vectors = fitted(case)
    for distance in encoder.distances("cosine"):
        once = encoder.tables(vectors[:20], "cosine", distance)
        scaled = encoder.tables(vectors[:20] * np.float32(scale), "cosine", distance)
        assert np.allclose(once.values, scaled.values, rtol=1e-3, atol=1e-4)
        assert np.allclose(once.bias, scaled.bias, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("case", ALL)
def test_a_query_of_zeros_has_finite_tables(case: str) -> None:
    encoder, _ = fitted(case)
    for metric in METRICS:
        for distance in encoder.distances(metric):
            tables = encoder.tables(np.zeros((2, 24), np.float32), metric, distance)
            assert np.isfinite(tables.values).all()
            assert np.isfinite(tables.bias).all()


@pytest.mark.parametrize("case", ALL)
def test_the_inner_door_gives_the_same_tables(case: str) -> None:
    encoder, vectors = fitted(case)
    queries = np.ascontiguousarray(vectors[:7])
    for metric in METRICS:
        for distance in encoder.distances(metric):
            outer = encoder.tables(queries.tolist(), metric, distance)
            inner = encoder._checked_tables(queries, metric, distance)
            assert np.array_equal(inner.values, outer.values)
            assert np.array_equal(inner.bias, outer.bias)
            assert np.array_equal(queries, vectors[:7]), "queries are the caller's"


@pytest.mark.parametrize(
    ("head", "margins", "linear"),
    [
        (4, (1.0, 2.0, 3.0), True),
        (5, (1.0, 2.0, 3.0), True),
        (-1, (1.0, 2.0, 3.0), True),
        (0, (1.0, 2.0, 3.0), True),
        (2, (), True),
        (2, (1.0, 2.0), True),
        (2, (1.0, 2.0, float("nan")), True),
        (2, (1.0, 2.0, 3.0), False),
    ],
)
def test_a_layout_with_an_impossible_head_is_refused(head: int, margins: tuple[float, ...], linear: bool) -> None:
    bits = (1,) * 32
    assert Layout(bits, (2,) * 32, linear=True, head=2, margins=(1.0, 2.0, 3.0)).head == 2
    with pytest.raises(ParameterError, match="head"):
        Layout(bits, (2,) * 32, linear=linear, head=head, margins=margins)
