"""How much of the true answer was found."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._storage.store import Store

#: So many stored vectors serve as queries.
_SAMPLED = 200


def sampled_ids(store: Store) -> Any:
    """The ids of some vectors, always the same ones."""
    living = store.living()
    some = np.random.default_rng(0).choice(living, min(_SAMPLED, len(living)), replace=False)
    return store.ids_of(np.sort(some))


def recall_of(found: NDArray[Any], true: NDArray[Any], k: int, own: Any = None) -> float:
    """The share of the ``k`` first of ``true``, (queries, k), that were found; ``own`` ids do not count.

    >>> recall_of(np.array([[3, 1, 4]]), np.array([[3, 4, 5]]), 3)
    0.6666666666666666
    >>> recall_of(np.array([[3, 1, 4]]), np.array([[3, 4, 5]]), 2, own=[3])
    0.5
    """
    names: list[Any] = [object()] * len(true) if own is None else list(own)
    hits = wanted = 0
    for mine, theirs, name in zip(found.tolist(), true.tolist(), names, strict=True):
        best = [other for other in theirs if other != name and other is not None and other != -1][:k]
        hits += len(set(best) & set(mine))
        wanted += len(best)
    return hits / wanted if wanted else 1.0
