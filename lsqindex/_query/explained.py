"""What ``Index.explain`` reports about a search."""

from __future__ import annotations

from dataclasses import asdict

from .._subsets.multi_index.structure import MultiIndexStructure
from ..results import Explanation, Matches
from .plan import Plan
from .snapshot import Snapshot
from .trace import Trace


def explained(trace: Trace, plan: Plan, snapshot: Snapshot, matches: Matches) -> Explanation:
    """What was planned, what was counted, and what was found."""
    subset, widths = snapshot.subset, tuple[int, ...]()
    if plan.strategy == "subset" and isinstance(subset, MultiIndexStructure):
        widths = subset.tables.widths
    return Explanation(plan.strategy, plan.why, len(widths), max(widths, default=0), **asdict(trace), matches=matches)
