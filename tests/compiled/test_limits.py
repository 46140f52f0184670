"""Kernels find all rows within a limit, or the k nearest of them: the bits of their twins, whatever the threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex._compiled import ranking
from lsqindex._compiled import records as _records
from lsqindex._compiled import scan as _scan
from lsqindex._storage.format import records
from lsqindex._storage.format.columns import CHUNK_ROWS, Column
from lsqindex.encoders import Layout
from lsqindex.encoders.layout import Tables
from lsqindex.testing import reference

from .levels import on_every_level

many = settings(max_examples=200, deadline=None)

#: As places among the sorted distances of a query; the last ones are no distance of any row.
LIMITS = (0.0, 0.1, 0.5, 1.0, -math.inf, math.inf, -1e30, 1e30)

NO_ROWS = np.empty(0, np.uint64)


class Stored:
    """Records of codes in memory."""

    def __init__(self, layout: Layout, head: int, parts: list[NDArray[np.uint8]]) -> None:
        column = Column(b"codes", b"c", records.CODES, layout.code_size, head=head)
        self.counts = [len(part) for part in parts]
        firsts = np.cumsum([0, *self.counts])[:-1]
        self.buffers = [
            np.frombuffer(column.encode(first, part), np.uint8)
            for first, part in zip(firsts.tolist(), parts, strict=True)
        ]
        self.codes = _scan.Codes(
            firsts.astype(np.uint32),
            np.array(self.counts, np.uint32),
            np.array([_records.address(buffer) + records.HEADER_SIZE for buffer in self.buffers], np.uint64),
            layout.code_size,
            head,
            layout.starts,
            layout.bit_starts,
            layout.level_counts,
            NO_ROWS,
            CHUNK_ROWS,
        )

    def scan(
        self, tables: Tables, k: int | None, nibbles: bool, z: float | None, parts: int, limit: float
    ) -> list[Any]:
        """Rows, bits of their distances, and whether they are sure, for each query."""
        work = _scan.Scan(self.codes, tables.values, tables.bias, k, nibbles, z, None, parts, limit)
        for part in range(parts):
            work.run(part)
        counts, rows, distances, sure = work.finish()
        ends = np.cumsum(counts).tolist()
        own = [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
        return [(*by_row(rows[at], distances[at]), bool(certain)) for at, certain in zip(own, sure, strict=True)]


def by_row(rows: NDArray[Any], distances: NDArray[np.float32]) -> tuple[list[int], list[int]]:
    order = np.argsort(rows, kind="stable")
    return rows[order].tolist(), distances[order].view(np.uint32).tolist()


def limit_of(place: float, distances: NDArray[np.float32]) -> float:
    """A limit that some distances reach exactly, or one of no row."""
    known = np.sort(distances[np.isfinite(distances)])
    if not 0 <= place <= 1 or not len(known):
        return place
    return float(known[int(place * (len(known) - 1))])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    layout = draw(
        st.sampled_from(
            (
                Layout.uniform(2, 40, linear=True),
                Layout.uniform(16, 9),
                Layout.uniform(256, 4),
                Layout((5,) + (1,) * 59, (32,) + (2,) * 59, scalars=1, linear=True),
            )
        )
    )
    nq = draw(st.integers(1, 6))
    values = rng.standard_normal((nq, int(layout.starts[-1])))
    if layout.linear:  # a weight times the number of the field
        slopes = np.repeat(rng.standard_normal((nq, len(layout.bits))), layout.levels, axis=1)
        values = slopes * np.concatenate([np.linspace(-1, 1, levels) for levels in layout.levels])
    scale = draw(st.sampled_from((1.0, 1e-30, 1e30, 0.0)))
    tables = Tables((values * scale).astype(np.float32), (rng.standard_normal(nq) * scale).astype(np.float32))
    parts = [
        rng.integers(0, 256, (draw(st.sampled_from((1, 32, 95, 700))), layout.code_size)).astype(np.uint8)
        for _ in range(draw(st.integers(1, 3)))
    ]
    return {"layout": layout, "tables": tables, "parts": parts, "head": draw(st.integers(1, layout.code_size))}


@many
@given(cases(), st.sampled_from((None, 1, 7, 200, 5000)), st.sampled_from(LIMITS))
def test_a_scan_finds_what_is_within_the_limit(case: dict[str, Any], k: int | None, place: float) -> None:
    layout, tables, codes = case["layout"], case["tables"], np.concatenate(case["parts"])
    stored = Stored(layout, case["head"], case["parts"])
    nibbles = layout.linear or not layout.crosses
    everything = reference.scan(codes, layout, tables, None, by_nibbles=nibbles)
    limit = limit_of(place, everything[0][1])
    found = reference.scan(codes, layout, tables, k, by_nibbles=nibbles, limit=limit)
    wanted = [(*by_row(*own), True) for own in found]
    for got in on_every_level(lambda: stored.scan(tables, k, nibbles, None, 1, limit)):
        assert got == wanted
    for parts in (2, 3):
        assert stored.scan(tables, k, nibbles, None, parts, limit) == wanted


def clustered(rng: np.random.Generator, bits: int, n: int, near: int) -> tuple[Layout, Tables, NDArray[np.uint8]]:
    """Codes of which some are near to the first query, and all are strangers to the second."""
    layout = Layout.uniform(2, bits, linear=True)
    slopes = rng.standard_normal((2, bits))
    values = np.repeat(slopes, 2, axis=1) * np.tile([-1, 1], bits)
    fields = rng.integers(0, 2, (n, bits)).astype(np.uint16)
    some = rng.permutation(n)[:near]
    fields[some] = np.where(rng.random((near, bits)) < 0.8, slopes[0] < 0, fields[some])
    return layout, Tables(values.astype(np.float32), np.zeros(2, np.float32)), layout.pack(fields)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from((64, 256, 500)),
    st.sampled_from((None, 1, 10, 60)),
    st.sampled_from((0.0, 0.002, 0.01, 0.3, math.inf, -math.inf)),
    st.sampled_from((0.5, 1.5, 2.6)),
)
def test_a_progressive_scan_with_a_limit_equals_its_twin(
    seed: int, bits: int, k: int | None, place: float, z: float
) -> None:
    layout, tables, codes = clustered(np.random.default_rng(seed), bits, 3000, 40)
    head = layout.code_size // 3
    stored = Stored(layout, head, [codes[:1000], codes[1000:]])
    everything = reference.scan(codes, layout, tables, None, by_nibbles=True)
    limit = limit_of(place, everything[0][1])
    found = reference.progressive(codes, layout, tables, k, head, z, stored.counts, limit)
    wanted = [(*by_row(rows, distances), sure) if sure else None for rows, distances, sure in found]
    for parts in (1, 2):
        for got in on_every_level(lambda own=parts: stored.scan(tables, k, True, z, own, limit)):
            assert [own if own[2] else None for own in got] == wanted
    # Nothing beyond the limit, ever; and where it is sure, what it found is nearly all there is.
    whole = reference.scan(codes, layout, tables, k, by_nibbles=True, limit=limit)
    for (rows, _, sure), (there, _) in zip(found, whole, strict=True):
        if sure and k is None:
            assert set(rows) <= set(there)


def test_a_progressive_scan_is_sure_of_a_limit_that_few_rows_reach() -> None:
    """Fewer than k rows are within the limit; they are found by their heads, and nothing else is looked for."""
    layout, tables, codes = clustered(np.random.default_rng(5), 256, 6000, 20)
    stored = Stored(layout, 20, [codes])
    distances = reference.scan(codes, layout, tables, None, by_nibbles=True)[0][1]
    limit = float(np.sort(distances)[4])
    first, second = stored.scan(tables, 10, True, 2.6, 1, limit)
    assert first[2] and len(first[0]) == 5
    assert first[:2] == by_row(*reference.scan(codes, layout, tables, 10, by_nibbles=True, limit=limit)[0])
    assert not second[2]  # nothing came near, which proves nothing
    assert not stored.scan(tables, None, True, 2.6, 1, math.inf)[0][2]


def test_a_limit_is_compared_without_rounding() -> None:
    """0.1 is not a float32: the nearest one is above it, and so not within it."""
    counts, distances = np.array([3], np.int64), np.array([0.1, np.nextafter(np.float32(0.1), 0), 0.0], np.float32)
    assert float(distances[0]) > 0.1
    assert ranking.cut(counts, distances, None, 0.1)[1].tolist() == [1, 2]
    assert ranking.cut(counts, distances, None, float(distances[0]))[1].tolist() == [0, 1, 2]
    huge = np.array([np.inf, np.finfo(np.float32).max], np.float32)
    assert ranking.cut(np.array([2]), huge, None, 1e300)[1].tolist() == [1]
    assert ranking.cut(np.array([2]), huge, None)[1].tolist() == [0, 1]


@many
@given(
    st.lists(st.lists(st.sampled_from((-np.inf, -1.5, 0.0, 1.0, 1.0, 2.0, np.inf, np.nan)), max_size=40), max_size=6),
    st.sampled_from((None, 1, 2, 10, 2**40)),
    st.sampled_from((-np.inf, -1.5, 0.5, 1.0, np.inf)),
)
def test_what_is_cut_is_beyond_the_limit_or_the_k_th_nearest(
    found: list[list[float]], k: int | None, limit: float
) -> None:
    counts = np.array([len(own) for own in found], np.int64)
    distances = np.array([far for own in found for far in own], np.float32)
    kept, places = ranking.cut(counts, distances, k, limit)
    firsts = np.cumsum([0, *counts])
    wanted = [
        first + reference.nearest(np.array(own, np.float32), k, limit)
        for own, first in zip(found, firsts[:-1].tolist(), strict=True)
    ]
    assert kept.tolist() == [len(own) for own in wanted]
    assert places.tolist() == [place for own in wanted for place in own.tolist()]


def test_a_limit_that_is_not_a_number_is_refused() -> None:
    layout, tables, codes = clustered(np.random.default_rng(0), 64, 100, 1)
    stored = Stored(layout, layout.code_size, [codes])
    with pytest.raises(ValueError, match="limit: not a number"):
        stored.scan(tables, 1, True, None, 1, math.nan)
    with pytest.raises(ValueError, match="limit: not a number"):
        ranking.cut(np.array([0]), np.empty(0, np.float32), 1, math.nan)
    with pytest.raises(ValueError, match="k is -1"):
        stored.scan(tables, -1, True, None, 1, 1.0)
