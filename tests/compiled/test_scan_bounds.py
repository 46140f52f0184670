"""What the scan rests on: quantized look-ups, blocks, and cutting to the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsqindex._compiled import ranking
from lsqindex._storage.format.columns import from_blocks, to_blocks
from lsqindex.encoders import Layout
from lsqindex.testing import reference

from .stored_codes import KINDS, affine_tables, layouts, many, random_tables

# -- what the scan rests on ----------------------------------------------------------------------------


@many
@given(layouts(), st.sampled_from([kind for kind in KINDS if kind != "infinite"]), st.integers(0, 2**32))
def test_sums_of_quantized_look_ups_are_lower_bounds_of_16_bits(layout: Layout, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (50, layout.code_size)).astype(np.uint8)
    exact, bias = reference.nibble_tables(layout, random_tables(rng, layout, 1, kind))
    look_ups, base, step = reference.quantize(exact[0], bias[0])
    assert int(look_ups.max(axis=1).astype(int).sum()) <= 65535
    # Two of them are added as bytes.
    assert look_ups.max() <= 127
    at = reference.nibbles(codes)
    sums = look_ups[np.arange(at.shape[1]), at].astype(np.int64).sum(axis=1)
    distances = reference.nibble_distances(codes, exact, bias)[0].astype(np.float64)
    slack = reference.rounding(exact[0], bias[0]) + 1e-6 * step
    assert (base + step * sums <= distances + slack).all()
    # And not far below: each look-up loses less than a step.
    assert (distances <= base + step * (sums + at.shape[1]) + slack).all()


@many
@given(layouts(), st.integers(0, 2**32))
def test_affine_tables_give_the_same_distances_by_nibbles_and_by_fields(layout: Layout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields = np.stack([rng.integers(0, levels, 40) for levels in layout.levels], axis=1).astype(np.uint16)
    codes, tables = layout.pack(fields), affine_tables(rng, layout, 2)
    by_field = reference.field_distances(codes, layout, tables)
    by_nibble = reference.nibble_distances(codes, *reference.nibble_tables(layout, tables))
    slack = 1e-4 * float(len(layout.bits) ** 0.5)
    assert np.allclose(by_nibble, by_field, rtol=1e-4, atol=slack)
    assert np.allclose(reference.distances(codes, layout, tables), by_field, rtol=1e-4, atol=slack)


@many
@given(st.integers(0, 200), st.integers(1, 40), st.data())
def test_blocks_hold_byte_j_of_32_rows_side_by_side_heads_first(n: int, width: int, data: st.DataObject) -> None:
    head = data.draw(st.integers(1, width))
    codes = np.random.default_rng(n).integers(1, 256, (n, width)).astype(np.uint8)
    blocks = to_blocks(codes, head)
    count = -(-n // 32)
    assert len(blocks) == 32 * count * width
    for row in range(n):
        block, lane = divmod(row, 32)
        heads = [blocks[(block * head + j) * 32 + lane] for j in range(head)]
        rest = [blocks[(count * head + block * (width - head) + j) * 32 + lane] for j in range(width - head)]
        assert heads + rest == codes[row].tolist()
    assert np.count_nonzero(blocks) == codes.size  # what pads the last block is zero
    assert np.array_equal(from_blocks(blocks, n, width, head), codes)


# -- the nearest of what was found ---------------------------------------------------------------------


@many
@given(
    st.lists(st.lists(st.sampled_from((-np.inf, -1.5, 0.0, 1.0, 1.0, 2.0, 3e38, np.inf)), max_size=40), max_size=6),
    st.integers(1, 45),
)
def test_what_is_cut_is_farther_than_the_k_th_nearest(found: list[list[float]], k: int) -> None:
    counts = np.array([len(own) for own in found], np.int64)
    distances = np.array([far for own in found for far in own], np.float32)
    before = distances.copy()
    kept, places = ranking.cut(counts, distances, k)
    assert (str(kept.dtype), str(places.dtype)) == ("int64", "int64")
    assert np.array_equal(distances, before), "distances are the caller's"
    wanted_counts, wanted, first = [], [], 0
    for own in found:
        limit = np.sort(own)[min(k, len(own)) - 1] if own else 0
        here = [first + i for i in range(len(own)) if len(own) <= k or own[i] <= limit]
        wanted_counts.append(len(here))
        wanted += here
        first += len(own)
    assert (kept.tolist(), places.tolist()) == (wanted_counts, wanted)


@pytest.mark.parametrize("n", [1, 2, 1000, 100_000])
@pytest.mark.parametrize("k", [1, 2, 999, 1000, 1001, 2**40])
def test_many_are_cut_with_their_ties(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    for distances in (rng.standard_normal(n), rng.integers(0, 4, n), np.zeros(n), np.arange(n), -np.arange(n)):
        far = distances.astype(np.float32)
        (count,), places = ranking.cut(np.array([n]), far, k)
        wanted = np.flatnonzero(far <= np.sort(far)[min(k, n) - 1])
        assert count == len(wanted) and np.array_equal(places, wanted)


def test_nothing_is_cut_of_nothing() -> None:
    none = np.empty(0, np.int64)
    for counts in (none, np.zeros(3, np.int64)):
        kept, places = ranking.cut(counts, np.empty(0, np.float32), 5)
        assert kept.tolist() == counts.tolist() and places.tolist() == []


def test_sizes_that_do_not_fit_are_refused_by_cut() -> None:
    good: tuple[Any, Any, int] = np.array([2, 1]), np.zeros(3, np.float32), 1
    assert ranking.cut(*good)[0].tolist() == [2, 1]
    wrong: list[tuple[Any, int]] = [
        ([2, 2], 1),
        ([2, 0], 1),
        ([4, -1], 1),
        ([-1, 4], 1),
        ([2**62, 2**62], 1),
        ([], 1),
        ([2, 1], 0),
        ([2, 1], -3),
    ]
    for counts, k in wrong:
        with pytest.raises(ValueError, match=r"cut: shapes|k is "):
            ranking.cut(np.array(counts, np.int64), good[1], k)
    absent: list[tuple[Any, Any, int]] = [(None, good[1], 1), (good[0], None, 1)]
    for arguments in absent:
        with pytest.raises(TypeError):
            ranking.cut(*arguments)
