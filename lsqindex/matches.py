"""What a search returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Found(NamedTuple):
    ids: NDArray[Any]
    distances: NDArray[np.float32]


class Matches(_Found):
    """Ids and distances, nearest first: shape (nq, k), or (k,) for one query. A pair, to be unpacked as one.

    Smaller is nearer in every metric. Where fewer than ``k`` rows were found, the rest is id −1 (None for
    str ids) and distance inf. The arrays are copies: they stay valid whatever happens to the index.
    ``payloads``, where they were asked for, is a list like ``ids``, with None where there is none.

    >>> matches = Matches(np.array([7, 3]), np.array([0.0, 2.5], np.float32))
    >>> list(matches.items())
    [(7, 0.0), (3, 2.5)]
    """

    payloads: list[Any] | None = None

    def items(self) -> Iterator[Any]:
        """(id, distance) of what was found for one query; a list of them for each of several."""
        if self.ids.ndim == 1:
            for name, distance in zip(self.ids.tolist(), self.distances.tolist(), strict=True):
                if distance != np.inf:
                    yield name, distance
        else:
            for ids, distances in zip(self.ids, self.distances, strict=True):
                yield list(Matches(ids, distances).items())
