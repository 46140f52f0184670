"""Candidates by distance estimation: all codes, or those of some rows, where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ..._storage.format import deleted
from ..._storage.format.columns import CHUNK_ROWS, RowNumbers
from ..._storage.format.records import HEADER_SIZE
from ..._storage.store import Store
from ...encoders.coder import Coder
from ...encoders.layout import Tables
from ..query import Request
from ..snapshot import once
from . import codes as scan

#: Where a filter lets through at least one row of so many, all are scanned and the others skipped.
SCAN_SHARE = 16


def find(
    store: Store, coder: Coder, request: Request, tables: Tables, rows: RowNumbers | None, k: int
) -> Iterable[scan.Found]:
    """The k nearest of each query among ``rows``, or all for None, ties included."""
    asymmetric = request.distance == "asymmetric"
    nibbles = scan.by_nibbles(coder.layout, asymmetric=asymmetric)
    count = store.state.count if rows is None else len(rows)
    if rows is not None and few(store, rows):
        request.trace.rows += len(rows) * len(request.queries)
        return _among(store, coder, tables, rows, scan.Search(k, nibbles))
    z = None
    if request.progressive and asymmetric:
        z = scan.margin(coder.layout, store.state.head, k, count)
    search = scan.Search(k, nibbles, z, None if rows is None else bits_of(rows))
    codes = codes_of(store, coder)
    request.trace.rows += codes.rows * len(request.queries)
    request.trace.chunks += -(-codes.rows // CHUNK_ROWS) * len(request.queries)
    return scan.nearest(codes, tables, search, threads=request.threads, share=store.source.place.share)


def few(store: Store, rows: RowNumbers) -> bool:
    """Whether these are so few of all rows that their codes are better copied together."""
    return len(rows) * SCAN_SHARE < store.state.count


def bits_of(rows: RowNumbers) -> NDArray[np.uint8]:
    """A bit for each row up to the last of ``rows``, which ascend."""
    flags = np.zeros(int(rows[-1]) + 1 if len(rows) else 0, np.bool_)
    flags[rows] = True
    return np.packbits(flags, bitorder="little")


def codes_of(store: Store, coder: Coder) -> scan.Codes:
    """All codes, verified, where they lie; found once for a snapshot."""
    return once(store, scan.Codes, lambda: _all_codes(store, coder))


def _all_codes(store: Store, coder: Coder) -> scan.Codes:
    codes = store.codes()
    codes.touch_all()
    return codes_at(codes.starts, codes.counts, codes.addresses, store, coder, deleted.addresses(store.source))


def codes_at(
    starts: RowNumbers,
    counts: RowNumbers,
    addresses: NDArray[np.uint64],
    store: Store,
    coder: Coder,
    bits: NDArray[np.uint64],
) -> scan.Codes:
    """Codes of these records; ``bits`` as :func:`deleted.addresses` gives them."""
    layout, state = coder.layout, store.state
    fields = (layout.starts, layout.bit_starts, layout.level_counts)
    return scan.Codes(starts, counts, addresses, state.code_size, state.head, *fields, bits, deleted.SEGMENT_ROWS)


def _among(store: Store, coder: Coder, tables: Tables, rows: RowNumbers, search: scan.Search) -> Iterator[scan.Found]:
    """The nearest of some rows only: their codes are copied together and scanned as all would be."""
    codes = store.codes()
    record = np.frombuffer(codes.column.encode(0, codes.gather(rows)), np.uint8)
    address = np.array([_records.address(record) + HEADER_SIZE], np.uint64)
    counts = np.array([len(rows)], np.uint32)
    here = codes_at(np.zeros(1, np.uint32), counts, address, store, coder, np.empty(0, np.uint64))
    for found in scan.nearest(here, tables, search):
        yield scan.Found(found.counts, rows[found.rows], found.distances)
