"""Every built-in encoder keeps the contract of ``lsqindex.testing``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from lsqindex import Encoder, make_encoder
from lsqindex._inputs.vectors import Vectors
from lsqindex.encoders import from_bytes, to_bytes
from lsqindex.encoders.binary import BinaryEncoder
from lsqindex.encoders.layout import Layout
from lsqindex.encoders.lsh import LSH
from lsqindex.encoders.lsq import LSQ
from lsqindex.errors import ParameterError
from lsqindex.metrics import NAMES
from lsqindex.testing import EncoderConformance, clustered_vectors, reference, true_distances

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


class TestLsqWithLengths(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64, scalar="length")


class TestLsqWithLengthsAndLevels(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("lsq", bits=64, levels=4, scalar="length", iterations=4)


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


class TestLshAxes(EncoderConformance):
    """Planes among the first principal axes: as many groups as are needed, of which the last is not whole."""

    def make_encoder(self) -> Encoder:
        return make_encoder("lsh", bits=100, axes=12)


class TestLshOneAxisADimension(EncoderConformance):
    """More axes than there are dimensions, and fewer bits."""

    def make_encoder(self) -> Encoder:
        return make_encoder("lsh", bits=20, axes=1000)


class TestFlat(EncoderConformance):
    def make_encoder(self) -> Encoder:
        return make_encoder("flat")


# -- tables are the distances they are said to be ---------------------------------------------------

#: Encoders whose sums of look-ups are the distance to the reconstruction; of lsq only the inner product is.
RECONSTRUCTED: dict[str, tuple[str, dict[str, Any]]] = {
    "itq": ("itq", {"bits": 24}),
    "okmeans, fewer bits": ("okmeans", {"bits": 13}),
    "lsh, fewer bits": ("lsh", {"bits": 9}),
    "lsh, fewer bits than axes": ("lsh", {"bits": 9, "axes": 12}),
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
    "lsh, more bits than axes": ("lsh", {"bits": 60, "axes": 12}),
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
    for metric in NAMES:
        for distance in encoder.distances(metric):
            tables = encoder.tables(np.zeros((2, 24), np.float32), metric, distance)
            assert np.isfinite(tables.values).all()
            assert np.isfinite(tables.bias).all()


@pytest.mark.parametrize("case", ALL)
def test_the_inner_door_gives_the_same_tables(case: str) -> None:
    encoder, vectors = fitted(case)
    queries = np.ascontiguousarray(vectors[:7])
    for metric in NAMES:
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


# -- probe tables: where to look, and what it costs to look elsewhere --------------------------------

#: Encoders whose fields a linear map tells.
TOLD: dict[str, tuple[str, dict[str, Any]]] = {
    "itq": ("itq", {"bits": 24}),
    "okmeans": ("okmeans", {"bits": 13}),
    "lsh": ("lsh", {"bits": 60}),
    "lsh among axes": ("lsh", {"bits": 60, "axes": 12}),
    "lsq, no scalar": ("lsq", {"bits": 24, "refine": 0, "scalar": None}),
    "lsq, learned scalar": ("lsq", {"bits": 24, "refine": 0, "scalar": "learned"}),
    **{f"lsq, {n} levels": ("lsq", {"m": 20, "refine": 0, "levels": n}) for n in (2, 3, 4, 16, 32, 256)},
}


def told(case: str, metric: Any = "l2") -> tuple[Encoder, Vectors, Any, Any]:
    """Encoder, 300 queries, what each value of each dimension costs, and the fields of the queries' own codes."""
    name, parameters = TOLD[case]
    vectors = clustered_vectors(24) + np.float32(5)
    if metric == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    encoder = make_encoder(name, **parameters).fit(vectors)
    queries, layout = vectors[:300], encoder.layout
    values = encoder.probe_tables(queries * np.float32(7 if metric == "cosine" else 1), metric).values
    costs = values[:, layout.starts[layout.scalars] :].reshape(300, layout.m, -1)
    return encoder, queries, costs, layout.unpack(encoder.encode(queries))[:, layout.scalars :]


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("case", TOLD)
def test_the_smallest_look_up_of_a_probe_table_is_that_of_the_query_s_own_code(case: str, metric: str) -> None:
    """Exactly, but where rounding decides between two: there the others cost next to nothing."""
    _, _, costs, own = told(case, metric)
    least = costs.argmin(axis=2)
    assert (least != own).mean() < 1e-3
    above = np.take_along_axis(costs, own[:, :, None].astype(np.int64), 2)[:, :, 0] - costs.min(axis=2)
    assert above.max() < 1e-5 * np.ptp(costs)


