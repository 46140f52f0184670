"""LSQ: the paper's quantizer, the bit budget, and that the default is worth its name."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Encoder, make_encoder
from lsqindex._inputs.vectors import Vectors
from lsqindex.encoders import from_bytes, to_bytes
from lsqindex.encoders.lsq import LSQ
from lsqindex.encoders.lsq_codes import coded_values, quantize
from lsqindex.errors import ParameterError
from lsqindex.testing import reference, true_distances

from .digits import DIGITS, relative_error

# -- equation 5 ---------------------------------------------------------------------------------


def equation_5(value: float, n: int) -> int:
    """q_n read off the paper in exact fractions: the nearest θ_k = −1 + 2k/(n−1), ties to the upper."""
    exact = Fraction(value)
    theta = [-1 + Fraction(2 * k, n - 1) for k in range(n)]
    return min(range(n), key=lambda k: (abs(exact - theta[k]), -k))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64, 65, 100])
def test_the_quantizer_is_equation_5_also_on_the_edges(n: int) -> None:
    edges = np.array([-1 + (2 * k + 1) / (n - 1) for k in range(n - 1)], np.float32)
    near = [edges, np.nextafter(edges, np.float32(-9)), np.nextafter(edges, np.float32(9))]
    spread = np.random.default_rng(n).uniform(-1.5, 1.5, 200).astype(np.float32)
    corners = np.array([-1e30, -1, -0.0, 0.0, 1, 1e30], np.float32)
    values = np.concatenate([*near, spread, corners])
    expected = [equation_5(float(value), n) for value in values]
    got = quantize(values, n).tolist()
    wrong = [(float(v), g, e) for v, g, e in zip(values, got, expected, strict=True) if g != e]
    assert not wrong, f"(value, got, equation 5): {wrong[:5]}"


def test_the_sign_of_zero_is_plus_one() -> None:
    assert quantize(np.array([0.0, -0.0], np.float32), 2).tolist() == [1, 1]
    assert coded_values(np.array([0, 1], np.uint16), 2).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("n", [2, 3, 16, 255, 65536])
def test_coded_values_are_uniform_from_minus_one_to_one_and_quantize_to_themselves(n: int) -> None:
    fields = np.arange(n).astype(np.uint16)
    values = coded_values(fields, n)
    assert values[0] == -1
    assert values[-1] == 1
    assert np.allclose(np.diff(values), 2 / (n - 1), atol=1e-6)
    assert np.array_equal(quantize(values, n), fields)


# -- as published -------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [2, 4, 16])
def test_the_published_training_keeps_the_best_round(levels: int) -> None:
    lsq = LSQ(m=32, levels=levels, refine=0, iterations=20).fit(DIGITS)
    assert len(lsq.history_) >= 2
    assert all(0 < error <= 1 for error in lsq.history_)
    assert relative_error(lsq, DIGITS) == pytest.approx(min(lsq.history_), rel=1e-3)


def test_the_published_training_stops_without_progress_and_reports_its_error_curve() -> None:
    seen: list[float] = []
    lsq = LSQ(m=32, refine=0, iterations=200)
    lsq.fit(DIGITS, progress=lambda step, steps, error: seen.append(error))
    assert len(lsq.history_) < 200
    assert seen[: len(lsq.history_)] == lsq.history_


def test_the_searching_training_keeps_the_best_round() -> None:
    """Codes made later are searched for harder than in training, so the error may only be less."""
    lsq = LSQ(bits=64).fit(DIGITS)
    assert relative_error(lsq, DIGITS) <= min(lsq.history_) * 1.01
    assert min(lsq.history_) < lsq.history_[0]


def test_as_published_there_are_no_more_code_dimensions_than_dimensions() -> None:
    with pytest.raises(ParameterError, match=r"65 dimensions, but at most 64.*refine>0"):
        LSQ(m=65, refine=0).fit(DIGITS)
    LSQ(m=64, refine=0, iterations=2).fit(DIGITS)
    LSQ(m=65, iterations=2).fit(DIGITS)


def test_the_advice_of_the_published_limit_works() -> None:
    with pytest.raises(ParameterError) as caught:
        LSQ(bits=300, refine=0, levels=4).fit(DIGITS)
    advised = re.search(r"bits=(\d+)", str(caught.value))
    assert advised is not None
    LSQ(bits=int(advised[1]), refine=0, levels=4, iterations=2).fit(DIGITS)


# -- the budget ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 7, 16, 33, 64, 100, 256, 512])
@pytest.mark.parametrize("levels", [2, 3, 4, 16])
def test_scalars_are_inside_the_budget(bits: int, levels: int) -> None:
    width = (levels - 1).bit_length()
    if bits < width + 2:
        with pytest.raises(ParameterError, match="bits"):
            LSQ(bits=bits, levels=levels)
        return
    lsq = LSQ(bits=bits, levels=levels, iterations=1).fit(DIGITS[:300])
    assert lsq.layout.code_bits <= bits
    assert lsq.code_size <= -(-bits // 8)
    assert lsq.layout.scalars == 1
    assert lsq.layout.code_bits == lsq.layout.m * width + lsq.layout.bits[0]
    assert bits - lsq.layout.code_bits < width, "no dimension is left unused"


@pytest.mark.parametrize(("levels", "width"), [(2, 1), (3, 2), (4, 2), (5, 3), (16, 4), (256, 8)])
def test_m_is_the_number_of_code_dimensions(levels: int, width: int) -> None:
    lsq = LSQ(m=10, levels=levels, iterations=1).fit(DIGITS[:300])
    assert lsq.layout.m == 10
    assert lsq.layout.code_bits == 10 * width + 8
    assert lsq.embed_dim == 10
    alone = LSQ(m=10, levels=levels, scalar=None, iterations=1).fit(DIGITS[:300])
    assert alone.layout.code_bits == 10 * width
    assert alone.layout.scalars == 0
    assert LSQ(m=10, levels=levels, scalar_bits=3, iterations=1).fit(DIGITS[:300]).layout.bits[0] == 3


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"bits": 64, "m": 32}, "exclude each other"),
        ({"bits": 0}, "bits=0"),
        ({"bits": -8}, "bits=-8"),
        ({"bits": 64.0}, "whole number"),
        ({"bits": True}, "whole number"),
        ({"bits": "64"}, "whole number"),
        ({"bits": 1 << 20}, "bits="),
        ({"m": 0}, "m=0"),
        ({"bits": 2}, "do not fit"),
        ({"bits": 8, "levels": 256}, "fewer levels"),
        ({"levels": 1}, "levels=1"),
        ({"levels": 65537}, "levels=65537"),
        ({"refine": -1}, "refine=-1"),
        ({"scalar": "size"}, "learned"),
        ({"scalar_bits": 0}, "scalar_bits=0"),
        ({"scalar_bits": 17}, "scalar_bits=17"),
        ({"lam": -1.0}, "lam=-1.0"),
        ({"lam": float("nan")}, "lam=nan"),
        ({"lam": float("inf")}, "lam=inf"),
        ({"lam": "1"}, "lam="),
        ({"iterations": 0}, "iterations=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_impossible_parameters_are_named(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(says)):
        LSQ(**parameters)


def test_the_advice_for_too_few_bits_works() -> None:
    with pytest.raises(ParameterError) as caught:
        LSQ(bits=2)
    advised = re.search(r"use bits=(\d+)", str(caught.value))
    assert advised is not None
    assert LSQ(bits=int(advised[1])).fit(DIGITS[:100]).layout.m >= 1


def test_numpy_integers_are_parameters_as_good_as_ints() -> None:
    for encoder in (LSQ(bits=np.int64(32)), LSQ(m=np.int32(16), scalar_bits=np.uint8(4))):  # type: ignore[arg-type]
        fitted = encoder.fit(DIGITS[:200])
        assert np.array_equal(from_bytes(to_bytes(fitted)).encode(DIGITS[:9]), fitted.encode(DIGITS[:9]))


# -- quality ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
def test_the_default_reconstructs_better_than_published_lsq_and_itq(bits: int) -> None:
    train, test = DIGITS[:1300], DIGITS[1300:]
    best = relative_error(LSQ(bits=bits).fit(train), test)
    for name, other in {"published": LSQ(bits=bits, refine=0), "itq": make_encoder("itq", bits=bits)}.items():
        assert best < relative_error(other.fit(train), test), name


def test_the_default_reconstructs_gaussian_vectors_better_than_pq_and_itq_at_64_bits() -> None:
    rng = np.random.default_rng(0)
    mixed = np.linalg.qr(rng.standard_normal((64, 64)))[0] * np.linspace(1.0, 0.1, 64)[:, None]
    rows: Vectors = (rng.standard_normal((4000, 64)) @ mixed).astype(np.float32)
    train, test = rows[:3000], rows[3000:]
    best = relative_error(LSQ(bits=64).fit(train), test)
    for name in ("pq", "itq"):
        assert best < relative_error(make_encoder(name, bits=64).fit(train), test), name


def recall(lsq: LSQ, rows: Vectors, queries: Vectors) -> float:
    """The part of the ten nearest that is among the ten estimated nearest."""
    true = np.argsort(true_distances(queries, rows, "l2"), axis=1, kind="stable")[:, :10]
    sums = reference.distances(lsq.encode(rows), lsq.layout, lsq.tables(queries))
    found = np.argsort(sums, axis=1, kind="stable")[:, :10]
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(true.tolist(), found.tolist(), strict=True)]))


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_the_learned_scalar_ranks_better_than_the_norm(bits: int) -> None:
    rows, queries = DIGITS[:1500], DIGITS[1500:]
    learned = recall(LSQ(bits=bits).fit(rows), rows, queries)
    norm = recall(LSQ(bits=bits, scalar="norm").fit(rows), rows, queries)
    assert learned > norm


def test_more_bits_reconstruct_better() -> None:
    errors = [relative_error(LSQ(bits=bits, iterations=6).fit(DIGITS), DIGITS) for bits in (16, 32, 64, 128, 256)]
    assert errors == sorted(errors, reverse=True)


def test_more_effort_reconstructs_better() -> None:
    data = LSQ(bits=64, refine=128).fit(DIGITS)
    less = LSQ.from_state({**data.config, "refine": 1}, data.state, 64)
    assert relative_error(data, DIGITS) < relative_error(less, DIGITS)


# -- rows longer than training's ------------------------------------------------------------------
SCALARS: list[dict[str, Any]] = [{}, {"scalar": "norm"}, {"levels": 4}, {"refine": 0, "bits": 36}]


def anisotropic(n: int, seed: int) -> Vectors:
    """Clusters in 32 dimensions of falling variance."""
    axes = np.arange(1, 33) ** -0.5
    centres = np.random.default_rng(77).standard_normal((100, 32)) * axes
    rng = np.random.default_rng(seed)
    rows: Vectors = (centres[rng.integers(0, 100, n)] + 0.5 * rng.standard_normal((n, 32)) * axes).astype(np.float32)
    return rows


def found(encoder: Encoder, rows: Vectors, queries: Vectors) -> NDArray[np.intp]:
    """The ten estimated nearest."""
    sums = reference.distances(encoder.encode(rows), encoder.layout, encoder.tables(queries))
    return np.argsort(sums, axis=1, kind="stable")[:, :10]


@pytest.mark.parametrize("times", [3, 5, 10, 100, 1e6])
@pytest.mark.parametrize("parameters", SCALARS)
def test_long_rows_take_no_places_that_others_deserve(parameters: dict[str, Any], times: float) -> None:
    rows, queries = anisotropic(4000, 0), anisotropic(100, 1)
    lsq = LSQ(**{"bits": 128, "iterations": 3, **parameters}).fit(rows)
    long = rows[:40] * np.float32(times)
    true = np.argsort(true_distances(queries, np.concatenate([rows, long]), "l2"), axis=1, kind="stable")[:, :10]
    deserved = (true >= len(rows)).mean()
    assert (found(lsq, np.concatenate([rows, long]), queries) >= len(rows)).mean() <= deserved + 0.01


@pytest.mark.parametrize("axis", [0, 3, 10])
def test_rows_long_in_one_direction_take_no_places(axis: int) -> None:
    """Shorter than the longest of all, but far beyond what the code reaches in that direction."""
    rows, queries = anisotropic(4000, 0), anisotropic(100, 1)
    lsq = LSQ(bits=128, iterations=3).fit(rows)
    long = np.zeros((20, 32), np.float32)
    long[:, axis] = np.linspace(4, 8, 20) * rows[:, axis].std() * 1.5
    assert (found(lsq, np.concatenate([rows, long]), queries) >= len(rows)).mean() < 0.01


@pytest.mark.parametrize("name", ["pq", "itq", "ckmeans", "okmeans", "kmeans"])
def test_long_rows_take_no_places_with_other_encoders(name: str) -> None:
    rows, queries = anisotropic(4000, 0), anisotropic(100, 1)
    encoder = make_encoder(name, bits=8 if name == "kmeans" else 32).fit(rows)
    places = found(encoder, np.concatenate([rows, rows[:40] * np.float32(100)]), queries)
    assert (places >= len(rows)).mean() <= 0.05


@pytest.mark.parametrize(("sigma", "least"), [(0.2, 0.7), (0.4, 0.7), (0.6, 0.55), (0.8, 0.4)])
def test_lengths_of_all_sizes_are_ranked(sigma: float, least: float) -> None:
    rows = anisotropic(6000, 0)
    rows *= np.exp(sigma * np.random.default_rng(2).standard_normal((len(rows), 1))).astype(np.float32)
    assert recall(LSQ(bits=192, iterations=3).fit(rows[:3000]), rows, anisotropic(100, 1)) > least


def test_a_few_training_rows_of_extreme_length_leave_precision_to_the_others() -> None:
    rows = anisotropic(4000, 0)
    rows[:10] *= 10
    assert recall(LSQ(bits=192, iterations=3).fit(rows), rows, anisotropic(100, 1)) > 0.7


@pytest.mark.parametrize("parameters", SCALARS)
@pytest.mark.parametrize("times", [2, 100, 1e12])
def test_rows_that_are_all_too_long_are_coded_alike_alone_and_together(
    parameters: dict[str, Any], times: float
) -> None:
    rows = anisotropic(9000, 0)
    lsq = LSQ(**{"bits": 128, "iterations": 2, **parameters}).fit(rows[:2000])
    long = rows * np.float32(times)
    codes = lsq.encode(long)
    assert np.array_equal(lsq.encode(long, threads=3), codes)
    assert np.array_equal(np.concatenate([lsq.encode(long[:5]), lsq.encode(long[5:300])]), codes[:300])
    assert np.array_equal(lsq.encode(np.concatenate([rows[:7], long[40:50]]))[7:], codes[40:50])
    assert np.array_equal(from_bytes(to_bytes(lsq)).encode(long[:50]), codes[:50])
    coded = lsq.decode(codes[:500]) - rows[:2000].mean(axis=0)
    cosine = (coded * long[:500]).sum(axis=1) / np.linalg.norm(coded, axis=1) / np.linalg.norm(long[:500], axis=1)
    assert np.median(cosine) > 0.7, "their direction is kept"
