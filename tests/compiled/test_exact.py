"""Exact distances of kept vectors: the bits of the NumPy twin on every instruction set, and near the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex import metrics
from lsqindex._compiled import exact as _exact
from lsqindex._compiled import records as _records
from lsqindex._storage.format import kept
from lsqindex.testing import reference

from .levels import on_every_level

Metric = Literal["l2", "ip", "cosine"]
METRICS: tuple[Metric, ...] = get_args(Metric)
LAYOUTS = tuple(kept.NAMES)
DIMS = (1, 3, 7, 15, 16, 17, 31, 32, 33, 384, 511, 512, 513, 1000, 1545)

few = settings(max_examples=100, deadline=None)


@dataclass
class Stored:
    """Kept vectors in memory, as records, each in a buffer that ends where its last row ends."""

    kind: str
    dim: int
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    buffers: list[NDArray[np.uint8]] = field(default_factory=list)
    shifts: list[int] = field(default_factory=list)
    #: Row number → the vector as it is kept.
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def add(self, first: int, vectors: NDArray[np.float32], shift: int = 0) -> None:
        rows = kept.to_bytes(vectors, self.kind)
        assert rows.shape == (len(vectors), kept.width(self.dim, self.kind))
        self.buffers.append(np.concatenate([np.zeros(shift, np.uint8), rows.reshape(-1)]))
        self.shifts.append(shift)
        self.starts.append(first)
        self.counts.append(len(vectors))
        self.vectors.update(zip(range(first, first + len(vectors)), kept.from_bytes(rows, self.kind), strict=True))

    def arrays(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64]]:
        places = [_records.address(b) + shift for b, shift in zip(self.buffers, self.shifts, strict=True)]
        return np.array(self.starts, np.uint32), np.array(self.counts, np.uint32), np.array(places, np.uint64)

    def of(self, rows: Any) -> NDArray[np.float32]:
        found = [self.vectors[row] for row in np.asarray(rows).tolist()]
        return np.array(found, np.float32).reshape(len(found), self.dim)


def one_record(kind: str, vectors: NDArray[Any], shift: int = 0) -> Stored:
    out = Stored(kind, vectors.shape[1])
    out.add(0, vectors.astype(np.float32), shift)
    return out


def distances(stored: Stored, metric: str, queries: Any, found: Any, rows: Any) -> NDArray[np.float32]:
    arrays = np.asarray(queries, np.float32), np.array(found, np.int64), np.array(rows, np.uint32)
    return _exact.distances(*stored.arrays(), stored.kind, stored.dim, metrics.METRICS[metric].number, *arrays)


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


def near(found: Any, stored: Stored, metric: Metric, query: Any, rows: Any, within: float = 3e-6) -> bool:
    """Whether distances are those of float64, relative to what the terms of their sums come to."""
    vectors, one = stored.of(rows).astype(np.float64), np.asarray(query, np.float64)
    truth = metrics.METRICS[metric].distances(one, vectors).astype(np.float32).astype(np.float64)
    terms = {"l2": (vectors - one) ** 2, "ip": np.abs(vectors * one), "cosine": np.ones((len(vectors), 1))}[metric]
    # 2⁻¹⁴⁹ is the smallest float32: each term is rounded to a multiple of it.
    return bool((np.abs(found - truth) <= within * terms.sum(axis=1) + stored.dim * 2.0**-149).all())


# -- the bits of the reference ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", DIMS)
def test_distances_equal_the_reference(simd: str, kind: str, metric: Metric, dim: int) -> None:
    rng = np.random.default_rng(dim)
    stored = one_record(kind, rng.standard_normal((40, dim)))
    queries = rng.standard_normal((3, dim)).astype(np.float32)
    found = [0, 33, 1]
    rows = rng.integers(0, 40, 34)
    got = distances(stored, metric, queries, found, rows)
    expected = [reference.exact_distances(stored.of(rows[:33]), metric, queries[1])]
    expected.append(reference.exact_distances(stored.of(rows[33:]), metric, queries[2]))
    assert same_bits(got, np.concatenate(expected))
    assert near(got[:33], stored, metric, queries[1], rows[:33])


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 31, 100])
def test_any_number_of_rows(simd: str, kind: str, metric: Metric, n: int) -> None:
    """Rows are prefetched ahead of their turn: fewer than that, as many, more."""
    rng = np.random.default_rng(n)
    stored, query = one_record(kind, rng.standard_normal((100, 20))), rng.standard_normal((1, 20)).astype(np.float32)
    rows = rng.permutation(100)[:n]
    got = distances(stored, metric, query, [n], rows)
    assert same_bits(got, reference.exact_distances(stored.of(rows), metric, query[0]))


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("shift", [1, 2, 3, 31])
def test_rows_at_any_address_in_many_records(simd: str, kind: str, metric: Metric, shift: int) -> None:
    rng = np.random.default_rng(shift)
    stored, first = Stored(kind, 37), 5
    for count in (1, 32, 3, 170, 1):
        stored.add(first, rng.standard_normal((count, 37)).astype(np.float32), shift)
        first += count + (count == 32) * 4064
    rows = rng.permutation(np.array(list(stored.vectors)))
    queries = rng.standard_normal((2, 37)).astype(np.float32)
    got = distances(stored, metric, queries, [100, len(rows) - 100], rows)
    for i, part in enumerate((slice(0, 100), slice(100, None))):
        assert same_bits(got[part], reference.exact_distances(stored.of(rows[part]), metric, queries[i]))


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", [1, 17, 64])
def test_zero_vectors(simd: str, kind: str, metric: Metric, dim: int) -> None:
    vectors = np.zeros((3, dim), np.float32)
    vectors[1] = -0.0
    vectors[2] = 1
    stored = one_record(kind, vectors)
    queries = np.array([np.zeros(dim), np.ones(dim)], np.float32)
    got = distances(stored, metric, queries, [3, 3], [0, 1, 2, 0, 1, 2])
    expected = [reference.exact_distances(stored.of(range(3)), metric, query) for query in queries]
    assert same_bits(got, np.concatenate(expected))
    truth = {"l2": [0, 0, dim, dim, dim, 0], "ip": [0, 0, 0, 0, 0, -dim], "cosine": [1, 1, 1, 1, 1, 0]}[metric]
    assert np.allclose(got, truth, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_every_float16_is_read_exactly(simd: str, metric: Metric) -> None:
    """All finite ones, those below the normal numbers included, one dimension each."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = halves[np.isfinite(halves)].astype(np.float32)
    stored = one_record("float16", every[:, None])
    rows = np.arange(len(every))
    assert np.array_equal(stored.of(rows)[:, 0], every)
    for query in (0.0, 1.0, -3.0):
        one = np.array([[query]], np.float32)
        got = distances(stored, metric, one, [len(every)], rows)
        assert same_bits(got, reference.exact_distances(every[:, None], metric, one[0]))
    if metric == "ip":
        assert np.array_equal(distances(stored, "ip", [[-1.0]], [len(every)], rows), every)


