"""What ``Index.search`` does inside, step by step, for one query: codes where they lie, tables, the scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lsqindex import Index
from lsqindex._query.sources import codes as scan
from lsqindex._query.sources import scan as by_scan
from lsqindex._storage.format.rows import Rows
from lsqindex._storage.store import Store

from ..data import Vectors


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
        yield Inside(by_scan.codes_of(store, index._coder(reader)), store.codes())


def tables_of(index: Index) -> Callable[[Vectors], Any]:
    """The function that makes the look-up tables of a query."""
    encoder = index.encoder
    return lambda query: encoder.tables(query[None], index.metric, "asymmetric")


def kernel(inside: Inside, k: int) -> Callable[[Any], Any]:
    """The whole scan of all codes alone, from tables that are there."""
    search = scan.Search(k, nibbles=True)
    return lambda tables: list(scan.nearest(inside.codes, tables, search))
