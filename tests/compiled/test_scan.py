"""The scan gives the bits of its NumPy twin on every instruction set, and an index finds what it finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex import Index, make_encoder
from lsqindex._compiled import encoding as _kernels
from lsqindex._compiled import records as _records
from lsqindex._compiled import scan as _scan
from lsqindex._query.sources.codes import by_nibbles
from lsqindex._storage.format import records
from lsqindex._storage.format.columns import CHUNK_ROWS, Column, from_blocks, to_blocks
from lsqindex.encoders import Encoder, Layout
from lsqindex.encoders.coder import unit
from lsqindex.encoders.layout import Tables, field_bits
from lsqindex.testing import reference

LONG = os.environ.get("LSQINDEX_LONG") == "1"
many = settings(max_examples=20_000 if LONG else 500, deadline=None)

Answer = list[tuple[list[int], list[int]]]
Metric = Literal["l2", "cosine", "ip"]
Distance = Literal["asymmetric", "symmetric"]


@pytest.fixture(params=_kernels.simd_levels())
def simd(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _kernels.simd_level()
    _kernels.use_simd(request.param)
    yield request.param
    _kernels.use_simd(before)


def on_every_level(act: Any) -> list[Any]:
    before = _kernels.simd_level()
    try:
        results = []
        for level in _kernels.simd_levels():
            _kernels.use_simd(level)
            results.append(act())
        return results
    finally:
        _kernels.use_simd(before)


# -- codes as a file holds them -----------------------------------------------------------------------


@dataclass
class Stored:
    """Records of codes in memory, each in a buffer that ends where its record ends."""

    width: int
    head: int
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    buffers: list[NDArray[np.uint8]] = field(default_factory=list)
    #: Where each payload begins in its buffer.
    offsets: list[int] = field(default_factory=list)

    def add(self, first: int, codes: NDArray[np.uint8], *, hidden: int = 0, shift: int = 0) -> None:
        """A record of ``codes``, of whose rows the last ``hidden`` are of an unfinished add; ``shift`` bytes off."""
        column = Column(b"codes", b"c", records.CODES, self.width, head=self.head)
        record = np.frombuffer(column.encode(first, codes), np.uint8)
        self.buffers.append(np.concatenate([np.zeros(shift, np.uint8), record]))
        self.offsets.append(shift + records.HEADER_SIZE)
        self.starts.append(first)
        self.counts.append(len(codes) - hidden)

    def rows(self) -> NDArray[np.int64]:
        ranges = [np.arange(a, a + n) for a, n in zip(self.starts, self.counts, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *ranges]).astype(np.int64)


def stored(codes: NDArray[np.uint8], head: int | None = None) -> Stored:
    """All codes in one record, from row 0 on."""
    out = Stored(codes.shape[1], head or codes.shape[1])
    out.add(0, codes)
    return out


def kernel_codes(
    codes: Stored, layout: Layout, deleted: list[NDArray[np.uint8] | None] | None = None, segment_rows: int = CHUNK_ROWS
) -> _scan.Codes:
    """Codes as the kernel knows them."""
    return _scan.Codes(
        np.array(codes.starts, np.uint32),
        np.array(codes.counts, np.uint32),
        np.array([_records.address(b) + at for b, at in zip(codes.buffers, codes.offsets, strict=True)], np.uint64),
        codes.width,
        codes.head,
        layout.starts,
        layout.bit_starts,
        layout.level_counts,
        np.array([0 if bits is None else _records.address(bits) for bits in deleted or []], np.uint64),
        segment_rows,
    )


def scan(
    codes: Stored,
    layout: Layout,
    tables: Tables,
    k: int,
    nibbles: bool,
    *,
    deleted: list[NDArray[np.uint8] | None] | None = None,
    segment_rows: int = CHUNK_ROWS,
    allowed: NDArray[np.uint8] | None = None,
    z: float | None = None,
    parts: int = 1,
) -> Answer:
    """What the kernel finds: for each query rows, ascending, and the bits of their distances."""
    scan = _scan.Scan(
        kernel_codes(codes, layout, deleted, segment_rows), tables.values, tables.bias, k, nibbles, z, allowed, parts
    )
    for part in range(parts):
        scan.run(part)
    counts, rows, distances, sure = scan.finish()
    assert z is not None or sure.all()
    assert [str(array.dtype) for array in (counts, rows, distances)] == ["int64", "uint32", "float32"]
    assert len(counts) == len(tables.bias)
    assert len(rows) == len(distances) == counts.sum()
    ends = np.cumsum(counts)
    each = [slice(end - count, end) for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]
    return [in_order(rows[own], distances[own]) for own in each]


def in_order(rows: Any, distances: NDArray[np.float32]) -> tuple[list[int], list[int]]:
    order = np.argsort(rows, kind="stable")
    return np.asarray(rows)[order].tolist(), distances[order].view(np.uint32).tolist()


def expected(
    codes: NDArray[np.uint8],
    layout: Layout,
    tables: Tables,
    k: int,
    nibbles: bool,
    *,
    numbers: NDArray[np.int64] | None = None,
    may: NDArray[np.bool_] | None = None,
) -> Answer:
    """The same by ``reference.scan``; ``numbers`` are the rows of ``codes``."""
    with np.errstate(all="ignore"):  # infinite look-ups are among the cases
        found = reference.scan(codes, layout, tables, k, by_nibbles=nibbles, may=may)
    return [in_order(rows if numbers is None else numbers[rows], distances) for rows, distances in found]


# -- cases ---------------------------------------------------------------------------------------------


def affine_tables(rng: np.random.Generator, layout: Layout, nq: int) -> Tables:
    """As those of lsq: a weight times the number of the field."""
    slopes = rng.standard_normal((nq, len(layout.bits)))
    numbers = np.concatenate([np.linspace(-1, 1, levels) for levels in layout.levels])
    values = np.repeat(slopes, layout.levels, axis=1) * numbers
    return Tables(values.astype(np.float32), rng.standard_normal(nq).astype(np.float32))


def random_tables(rng: np.random.Generator, layout: Layout, nq: int, kind: str) -> Tables:
    """Tables of every size and kind that float32 holds."""
    shape = nq, int(layout.starts[-1])
    bias = rng.standard_normal(nq)
    if kind == "whole":  # sums are exact, many are equal
        values, bias = rng.integers(0, 3, shape).astype(float), rng.integers(-2, 3, nq).astype(float)
    elif kind == "constant":
        values = np.repeat(rng.standard_normal((nq, len(layout.bits))), layout.levels, axis=1)
    elif kind == "zero":
        values = np.zeros(shape)
    elif kind == "far away":  # the bias swallows what rows differ in
        values, bias = rng.standard_normal(shape), bias * 1e6 + 1e7
    elif kind == "one counts":  # a field so much larger than the others that these are below a step
        values = rng.standard_normal(shape) * 1e-4
        values[:, : layout.levels[0]] *= 1e6
    elif kind == "infinite":
        values = np.where(rng.random(shape) < 0.02, rng.choice([np.inf, -np.inf, 3e38], shape), 1.0)
        bias = np.where(rng.random(nq) < 0.5, np.inf, bias)
    else:
        scale = {"ordinary": 1.0, "negative": -100.0, "huge": 1e30, "tiny": 1e-30, "below normal": 1e-42}[kind]
        values = (rng.random(shape) if kind == "negative" else rng.standard_normal(shape)) * scale
        bias = bias * scale
    return Tables(values.astype(np.float32), bias.astype(np.float32))


KINDS = (
    "ordinary",
    "whole",
    "constant",
    "zero",
    "far away",
    "one counts",
    "infinite",
    "negative",
    "huge",
    "tiny",
    "below normal",
)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Fields of one to sixteen bits, equal or mixed, a row scalar before them or not, up to 260 bytes."""
    scalar = draw(st.integers(0, 16))
    kinds = draw(st.lists(st.sampled_from((2, 3, 4, 5, 8, 16, 256, 1000)), min_size=1, max_size=3))
    widest = draw(st.sampled_from((1, 2, 5, 33, 260)))
    levels, bits = ([1 << scalar], [scalar]) if scalar else ([], [])
    while not bits or (sum(bits) + field_bits(kinds[len(bits) % len(kinds)]) <= 8 * widest and len(bits) < 2100):
        levels.append(kinds[len(bits) % len(kinds)])
        bits.append(field_bits(levels[-1]))
    return Layout(tuple(bits), tuple(levels), scalars=int(scalar > 0), linear=draw(st.booleans()))


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
    nibbles = by_nibbles(layout, asymmetric=True)
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
    assert by_nibbles(layout, asymmetric=True)
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
        with pytest.raises(ValueError, match="scan: "):
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
        with pytest.raises(ValueError, match="scan: "):
            _scan.Scan(codes, *arguments)
    with pytest.raises(ValueError, match="scan: "):
        _scan.Scan(codes, values, bias, 1, True).run(1)


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


