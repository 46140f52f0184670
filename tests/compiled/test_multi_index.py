"""Probes and scores give the bits of ``lsqindex.testing.reference`` on every instruction set."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex._compiled import multi_index as _multi_index
from lsqindex._compiled import records as _records
from lsqindex.encoders import Layout
from lsqindex.encoders.layout import field_bits
from lsqindex.testing import reference

from .levels import on_every_level
from .posting_lists import SPAN, Bytes, many

#: For each query: rows and scores, by row; probes, postings, rows that any list returned.
Answer = list[tuple[list[tuple[int, int]], list[int]]]


# -- the best rows -------------------------------------------------------------------------------------
CHUNK, SEGMENT = 16, 64


@dataclass
class Case:
    """Rows in blocks, their buckets, what hides some of them: for the kernel, and for the reference."""

    layout: Layout
    #: The first field of each table, and their end.
    table_fields: list[int]
    #: First row and span of each block; the rows in its lists.
    blocks: list[tuple[int, int]]
    rows: NDArray[np.int64]
    fields: NDArray[np.int64]
    deleted: list[Bytes | None] = field(default_factory=list)
    #: A byte for each chunk; None for all.
    there: list[int] | None = None
    allowed: Bytes | None = None
    chunk: int = CHUNK
    segment: int = SEGMENT
    shift: int = 0

    def widths(self) -> list[int]:
        ends = self.layout.bit_starts[self.table_fields]
        return [int(width) for width in np.diff(ends)]

    def buckets(self) -> NDArray[np.int64]:
        """Of each row in each table: its fields, the later the higher."""
        out = np.zeros((len(self.rows), len(self.table_fields) - 1), np.int64)
        for t, (first, end) in enumerate(pairwise(self.table_fields)):
            at = 0
            for f in range(first, end):
                out[:, t] |= self.fields[:, f] << at
                at += self.layout.bits[f]
        return out

    def may(self) -> NDArray[np.bool_]:
        out = np.ones(len(self.rows), np.bool_)
        for i, row in enumerate(self.rows.tolist()):
            bits = self.deleted[row // self.segment] if row // self.segment < len(self.deleted) else None
            at = row % self.segment
            if bits is not None and bits[at // 8] >> (at % 8) & 1:
                out[i] = False
            if self.there is not None and (row // self.chunk >= len(self.there) or not self.there[row // self.chunk]):
                out[i] = False
            if self.allowed is not None and (
                row // 8 >= len(self.allowed) or not self.allowed[row // 8] >> (row % 8) & 1
            ):
                out[i] = False
        return out

    def lists(self) -> tuple[_multi_index.Lists, list[Bytes]]:
        """For the kernel; and what holds the payloads."""
        buckets, held, addresses, counts = self.buckets(), [], [], []
        for first, span in self.blocks:
            inside = (self.rows >= first) & (self.rows < first + span)
            counts.append(int(inside.sum()))
            for t, bits in enumerate(self.widths()):
                payload = reference.list_payload(buckets[inside, t], self.rows[inside] - first, bits)
                held.append(np.concatenate([np.zeros(self.shift, np.uint8), payload]))
                addresses.append(_records.address(held[-1]) + self.shift)
        last = max((first + span for first, span in self.blocks), default=0)
        there = [1] * (-(-last // self.chunk)) if self.there is None else self.there
        lists = _multi_index.Lists(
            np.array([first for first, _ in self.blocks], np.uint32),
            np.array([span for _, span in self.blocks], np.uint32),
            np.array(counts, np.uint32),
            np.array(addresses, np.uint64).reshape(len(self.blocks), len(self.table_fields) - 1),
            np.array(self.table_fields, np.int64),
            np.array(self.widths(), np.uint8),
            self.layout.starts,
            self.layout.level_counts,
            np.array([0 if bits is None else _records.address(bits) for bits in self.deleted], np.uint64),
            self.segment,
            np.array(there, np.uint8),
            self.chunk,
        )
        return lists, [*held, *(bits for bits in self.deleted if bits is not None)]

    def best(
        self, values: NDArray[np.float32], probes: int, wanted: int, weigh: bool, expand: int = 0, most: int = 0
    ) -> Answer:
        """What the kernel finds."""
        lists, held = self.lists()
        counts, rows, scores, figures = lists.best(values, probes, wanted, weigh, expand, most, self.allowed, True)
        assert [str(array.dtype) for array in (counts, rows, scores, figures)] == ["int64", "uint32", "uint16", "int64"]
        assert len(rows) == len(scores) == counts.sum()
        without = lists.best(values, probes, wanted, weigh, expand, most, self.allowed)
        assert [array.tolist() for array in without[:3]] == [array.tolist() for array in (counts, rows, scores)]
        assert without[3].tolist() == (figures * [1, 1, 0]).tolist()
        del held
        ends = np.cumsum(counts)
        return [
            (sorted(zip(rows[end - n : end].tolist(), scores[end - n : end].tolist(), strict=True)), own)
            for end, n, own in zip(ends.tolist(), counts.tolist(), figures.tolist(), strict=True)
        ]

    def expected(
        self, values: NDArray[np.float32], probes: int, wanted: int, weigh: bool, expand: int = 0, most: int = 0
    ) -> Answer:
        """The same by ``reference``, one bucket more at a time."""
        buckets, may, fields = self.buckets(), self.may(), np.array(self.table_fields, np.int64)
        found: Answer = []
        for own in values:
            everything = reference.probes(self.layout, fields, own, 1 << 62)
            n = min(probes, len(everything))
            if expand:
                names = [set(np.flatnonzero((buckets[:, t] == b) & may).tolist()) for _, t, b in everything[:n]]
                came: set[int] = set().union(*names)
                while len(came) < expand and n < min(most, len(everything)):
                    _, table, bucket = everything[n]
                    came |= set(np.flatnonzero((buckets[:, table] == bucket) & may).tolist())
                    n += 1
            taken = everything[:n]
            scores = reference.scores(buckets, taken, weigh=weigh)
            postings = sum(int((buckets[:, t] == bucket).sum()) for _, t, bucket in taken)
            touched = int((scores > 0).sum())
            scores[~may] = 0
            rows = reference.best_rows(scores, wanted)
            pairs = sorted(zip(self.rows[rows].tolist(), scores[rows].tolist(), strict=True))
            found.append((pairs, [n, postings, touched]))
        return found


def cut(layout: Layout, bits: int) -> list[int]:
    """A table every so many fields of two values, or one each."""
    first, end = layout.scalars, len(layout.bits)
    return [*range(first, end, bits if layout.binary else 1), end]


KINDS = ("ordinary", "whole", "constant", "zero", "one counts", "huge", "tiny", "below normal")


def random_values(rng: np.random.Generator, layout: Layout, nq: int, kind: str) -> NDArray[np.float32]:
    """Probe tables of every kind: many equal costs, costs that are all nothing, and every size float32 has."""
    shape = nq, int(layout.starts[-1])
    values = rng.standard_normal(shape)
    if kind == "whole":
        values = rng.integers(0, 4, shape).astype(float)
    elif kind == "constant":
        values = np.repeat(rng.standard_normal((nq, len(layout.bits))), layout.levels, axis=1)
    elif kind == "zero":
        values = np.zeros(shape)
    elif kind == "one counts":  # others cost less than a millionth
        values *= 1e-7
        values[:, layout.starts[layout.scalars] :][:, :2] = 0, 1
    elif kind != "ordinary":
        values *= {"huge": 1e38, "tiny": 1e-30, "below normal": 1e-42}[kind]
        values = np.clip(values, -3e38, 3e38)
    values[:, : layout.starts[layout.scalars]] = 0
    return values.astype(np.float32)


def hidden(rng: np.random.Generator, segments: int) -> list[Bytes | None]:
    return [
        rng.integers(0, 256, SEGMENT // 8).astype(np.uint8) if rng.random() < 0.5 else None for _ in range(segments)
    ]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Layout, list[int]]:
    """A binary code in tables of some bits, or one of any levels, a table each; some with a row scalar."""
    scalar = draw(st.sampled_from((0, 0, 3, 8)))
    if draw(st.booleans()):
        levels = [2] * draw(st.sampled_from((1, 5, 12, 40)))
    else:
        kinds = draw(st.lists(st.sampled_from((2, 3, 4, 5, 16, 256, 1000)), min_size=1, max_size=3))
        levels = [kinds[i % len(kinds)] for i in range(draw(st.integers(1, 7)))]
    everything = [*([1 << scalar] if scalar else []), *levels]
    bits = tuple(field_bits(level) for level in everything)
    layout = Layout(bits, tuple(everything), scalars=int(scalar > 0))
    return layout, cut(layout, draw(st.integers(1, 9)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, NDArray[np.float32]]:
    layout, table_fields = draw(shapes())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    blocks, at = [], draw(st.sampled_from((0, 0, CHUNK, SEGMENT)))
    for _ in range(draw(st.integers(0, 4))):
        span = draw(st.integers(0, SEGMENT - at % SEGMENT))
        blocks.append((at, span))
        at = -(-(at + span + draw(st.sampled_from((0, 0, 30)))) // CHUNK) * CHUNK
    full = draw(st.sampled_from((1.0, 0.5)))
    numbers = [np.arange(first, first + span)[rng.random(span) < full] for first, span in blocks]
    rows = np.concatenate([np.empty(0, np.int64), *numbers])
    different = rng.integers(0, layout.levels, (draw(st.sampled_from((1, 4, 300))), len(layout.levels)))
    fields = different[rng.integers(0, len(different), len(rows))]
    deleted = hidden(rng, draw(st.integers(0, 1 + at // SEGMENT)))
    there = rng.integers(0, 2, draw(st.integers(0, 1 + at // CHUNK))).tolist() if draw(st.booleans()) else None
    allowed = rng.integers(0, 256, draw(st.integers(0, 2 + at // 8))).astype(np.uint8) if draw(st.booleans()) else None
    case = Case(layout, table_fields, blocks, rows, fields, deleted, there, allowed, shift=draw(st.integers(0, 3)))
    return case, random_values(rng, layout, draw(st.integers(0, 3)), draw(st.sampled_from(KINDS)))


@many
@given(cases(), st.sampled_from((1, 2, 5, 17, 60, 1000)), st.integers(1, 400), st.booleans())
def test_the_best_rows_are_those_of_the_reference_on_every_instruction_set(
    case: tuple[Case, NDArray[np.float32]], wanted: int, probes: int, weigh: bool
) -> None:
    lists, values = case
    expected = lists.expected(values, probes, wanted, weigh)
    for got in on_every_level(lambda: lists.best(values, probes, wanted, weigh)):
        assert got == expected


@many
@given(cases(), st.integers(1, 60), st.integers(0, 40), st.integers(1, 40), st.sampled_from((1, 7, 100, 5000)))
def test_probing_goes_on_one_bucket_at_a_time_until_enough_rows_came(
    case: tuple[Case, NDArray[np.float32]], expand: int, more: int, probes: int, most: int
) -> None:
    lists, values = case
    how = (probes, expand + more, False, expand, most)
    assert lists.best(values, *how) == lists.expected(values, *how)


@pytest.mark.parametrize("tables", [1, 127, 128, 255, 256, 400])
@pytest.mark.parametrize("weigh", [False, True])
def test_scores_of_any_number_of_tables_hold(simd: str, tables: int, weigh: bool) -> None:
    """One byte holds the scores of 255 tables; a weighed hit counts more than one up to 127."""
    rng = np.random.default_rng(tables)
    layout = Layout.uniform(2, tables)
    rows = np.arange(150)
    fields = (rng.random((150, tables)) < np.linspace(0, 1, 150)[:, None]).astype(np.int64)
    fields[::7] = 0
    case = Case(layout, cut(layout, 1), [(0, 64), (64, 64), (128, 22)], rows, fields, hidden(rng, 2))
    # A chunk is gone; the filter ends within the second block, before some rows and after others that may be found.
    case.there, case.allowed = [1, 0, *[1] * 8], rng.integers(100, 256, 13).astype(np.uint8)
    values = random_values(rng, layout, 2, "ordinary")
    values[0, ::2], values[0, 1::2] = 0, rng.random(tables) + 0.1  # the query's own bits are all 0
    for probes in (tables, 2 * tables - 1, 2 * tables):
        for wanted in (1, 40, 150):
            assert case.best(values, probes, wanted, weigh) == case.expected(values, probes, wanted, weigh)
    ((found, _), _) = case.best(values, tables, 150, weigh)
    whole = (255 // tables if weigh and tables <= 127 else 1) * tables
    assert {score for row, score in found if row % 7 == 0} == {whole}


@pytest.mark.parametrize(("bits", "m"), [(13, 26), (14, 16), (15, 15), (15, 19), (16, 16), (17, 20), (20, 20)])
def test_buckets_of_many_bits_are_probed_cheapest_first(bits: int, m: int) -> None:
    rng = np.random.default_rng(bits)
    layout = Layout.uniform(2, m)
    # Rows near the query in the first table, so that its buckets are not all empty.
    fields = (rng.random((60, m)) < 0.1).astype(np.int64)
    case = Case(layout, cut(layout, bits), [(0, 60)], np.arange(60), fields, shift=1)
    values = np.abs(random_values(rng, layout, 1, "ordinary"))
    values[:, ::2] = 0
    probing = ((2, 30, False, 30, 5000), (3000, 10, True, 0, 0), (2, 60, False, 60, 300), (50, 10, False, 0, 0))
    for how in probing[: 4 if bits < 20 else 1]:
        assert case.best(values, *how) == case.expected(values, *how)
    assert len(case.best(values, *probing[0])[0][0]) >= 30


@pytest.mark.parametrize(
    ("tables", "n"),
    [*((2, n) for n in (1, 63, 64, 65, 16_319, 16_320, 16_321, 40_000, SPAN)), *((300, n) for n in (1, 64, 65, 700))],
)
def test_rows_of_one_bucket_come_together(simd: str, tables: int, n: int) -> None:
    """More rows than a byte counts in each of 64 lanes; ties are never cut."""
    layout = Layout.uniform(2, tables)
    fields = np.ones((n, tables), np.int64)
    fields[n - 1] = 0
    case = Case(layout, cut(layout, 1), [(0, n)], np.arange(n), fields, chunk=4064, segment=SPAN)
    values = np.tile(np.array([1, 0], np.float32), tables)[None]
    for wanted in (1, n // 2 + 1):
        ((found, figures),) = case.best(values, tables, wanted, False)
        assert found == [(row, tables) for row in range(n - 1)]
        assert figures == [tables, tables * (n - 1), n - 1]
    ((found, figures),) = case.best(values, 2 * tables, 1, False)
    assert found == [(row, tables) for row in range(n)]
    assert figures == [2 * tables, tables * n, n]
    # One row more than its own buckets hold: the other one follows once its first bucket is read.
    ((found, figures),) = case.best(values, tables, n, False, n, 1000)
    assert found == [*((row, tables) for row in range(n - 1)), (n - 1, 1)]
    assert figures == [tables + 1, tables * (n - 1) + 1, n]


def test_the_least_score_rises_over_many_blocks(simd: str) -> None:
    """Each block has better rows than the one before, or worse: what was taken is let go, or nothing more is taken."""
    rng = np.random.default_rng(3)
    layout = Layout.uniform(4, 9)
    blocks = [(first, SEGMENT) for first in range(0, 40 * SEGMENT, SEGMENT)]
    rows = np.arange(40 * SEGMENT)
    values = random_values(rng, layout, 1, "ordinary")
    near = np.array([values[0, 4 * j : 4 * j + 4].argmin() for j in range(9)])
    share = np.linspace(0, 0.9, len(rows))[:, None]
    fields = np.where(rng.random((len(rows), 9)) < share, near, rng.integers(0, 4, (len(rows), 9)))
    for order in (fields, fields[::-1].copy()):
        case = Case(layout, cut(layout, 1), blocks, rows, order, hidden(rng, 40))
        for wanted in (1, 3, 70, 500, 3000):
            for weigh in (False, True):
                assert case.best(values, 14, wanted, weigh) == case.expected(values, 14, wanted, weigh)


@cache
def mixed(bits: int, m: int, n: int) -> tuple[Case, NDArray[np.float32], list[tuple[Any, Any]]]:
    """Of many rows few are good; and where lower bits have a byte, hundreds share the upper ones."""
    rng = np.random.default_rng(n)
    layout = Layout.uniform(2, m)
    fields = (rng.random((n, m)) < np.where(np.arange(m) % bits < bits - 14, 0.5, 0.02 if bits > 14 else 0.5)).astype(
        int
    )
    case = Case(layout, cut(layout, bits), [(0, n)], np.arange(n), fields, chunk=4064, segment=SPAN, shift=1)
    values = np.abs(random_values(rng, layout, 1, "ordinary"))
    values[:, ::2] = 0
    case.fields[n // 2] = 0  # the query's own code
    ways = ((m, 1, False), (m, n // 3, False), (3 * m, 5, True))
    return case, values, [(how, case.expected(values, *how)) for how in ways]


@pytest.mark.parametrize(("bits", "m"), [(3, 24), (14, 16), (15, 17), (18, 20), (1, 300)])
@pytest.mark.parametrize("n", [31, 257, 3001])
def test_large_blocks_of_mixed_scores_hold(simd: str, bits: int, m: int, n: int) -> None:
    case, values, wanted = mixed(bits, m, n)
    for how, expected in wanted:
        got = case.best(values, *how)
        assert got == expected
        assert n // 2 in dict(got[0][0])


def test_nothing_is_found_where_nothing_is(simd: str) -> None:
    layout = Layout.uniform(16, 3)
    rng = np.random.default_rng(4)
    values = random_values(rng, layout, 2, "ordinary")
    rows, fields = np.arange(64), rng.integers(0, 16, (64, 3))
    none = np.empty(0, np.int64)

    def found(case: Case) -> list[Any]:
        answers = [case.best(values, 48, 5, False), case.best(values, 3, 5, False, 5, 1000)]
        return [pairs for answer in answers for pairs, _ in answer]

    nothing: list[Any] = [[], [], [], []]
    block = [(0, 64)]
    assert found(Case(layout, cut(layout, 1), block, rows, fields)) != nothing
    assert found(Case(layout, cut(layout, 1), [], none, fields[:0])) == nothing
    assert found(Case(layout, cut(layout, 1), block, none, fields[:0])) == nothing
    assert found(Case(layout, cut(layout, 1), [(0, 0)], none, fields[:0])) == nothing
    assert found(Case(layout, cut(layout, 1), block, rows, fields, [np.full(8, 255, np.uint8)])) == nothing
    assert found(Case(layout, cut(layout, 1), block, rows, fields, there=[])) == nothing
    assert found(Case(layout, cut(layout, 1), block, rows, fields, there=[0, 0, 0, 0])) == nothing
    assert found(Case(layout, cut(layout, 1), block, rows, fields, allowed=np.zeros(8, np.uint8))) == nothing
    assert found(Case(layout, cut(layout, 1), block, rows, fields, allowed=np.zeros(0, np.uint8))) == nothing
    assert Case(layout, cut(layout, 1), block, rows, fields).best(values[:0], 3, 5, True) == []


def test_adding_up_alone_counts_the_postings_it_reads(simd: str) -> None:
    rng = np.random.default_rng(5)
    layout = Layout.uniform(4, 5)
    case = Case(layout, cut(layout, 1), [(0, 60), (64, 50)], np.r_[0:60, 64:114], rng.integers(0, 4, (110, 5)))
    values = random_values(rng, layout, 1, "ordinary")
    lists, held = case.lists()
    ((_, (_, postings, _)),) = case.expected(values, 7, 1, False)
    assert postings > 0
    assert [lists.accumulate(values[0], 7, times) for times in (0, 1, 3)] == [0, postings, 3 * postings]
    with pytest.raises(ValueError, match="lists: "):
        lists.accumulate(values[0, :-1].copy(), 7, 1)
    del held


# -- what is refused -----------------------------------------------------------------------------------


def good_lists() -> dict[str, Any]:
    """Two blocks, without a row, of a table of three bits and one of four; a row scalar before them."""
    return {
        "firsts": np.array([0, 64], np.uint32),
        "spans": np.array([64, 30], np.uint32),
        "counts": np.array([0, 0], np.uint32),
        "addresses": np.full((2, 2), _records.address(EMPTY), np.uint64),
        "table_fields": np.array([1, 4, 8], np.int64),
        "table_bits": np.array([3, 4], np.uint8),
        "field_starts": FIELD_STARTS,
        "field_levels": np.array([8, *[2] * 7], np.int64),
        "deleted": np.empty(0, np.uint64),
        "segment_rows": 64,
        "there": np.ones(6, np.uint8),
        "chunk_rows": 16,
    }


#: Lists of any table, without a row.
EMPTY = np.zeros(2 * (1 + (1 << 14)), np.uint8)
FIELD_STARTS = np.array([0, *range(8, 23, 2)], np.int64)


def test_sizes_that_do_not_fit_are_refused_by_lists() -> None:
    good = good_lists()
    lists = _multi_index.Lists(**good)
    assert lists.best(np.zeros((1, 22), np.float32), 3, 1, False)[0].tolist() == [0]
    u32 = np.uint32
    wrong: list[dict[str, Any]] = [
        {"firsts": np.zeros(1, u32)},
        {"spans": np.zeros(3, u32)},
        {"counts": np.zeros(1, u32)},
        {"addresses": good["addresses"][:1]},
        {"addresses": np.zeros((2, 1), np.uint64)},
        {"table_fields": good["table_fields"][:2]},
        {"table_fields": np.array([1, 4, 8, 8])},
        {"table_bits": np.zeros(0, np.uint8), "table_fields": np.array([1]), "addresses": np.zeros((2, 0), np.uint64)},
        {"segment_rows": 0},
        {"segment_rows": 4},
        {"segment_rows": 68},
        {"chunk_rows": 0},
        {"chunk_rows": -16},
        {"field_starts": FIELD_STARTS[:7]},
        # A block that is too long, lists more rows than it has, begins within a byte of bits or a chunk, or leaves
        # its segment.
        {"spans": np.array([SPAN + 1, 30], u32), "segment_rows": 2 * (SPAN + 8)},
        {"counts": np.array([65, 0], u32)},
        {"firsts": np.array([0, 4], u32), "chunk_rows": 4, "spans": np.array([4, 4], u32)},
        {"firsts": np.array([0, 72], u32)},
        {"firsts": np.array([48, 64], u32)},
        # A table of no fields, of fields there are not, of none or too many bits, of fields that are not its bits.
        {"table_fields": np.array([-1, 4, 8])},
        {"table_fields": np.array([4, 4, 8])},
        {"table_fields": np.array([5, 4, 8])},
        {"table_fields": np.array([1, 4, 9])},
        {"table_bits": np.array([0, 4], np.uint8)},
        {"table_bits": np.array([3, 21], np.uint8)},
        {"table_bits": np.array([4, 4], np.uint8)},
        {"table_bits": np.array([2, 4], np.uint8)},
        {"table_fields": np.array([0, 4, 8]), "table_bits": np.array([4, 4], np.uint8)},
        {"table_fields": np.array([0, 1, 8]), "table_bits": np.array([2, 7], np.uint8)},
        {"field_levels": np.array([8, 2, 2, 2, 2, 2, 2, 3])},
        {"field_levels": np.array([8, 2, 2, 2, 2, 2, 2, 1])},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match="lists: "):
            _multi_index.Lists(**{**good, **change})
    for name in ("firsts", "spans", "counts", "addresses", "table_fields", "table_bits", "deleted", "there"):
        with pytest.raises(TypeError):
            _multi_index.Lists(**{**good, name: None})
    with pytest.raises(ValueError, match="once already"):
        lists.__init__(**good)  # type: ignore[misc]


def test_searches_that_do_not_fit_are_refused() -> None:
    lists = _multi_index.Lists(**good_lists())
    values = np.zeros((2, 22), np.float32)
    assert lists.best(values, 1, 1, True)[0].tolist() == [0, 0]
    for arguments in ((values, 0, 1), (values, -1, 1), (values, 1, 0), (values, 1, -5), (values[:, :21].copy(), 1, 1)):
        with pytest.raises(ValueError, match="lists: "):
            lists.best(*arguments, False)
    with pytest.raises(TypeError):
        lists.best(None, 1, 1, False)  # type: ignore[arg-type]
