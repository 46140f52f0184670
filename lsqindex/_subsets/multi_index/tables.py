"""The tables of a multi-index: what is asked for, and what follows from it and from the code.

A table of the multi-index is a run of bits of the code (section 3.2 of the paper). A binary code, after its row
scalars, is cut every ``bits`` bits, the last table has what is left; of any other code each dimension is a table.

    code        |scalars|0 1 2 3 4 5 6 7 8 9 …
    bits=4              |table 0|table 1|table …
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from ..._inputs.arguments import check_int
from ...encoders import Encoder, Layout
from ...errors import ParameterError

#: What ``bits`` of a table may be asked for, and how many tables an index has at most.
TABLE_BITS = (4, 20)
MAX_TABLES = 4096

#: A code ends before this bit.
_LAST_BIT = 1 << 62


@dataclass(frozen=True)
class MultiIndex:
    """Multi-index hashing, the subset structure of the paper: one hash table for every ``bits`` bits of the code.

    Parameters
    ----------
    bits
        Bits per table, 4 to 20, for binary codes. None chooses them from the number of vectors, for about 64 rows per
        bucket. Other codes have one table per dimension and take no ``bits``.

    Raises
    ------
    ParameterError
        If ``bits`` is not a whole number from 4 to 20.

    Examples
    --------
    >>> from lsqindex import Index
    >>> index = Index(dim=64, encoder="itq", bits=64, subset=MultiIndex(bits=12))
    >>> index.subset
    MultiIndex(bits=12)
    """

    bits: int | None = None

    def __post_init__(self) -> None:
        if self.bits is not None:
            object.__setattr__(self, "bits", check_int("bits", self.bits, *TABLE_BITS))


@dataclass(frozen=True)
class Tables:
    """The tables of a multi-index, each a run of bits of the code."""

    #: Bits of a table that were asked for; 0: chosen, or each dimension of the code is a table.
    bits: int = 0
    #: The first bit of each table, and how many it has; none before the index is trained.
    firsts: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def end(self) -> int:
        """The first bit after them."""
        return self.firsts[-1] + self.widths[-1] if self.firsts else 0

    def sound(self) -> bool:
        """Whether these numbers are possible, and tables follow each other without a gap."""
        if len(self.firsts) != len(self.widths) or len(self.firsts) > MAX_TABLES:
            return False
        ends = [first + width for first, width in zip(self.firsts, self.widths, strict=True)]
        return (
            (self.bits == 0 or TABLE_BITS[0] <= self.bits <= TABLE_BITS[1])
            and all(1 <= width <= TABLE_BITS[1] for width in self.widths)
            and all(0 <= first < _LAST_BIT for first in self.firsts)
            and list(self.firsts[1:]) == ends[:-1]
        )


def choose_bits(n: int) -> int:
    """Bits of a table for ``n`` vectors, where none were asked for.

    A bucket should hold few rows, or reading it is a scan; and not so few that most buckets are empty and many must be
    probed. About 64 rows a bucket, and never more bits than lists have a start for each bucket.

    >>> [choose_bits(n) for n in (0, 10_000, 100_000, 1_000_000, 1_000_000_000)]
    [4, 7, 11, 14, 14]
    """
    return min(max(round(math.log2(max(n, 1))) - 6, 4), 14)


def layout_of(encoder: Encoder, dim: int) -> Layout:
    """The layout of an encoder's codes, as far as it is known before it is fitted."""
    return encoder.layout if encoder.is_fitted else encoder._make_layout(dim)


def check_layout(bits: int, layout: Layout, encoder: Encoder) -> None:
    """ParameterError where codes of this layout cannot have tables of ``bits`` bits (0: none were asked for)."""
    if layout.floats:
        raise ParameterError(
            f"subset: a multi-index is not available for {encoder}, which has no codes; use "
            "another encoder, or subset=None"
        )
    if bits and not layout.binary:
        raise ParameterError(
            f"subset: bits={bits} is not available for {encoder}, whose codes are not binary: they have a table "
            "per dimension; use MultiIndex() without bits"
        )
    count = len(make_tables(layout, bits, 0))
    if count > MAX_TABLES:
        raise ParameterError(
            f"subset: {encoder} would have {count} tables, and at most {MAX_TABLES} are possible; "
            "use more bits per table "
            "or a shorter code"
        )


def make_tables(layout: Layout, bits: int, n: int) -> Tables:
    """The tables of ``bits`` bits (0: chosen for ``n`` vectors) that codes of this layout have.

    >>> make_tables(Layout.uniform(levels=2, m=10), bits=4, n=0)
    Tables(bits=4, firsts=(0, 4, 8), widths=(4, 4, 2))
    >>> make_tables(Layout.uniform(levels=8, m=3), bits=0, n=1000).widths
    (3, 3, 3)
    """
    first, end = (int(layout.bit_starts[at]) for at in (layout.scalars, -1))
    if layout.binary:
        starts = range(first, end, bits or choose_bits(n))
        edges = [*starts, end]
    else:
        edges = layout.bit_starts[layout.scalars :].tolist()
    widths = [b - a for a, b in pairwise(edges)]
    return Tables(bits, tuple(edges[:-1]), tuple(widths))
