"""What users ask for when they want cells, and how many cells an index has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..._inputs.arguments import check_bool, check_int

#: With fewer vectors a scan is as fast, so an index whose number of cells is chosen has none.
LEAST_ROWS = 20_000

#: What ``count`` may be.
MAX_CELLS = 1 << 20


@dataclass(frozen=True)
class Cells:
    """Cells: rows are stored beside the rows that are near to them, so that a search reads only the nearest cells.

    Parameters
    ----------
    count
        About how many cells. None chooses it from the number of vectors, and the number then grows with the index;
        below 20,000 vectors there are none.
    spill
        Whether each row is stored in a second cell, too. Searches then read about half as many rows for the same
        recall, from a file that is larger by a code and four bytes per vector.

    Raises
    ------
    ParameterError
        If ``count`` is not a whole number from 1 to 1,048,576, or ``spill`` is not a bool.

    Examples
    --------
    >>> from lsqindex import Index
    >>> index = Index(dim=64, encoder="itq", bits=64, subset=Cells(count=100))
    >>> index.subset
    Cells(count=100, spill=True)
    """

    count: int | None = None
    spill: bool = True

    def __post_init__(self) -> None:
        if self.count is not None:
            object.__setattr__(self, "count", check_int("count", self.count, 1, MAX_CELLS))
        object.__setattr__(self, "spill", check_bool("spill", self.spill))


def choose_count(n: int) -> int:
    """How many cells for ``n`` vectors, where no number was asked for.

    >>> [choose_count(n) for n in (20_000, 115_033, 1_000_000)]
    [509, 1221, 3600]
    """
    return min(max(1, round(3.6 * math.sqrt(n))), MAX_CELLS)
