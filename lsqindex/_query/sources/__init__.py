"""Where candidates come from: the vectors themselves, all codes, or what posting lists return.

A source that answers searches by itself, in one call of a kernel, has ``answer``; the planner puts it into the plan. Of
the others ``search.py`` takes what they find, and ranks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..found import Found
    from ..search import Search


class Source(Protocol):
    """One way to find candidates in a snapshot, among the rows that a filter leaves; made by ``plan.py``."""

    @property
    def cost(self) -> int:
        """About how many comparisons of a scan one query costs: tells how many threads are worth while."""

    @property
    def group(self) -> int:
        """How many queries are cheaper together than one after another."""

    def find(self, search: Search, wide: int) -> Found:
        """The ``wide`` nearest of each query, ties included, and none beyond the limit of the plan."""