# -- through the public face ---------------------------------------------------------------------------

DIM = 12
N = CHUNK_ROWS + 700
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 40, "iterations": 2}),
    "lsq of 3 levels": ("lsq", {"bits": 48, "levels": 3, "iterations": 2}),
    "lsq of 5 levels": ("lsq", {"bits": 48, "levels": 5, "iterations": 2}),
    "lsq of 16 levels": ("lsq", {"bits": 64, "levels": 16, "iterations": 2}),
    "lsq with an odd scalar": ("lsq", {"bits": 40, "scalar_bits": 5, "iterations": 2}),
    "itq": ("itq", {"bits": 11, "iterations": 3}),
    "ckmeans": ("ckmeans", {"bits": 16, "field_bits": 4, "rotations": 2}),
    "okmeans": ("okmeans", {"bits": 9, "iterations": 3}),
    "pq by nibbles": ("pq", {"bits": 24, "field_bits": 4}),
    "pq by bytes": ("pq", {"bits": 24, "field_bits": 8}),
    "kmeans": ("kmeans", {"bits": 6}),
    "lsh": ("lsh", {"bits": 37}),
}


def random(n: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


@cache
def fitted(name: str, metric: Metric) -> Encoder:
    kind, parameters = ENCODERS[name]
    sample = random(1500, 0)
    return make_encoder(kind, **parameters).fit(unit(sample) if metric == "cosine" else sample)


def filled(name: str, metric: Metric) -> tuple[Index, NDArray[np.int64], NDArray[np.uint8]]:
    """An index with rows of several adds, some deleted, its ids and their codes."""
    encoder = fitted(name, metric)
    index = Index(dim=DIM, metric=metric, encoder=encoder, keep_vectors=None)
    vectors, ids = random(N, 1), np.random.default_rng(2).permutation(3 * N)[:N].astype(np.int64)
    vectors[100:140] = vectors[50]  # ties, which come by id
    for first, last in ((0, N - 300), (N - 300, N - 40), (N - 40, N)):
        index.add(vectors[first:last], ids[first:last])
    index.delete(ids[::7])
    kept = np.setdiff1d(np.arange(N), np.arange(0, N, 7))
    codes = encoder.encode(unit(vectors) if metric == "cosine" else vectors)
    return index, ids[kept], codes[kept]


def best(found: tuple[Any, NDArray[np.float32]], ids: NDArray[np.int64], k: int) -> tuple[list[int], list[float]]:
    rows, distances = found
    order = np.lexsort((ids[rows], distances))[:k]
    return ids[rows][order].tolist(), distances[order].tolist()


def told(distances: Any, metric: Metric) -> Any:
    """As an index tells them: zero where an estimate is below it, except for inner products."""
    if metric == "ip":
        return distances
    return [max(far, 0.0) for far in distances] if isinstance(distances, list) else np.maximum(distances, 0)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("name", ENCODERS)
def test_an_index_finds_what_the_reference_finds(name: str, metric: Metric) -> None:
    index, ids, codes = filled(name, metric)
    encoder, queries, k = fitted(name, metric), random(22, 3), 12
    for distance in encoder.distances(metric):
        tables = encoder.tables(queries, metric, distance)
        nibbles = by_nibbles(encoder.layout, asymmetric=distance == "asymmetric")
        wanted = [best(found, ids, k) for found in reference.scan(codes, encoder.layout, tables, k, by_nibbles=nibbles)]
        found = index.search(queries, k, distance=distance, threads=1)
        assert list(zip(found.ids.tolist(), found.distances.tolist(), strict=True)) == [
            (names, told(far, metric)) for names, far in wanted
        ]
        # Whatever the order of additions.
        all_distances = np.sort(reference.distances(codes, encoder.layout, tables), axis=1)[:, :k]
        scale = float(np.abs(tables.values).max() + np.abs(tables.bias).max())
        assert np.allclose(found.distances, told(all_distances, metric), rtol=1e-5, atol=1e-5 * scale)
        for threads in (2, 5):
            assert_equal(index.search(queries, k, distance=distance, threads=threads), found)
        for other in on_every_level(lambda how=distance: index.search(queries, k, distance=how, threads=1)):
            # Symmetric tables hold the query's own code, which is equal on every instruction set, too.
            assert_equal(other, found)
        # A query alone: its tables may round otherwise than in a batch (BLAS), and then its distances do.
        for i in (0, 21):
            alone = index.search(queries[i], k, distance=distance)
            own = encoder.tables(queries[i : i + 1], metric, distance)
            if np.array_equal(own.values[0], tables.values[i]) and own.bias[0] == tables.bias[i]:
                assert alone.ids.tolist() == found.ids[i].tolist()
                assert alone.distances.tolist() == found.distances[i].tolist()
            assert np.allclose(alone.distances, found.distances[i], rtol=1e-4, atol=1e-4 * scale)
        # A filter copies codes together; distances are the same bits.
        some = np.random.default_rng(4).permutation(ids)[:500]
        everything = index.search(queries, len(ids), distance=distance)
        filtered = index.search(queries, 40, distance=distance, filter=some)
        for i in range(len(queries)):
            inside = np.isin(everything.ids[i], some)
            assert filtered.ids[i].tolist() == everything.ids[i][inside][:40].tolist()
            assert filtered.distances[i].tolist() == everything.distances[i][inside][:40].tolist()
    index.close()


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
    kept, places = _scan.cut(counts, distances, k)
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
        (count,), places = _scan.cut(np.array([n]), far, k)
        wanted = np.flatnonzero(far <= np.sort(far)[min(k, n) - 1])
        assert count == len(wanted) and np.array_equal(places, wanted)


def test_nothing_is_cut_of_nothing() -> None:
    none = np.empty(0, np.int64)
    for counts in (none, np.zeros(3, np.int64)):
        kept, places = _scan.cut(counts, np.empty(0, np.float32), 5)
        assert kept.tolist() == counts.tolist() and places.tolist() == []


def test_sizes_that_do_not_fit_are_refused_by_cut() -> None:
    good: tuple[Any, Any, int] = np.array([2, 1]), np.zeros(3, np.float32), 1
    assert _scan.cut(*good)[0].tolist() == [2, 1]
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
        with pytest.raises(ValueError, match="cut: shapes"):
            _scan.cut(np.array(counts, np.int64), good[1], k)
    absent: list[tuple[Any, Any, int]] = [(None, good[1], 1), (good[0], None, 1)]
    for arguments in absent:
        with pytest.raises(TypeError):
            _scan.cut(*arguments)


@pytest.mark.parametrize("far", [1e4, 1e7, 1e12])
def test_a_query_far_away_from_all_vectors_has_many_ties_which_come_by_id(simd: str, far: float) -> None:
    index, ids, codes = filled("lsq", "l2")
    encoder, queries = fitted("lsq", "l2"), random(8, 5) * np.float32(far)
    tables = encoder.tables(queries, "l2")
    wanted = [best(found, ids, 5) for found in reference.scan(codes, encoder.layout, tables, 5, by_nibbles=True)]
    found = index.search(queries, 5, threads=1)
    assert list(zip(found.ids.tolist(), found.distances.tolist(), strict=True)) == wanted
    index.close()


def assert_equal(found: Any, other: Any) -> None:
    assert found.ids.tolist() == other.ids.tolist()
    assert cast(list[Any], found.distances.tolist()) == other.distances.tolist()
