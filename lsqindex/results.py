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
    """Ids and distances of the nearest vectors, nearest first.

    It is a named tuple, so ``ids, distances = index.search(query)`` works. The arrays are copies: they stay valid
    whatever happens to the index.

    Attributes
    ----------
    ids : numpy.ndarray
        Shape (nq, k), or (k,) for one query. int64, or an object array of str for an index with string ids. If fewer
        than ``k`` rows were found, the rest is −1 (None for string ids).
    distances : numpy.ndarray
        float32, in the shape of ``ids``. Smaller is nearer in every metric; the padding is inf.
    payloads : list or None
        The payloads, in the shape of ``ids``, if ``with_payloads=True`` was passed; None for a vector without a
        payload.

    Examples
    --------
    >>> matches = Matches(np.array([7, 3]), np.array([0.0, 2.5], np.float32))
    >>> list(matches.items())
    [(7, 0.0), (3, 2.5)]
    """

    payloads: list[Any] | None = None

    def items(self) -> Iterator[Any]:
        """Iterate over what was found, without the padding.

        Yields
        ------
        tuple or list of tuple
            ``(id, distance)`` for each match of one query; for several queries, a list of such pairs per query.
        """
        if self.ids.ndim == 1:
            for name, distance in zip(self.ids.tolist(), self.distances.tolist(), strict=True):
                if distance != np.inf:
                    yield name, distance
        else:
            for ids, distances in zip(self.ids, self.distances, strict=True):
                yield list(Matches(ids, distances).items())


@dataclass(frozen=True)
class Explanation:
    """What :meth:`Index.explain` reports about a search. ``print`` shows it as a small table.

    Examples
    --------
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

    #: "scan" or "subset", and the reason.
    strategy: str
    why: str
    #: The number of tables of the multi-index, and bits per table; 0 if it was not used.
    tables: int
    table_bits: int
    #: Cells visited; or buckets visited, and rows named by their posting lists.
    probes: int
    postings: int
    #: Rows looked at (named by a list, or scanned); chunks of codes scanned; fresh rows among the scanned ones.
    rows: int
    chunks: int
    fresh: int
    #: Queries answered by a scan after all, because no reasonable number of buckets had enough rows.
    scanned: int
    #: Rows ranked by the distance of their code; rows re-ranked, with kept vectors or asymmetrically.
    candidates: int
    reranked: int
    #: How many rows of the cells not visited are expected to be nearer than the last match, for all queries together.
    expected_misses: float
    #: What the search returned.
    matches: Matches

    def __str__(self) -> str:
        lines = [f"strategy    {self.strategy}", f"why         {self.why}"]
        for field in fields(self)[2:-1]:
            number = getattr(self, field.name)
            if number:
                shown = f"{number:,}" if isinstance(number, int) else f"{number:.2g}"
                lines.append(f"{field.name.replace('_', ' '):<11} {shown}")
        lines.append(f"matches     {int((self.matches.distances < np.inf).sum()):,}")
        return "\n".join(lines)
