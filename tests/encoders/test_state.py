"""Stored encoders from outside: damaged, forged or newer ones raise typed errors, never anything else."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsqindex import LsqIndexError, make_encoder
from lsqindex.encoders import from_bytes, to_bytes
from lsqindex.errors import CodeError, StateError, UnknownEncoderError
from lsqindex.testing import clustered_vectors

ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 24, "iterations": 2}),
    "lsq three levels": ("lsq", {"bits": 24, "levels": 3, "iterations": 2}),
    "lsq published": ("lsq", {"bits": 10, "refine": 0, "iterations": 2}),
    "itq": ("itq", {"bits": 6, "iterations": 2}),
    "ckmeans": ("ckmeans", {"bits": 8, "field_bits": 2, "rotations": 2}),
    "pq": ("pq", {"bits": 8, "field_bits": 2}),
    "kmeans": ("kmeans", {"bits": 2}),
    "lsh": ("lsh", {"bits": 12}),
    "flat": ("flat", {}),
}
VECTORS = clustered_vectors(8)


@cache
def stored(case: str) -> bytes:
    name, parameters = ENCODERS[case]
    return to_bytes(make_encoder(name, **parameters).fit(VECTORS))


def changed(case: str, **changes: Any) -> bytes:
    record = msgpack.unpackb(stored(case))
    record.update(changes)
    return bytes(msgpack.packb(record))


def works_or_is_refused(data: Any) -> bool:
    """A forged record gives an encoder that works on vectors, or a typed error."""
    try:
        encoder = from_bytes(data)
        with np.errstate(all="ignore"):
            rows = np.zeros((3, encoder.dim or 0), np.float32)
            encoder.decode(encoder.encode(rows))
            encoder.tables(rows, distance=encoder.distances()[0])
    except LsqIndexError:
        return False
    return True


@pytest.mark.parametrize("case", ENCODERS)
def test_every_truncation_is_refused(case: str) -> None:
    data = stored(case)
    for length in sorted({*range(0, len(data), max(1, len(data) // 60)), len(data) - 1}):
        with pytest.raises(StateError):
            from_bytes(data[:length])
    with pytest.raises(StateError):
        from_bytes(data + b"\0")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", ENCODERS)
def test_flipped_bits_are_refused_or_give_a_working_encoder(case: str) -> None:
    """Numbers inside an array may change and still be numbers; nothing may crash."""
    data, rng = stored(case), np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        forged = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            forged[at] ^= 1 << int(rng.integers(0, 8))
        refused += not works_or_is_refused(bytes(forged))
    assert refused > 0


@pytest.mark.parametrize("case", ENCODERS)
def test_flipped_bits_of_the_head_are_refused_or_give_a_working_encoder(case: str) -> None:
    """Names, versions, parameters and shapes are in the first bytes: every bit of them once."""
    data = stored(case)
    for at in range(min(len(data), 60)):
        for bit in range(8):
            forged = bytearray(data)
            forged[at] ^= 1 << bit
            works_or_is_refused(bytes(forged))
    assert works_or_is_refused(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StateError):
        from_bytes(data)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    case=st.sampled_from(sorted(ENCODERS)),
    key=st.sampled_from(["format", "name", "version", "dim", "config", "state", "distribution"]),
    value=plain,
)
def test_any_value_in_place_of_a_part_is_refused_or_works(case: str, key: str, value: Any) -> None:
    works_or_is_refused(changed(case, **{key: value}))
    if key in ("config", "state") and not isinstance(value, dict):
        with pytest.raises(StateError):
            from_bytes(changed(case, **{key: value}))


@settings(max_examples=150, deadline=None)
@given(case=st.sampled_from(sorted(ENCODERS)), data=st.data(), value=plain)
def test_any_value_in_place_of_a_parameter_is_refused_or_works(case: str, data: st.DataObject, value: Any) -> None:
    config = dict(msgpack.unpackb(stored(case))["config"])
    key = data.draw(st.sampled_from([*sorted(config), "surplus"]))
    works_or_is_refused(changed(case, config={**config, key: value}))


@settings(max_examples=100, deadline=None)
@given(case=st.sampled_from(sorted(set(ENCODERS) - {"flat"})), data=st.data(), value=plain)
def test_any_value_in_place_of_an_array_is_refused(case: str, data: st.DataObject, value: Any) -> None:
    state = dict(msgpack.unpackb(stored(case))["state"])
    key = data.draw(st.sampled_from(sorted(state)))
    with pytest.raises(StateError):
        from_bytes(changed(case, state={**state, key: value}))


@pytest.mark.parametrize("case", sorted(set(ENCODERS) - {"flat"}))
def test_wrong_shapes_dtypes_and_numbers_of_arrays_are_refused(case: str) -> None:
    state = msgpack.unpackb(stored(case))["state"]
    for name, (dtype, shape, data) in state.items():
        size = int(np.dtype(dtype).itemsize)
        wrong: dict[str, Any] = {
            "another dtype": ["<f8", shape, data * (8 // size)],
            "unknown dtype": ["<f2", shape, data],
            "an object dtype": ["|O", shape, data],
            "dtype of a wrong type": [3, shape, data],
            "unhashable dtype": [["<f4"], shape, data],
            "a longer shape": [dtype, [*shape, 2], data],
            "one axis more": [dtype, [*shape, 1], data],
            "no axes": [dtype, [], data],
            "a huge shape": [dtype, [1 << 39] * len(shape), data],
            "a product that wraps around": [dtype, [1 << 32, 1 << 32, *shape], data],
            "a negative shape": [dtype, [-1, *shape[1:]], data],
            "a shape of floats": [dtype, [float(n) for n in shape], data],
            "a shape that is no list": [dtype, 5, data],
            "many axes": [dtype, [*shape, *[1] * 60], data],
            "fewer bytes": [dtype, shape, data[:-1]],
            "bytes as text": [dtype, shape, "text"],
            "no list": {"a": 1},
            "two parts": [dtype, shape],
            "zero rows": [dtype, [0, *shape[1:]], b""],
        }
        if dtype == "<f4":
            wrong["NaN"] = [dtype, shape, np.full(len(data) // 4, np.nan, np.float32).tobytes()]
            wrong["inf"] = [dtype, shape, np.full(len(data) // 4, np.inf, np.float32).tobytes()]
        for what, value in wrong.items():
            try:
                from_bytes(changed(case, state={**state, name: value}))
            except StateError:
                continue
            raise AssertionError(f"{name}: {what} was taken")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", sorted(set(ENCODERS) - {"flat"}))
@pytest.mark.parametrize("value", [3e38, -3e38, 1e-45, 0.0])
def test_extreme_numbers_in_arrays_are_refused_or_do_not_crash(case: str, value: float) -> None:
    state = msgpack.unpackb(stored(case))["state"]
    for name, (dtype, shape, data) in state.items():
        if dtype == "<f4":
            extreme = [dtype, shape, np.full(len(data) // 4, value, np.float32).tobytes()]
            works_or_is_refused(changed(case, state={**state, name: extreme}))
    assert works_or_is_refused(stored(case))


@pytest.mark.parametrize("case", ENCODERS)
def test_surplus_and_missing_arrays_are_named(case: str) -> None:
    state = msgpack.unpackb(stored(case))["state"]
    with pytest.raises(StateError, match="surplus"):
        from_bytes(changed(case, state={**state, "surplus": ["<f4", [1], b"\0" * 4]}))
    for name in state:
        with pytest.raises(StateError, match=name):
            from_bytes(changed(case, state={key: value for key, value in state.items() if key != name}))


def test_newer_formats_and_versions_ask_for_an_upgrade() -> None:
    for change in ({"format": 2}, {"version": 2}, {"format": 10**12}, {"version": 10**12}):
        with pytest.raises(StateError, match=r"newer.*upgrade"):
            from_bytes(changed("itq", **change))


@pytest.mark.parametrize("change", [{"format": 0}, {"format": -1}, {"version": 0}, {"version": -3}])
def test_versions_that_never_were_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(StateError):
        from_bytes(changed("itq", **change))


@pytest.mark.parametrize("dim", [0, -1, 7, 9, 1 << 21, 1 << 62, 8.0, True, None, "8", [8]])
def test_another_dim_is_refused(dim: Any) -> None:
    for case in set(ENCODERS) - {"flat"}:
        with pytest.raises(StateError):
            from_bytes(changed(case, dim=dim))


def test_an_unknown_name_is_refused_with_its_distribution() -> None:
    with pytest.raises(UnknownEncoderError, match="pip install some-thing"):
        from_bytes(changed("itq", name="sign-pqr", distribution=["some-thing", "3"]))
    strange: list[Any] = [None, 3, [], ["a"], {"a": 1}, [None, None], [[], {}]]
    for odd in strange:
        with pytest.raises(UnknownEncoderError):
            from_bytes(changed("itq", name="sign-pqr", distribution=odd))


@pytest.mark.parametrize("data", [None, 3, "text", [], {}, object()])
def test_what_is_no_bytes_is_refused(data: Any) -> None:
    with pytest.raises(StateError):
        from_bytes(data)


def test_bytes_of_any_kind_are_read() -> None:
    for kind in (bytes, bytearray, memoryview):
        assert works_or_is_refused(kind(stored("itq")))


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffab",
        b"\x81\xc0\xc0",
        b"\x81\x91\xc0\xc0",
        b"\xc7\x08\xff" + b"\0" * 8,
        b"\xd6\xff\0\0\0\0",
        b"\x81\xa6format\xcf" + b"\xff" * 8,
    ],
)
def test_msgpack_bombs_are_refused(bomb: bytes) -> None:
    with pytest.raises(StateError):
        from_bytes(bomb)


@pytest.mark.parametrize("name", ["pq", "ckmeans", "itq", "okmeans", "lsh", "lsq"])
def test_parameters_that_ask_for_huge_memory_are_refused_before_it_is_taken(name: str) -> None:
    """A short record must not make the reader allocate gigabytes: sizes are checked against the arrays first."""
    case = name if name in ENCODERS else "itq"
    config = msgpack.unpackb(stored(case))["config"]
    huge = {key: value for key, value in {"bits": 1 << 12, "field_bits": 12}.items() if key in config}
    with pytest.raises(StateError):
        from_bytes(changed(case, name=name, dim=1 << 12, config={**config, **huge}))


def test_codes_with_levels_beyond_the_last_are_refused() -> None:
    encoder = from_bytes(stored("lsq three levels"))
    codes = np.full((4, encoder.code_size), 0xFF, np.uint8)
    with pytest.raises(CodeError, match="levels"):
        encoder.decode(codes)


def test_flat_codes_that_are_no_numbers_are_refused() -> None:
    encoder = from_bytes(stored("flat"))
    with pytest.raises(CodeError, match="NaN"):
        encoder.decode(np.full((1, encoder.code_size), 0xFF, np.uint8))


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(sorted(ENCODERS)), seed=st.integers(0, 2**32))
def test_any_codes_decode_or_are_refused(case: str, seed: int) -> None:
    encoder = from_bytes(stored(case))
    codes = np.random.default_rng(seed).integers(0, 256, (5, encoder.code_size)).astype(np.uint8)
    try:
        assert np.isfinite(encoder.decode(codes)).all()
    except CodeError:
        assert case in ("lsq three levels", "flat")
