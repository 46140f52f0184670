"""Nearest centres and records of cells: the same on every instruction set, and as plain NumPy has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lsqindex._compiled import assign, records
from lsqindex._storage.format.columns import from_blocks, to_blocks
from lsqindex.testing import reference

from .levels import on_every_level


def random(n: int, dim: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


@pytest.mark.parametrize(
    ("n", "dim", "count", "k"), [(1, 1, 1, 1), (130, 16, 7, 7), (65, 37, 50, 24), (200, 384, 90, 3)]
)
def test_the_nearest_centres_are_those_of_plain_numpy_on_every_level(n: int, dim: int, count: int, k: int) -> None:
    vectors, centres = random(n, dim), random(count, dim, 1)
    apart = ((vectors[:, None].astype(np.float64) - centres) ** 2).sum(axis=2)

    def act() -> Any:
        known = assign.Centres(centres)
        labels, squares = known.nearest(vectors, k)
        spilled = known.spill(vectors, labels, squares) if k > 1 else np.zeros(n, np.int64)
        return labels, squares, spilled, *known.among(vectors, labels)

    found = on_every_level(act)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    labels, squares, spilled, best, _ = found[0]
    assert np.array_equal(labels, np.argsort(apart, axis=1)[:, :k]) and np.array_equal(best, labels[:, 0])
    np.testing.assert_allclose(squares, np.sort(apart, axis=1)[:, :k], rtol=1e-5)
    if k > 1:
        residuals = vectors[:, None].astype(np.float64) - centres[labels]
        along = (residuals * residuals[:, :1]).sum(axis=2)
        cost = squares + along**2 / squares[:, :1]
        assert np.array_equal(spilled, 1 + np.argmin(cost[:, 1:], axis=1))


@pytest.mark.parametrize(("n", "dim", "count", "k"), [(1, 1, 1, 1), (70, 3, 9, 9), (65, 37, 50, 24), (40, 384, 90, 3)])
def test_nearest_and_second_centres_are_those_of_the_reference_on_every_level(
    n: int, dim: int, count: int, k: int
) -> None:
    vectors, centres = random(n, dim), random(count, dim, 1)
    centres[count // 2 :: 7] = centres[0]  # some are equal
    vectors[::5] = centres[np.arange(0, n, 5) % count]
    wanted = reference.nearest_centres(vectors, centres, k)
    for labels, squares in on_every_level(lambda: assign.Centres(centres).nearest(vectors, k)):
        assert np.array_equal(labels, wanted[0]) and np.array_equal(squares, wanted[1])
    if k > 1:
        labels = wanted[0].astype(np.uint32)
        second = reference.second_cells(vectors, centres, *wanted)
        for found in on_every_level(lambda: assign.Centres(centres).spill(vectors, labels, wanted[1])):
            assert np.array_equal(found, second)


def test_equal_centres_are_taken_in_their_order_and_nothing_is_lost_where_numbers_are_none() -> None:
    known = assign.Centres(np.zeros((5, 3), np.float32))
    assert known.nearest(np.ones((2, 3), np.float32), 4)[0].tolist() == [[0, 1, 2, 3]] * 2
    assert sorted(known.nearest(np.full((1, 3), np.nan, np.float32), 5)[0][0].tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("width", "head"), [(1, 1), (12, 4), (32, 8), (5, 0)])
def test_entries_are_packed_as_codes_are_and_back(width: int, head: int) -> None:
    rng = np.random.default_rng(0)
    counts, numbers = np.array([1, 32, 33, 70]), np.array([4, 5, 9, 1 << 30], np.uint32)
    rows = np.concatenate([np.sort(rng.permutation(1_000)[:count]) for count in counts]).astype(np.uint32)
    codes = rng.integers(0, 256, (len(rows), width)).astype(np.uint8)
    made = assign.pack(b"k", numbers, counts, rows, codes, head, 3)
    ends = np.cumsum(counts)
    for record, number, first, end in zip(made, numbers, ends - counts, ends, strict=True):
        assert records.decode(record) == (b"k", end - first, number, width, 3, head)
        padded = -(-(end - first) // 32) * 32
        assert record[48 : 48 + padded * width] == to_blocks(codes[first:end], head).tobytes()
        assert np.array_equal(from_blocks(record[48 : 48 + padded * width], end - first, width, head), codes[first:end])
        tail = np.frombuffer(record, "<u4", offset=48 + padded * width)
        assert np.array_equal(tail[: end - first], rows[first:end]) and (tail[end - first :] == 0xFFFFFFFF).all()
    addresses, sizes = records.places(list(made))
    again = assign.unpack(addresses + np.uint64(48), counts, width, head)
    assert np.array_equal(again[0], rows) and np.array_equal(again[1], codes)
    assert np.array_equal(assign.rows(addresses + np.uint64(48), counts, width), rows)
    told = (addresses, sizes, numbers, ord("k"), width, 3, head)
    assert assign.sound(*told, 1_000, entries=True) == 4 and assign.sound(*told, int(rows[0]), entries=True) == 0


def test_centres_are_copied_and_looked_at() -> None:
    table = random(5, 8)
    table[:, 7] = np.abs(table[:, 7])
    payloads = [row.tobytes() for row in table]
    addresses = records.places(payloads)[0]
    points, spreads, sound = assign.centres(addresses, 7)
    assert np.array_equal(points, table[:, :7]) and np.array_equal(spreads, table[:, 7]) and sound
    for place, wrong in ((3, np.nan), (6, np.inf), (7, np.nan), (7, -0.5)):
        other = table.copy()
        other[4, place] = wrong
        payloads = [row.tobytes() for row in other]
        assert not assign.centres(records.places(payloads)[0], 7)[2]
    with pytest.raises(ValueError, match="dimensions"):
        assign.centres(addresses, 0)


def test_sums_and_living_rows_are_those_of_plain_numpy() -> None:
    vectors, labels = random(100, 9), np.random.default_rng(0).integers(0, 7, 100).astype(np.uint32)
    wanted = np.stack([vectors[labels == label].astype(np.float64).sum(axis=0) for label in range(7)])
    np.testing.assert_allclose(assign.sums(vectors, labels, 7), wanted)
    bits = np.zeros(16, np.uint8)
    bits[1] = 0b100
    rows = np.array([0, 10, 11, 70, 138, 200], np.uint32)
    at = np.array([records.address(bits), 0], np.uint64)
    there = np.array([1, 1, 1, 0], np.uint8)
    assert assign.living(rows, at, 128, there, 50).tolist() == [True, False, True, True, True, False]
    with pytest.raises(ValueError, match="shapes"):
        assign.sums(vectors, labels, 3)