@pytest.mark.parametrize("case", [case for case in TOLD if "levels" in case])
def test_probe_tables_of_published_lsq_are_distances_of_levels_in_the_original_space(case: str) -> None:
    """‖v_j‖² (w_j·x − θ)², less that of the nearest level."""
    encoder, queries, costs, _ = told(case)
    assert isinstance(encoder, LSQ)
    rows = (encoder._rows @ encoder._axes).astype(np.float64)
    estimate = (queries - encoder._mean).astype(np.float64) @ (encoder._start @ encoder._axes).astype(np.float64).T
    theta = -1 + 2 * np.arange(encoder.levels) / (encoder.levels - 1)
    exact = np.square(rows).sum(axis=1)[:, None] * np.square(estimate[:, :, None] - theta)
    costs, exact = (each - each.min(axis=2, keepdims=True) for each in (costs, exact))
    assert np.allclose(costs, exact, rtol=1e-3, atol=1e-5 * exact.max())


@pytest.mark.parametrize("case", ["itq", "okmeans", "lsh", "lsh among axes"])
def test_the_bit_of_least_margin_is_the_cheapest_to_flip(case: str) -> None:
    encoder, queries, costs, _ = told(case)
    assert isinstance(encoder, BinaryEncoder)
    margins = np.abs((queries - encoder._mean) @ encoder._rotation.T)
    assert np.allclose(np.ptp(costs, axis=2), 4 * margins, rtol=1e-4, atol=1e-4)


def test_probe_tables_for_ip_prefer_what_adds_most_to_the_inner_product() -> None:
    """A mean far from zero must not turn the query around."""
    for case in TOLD:
        encoder, queries, _, _ = told(case)
        layout = encoder.layout
        values = encoder.probe_tables(queries, "ip").values[:, layout.starts[layout.scalars] :]
        best = values.reshape(300, layout.m, -1).argmin(axis=2).astype(np.uint16)
        scalars = np.zeros((300, layout.scalars), np.uint16)
        found = encoder.decode(layout.pack(np.concatenate([scalars, best], axis=1)))
        own = encoder.decode(encoder.encode(queries))
        assert (found * queries).sum() > (own * queries).sum(), case


@pytest.mark.parametrize("levels", [2, 4])
def test_probe_tables_of_searched_codes_agree_with_more_bits_than_asymmetric_ones(levels: int) -> None:
    """V says how a bit is drawn, its pseudo-inverse what it is."""
    vectors = clustered_vectors(24)
    encoder = make_encoder("lsq", m=24, levels=levels).fit(vectors)
    own = encoder.layout.unpack(encoder.encode(vectors[:300]))[:, 1:]
    tables = (encoder.probe_tables(vectors[:300]), encoder.tables(vectors[:300]))
    first = encoder.layout.starts[1]
    probe, asymmetric = (
        (each.values[:, first:].reshape(300, 24, levels).argmin(axis=2) == own).mean() for each in tables
    )
    assert probe > 0.75
    assert probe > asymmetric + 0.05


def test_tables_serve_as_probe_tables_where_an_encoder_says_nothing_else() -> None:
    """Asymmetric ones without the row scalar; symmetric ones where there are no others, of the same query."""
    vectors = clustered_vectors(24)
    pq = make_encoder("pq", bits=24, field_bits=3).fit(vectors)
    for metric in NAMES:
        assert np.array_equal(pq.probe_tables(vectors[:9], metric).values, pq.tables(vectors[:9], metric).values)
    lsq = make_encoder("lsq", bits=48, iterations=2).fit(vectors)
    default, table = Encoder._probe_tables(lsq, vectors[:9], "l2"), lsq.tables(vectors[:9])
    first = lsq.layout.starts[1]
    assert not default.values[:, :first].any()
    assert not default.bias.any()
    assert np.array_equal(default.values[:, first:], table.values[:, first:])
    none = make_encoder("lsq", bits=48, scalar=None, iterations=2).fit(vectors)
    for metric in NAMES[:2]:
        default = Encoder._probe_tables(none, vectors[:9], metric)
        assert np.array_equal(default.values, none.tables(vectors[:9], metric, "symmetric").values)


# -- planes among principal axes -----------------------------------------------------------------------


def span(encoder: LSH) -> int:
    """How many dimensions the planes are in."""
    return int(np.linalg.matrix_rank(encoder._rotation, tol=1e-3))


