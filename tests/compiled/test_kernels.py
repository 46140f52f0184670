"""The compiled kernels give the bits of ``lsqindex.testing.reference`` on every instruction set."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import lsqindex
from lsqindex._compiled import encoding as _kernels
from lsqindex.encoders.lsq import LSQ
from lsqindex.testing import reference

from .levels import on_every_level

SIZES = (1, 2, 15, 16, 17, 31, 33, 64, 100, 257)
ROWS = (0, 1, 31, 33)
LIMIT = 1 << 28  # flips.h: a row of G may sum to this, a residual may reach twice as much

few = settings(max_examples=25, deadline=None)


def padded(gram: NDArray[np.int32]) -> NDArray[np.int32]:
    m = len(gram)
    out = np.zeros((m + 1, -(-m // _kernels.LANES) * _kernels.LANES), np.int32)
    out[:m, :m] = 2 * gram
    return out


def random_gram(rng: np.random.Generator, m: int, limit: int = LIMIT) -> NDArray[np.int32]:
    """A symmetric matrix as the coder makes it: no row's absolute sum above ``limit``."""
    rows = rng.standard_normal((m, max(1, m // 2)))
    gram = rows @ rows.T
    out: NDArray[np.int32] = np.trunc(gram * (limit / np.abs(gram).sum(axis=1).max())).astype(np.int32)
    return out


def flipped(
    bits: NDArray[np.uint8], r: NDArray[np.int32], gram: NDArray[np.int32], steps: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """What the kernel and the reference make of the same start."""
    mine, theirs = bits.copy(), bits.copy()
    diagonal = np.ascontiguousarray(np.diag(gram))
    _kernels.flips(mine, r, padded(gram), diagonal, steps)
    reference.flips(theirs, r, padded(gram), diagonal, steps)
    return mine, theirs


# -- flips --------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", ROWS)
def test_flips_equal_the_reference(simd: str, m: int, n: int) -> None:
    rng = np.random.default_rng(m * 100 + n)
    gram = random_gram(rng, m)
    bits = rng.integers(0, 2, (n, m)).astype(np.uint8)
    r = rng.integers(-LIMIT // 4, LIMIT // 4, (n, m)).astype(np.int32)
    for steps in (0, 1, 2 * m + 7 if m < 40 else 20):
        mine, theirs = flipped(bits, r, gram, steps)
        assert np.array_equal(mine, theirs), (m, n, steps)
        if steps == 0:
            assert np.array_equal(mine, bits)


@pytest.mark.parametrize("m", [1, 2, 7, 16, 33])
def test_flips_with_many_more_steps_than_bits_equal_the_reference(simd: str, m: int) -> None:
    rng = np.random.default_rng(m)
    bits = rng.integers(0, 2, (5, m)).astype(np.uint8)
    r = rng.integers(-1000, 1000, (5, m)).astype(np.int32)
    mine, theirs = flipped(bits, r, random_gram(rng, m, 5000), 300)
    assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("m", [1, 2, 16, 33, 100])
@pytest.mark.parametrize("edge", [-2 * LIMIT, 2 * LIMIT, 0])
def test_flips_at_the_limits_of_fixed_point_do_not_overflow(simd: str, m: int, edge: int) -> None:
    """The largest residuals and the largest G that flips.h allows, of equal and of mixed signs."""
    rng = np.random.default_rng(m)
    diagonal = np.diag(np.full(m, LIMIT, np.int32))
    spread = np.full((m, m), LIMIT // m, np.int32)
    signs = np.where(rng.random(m) < 0.5, -1, 1)
    for gram in (diagonal, spread, (spread * signs[:, None] * signs).astype(np.int32), random_gram(rng, m)):
        for bits in (np.zeros((2, m), np.uint8), np.ones((2, m), np.uint8)):
            r = np.full((2, m), edge, np.int32)
            r[1] = np.where(rng.random(m) < 0.5, -2 * LIMIT, 2 * LIMIT)
            mine, theirs = flipped(bits, r, gram, 25)
            assert np.array_equal(mine, theirs)


def test_flips_without_any_weight_follow_the_residual(simd: str) -> None:
    """All-zero G: the error falls where h·r is negative, so every sign becomes that of r."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (4, 20)).astype(np.uint8)
    # Gains are compared without their low bits, which carry the index.
    r = (rng.integers(1, 9, (4, 20)) * 1000 * rng.choice([-1, 1], (4, 20))).astype(np.int32)
    mine, theirs = flipped(bits, r, np.zeros((20, 20), np.int32), 40)
    assert np.array_equal(mine, theirs)
    assert np.array_equal(mine, r > 0)


def test_flips_never_make_a_code_worse(simd: str) -> None:
    rng = np.random.default_rng(3)
    gram = random_gram(rng, 40)
    bits = rng.integers(0, 2, (30, 40)).astype(np.uint8)
    aim = rng.integers(-LIMIT // 8, LIMIT // 8, (30, 40))

    def error(codes: NDArray[np.uint8]) -> NDArray[np.int64]:
        h = codes.astype(np.int64) * 2 - 1
        out: NDArray[np.int64] = ((h @ gram.astype(np.int64)) * h).sum(axis=1) - 2 * (aim * h).sum(axis=1)
        return out

    r = (aim - (bits.astype(np.int64) * 2 - 1) @ gram.astype(np.int64)).astype(np.int32)
    mine, _ = flipped(bits, r, gram, 60)
    assert (error(mine) <= error(bits)).all()
    assert error(mine).sum() < error(bits).sum()


@few
@given(seed=st.integers(0, 2**32), m=st.integers(1, 70), steps=st.integers(0, 30), scale=st.integers(0, 29))
def test_flips_of_anything_allowed_equal_the_reference(seed: int, m: int, steps: int, scale: int) -> None:
    rng = np.random.default_rng(seed)
    gram = random_gram(rng, m, max(1, min(LIMIT, 1 << scale)))
    bits = rng.integers(0, 2, (3, m)).astype(np.uint8)
    r = rng.integers(-(1 << scale), (1 << scale) + 1, (3, m)).astype(np.int32)
    for mine, theirs in on_every_level(lambda: flipped(bits, r, gram, steps)):
        assert np.array_equal(mine, theirs)


def test_flips_do_not_change_their_constant_inputs(simd: str) -> None:
    rng = np.random.default_rng(5)
    g2, diagonal = padded(random_gram(rng, 20)), np.full(20, 100, np.int32)
    r = rng.integers(-1000, 1000, (3, 20)).astype(np.int32)
    for array in (g2, diagonal, r):
        array.flags.writeable = False
    bits = np.zeros((3, 20), np.uint8)
    _kernels.flips(bits, r, g2, diagonal, 10)
    with pytest.raises(ValueError, match="read-only"):
        bits.flags.writeable = False
        _kernels.flips(bits, r, g2, diagonal, 10)


# -- feedback and descend -----------------------------------------------------------------------


def fed(c: NDArray[np.float32], columns: NDArray[np.float32]) -> tuple[Any, Any, Any, Any]:
    mine, theirs = c.copy(), c.copy()
    return _kernels.feedback(mine, columns), reference.feedback(theirs, columns), mine, theirs


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", ROWS)
def test_feedback_equals_the_reference(simd: str, m: int, n: int) -> None:
    rng = np.random.default_rng(m * 100 + n)
    c = rng.standard_normal((n, m)).astype(np.float32)
    columns = np.tril(rng.standard_normal((m, m))).T.astype(np.float32).copy()
    columns.flags.writeable = False
    bits, expected, left, expected_left = fed(c, columns)
    assert bits.dtype == np.uint8
    assert np.array_equal(bits, expected)
    assert left.tobytes() == expected_left.tobytes()


def test_feedback_takes_zero_of_either_sign_as_one(simd: str) -> None:
    c = np.array([[0.0, -0.0, 1e-45, -1e-45]], np.float32)
    bits, expected, *_ = fed(c, np.zeros((4, 4), np.float32))
    assert bits.tolist() == expected.tolist() == [[1, 1, 1, 0]]


def descended(
    codes: NDArray[np.uint16], r: NDArray[np.float32], g: NDArray[np.float32], count: int, sweeps: int
) -> tuple[Any, Any, Any, Any]:
    mine, theirs, left, expected_left = codes.copy(), codes.copy(), r.copy(), r.copy()
    _kernels.descend(mine, left, g, count, sweeps)
    reference.descend(theirs, expected_left, g, count, sweeps)
    return mine, theirs, left, expected_left


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("count", [2, 3, 16, 256, 65536])
def test_descend_equals_the_reference(simd: str, m: int, count: int) -> None:
    rng = np.random.default_rng(m * 1000 + count)
    n = 1 if m > 50 else 3
    rows = rng.standard_normal((m, max(1, m // 2))).astype(np.float32)
    g = rows @ rows.T
    g.flags.writeable = False
    codes = rng.integers(0, count, (n, m)).astype(np.uint16)
    r = (3 * rng.standard_normal((n, m))).astype(np.float32)
    for sweeps in (0, 1, 4):
        mine, theirs, left, expected_left = descended(codes, r, g, count, sweeps)
        assert np.array_equal(mine, theirs)
        assert left.tobytes() == expected_left.tobytes()
        if sweeps == 0:
            assert np.array_equal(mine, codes)


def test_descend_of_extreme_residuals_stays_within_the_levels(simd: str) -> None:
    g = np.diag(np.array([1.0, 0.0, 1e-30, 1e30, -1.0], np.float32))
    for value in (1e30, -1e30, 1e-30, 0.0):
        codes = np.full((1, 5), 2, np.uint16)
        r = np.full((1, 5), value, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            mine, theirs, *_ = descended(codes, r, g, 5, 3)
        assert np.array_equal(mine, theirs), value
        assert mine.max() < 5
        assert mine[0, 1] == mine[0, 4] == 2, "a dimension without weight stays"


@pytest.mark.parametrize("n", ROWS)
def test_descend_of_any_number_of_rows_equals_the_reference(simd: str, n: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((9, 9)).astype(np.float32)
    codes = rng.integers(0, 4, (n, 9)).astype(np.uint16)
    r = rng.standard_normal((n, 9)).astype(np.float32)
    mine, theirs, *_ = descended(codes, r, rows @ rows.T, 4, 3)
    assert np.array_equal(mine, theirs)


@few
@given(seed=st.integers(0, 2**32), m=st.integers(1, 40), count=st.integers(2, 300), exponent=st.integers(-15, 15))
def test_float_kernels_of_anything_equal_the_reference(seed: int, m: int, count: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.standard_normal((m, m)) * 10.0**exponent).astype(np.float32)
    g = rows @ rows.T
    codes = rng.integers(0, count, (2, m)).astype(np.uint16)
    r = (rng.standard_normal((2, m)) * 10.0 ** (2 * exponent)).astype(np.float32)
    for mine, theirs, left, expected_left in on_every_level(lambda: descended(codes, r, g, count, 3)):
        assert np.array_equal(mine, theirs)
        assert left.tobytes() == expected_left.tobytes()
    for bits, expected, left, expected_left in on_every_level(lambda: fed(r, rows)):
        assert np.array_equal(bits, expected)
        assert left.tobytes() == expected_left.tobytes()


# -- pack and unpack ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", ROWS)
def test_pack_and_unpack_equal_the_reference(m: int, n: int) -> None:
    rng = np.random.default_rng(m * 100 + n)
    for widths in (np.ones(m, np.uint8), np.full(m, 16, np.uint8), rng.integers(1, 17, m).astype(np.uint8)):
        fields = (rng.integers(0, 1 << 16, (n, m)) & ((1 << widths.astype(np.int64)) - 1)).astype(np.uint16)
        for array in (fields, widths):
            array.flags.writeable = False
        size = (int(widths.sum(dtype=np.int64)) + 7) // 8
        codes = _kernels.pack(fields, widths, size)
        assert np.array_equal(codes, reference.pack(fields, widths, size))
        codes.flags.writeable = False
        assert np.array_equal(_kernels.unpack(codes, widths), fields)
        assert np.array_equal(reference.unpack(codes, widths), fields)


@few
@given(widths=st.lists(st.integers(1, 16), min_size=1, max_size=40), data=st.data())
def test_any_fields_come_back_from_their_code(widths: list[int], data: st.DataObject) -> None:
    row = [data.draw(st.integers(0, (1 << width) - 1)) for width in widths]
    fields, bits = np.array([row], np.uint16), np.array(widths, np.uint8)
    codes = _kernels.pack(fields, bits, -(-sum(widths) // 8))
    assert _kernels.unpack(codes, bits).tolist() == [row]
    assert np.array_equal(codes, reference.pack(fields, bits, codes.shape[1]))


def test_pack_leaves_the_spare_bits_zero_and_cuts_what_is_too_large() -> None:
    codes = _kernels.pack(np.full((1, 3), 0xFFFF, np.uint16), np.array([1, 2, 2], np.uint8), 1)
    assert codes.tolist() == [[0b11111]]


# -- the door -----------------------------------------------------------------------------------


def wrong_calls() -> dict[str, Any]:
    f, i, b, u = np.float32, np.int32, np.uint8, np.uint16
    bits, r, g2, diagonal = np.zeros((2, 3), b), np.zeros((2, 3), i), np.zeros((4, 16), i), np.zeros(3, i)
    codes, res, g = np.zeros((2, 3), u), np.zeros((2, 3), f), np.zeros((3, 3), f)
    widths, wide = np.full(3, 4, b), np.zeros((2, 17), b)
    k = _kernels
    return {
        "flips: rows of r": lambda: k.flips(bits, np.zeros((1, 3), i), g2, diagonal, 1),
        "flips: columns of r": lambda: k.flips(bits, np.zeros((2, 4), i), g2, diagonal, 1),
        "flips: no row of zeros": lambda: k.flips(bits, r, g2[:3], diagonal, 1),
        "flips: no padding": lambda: k.flips(bits, r, np.zeros((4, 3), i), diagonal, 1),
        "flips: stride below m": lambda: k.flips(wide, wide.astype(i), np.zeros((18, 16), i), np.zeros(17, i), 1),
        "flips: diagonal": lambda: k.flips(bits, r, g2, np.zeros(2, i), 1),
        "flips: negative steps": lambda: k.flips(bits, r, g2, diagonal, -1),
        "flips: dtype": lambda: k.flips(bits, r.astype(np.int64), g2, diagonal, 1),
        "flips: one axis": lambda: k.flips(bits[0], r, g2, diagonal, 1),
        "flips: Fortran": lambda: k.flips(np.asfortranarray(bits), r, g2, diagonal, 1),
        "feedback: columns": lambda: k.feedback(res, np.zeros((3, 2), f)),
        "feedback: size": lambda: k.feedback(res, np.zeros((4, 4), f)),
        "feedback: dtype": lambda: k.feedback(res.astype(np.float64), g),
        "descend: r": lambda: k.descend(codes, np.zeros((2, 2), f), g, 4, 1),
        "descend: g": lambda: k.descend(codes, res, np.zeros((3, 4), f), 4, 1),
        "descend: one level": lambda: k.descend(codes, res, g, 1, 1),
        "descend: too many levels": lambda: k.descend(codes, res, g, 65537, 1),
        "pack: widths": lambda: k.pack(codes, widths[:2], 1),
        "pack: size": lambda: k.pack(codes, widths, 1),
        "pack: size too large": lambda: k.pack(codes, widths, 3),
        "pack: negative size": lambda: k.pack(codes, widths, -1),
        "pack: width 0": lambda: k.pack(codes, np.array([0, 4, 4], b), 1),
        "pack: width 17": lambda: k.pack(codes, np.array([17, 4, 3], b), 3),
        "unpack: size": lambda: k.unpack(np.zeros((2, 3), b), widths),
        "unpack: width 17": lambda: k.unpack(np.zeros((2, 3), b), np.array([17, 4, 3], b)),
    }


@pytest.mark.parametrize("what", wrong_calls())
def test_wrong_shapes_raise_value_error(simd: str, what: str) -> None:
    with pytest.raises(ValueError, match=r"fit|padded|bits|expected|contiguous|dimensions|mismatch"):
        wrong_calls()[what]()


def test_none_raises_type_error() -> None:
    nothing: Any = None
    with pytest.raises(TypeError):
        _kernels.feedback(nothing, nothing)


def run_with_simd(value: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LSQINDEX_SIMD": value, "PYTHONPATH": str(Path(lsqindex.__file__).parents[1])}
    code = "from lsqindex._compiled import encoding; print(encoding.simd_level())"
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("level", _kernels.simd_levels())
def test_the_environment_chooses_the_instruction_set(level: str) -> None:
    assert run_with_simd(level).stdout.strip() == level


def test_without_a_choice_the_best_instruction_set_is_taken() -> None:
    assert run_with_simd("").stdout.strip() == _kernels.simd_levels()[-1]


def test_an_unknown_instruction_set_is_refused_with_the_known_ones() -> None:
    done = run_with_simd("sse9")
    assert done.returncode != 0
    assert "LSQINDEX_SIMD='sse9'" in done.stderr
    assert all(level in done.stderr for level in _kernels.simd_levels())
    before = _kernels.simd_level()
    with pytest.raises(ValueError, match="portable"):
        _kernels.use_simd("sse9")
    assert _kernels.simd_level() == before


@given(st.sampled_from(ROWS), st.sampled_from(SIZES), st.sampled_from(SIZES), st.integers(0, 2**32 - 1))
@few
def test_products_are_those_of_the_reference(n: int, k: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, matrix = (rng.standard_normal((count, k)).astype(np.float32) for count in (n, m))
    wanted = reference.product(rows, matrix)
    for found in on_every_level(lambda: _kernels.product(rows, matrix)):
        assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))
    for at in range(n):
        assert np.array_equal(_kernels.product(rows[at : at + 1], matrix)[0], wanted[at])
    packed = _kernels.Packed(matrix)
    for kept in (packed, pickle.loads(pickle.dumps(packed))):
        assert np.array_equal(_kernels.product(rows, kept).view(np.uint32), wanted.view(np.uint32))


def test_a_row_has_the_same_product_wherever_it_stands(simd: str) -> None:
    rng = np.random.default_rng(1)
    for m, k in ((24, 56), (256, 384), (1, 7)):
        row, matrix = rng.standard_normal((1, k)).astype(np.float32), rng.standard_normal((m, k)).astype(np.float32)
        assert len(np.unique(_kernels.product(np.repeat(row, 300, axis=0), matrix), axis=0)) == 1


def test_products_of_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        _kernels.product(np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32))
    assert _kernels.product(np.zeros((2, 0), np.float32), np.zeros((5, 0), np.float32)).tolist() == [[0] * 5] * 2


@pytest.mark.parametrize("options", [{}, {"scalar": "norm"}, {"scalar": None}, {"bits": 9}, {"scalar_bits": 1}])
def test_all_steps_in_one_call_give_the_bits_of_the_reference(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    sample = rng.standard_normal((400, 21)).astype(np.float32) / np.sqrt(1 + np.arange(21, dtype=np.float32))
    encoder = LSQ(**{"bits": 41, "iterations": 2, **options}).fit(sample)
    vectors = np.concatenate([sample[:70], 30 * sample[:3], np.zeros((1, 21), np.float32)])
    scalar = encoder._scalar.parameters(encoder._rows) if encoder.scalar else None
    search = (encoder._mean, encoder._axes, *encoder._coder.search)  # type: ignore[union-attr]
    kernel = _kernels.Bits(search, scalar)
    fields, longer = reference.bits(vectors, search, scalar)
    for one in (kernel, pickle.loads(pickle.dumps(kernel))):
        for found, flags in on_every_level(lambda one=one: one.of(vectors)):
            assert np.array_equal(found, fields) and np.array_equal(flags, longer)
    for at in (0, 69, 71):
        assert np.array_equal(kernel.of(vectors[at : at + 1])[0][0], fields[at])
    assert np.array_equal(encoder._encode(vectors), np.concatenate([encoder._encode(row[None]) for row in vectors]))
    short = ~longer.astype(bool)
    differ = encoder._encode_in_steps(vectors)[short] != fields[short]
    assert not differ[:, 1 if encoder.scalar else 0 :].any() and differ.sum() <= 1  # the scalar adds in another order


def test_rows_that_are_too_long_for_the_scalar_are_told() -> None:
    rng = np.random.default_rng(4)
    vectors = rng.standard_normal((300, 7)).astype(np.float32)
    encoder = LSQ(bits=20, iterations=1).fit(vectors)
    *scalar, step = encoder._scalar.parameters(encoder._rows)
    search = (encoder._mean, encoder._axes, *encoder._coder.search)  # type: ignore[union-attr]
    short = (search, (*scalar, np.float32(step / 16)))  # of a range that many are beyond
    fields, longer = reference.bits(vectors, *short)
    assert 0 < longer.sum() < 300
    for found, flags in on_every_level(lambda: _kernels.Bits(*short).of(vectors)):
        assert np.array_equal(found, fields) and np.array_equal(flags, longer)


def test_all_steps_of_shapes_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(3)
    encoder = LSQ(bits=20, iterations=1).fit(rng.standard_normal((200, 6)).astype(np.float32))
    search = (encoder._mean, encoder._axes, *encoder._coder.search)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="shapes"):
        _kernels.Bits((encoder._mean[1:], *search[1:]))
    with pytest.raises(ValueError, match="shapes"):
        _kernels.Bits(search, (4, np.zeros((2, 2), np.float32), None, None, 0, 0, 0, 1))
    with pytest.raises(ValueError, match="shapes"):
        _kernels.Bits(search).of(np.zeros((1, 5), np.float32))
    assert len(_kernels.Bits(search).of(np.zeros((0, 6), np.float32))[0]) == 0
