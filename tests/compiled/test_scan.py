"""The scan gives the bits of its NumPy twin on every instruction set, and an index finds what it finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsqindex._compiled import records as _records
from lsqindex._compiled import scan as _scan
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex.encoders import Layout
from lsqindex.encoders.layout import Tables
from lsqindex.testing import reference

from .levels import on_every_level
from .stored_codes import (
    KINDS,
    Answer,
    Stored,
    affine_tables,
    expected,
    in_order,
    kernel_codes,
    layouts,
    many,
    random_tables,
    scan,
    stored,
)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Codes in several records, tables, what may be found, and how many are wanted."""
    layout = draw(layouts())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    width = layout.code_size
    here = Stored(width, draw(st.integers(1, width)))
    own, first = [], draw(st.integers(0, 200))
    for _ in range(draw(st.integers(0, 3))):
        n = draw(st.sampled_from((0, 1, 31, 32, 33, 64, 95, 130)))
        hidden = draw(st.sampled_from((0, 0, 1, 32, 40)))
        # Few different codes make ties; bits after the last field, and numbers beyond their levels, are there, too.
        codes = rng.integers(0, 256, (n + hidden, width)).astype(np.uint8)
        if draw(st.booleans()):
            codes = codes[rng.integers(0, 1 + (n + hidden) // 8, n + hidden)]
        here.add(first, codes, hidden=hidden, shift=draw(st.integers(0, 9)))
        own.append(codes[:n])
        first += n + draw(st.integers(0, 70))
    nibbles = layout.by_nibbles("asymmetric")
    nq = draw(st.integers(0, 9))
    kind = draw(st.sampled_from(KINDS))
    numbers = here.rows()
    segment_rows = 64
    segments = draw(st.integers(0, 1 + first // segment_rows))
    deleted = [
        rng.integers(0, 256, segment_rows // 8).astype(np.uint8) if rng.random() < 0.5 else None
        for _ in range(segments)
    ]
    allowed = (
        rng.integers(0, 256, draw(st.integers(0, 1 + first // 8))).astype(np.uint8) if draw(st.booleans()) else None
    )
    may = np.ones(len(numbers), np.bool_)
    for segment, dead in enumerate(deleted):
        if dead is not None:
            inside = numbers // segment_rows == segment
            may[inside] &= ~np.unpackbits(dead, bitorder="little").astype(bool)[numbers[inside] % segment_rows]
    if allowed is not None:
        bits = np.zeros(first + 2000, np.bool_)
        bits[: 8 * len(allowed)] = np.unpackbits(allowed, bitorder="little")
        may &= bits[numbers]
    return {
        "stored": here,
        "codes": np.concatenate([np.empty((0, width), np.uint8), *own]),
        "layout": layout,
        "tables": random_tables(rng, layout, nq, kind),
        "k": draw(st.sampled_from((1, 2, 5, 17, 400))),
        "nibbles": nibbles,
        "numbers": numbers,
        "may": may,
        "deleted": deleted,
        "segment_rows": segment_rows,
        "allowed": allowed,
    }


@many
@given(cases())
def test_the_scan_equals_the_reference_on_every_instruction_set(case: dict[str, Any]) -> None:
    basic = {name: case[name] for name in ("layout", "tables", "k", "nibbles")}
    wanted = expected(case["codes"], **basic, numbers=case["numbers"], may=case["may"])
    limits = {name: case[name] for name in ("deleted", "segment_rows", "allowed")}
    for got in on_every_level(lambda: scan(case["stored"], **basic, **limits)):
        assert got == wanted
    for parts in (2, 5):
        assert scan(case["stored"], **basic, **limits, parts=parts) == wanted


def progressive(codes: Stored, layout: Layout, tables: Tables, k: int, z: float, parts: int = 1) -> list[Any]:
    """Rows, bits of distances, and whether they are sure, for each query."""
    scan = _scan.Scan(kernel_codes(codes, layout), tables.values, tables.bias, k, True, z, None, parts)
    for part in range(parts):
        scan.run(part)
    counts, rows, distances, sure = scan.finish()
    ends = np.cumsum(counts)
    return [
        (*in_order(rows[end - count : end], distances[end - count : end]), bool(certain))
        for end, count, certain in zip(ends.tolist(), counts.tolist(), sure.tolist(), strict=True)
    ]


@st.composite
def head_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Codes like those of lsq, neighbours of the queries among them, in records of several sizes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    width = draw(st.sampled_from((2, 3, 8, 15, 32, 33, 64)))
    scalar = draw(st.sampled_from((0, 5)))
    bits = (scalar,) * (scalar > 0) + (1,) * (8 * width - scalar - draw(st.integers(0, 7)))
    layout = Layout(bits, tuple(1 << b for b in bits), scalars=int(scalar > 0), linear=True)
    head = draw(st.integers(1, width - 1))
    nq = draw(st.integers(1, 9))
    tables = affine_tables(rng, layout, nq)
    falling = np.linspace(3, 1, len(bits)) if draw(st.booleans()) else np.ones(len(bits))
    tables.values[:] *= np.repeat(falling, layout.levels)
    if draw(st.integers(0, 9)) == 0:
        tables.values[draw(st.integers(0, nq - 1))] = 0  # nothing to tell rows apart by
    # What a query would like best, and rows that differ from it in some bits.
    wanted = np.array([np.argmin(tables.values[0, layout.starts[j] :][:2]) for j in range(len(bits))], np.uint16)
    here, own, first = Stored(width, head), [], 0
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.sampled_from((1, 33, 64, 500, 1300)))
        fields = np.stack([rng.integers(0, levels, n) for levels in layout.levels], axis=1).astype(np.uint16)
        near = rng.random(n) < 0.02
        fields[near] = np.where(rng.random((int(near.sum()), len(bits))) < 0.7, wanted, fields[near])
        codes = layout.pack(fields)
        here.add(first, codes, shift=draw(st.integers(0, 9)))
        own.append(codes)
        first += n
    z = draw(st.sampled_from((-1.0, 0.5, 1.5, 2.5, 4.0)))
    return {"stored": here, "codes": np.concatenate(own), "layout": layout, "tables": tables, "z": z}


@many
@given(head_cases(), st.sampled_from((1, 2, 10, 50)))
def test_the_progressive_scan_equals_the_reference_on_every_instruction_set(case: dict[str, Any], k: int) -> None:
    here, layout, tables, z = case["stored"], case["layout"], case["tables"], case["z"]
    found = reference.progressive(case["codes"], layout, tables, k, here.head, z, here.counts)
    wanted = [(*in_order(rows, distances), sure) for rows, distances, sure in found]
    for got in on_every_level(lambda: progressive(here, layout, tables, k, z)):
        assert [row if row[2] else False for row in got] == [row if row[2] else False for row in wanted]
    for parts in (2, 5):  # neither does it depend on how the work is cut
        assert progressive(here, layout, tables, k, z, parts) == progressive(here, layout, tables, k, z)
    # Where it is sure, what it finds is what is there: never nearer, seldom farther.
    whole = expected(case["codes"], layout, tables, k, True)
    for (_, distances, sure), (_, nearest) in zip(wanted, whole, strict=True):
        if sure:
            near, far = np.array(nearest, np.uint32).view(np.float32), np.array(distances, np.uint32).view(np.float32)
            assert (np.sort(far)[:k] >= np.sort(near)[:k]).all()


def test_a_progressive_scan_is_sure_of_near_rows_and_not_of_rows_that_are_like_all_others(simd: str) -> None:
    """Twenty rows have most bits of the first query; to the second one all rows are strangers."""
    rng = np.random.default_rng(5)
    layout = Layout.uniform(2, 256, linear=True)
    tables = affine_tables(rng, layout, 2)
    fields = rng.integers(0, 2, (6000, 256)).astype(np.uint16)
    near = rng.permutation(6000)[:20]
    wanted = (tables.values[0, 1::2] < 0).astype(np.uint16)
    fields[near] = np.where(rng.random((20, 256)) < 0.8, wanted, fields[near])
    here = stored(layout.pack(fields), 20)
    first, second = progressive(here, layout, tables, 10, 2.6)
    assert first[2]
    assert not second[2]
    assert first[:2] == expected(layout.pack(fields), layout, tables, 10, True)[0]
    assert set(first[0]) <= set(near.tolist())


@pytest.mark.parametrize("width", [1, 2, 3, 31, 32, 33, 64, 128, 255, 256, 257, 258, 259, 260])
def test_codes_of_every_size_in_records_of_every_size(simd: str, width: int) -> None:
    """Up to 258 bytes a look-up has seven bits; from 259 on it has fewer, or sums would leave 16 bits."""
    rng = np.random.default_rng(width)
    layout = Layout.uniform(2, 8 * width, linear=True)
    for n in (1, 31, 32, 33, CHUNK_ROWS):
        codes = rng.integers(0, 256, (n, width)).astype(np.uint8)
        codes[n // 2] = 255
        tables = random_tables(rng, layout, 3, "ordinary")
        # The largest sums there are: every look-up of the last byte's ones is the largest.
        tables.values[2] = np.tile([0, 1], layout.m)
        for head in sorted({1, width // 2 or 1, width}):
            assert scan(stored(codes, head), layout, tables, 7, True) == expected(codes, layout, tables, 7, True)


@pytest.mark.parametrize("nq", range(10))
@pytest.mark.parametrize("nibbles", [True, False])
def test_queries_in_groups_and_the_rest_of_them(simd: str, nq: int, nibbles: bool) -> None:
    rng = np.random.default_rng(nq)
    layout = Layout.uniform(16, 21)
    codes = rng.integers(0, 256, (500, layout.code_size)).astype(np.uint8)
    tables = random_tables(rng, layout, nq, "ordinary")
    assert scan(stored(codes, 4), layout, tables, 5, nibbles) == expected(codes, layout, tables, 5, nibbles)


@pytest.mark.parametrize("bits", range(1, 17))
@pytest.mark.parametrize("nibbles", [True, False])
def test_a_row_scalar_of_every_width_before_bits(simd: str, bits: int, nibbles: bool) -> None:
    rng = np.random.default_rng(bits)
    layout = Layout((bits,) + (1,) * 50, (1 << bits,) + (2,) * 50, scalars=1, linear=True)
    assert layout.by_nibbles("asymmetric")
    codes = rng.integers(0, 256, (300, layout.code_size)).astype(np.uint8)
    tables = affine_tables(rng, layout, 4)
    assert scan(stored(codes), layout, tables, 9, nibbles) == expected(codes, layout, tables, 9, nibbles)
    by_nibble = reference.nibble_distances(codes, *reference.nibble_tables(layout, tables))
    assert np.allclose(by_nibble, reference.field_distances(codes, layout, tables), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, 100, 5000, 10**6])
@pytest.mark.parametrize("nibbles", [True, False])
def test_more_ties_than_the_buffer_holds_are_all_found(simd: str, k: int, nibbles: bool) -> None:
    rng = np.random.default_rng(k)
    layout = Layout.uniform(2, 8, linear=True)
    codes = rng.integers(0, 4, (CHUNK_ROWS, 1)).astype(np.uint8)  # a thousand of each
    tables = random_tables(rng, layout, 5, "whole")
    got = scan(stored(codes), layout, tables, k, nibbles)
    assert got == expected(codes, layout, tables, k, nibbles)
    assert all(len(rows) >= min(CHUNK_ROWS // 8, k) for rows, _ in got)


@pytest.mark.parametrize("kind", ["constant", "zero"])
def test_where_all_rows_are_equally_far_all_are_found(simd: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    layout = Layout.uniform(4, 40)
    codes = rng.integers(0, 256, (1000, layout.code_size)).astype(np.uint8)
    for rows, distances in scan(stored(codes), layout, random_tables(rng, layout, 6, kind), 1, True):
        assert rows == list(range(1000))
        assert len(set(distances)) == 1


def test_rows_that_float32_cannot_tell_apart_are_all_found(simd: str) -> None:
    """A bias of ten millions makes distances whole numbers: many are equal, though their look-ups are not."""
    rng = np.random.default_rng(1)
    layout = Layout.uniform(2, 64, linear=True)
    codes = rng.integers(0, 256, (2000, 8)).astype(np.uint8)
    tables = affine_tables(rng, layout, 8)
    tables.bias[:] = 1e7
    got = scan(stored(codes), layout, tables, 10, True)
    assert got == expected(codes, layout, tables, 10, True)
    assert max(len(rows) for rows, _ in got) > 11  # there are such ties here


def test_infinitely_far_rows_are_found_where_nothing_is_nearer(simd: str) -> None:
    rng = np.random.default_rng(2)
    layout = Layout.uniform(2, 16, linear=True)
    codes = rng.integers(0, 256, (200, 2)).astype(np.uint8)
    tables = affine_tables(rng, layout, 2)
    tables.bias[:] = np.inf, -np.inf
    for rows, _ in scan(stored(codes), layout, tables, 3, True):
        assert rows == list(range(200))


def test_near_rows_at_the_end_are_found_after_many_far_ones(simd: str) -> None:
    """Each row is nearer than the one before: the limit falls all the time, and no row may be skipped."""
    layout = Layout((16,), (1 << 16,), linear=True)
    numbers = np.arange(4000, 0, -1).astype("<u2")
    codes = np.ascontiguousarray(numbers[:, None]).view(np.uint8)
    tables = Tables(np.arange(1 << 16, dtype=np.float32)[None], np.zeros(1, np.float32))
    ((rows, distances),) = scan(stored(codes), layout, tables, 3, True)
    assert rows == [3997, 3998, 3999]
    assert np.array(distances, np.uint32).view(np.float32).tolist() == [3, 2, 1]


def test_nothing_is_found_where_nothing_may_be(simd: str) -> None:
    rng = np.random.default_rng(3)
    layout = Layout.uniform(16, 4)
    codes = rng.integers(0, 256, (100, 2)).astype(np.uint8)
    tables = random_tables(rng, layout, 2, "ordinary")
    nothing: Answer = [([], []), ([], [])]
    for nibbles in (True, False):
        basic = (layout, tables, 5, nibbles)
        assert scan(stored(codes), *basic, allowed=np.zeros(13, np.uint8)) == nothing
        assert scan(stored(codes), *basic, allowed=np.zeros(0, np.uint8)) == nothing
        assert scan(stored(codes), *basic, deleted=[np.full(CHUNK_ROWS // 8, 255, np.uint8)]) == nothing
        assert scan(stored(codes[:0]), *basic) == nothing
        assert scan(Stored(2, 2), *basic) == nothing


def test_sizes_that_do_not_fit_are_refused() -> None:
    layout = Layout.uniform(16, 4)
    good: dict[str, Any] = {
        "starts": np.zeros(1, np.uint32),
        "counts": np.zeros(1, np.uint32),
        "addresses": np.array([_records.address(np.zeros(99, np.uint8)) + 48], np.uint64),
        "width": 2,
        "head": 2,
        "field_starts": layout.starts,
        "field_bits": np.arange(0, 17, 4),
        "field_levels": np.full(4, 16),
        "deleted": np.empty(0, np.uint64),
        "segment_rows": 64,
    }
    wrong: dict[str, Any] = {
        "counts": np.zeros(2, np.uint32),
        "addresses": np.zeros(0, np.uint64),
        "width": 3,
        "head": 3,
        "field_starts": layout.starts[:3],
        "field_bits": np.arange(0, 13, 4),
        "field_levels": np.full(3, 16),
        "segment_rows": 0,
    }
    codes = _scan.Codes(**good)
    for name, value in [*wrong.items(), ("head", 0)]:
        with pytest.raises(ValueError, match=r"scan: |a column's arrays"):
            _scan.Codes(**{**good, name: value})
    values, bias = np.zeros((1, 64), np.float32), np.zeros(1, np.float32)
    for arguments in (
        (values, np.zeros(2, np.float32), 1, True),
        (values[:, :60].copy(), bias, 1, True),
        (values, bias, 0, True),
        (values, bias, 1, True, None, None, 0),
        (values, bias, 1, True, 2.0),  # there is no head
        (values, bias, 1, False, 2.0),
    ):
        with pytest.raises(ValueError, match=r"scan: |k is 0"):
            _scan.Scan(codes, *arguments)
    with pytest.raises(ValueError, match="scan: "):
        _scan.Scan(codes, values, bias, 1, True).run(1)