@pytest.mark.parametrize("kind", ["float32", "scaled-float16", "int8"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("size", [1e15, 1e9, 1e-9, 1e-20, 1e-30, 1e-38, 1e-41])
@pytest.mark.parametrize("query_size", [1e15, 1.0, 1e-25, 1e-41])
def test_numbers_of_extreme_size(simd: str, kind: str, metric: Metric, size: float, query_size: float) -> None:
    rng = np.random.default_rng(0)
    stored = one_record(kind, rng.uniform(-size, size, (9, 50)))
    query = rng.uniform(-query_size, query_size, (1, 50)).astype(np.float32)
    got = distances(stored, metric, query, [9], np.arange(9))
    assert np.isfinite(got).all()
    assert same_bits(got, reference.exact_distances(stored.of(range(9)), metric, query[0]))
    assert near(got, stored, metric, query[0], range(9))


@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_every_size_in_one_record(simd: str, metric: Metric) -> None:
    """Each row has a scale of its own."""
    rng = np.random.default_rng(4)
    stored = one_record("scaled-float16", rng.standard_normal((40, 33)) * 10.0 ** np.arange(-25, 15)[:, None])
    for query in (rng.standard_normal((2, 33)) * [[1.0], [1e-22]]).astype(np.float32):
        got = distances(stored, metric, query[None], [40], np.arange(40))
        assert same_bits(got, reference.exact_distances(stored.of(range(40)), metric, query))
        assert near(got, stored, metric, query, range(40))


@few
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(LAYOUTS),
    metric=st.sampled_from(METRICS),
    dim=st.integers(1, 1200),
    n=st.integers(1, 40),
    exponent=st.integers(-4, 4),
)
def test_anything_equals_the_reference(seed: int, kind: str, metric: Metric, dim: int, n: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    stored = one_record(kind, rng.standard_normal((n, dim)) * 10.0**exponent, shift=seed % 7)
    query = (rng.standard_normal((1, dim)) * 10.0**exponent).astype(np.float32)
    rows = rng.integers(0, n, n)
    expected = reference.exact_distances(stored.of(rows), metric, query[0])
    for got in on_every_level(lambda: distances(stored, metric, query, [n], rows)):
        assert same_bits(got, expected)
        assert near(got, stored, metric, query[0], rows)


@pytest.mark.parametrize("metric", METRICS)
def test_errors_do_not_grow_with_the_dimensions(simd: str, metric: Metric) -> None:
    rng = np.random.default_rng(1)
    for vectors in (rng.random((2, 100_000)), np.full((2, 100_000), 0.1)):
        stored = one_record("float32", vectors)
        query = rng.random((1, 100_000)).astype(np.float32)
        got = distances(stored, metric, query, [2], [0, 1])
        assert near(got, stored, metric, query[0], [0, 1], within=1e-6)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_vector_is_at_distance_0_from_itself(simd: str, metric: Metric) -> None:
    vectors = np.random.default_rng(2).standard_normal((5, 384)).astype(np.float32)
    stored = one_record("float32", vectors)
    assert distances(stored, metric, vectors, np.ones(5), np.arange(5)).tolist() == [0] * 5


# -- the doors ---------------------------------------------------------------------------------------


def test_a_row_in_no_record_is_a_lookup_error_and_then_damage(simd: str) -> None:
    stored = Stored("float32", 4)
    stored.add(10, np.ones((3, 4), np.float32))
    stored.add(20, np.ones((3, 4), np.float32))
    queries = np.ones((2, 4), np.float32)
    for row in (0, 9, 13, 19, 23, 2**32 - 1):
        with pytest.raises(LookupError, match=f"row {row} is in no record"):
            distances(stored, "l2", queries, [2, 2], [10, 22, 12, row])
        with pytest.raises(LookupError, match=f"row {row} is in no record"):
            distances(stored, "l2", queries, [2, 0], [10, row])
    with pytest.raises(LookupError, match="row 0"):
        distances(Stored("float32", 4), "l2", queries, [1, 0], [0])
    assert len(distances(Stored("float32", 4), "l2", queries, [0, 0], [])) == 0
    assert len(distances(stored, "l2", np.empty((0, 4)), [], [])) == 0


def wrong_calls() -> dict[str, Any]:
    u4, u8 = np.zeros(2, np.uint32), np.zeros(2, np.uint64)
    q, found, rows = np.zeros((2, 3), np.float32), np.array([1, 1]), np.zeros(2, np.uint32)
    call: Any = _exact.distances
    return {
        "kind": lambda: call(u4, u4, u8, "float64", 3, 0, q, found, rows),
        "metric": lambda: call(u4, u4, u8, "int8", 3, 3, q, found, rows),
        "counts": lambda: call(u4, u4[:1], u8, "int8", 3, 0, q, found, rows),
        "addresses": lambda: call(u4, u4, u8[:1], "int8", 3, 0, q, found, rows),
        "dim": lambda: call(u4, u4, u8, "int8", 4, 0, q, found, rows),
        "no dim": lambda: call(u4, u4, u8, "int8", 0, 0, q[:, :0], found, rows),
        "one number too few": lambda: call(u4, u4, u8, "int8", 3, 0, q, found[:1], rows),
        "too few rows": lambda: call(u4, u4, u8, "int8", 3, 0, q, found, rows[:1]),
        "too many rows": lambda: call(u4, u4, u8, "int8", 3, 0, q, np.array([1, 0]), rows),
        "a negative number": lambda: call(u4, u4, u8, "int8", 3, 0, q, np.array([3, -1]), rows),
        "a huge number": lambda: call(u4, u4, u8, "int8", 3, 0, q, np.array([2**63 - 1, 3]), rows),
        "float64": lambda: call(u4, u4, u8, "int8", 3, 0, q.astype(np.float64), found, rows),
        "int64 rows": lambda: call(u4, u4, u8, "int8", 3, 0, q, found, rows.astype(np.int64)),
    }


@pytest.mark.parametrize("what", wrong_calls())
def test_wrong_calls_raise_value_error(what: str) -> None:
    with pytest.raises(ValueError, match=r"fit|unknown|differ|mismatch"):
        wrong_calls()[what]()
