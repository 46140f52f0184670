"""Deleting vectors: ids, or what a condition lets through, become bits; a subset structure follows."""

from __future__ import annotations

from functools import partial
from typing import Any

from .._inputs.filters import Condition
from .._query.select import select
from .._storage.format.meta import Options
from .._storage.lmdb.writer import Writer
from .._storage.store import Store
from .._subsets import stored as subsets


def delete(writer: Writer, options: Options, allowed: Any, *, nested: bool = False) -> int:
    """Delete ids (each once), or what a condition lets through, in the open transaction; how many there were."""
    names = allowed
    if isinstance(allowed, Condition):
        store = Store(writer, options)
        names = store.ids_of(select(store, allowed))
    return writer.run(partial(_delete, options, names), nested=nested)


def _delete(options: Options, names: Any, writer: Writer) -> int:
    count, gone = Store(writer, options).delete(names)
    if count:
        subsets.follow(writer, count, gone)
    return count
