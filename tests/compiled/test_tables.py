"""Look-up tables of linear codes: the same bits as the reference, alone and among others."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsqindex._compiled.encoding import Linear
from lsqindex.testing import reference

from .levels import on_every_level
from .stored_codes import many


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@many
@given(
    st.sampled_from(["l2", "unit", "ip", "lengths"]),
    st.integers(1, 70),
    st.integers(1, 90),
    st.integers(2, 5),
    st.integers(0, 9),
    st.integers(0, 40),
    st.integers(0, 2**32),
)
def test_tables_are_those_of_the_reference(
    kind: str, dim: int, m: int, levels: int, steps: int, n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    theta = np.linspace(-1, 1, levels).astype(np.float32)
    matrix = drawn(rng, m + {"l2": 0, "unit": 1, "ip": 1, "lengths": 2}[kind], dim)
    how: dict[str, Any] = {
        "l2": {"centre": drawn(rng, dim), "constant": 0.3},
        "unit": {"unit": True, "constant": 0.7, "frontier": 1.25},
        "ip": {},
        "lengths": {"length": 1.7, "spread": 0.9},
    }[kind]
    queries, known = drawn(rng, n, dim), drawn(rng, steps + m * levels)
    queries[: n // 5] = 0
    linear = Linear(matrix, m, theta, known, **how)
    wanted = reference.linear_tables(queries, matrix, m, theta, known, **how)
    for values, bias in on_every_level(lambda: linear.of(queries)):
        # (Zeros may have either sign.)
        assert np.array_equal(values, wanted.values) and np.array_equal(bias, wanted.bias)
    for at in range(0, n, 7):
        alone = pickle.loads(pickle.dumps(linear)).of(queries[at : at + 1])
        assert np.array_equal(alone[0][0], values[at]) and alone[1][0] == bias[at]


def test_sizes_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(0)
    theta, known, centre = drawn(rng, 2), drawn(rng, 8), drawn(rng, 5)
    assert Linear(drawn(rng, 4, 5), 4, theta, known, centre).of(drawn(rng, 3, 5))[0].shape == (3, 8)
    wrong: list[tuple[Any, ...]] = [
        (drawn(rng, 4, 5), 5, theta, known, centre),
        (drawn(rng, 4, 5), 4, theta, known[:7], centre),
        (drawn(rng, 4, 5), 4, theta[:1], known, centre),
        (drawn(rng, 4, 5), 4, theta, known, centre[:4]),
        (drawn(rng, 4, 5), 4, theta, known),
        (drawn(rng, 5, 5), 4, theta, known, centre),
        (drawn(rng, 7, 5), 4, theta, known),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="linear"):
            Linear(*arguments)
    with pytest.raises(ValueError, match="shapes"):
        Linear(drawn(rng, 4, 5), 4, theta, known, centre).of(drawn(rng, 3, 4))
