"""What is found once for a snapshot and used by all its searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .._storage.store import Store

Result = TypeVar("Result")


def once(store: Store, name: Any, make: Callable[[], Result]) -> Result:
    """What ``make`` gives, made again only when the snapshot is another one."""
    env, snapshot = store.source.env, (store.state.txn, store.source.env.moved)
    known = env.columns.get(name)
    if known and store.source.clean and known[0] == snapshot:
        found: Result = known[1]
        return found
    found = make()
    if store.source.clean:
        env.columns[name] = snapshot, found
    return found