@pytest.mark.parametrize(
    ("bits", "axes", "dimensions"),
    [(60, None, 24), (60, 24, 24), (60, 1000, 24), (60, 5, 5), (60, 1, 1), (7, 12, 7), (12, 12, 12), (1, 1, 1)],
)
def test_planes_are_drawn_among_so_many_axes(bits: int, axes: int | None, dimensions: int) -> None:
    vectors = clustered_vectors(24)
    encoder = LSH(bits, axes=axes).fit(vectors)
    assert span(encoder) == dimensions
    planes = encoder._rotation.astype(np.float64)
    assert np.allclose(np.linalg.norm(planes, axis=1), 1, atol=1e-3)
    group = min(axes or 24, 24)
    for first in range(0, bits, group):
        own = planes[first : first + group]
        assert np.allclose(own @ own.T, np.eye(len(own)), atol=1e-3), "orthogonal in groups"
    if axes is not None and axes < 24:
        _, _, principal = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        assert np.allclose(planes @ principal[axes:].T, 0, atol=1e-3), "the other directions do not count"


@pytest.mark.parametrize("axes", [None, 1, 2, 5, 12, 24])
def test_more_bits_than_axes_reconstruct_what_lies_among_them(axes: int | None) -> None:
    """However often the planes span that space: nearer to it with more of them, and never farther than the mean."""
    vectors = clustered_vectors(24)
    centred = vectors - vectors.mean(axis=0)
    _, _, principal = np.linalg.svd(centred, full_matrices=False)
    kept = centred @ principal[: axes or 24].T @ principal[: axes or 24]
    errors = []
    for bits in (24, 240, 960):
        encoder = LSH(bits, axes=axes).fit(vectors)
        found = encoder.decode(encoder.encode(vectors)) - vectors.mean(axis=0)
        errors.append(float(np.square(found - kept).sum() / np.square(kept).sum()))
    assert errors[1] <= errors[0] + 0.02 and errors[2] <= errors[1] + 0.02
    assert errors[2] < 0.5


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_fewer_vectors_than_axes_have_codes(n: int) -> None:
    vectors = clustered_vectors(24)
    encoder = LSH(40, axes=8).fit(vectors[:n])
    codes = encoder.encode(vectors[:50])
    assert codes.shape == (50, 5)
    for found in (encoder.decode(codes), encoder.tables(vectors[:3]).values, encoder.probe_tables(vectors[:3]).values):
        assert np.isfinite(found).all()
    assert np.array_equal(from_bytes(to_bytes(encoder)).encode(vectors[:50]), codes)


def test_a_config_without_axes_is_that_of_older_files() -> None:
    assert LSH(64).config == LSH(64, axes=None).config == {"bits": 64, "seed": 0}
    assert LSH(64, axes=np.int64(8)).config == {"bits": 64, "axes": 8, "seed": 0}  # type: ignore[arg-type]
    vectors = clustered_vectors(24)
    for axes in (None, 8):
        encoder = LSH(64, axes=axes, seed=3).fit(vectors)
        again = from_bytes(to_bytes(encoder))
        assert again.config == encoder.config and isinstance(again, LSH) and again.axes == axes
        assert np.array_equal(again.decode(again.encode(vectors)), encoder.decode(encoder.encode(vectors)))
    old = LSH.from_state({"bits": 64, "seed": 0}, LSH(64).fit(vectors).state, 24)
    assert old.axes is None
    assert np.array_equal(old.encode(vectors), LSH(64).fit(vectors).encode(vectors))


@pytest.mark.parametrize("axes", [0, -1, 1.5, 8.0, "8", True, (1 << 16) + 1, [8]])
def test_axes_are_a_whole_number(axes: Any) -> None:
    with pytest.raises(ParameterError, match="axes="):
        make_encoder("lsh", bits=64, axes=axes)


# -- which codes hash ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["itq", "okmeans", "lsh", "pq", "kmeans", "ckmeans", "flat"])
def test_codes_that_are_told_field_by_field_hash(name: str) -> None:
    assert make_encoder(name).hashes is True


@pytest.mark.parametrize("levels", [2, 3, 16])
@pytest.mark.parametrize("refine", [0, 1, 4])
def test_lsq_hashes_as_published_only(levels: int, refine: int) -> None:
    encoder = make_encoder("lsq", m=16, levels=levels, refine=refine, iterations=1)
    assert encoder.hashes is (refine == 0)
    assert encoder.fit(clustered_vectors(24)).hashes is (refine == 0)
    assert make_encoder("lsq").hashes is False
