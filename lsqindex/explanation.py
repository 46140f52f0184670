"""What a search did, told to people."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .matches import Matches


@dataclass
class Trace:
    """What a search counts on its way, for all its queries together."""

    #: Buckets looked into, of all tables together, and the rows their lists named, each as often as it was named.
    probes: int = 0
    postings: int = 0
    #: Rows that were looked at: returned by a list, or scanned.
    rows: int = 0
    #: Chunks of codes that were scanned.
    chunks: int = 0
    #: Rows among them that are in no posting list yet.
    fresh: int = 0
    #: Queries that were answered by a scan, because no reasonable number of buckets held as many rows as were wanted.
    scanned: int = 0
    #: Rows whose score was good enough to be ranked by distance.
    candidates: int = 0
    #: Rows whose distance was computed again, exactly or asymmetrically.
    reranked: int = 0


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
