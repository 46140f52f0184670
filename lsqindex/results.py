"""What a search returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
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


@dataclass(frozen=True)
class Explanation:
    """What :meth:`Index.explain` found out about a search.

    >>> import numpy as np
    >>> from lsqindex import Index
    >>> index = Index(dim=16)
    >>> _ = index.add(np.eye(16))
    >>> print(index.explain(np.eye(16)[0], k=1))
    strategy    scan
    why         the index is not trained: vectors are stored as they are and compared exactly
    rows        16
    matches     1
    """

    #: "scan" or "subset", and why.
    strategy: str
    why: str
    #: Tables of the multi-index, and the bits of their buckets' numbers; 0 where it was not used.
    tables: int
    table_bits: int
    #: Buckets looked into, and rows their posting lists named.
    probes: int
    postings: int
    #: Rows looked at: named by a list, or scanned; chunks of codes scanned; rows scanned that no list has yet.
    rows: int
    chunks: int
    fresh: int
    #: Queries answered by a scan after all: no reasonable number of buckets held as many rows as were wanted.
    scanned: int
    #: Rows ranked by the distance of their code; rows ranked again, by kept vectors or asymmetrically.
    candidates: int
    reranked: int
    #: What the search returned.
    matches: Matches

    def __str__(self) -> str:
        lines = [f"strategy    {self.strategy}", f"why         {self.why}"]
        for field in fields(self)[2:-1]:
            number = getattr(self, field.name)
            if number:
                lines.append(f"{field.name.replace('_', ' '):<11} {number:,}")
        lines.append(f"matches     {int((self.matches.distances < np.inf).sum()):,}")
        return "\n".join(lines)
