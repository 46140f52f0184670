"""Posting lists and the codes that they list."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex._compiled import multi_index as _multi_index
from lsqindex._compiled import records as _records
from lsqindex._storage.format import records
from lsqindex._storage.format.columns import Column
from lsqindex.testing import reference

LONG = os.environ.get("LSQINDEX_LONG") == "1"
many = settings(max_examples=10_000 if LONG else 60, deadline=None)
SPAN, MOST_BITS = 65_024, 20
Bytes = NDArray[np.uint8]


@dataclass
class Codes:
    """Records of codes, each in a buffer of its own that ends where the record ends."""

    width: int
    head: int
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    buffers: list[Bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    codes: list[Bytes] = field(default_factory=list)

    def add(self, first: int, codes: Bytes, *, hidden: int = 0, shift: int = 0) -> None:
        """A record of ``codes``, the last ``hidden`` of which nobody may see, ``shift`` bytes off."""
        column = Column(b"codes", b"c", records.CODES, self.width, head=self.head)
        record = np.frombuffer(column.encode(first, codes), np.uint8)
        self.buffers.append(np.concatenate([np.zeros(shift, np.uint8), record]))
        self.offsets.append(shift + records.HEADER_SIZE)
        self.starts.append(first)
        self.counts.append(len(codes) - hidden)
        self.codes.append(codes[: len(codes) - hidden])

    def build(self, bit: int, bits: int, first: int, end: int) -> tuple[int, Bytes]:
        return _multi_index.build(
            np.array(self.starts, np.uint32),
            np.array(self.counts, np.uint32),
            np.array([_records.address(b) + at for b, at in zip(self.buffers, self.offsets, strict=True)], np.uint64),
            self.width,
            self.head,
            bit,
            bits,
            first,
            end,
        )

    def expected(self, bit: int, bits: int, first: int, end: int) -> Bytes:
        rows = [np.arange(a, a + n) for a, n in zip(self.starts, self.counts, strict=True)]
        numbers = np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64)
        codes = np.concatenate([np.empty((0, self.width), np.uint8), *self.codes])
        inside = (first <= numbers) & (numbers < end)
        return reference.list_payload(buckets_of(codes[inside], bit, bits), numbers[inside] - first, bits)


def buckets_of(codes: Bytes, bit: int, bits: int) -> NDArray[np.int64]:
    own = np.unpackbits(codes, axis=1, bitorder="little")[:, bit : bit + bits].astype(np.int64)
    out: NDArray[np.int64] = (own << np.arange(bits)).sum(axis=1)
    return out


def random_codes(rng: np.random.Generator, n: int, width: int, different: int) -> Bytes:
    """``n`` codes, of which so many are different: buckets of many rows, and empty ones."""
    return rng.integers(0, 256, (max(different, 1), width)).astype(np.uint8)[rng.integers(0, max(different, 1), n)]


@st.composite
def built(draw: st.DrawFn) -> tuple[Codes, tuple[int, int, int, int]]:
    """Codes in several records with gaps, at any address; and which bits of which rows."""
    width = draw(st.integers(1, 9))
    codes = Codes(width, draw(st.integers(1, width)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    at = draw(st.integers(0, 100))
    for _ in range(draw(st.integers(0, 4))):
        n, hidden = draw(st.integers(0, 150)), draw(st.sampled_from((0, 0, 1, 40)))
        different = draw(st.sampled_from((1, 3, 200)))
        shift = draw(st.integers(0, 9))
        codes.add(at, random_codes(rng, n + hidden, width, different), hidden=hidden, shift=shift)
        at += n + draw(st.integers(0, 60))
    bits = draw(st.integers(1, min(MOST_BITS, 8 * width)))
    first = draw(st.integers(0, at + 20))
    end = draw(st.integers(first, at + 40))
    return codes, (draw(st.integers(0, 8 * width - bits)), bits, first, end)


def payload_of(rng: np.random.Generator, n: int, bits: int, span: int, different: int) -> Bytes:
    rows = np.sort(rng.permutation(span)[:n])
    values = rng.integers(0, 1 << bits, max(different, 1))
    return reference.list_payload(values[rng.integers(0, len(values), n)], rows, bits)
