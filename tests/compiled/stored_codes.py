"""Codes as a file holds them, their scan, and the scan of the reference."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex._compiled import records as _records
from lsqindex._compiled import scan as _scan
from lsqindex._storage.format import records
from lsqindex._storage.format.columns import CHUNK_ROWS, Column
from lsqindex.encoders import Layout
from lsqindex.encoders.layout import Tables, field_bits
from lsqindex.testing import reference

LONG = os.environ.get("LSQINDEX_LONG") == "1"
many = settings(max_examples=20_000 if LONG else 100, deadline=None)
Answer = list[tuple[list[int], list[int]]]
Metric = Literal["l2", "cosine", "ip"]
Distance = Literal["asymmetric", "symmetric"]
#: Options of indexes whose codes are read in each way there is.
CODES: dict[str, dict[str, Any]] = {
    "by nibbles": {"encoder": "lsq", "bits": 64, "iterations": 2},
    "by fields": {"encoder": "pq", "bits": 40, "field_bits": 5},
    "few codes": {"encoder": "itq", "bits": 3, "iterations": 2},
}


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


def assert_equal(found: Any, other: Any) -> None:
    assert found.ids.tolist() == other.ids.tolist()
    assert cast(list[Any], found.distances.tolist()) == other.distances.tolist()


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
