"""Deleting vectors: ids, or what a condition lets through, become bits; a subset structure follows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from .._inputs.filters import Condition, read_filter
from .._inputs.ids import once, read_ids
from .._query.select import select
from .._storage.format import keys
from .._storage.format.meta import Options
from .._storage.lmdb.writer import Writer
from .._storage.store import Store
from .._subsets import stored as subsets


def read_deletion(ids: Any, kind: str) -> Any:
    """What is to be deleted: ids, each once, or a condition on payloads."""
    if isinstance(ids, Mapping):
        return read_filter(ids, kind)
    return once(read_ids(ids, kind, known=True))


def delete(writer: Writer, options: Options, asked: Any, *, nested: bool = False) -> int:
    """Delete ids (sorted, each once), or what a condition lets through, in the open transaction; their number."""
    names = asked
    if isinstance(asked, Condition):
        store = Store(writer, options)
        names = once(store.ids_of(select(store, asked)))
    return writer.run(partial(_delete, options, names), nested=nested)


def _delete(options: Options, names: Any, writer: Writer) -> int:
    count, gone = Store(writer, options).delete(names)
    if count and writer.get(keys.META, keys.SUBSET) is not None:
        subsets.follow(writer, count, gone)
    return count
