"""Steps of a search that the public face does not show: codes where they lie, tables, the scan, posting lists.

Of all benchmarks, only this file and those about kernels look behind the public face.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex._compiled import scan
from lsqindex._query.sources.multi_index import Listed
from lsqindex._storage.format.rows import Rows
from lsqindex._storage.store import Store
from lsqindex._subsets.multi_index.lists import Lists
from lsqindex.encoders import Layout
from lsqindex.testing import reference

from .data import Vectors


@dataclass(frozen=True)
class Inside:
    """The codes of an index: as the scan has them, and where they lie."""

    codes: scan.Codes
    rows: Rows

    @property
    def width(self) -> int:
        """Bytes of a code."""
        return self.rows.column.width


@contextmanager
def stored_codes(index: Index) -> Iterator[Inside]:
    """All codes of the index where they lie, as long as the context lasts."""
    with index._reader() as reader:
        store = Store(reader, index._options)
        yield Inside(index._snapshot(reader).codes(store), store.codes())


def tables_of(index: Index) -> Callable[[Vectors], Any]:
    """The function that makes the look-up tables of a query."""
    encoder = index.encoder
    return lambda query: encoder.tables(query[None], index.metric, "asymmetric")


def kernel(inside: Inside, k: int) -> Callable[[Any], Any]:
    """The whole scan of all codes alone, from tables that are there."""

    def whole(tables: Any) -> Any:
        one = scan.Scan(inside.codes, tables.values, tables.bias, k, True)
        one.run()
        return one.finish()

    return whole


@dataclass(frozen=True)
class PostingLists:
    """The posting lists of an index, and the kernel that adds them up."""

    stored: Lists
    layout: Layout
    kernel: Any

    def rows(self, values: NDArray[np.float32], probes: int) -> list[NDArray[np.uint16]]:
        """The rows that the lists of the cheapest probes name, block by block, one list after another."""
        fields = np.append(
            np.searchsorted(self.layout.bit_starts, self.stored.first_bits), len(self.layout.bits)
        ).astype(np.int64)
        chosen = sorted((table, bucket) for _, table, bucket in reference.probes(self.layout, fields, values, probes))
        found = []
        for block, count in enumerate(self.stored.counts.tolist()):
            parts = []
            for table, bucket in chosen:
                starts = 2 ** self.stored.bits[table] + 1
                address = int(self.stored.addresses[block, table])
                words = np.ctypeslib.as_array((ctypes.c_uint16 * int(starts + count)).from_address(address))
                parts.append(words[starts + int(words[bucket]) : starts + int(words[bucket + 1])])
            found.append(np.concatenate(parts))
        return found


@contextmanager
def posting_lists(index: Index) -> Iterator[PostingLists]:
    """The posting lists where they lie, as long as the context lasts."""
    with index._reader() as reader:
        snapshot = index._snapshot(reader)
        listed = Listed(snapshot, Store(reader, index._options))
        yield PostingLists(listed.stored, snapshot.coder.layout, listed.lists)
