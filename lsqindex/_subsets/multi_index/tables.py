"""The subset structure of an index: what is asked for, and the tables that follow from it and from the code.

A table of the multi-index is a run of bits of the code (section 3.2 of the paper). A binary code, after its row
scalars, is cut every ``bits`` bits, the last table has what is left; of any other code each dimension is a table.

    code        |scalars|0 1 2 3 4 5 6 7 8 9 …
    bits=4              |table 0|table 1|table …
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from ..._storage.format import meta
from ..._storage.format.records import REMEDY
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ...encoders import Encoder, Layout
from ...encoders.base import check_int
from ...encoders.coder import Coder
from ...errors import DamagedError, ParameterError


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
            object.__setattr__(self, "bits", check_int("bits", self.bits, *meta.TABLE_BITS))


#: What ``subset`` may be: none, the multi-index as it comes, or one with options.
SubsetLike = MultiIndex | Literal["multi-index"] | None


def check_subset(subset: Any) -> MultiIndex | None:
    """What was asked for, as options."""
    if subset == "multi-index" and isinstance(subset, str):
        return MultiIndex()
    if subset is None or isinstance(subset, MultiIndex):
        return subset
    raise ParameterError(f"subset={subset!r}: None, 'multi-index' or MultiIndex(bits=…) is needed")


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


def check_layout(subset: MultiIndex | None, layout: Layout, encoder: Encoder) -> None:
    """ParameterError where codes of this layout cannot have these tables."""
    if subset is None:
        return
    if layout.floats:
        raise ParameterError(
            f"subset: {encoder} keeps vectors as they are, and the tables of a multi-index are bits of a code; take "
            "another encoder, or subset=None"
        )
    if subset.bits is not None and not layout.binary:
        raise ParameterError(
            f"subset: bits={subset.bits} cannot be with {encoder}, whose codes are not binary and have a table for "
            "each dimension; MultiIndex() without bits is for them"
        )
    count = len(make_tables(layout, subset.bits or 0, 0).tables)
    if count > meta.MAX_TABLES:
        raise ParameterError(
            f"subset: {count} tables for {encoder}, and {meta.MAX_TABLES} are possible; take more bits a table, or a "
            "shorter code"
        )


def make_tables(layout: Layout, bits: int, n: int) -> meta.Subset:
    """The tables of ``bits`` bits (0: chosen for ``n`` vectors) that codes of this layout have.

    >>> make_tables(Layout.uniform(levels=2, m=10), bits=4, n=0)
    Subset(kind='multi-index', bits=4, tables=(0, 4, 8), widths=(4, 4, 2))
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
    return meta.Subset(bits=bits, tables=tuple(edges[:-1]), widths=tuple(widths))


def begin(subset: MultiIndex | None, coder: Coder, n: int) -> meta.Subset | None:
    """What is stored for ``subset`` in an index of ``n`` vectors; ParameterError where its codes cannot have it."""
    if subset is None:
        return None
    check_layout(subset, layout_of(coder.encoder, coder.dim), coder.encoder)
    return chosen_anew(meta.Subset(bits=subset.bits or 0), coder, n)


def chosen_anew(stored: meta.Subset, coder: Coder, n: int) -> meta.Subset:
    """The tables of this coder's codes, chosen for ``n`` vectors where no bits were asked for; none before training.

    Without the encoder they stay as they are.
    """
    if not coder.trained:
        return meta.Subset(bits=stored.bits)
    return make_tables(coder.layout, stored.bits, n) if coder.present else stored


def check_encoder(source: Reader | Writer, encoder: Encoder, dim: int) -> None:
    """ParameterError where codes of another encoder cannot have the tables that were asked for."""
    stored = meta.read_subset(source)
    if stored is not None:
        check_layout(MultiIndex(stored.bits or None), layout_of(encoder, dim), encoder)


def of(source: Reader | Writer, coder: Coder) -> meta.Subset | None:
    """The subset structure of a snapshot; DamagedError where its tables are not those of the coder's codes."""
    stored = meta.read_subset(source)
    if stored is not None and not _fits(stored, coder):
        raise DamagedError(f"subset: its tables are not those of the encoder's codes; {REMEDY}")
    return stored


def _fits(stored: meta.Subset, coder: Coder) -> bool:
    if not coder.trained:
        return not stored.tables
    if coder.floats or not stored.tables:
        return False
    if not coder.present:
        return stored.tables[-1] + stored.widths[-1] <= 8 * coder.code_size
    layout = coder.layout
    if not layout.binary:
        return stored == make_tables(layout, 0, 0)
    bits = stored.widths[0]
    return bits == min(stored.bits or bits, layout.m) and stored == replace(
        make_tables(layout, bits, 0), bits=stored.bits
    )


def told(stored: meta.Subset | None, coder: Coder) -> MultiIndex | None:
    """What users are told of a stored structure: with the bits in use, where these are known and one number."""
    if stored is None:
        return None
    binary = coder.present and coder.layout.binary
    bits = stored.bits or (stored.widths[0] if stored.widths and binary else 0)
    return MultiIndex(bits if bits >= meta.TABLE_BITS[0] else None)
