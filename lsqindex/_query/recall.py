"""How much of the true answer was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._storage.store import Store
from ..encoders.coder import Coder
from ..errors import NoVectorsError
from ..results import Matches

#: So many stored vectors serve as queries.
_SAMPLED = 200


def check_comparable(store: Store, coder: Coder) -> None:
    """NoVectorsError where no search can be exact."""
    if store.options.keep_vectors is None and not coder.floats:
        raise NoVectorsError(
            "recall: the index keeps no vectors to compare with; create it with keep_vectors='float16'"
        )


def measured(search: Callable[..., Matches], queries: Any, k: int, own: Any, options: Mapping[str, Any]) -> float:
    """The recall of searches with ``options``; what is exact is found by searching. ``own`` ids do not count."""
    asked = k if own is None else k + 1
    same = {name: options[name] for name in ("filter", "threads") if name in options}
    return recall_of(search(queries, asked, **options).ids, search(queries, asked, recall=1.0, **same).ids, k, own)


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
