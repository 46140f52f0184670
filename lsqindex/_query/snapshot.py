"""What is found once for a snapshot and used by all its searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .._storage.store import Store

Result = TypeVar("Result")


def once(store: Store, name: Any, make: Callable[[], Result]) -> Result:
    """What ``make`` gives, made again only when the snapshot is another one."""
    source = store.source
    if not source.clean:
        return make()
    known = source.env.known.snapshot(source.state.txn, source.env.moved)
    if name not in known:
        known[name] = make()
    found: Result = known[name]
    return found
