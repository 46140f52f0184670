"""What a search counts on its way, for :meth:`Index.explain`."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Trace:
    """What a search counts on its way, for all its queries together; see :class:`Explanation`."""

    #: Cells visited; or buckets looked into, of all tables together, and the rows their lists named, each as often as
    #: it was named.
    probes: int = 0
    postings: int = 0
    #: Rows that were looked at: returned by a list, or scanned.
    rows: int = 0
    #: Chunks of codes that were scanned.
    chunks: int = 0
    #: Rows among them that are in no posting list or cell yet.
    fresh: int = 0
    #: Queries that were answered by a scan, because no reasonable number of buckets held as many rows as were wanted.
    scanned: int = 0
    #: Rows whose score was good enough to be ranked by distance.
    candidates: int = 0
    #: Rows whose distance was computed again, exactly or asymmetrically.
    reranked: int = 0
    #: Rows of cells not visited that are expected to be nearer than the last match.
    expected_misses: float = 0.0

    def add(self, other: Trace) -> None:
        """Count what another thread counted."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
