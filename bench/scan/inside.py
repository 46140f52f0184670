"""What ``Index.search`` does inside, step by step, for one query: codes where they lie, tables, the scan."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lsqindex import Index, searcher
from lsqindex.search import scan
from lsqindex.storage.store import Store

from ..data import Vectors

#: Whether this version of the library scans heads first.
PROGRESSIVE = "progressive" in inspect.signature(Index.search).parameters


def options(progressive: bool) -> dict[str, Any]:
    """Arguments of ``Index.search`` that turn the progressive scan on or off."""
    return {"progressive": progressive} if PROGRESSIVE else {}


@contextmanager
def stored_codes(index: Index) -> Iterator[scan.Codes]:
    """All codes of the index where they lie, as long as the context lasts."""
    with index._reader() as reader:
        yield searcher._stored_codes(Store(reader, index._options))


def tables_of(index: Index) -> Callable[[Vectors], Any]:
    """The function that makes the look-up tables of a query."""
    encoder = index.encoder
    return lambda query: encoder.tables(query[None], index.metric, "asymmetric")


def kernel(index: Index, codes: scan.Codes, k: int) -> Callable[[Any], Any]:
    """The whole scan of all codes alone, from tables that are there."""
    layout = index.encoder.layout
    options: dict[str, Any] = (
        {"progressive": False} if "progressive" in inspect.signature(scan.nearest).parameters else {}
    )
    return lambda tables: scan.nearest(codes, layout, tables, k, asymmetric=True, **options)
