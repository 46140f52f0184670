"""What a search is asked for, checked; and which strategy answers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .._inputs.options import thread_count
from .._inputs.vectors import Vectors
from ..encoders.base import Distance, check_bool, check_int, is_among
from ..encoders.coder import Coder
from ..errors import ParameterError, shown
from .rerank import first_depth
from .trace import Trace

Strategy = Literal["auto", "scan", "subset"]
#: How rows are ranked: by one of two distances of their codes, or by the score of the multi-index.
Ranking = Literal["auto", "symmetric", "asymmetric", "score"]

#: A multi-index of fewer rows is not used unless it is asked for: a scan of them is as fast, and misses nothing.
AUTO_ROWS = 1 << 19

_MOST = 1 << 31


@dataclass(frozen=True)
class Asked:
    """The arguments of a search but for queries and filter; checked when it is made."""

    k: int = 10
    strategy: Strategy = "auto"
    distance: Ranking = "auto"
    rerank: int | None = None
    probes: int | None = None
    candidates: int | None = None
    progressive: bool = True
    threads: int | None = None

    def __post_init__(self) -> None:
        check_int("k", self.k, 1, _MOST)
        if self.rerank is not None:
            check_int("rerank", self.rerank, 0, _MOST)
        if not is_among(self.strategy, ("auto", "scan", "subset")):
            raise ParameterError(f"strategy={shown(self.strategy)}: auto, scan or subset is needed")
        if not is_among(self.distance, ("auto", "symmetric", "asymmetric", "score")):
            raise ParameterError(f"distance={shown(self.distance)}: auto, symmetric, asymmetric or score is needed")
        for name in ("probes", "candidates"):
            number = getattr(self, name)
            if number is not None:
                check_int(name, number, 1, _MOST)
        check_bool("progressive", self.progressive)
        thread_count(self.threads)
        if self.strategy == "scan" and self.of_subset:
            raise ParameterError(f"strategy='scan': it reads all codes, and {self.of_subset}")
        if self.candidates is not None and self.distance == "score":
            raise ParameterError("candidates: with distance='score' the best scores are the answer; leave it away")

    @property
    def of_subset(self) -> str:
        """What was asked for that only a subset structure can do; empty if nothing."""
        if self.strategy == "subset":
            return "strategy='subset' is of a subset structure"
        if self.distance == "score":
            return "distance='score' is of the multi-index"
        given = [name for name in ("probes", "candidates") if getattr(self, name) is not None]
        return f"{' and '.join(given)} are of the multi-index" if given else ""

    def request(
        self, coder: Coder, queries: Vectors, allowed: Any, *, kept: bool, subset: bool, counting: bool
    ) -> Request:
        """For queries, and an index that stores codes by ``coder``; ``kept``: it keeps vectors beside them."""
        if self.of_subset and not subset:
            raise ParameterError(
                f"{self.of_subset}, and this index has none: set_subset('multi-index') adds one; without these "
                "options all codes are scanned"
            )
        # Without the encoder kept vectors can be compared, but nothing can be done that needs codes.
        exact = coder.floats or (not coder.present and kept and self.distance == "auto" and not self.of_subset)
        distance: Distance = "asymmetric"
        if not exact:
            offered = coder.encoder.distances(coder.metric)
            if self.distance not in ("auto", "score", *offered):
                raise ParameterError(f"distance={self.distance!r}: {coder.encoder} has {' and '.join(offered)} only")
            distance = offered[0] if self.distance == "auto" or self.distance == "score" else self.distance
        # Whoever names a distance wants rows ranked by it.
        deepen = self.rerank is None and kept and self.distance == "auto"
        return Request(
            queries,
            int(self.k),
            distance,
            first_depth(int(self.k)) if deepen else int(self.rerank or 0),
            deepen,
            thread_count(self.threads),
            bool(self.progressive),
            allowed,
            self.strategy,
            self.probes,
            self.candidates,
            self.distance == "score",
            exact,
            counting=counting,
        )


@dataclass(frozen=True)
class Request:
    """What to search for in one snapshot."""

    queries: Vectors
    k: int
    distance: Distance
    rerank: int
    #: Re-rank more than that for queries that need it.
    deepen: bool = False
    threads: int = 1
    #: Whether the head of codes may be read first, where that serves.
    progressive: bool = True
    #: Only rows of these ids, or whose payload is so; None for all.
    allowed: Any = None
    strategy: Strategy = "auto"
    #: Of the multi-index: buckets to look into, rows to rank by distance; None: as many as serve.
    probes: int | None = None
    candidates: int | None = None
    #: Rank by the score alone, as the paper does.
    by_score: bool = False
    #: Compare vectors, not codes: those that are stored in the place of codes, or the kept ones.
    exact: bool = False
    #: What is counted on the way, and whether that may cost time.
    trace: Trace = field(default_factory=Trace)
    counting: bool = False


def choose(request: Request, coder: Coder, *, listed: int | None, few: bool) -> tuple[str, str]:
    """The strategy, and why. ``listed``: rows in posting lists, None without a multi-index; ``few``: by a filter."""
    if not coder.trained:
        return "scan", "the index is not trained: vectors are stored as they are and compared exactly"
    if coder.floats:
        return "scan", f"{coder.name} stores vectors as they are: they are compared exactly"
    if request.exact:
        return "scan", f"the encoder {coder.name} is not available here: the kept vectors are compared exactly"
    if request.strategy == "scan":
        return "scan", "it was asked for"
    if few and not request.by_score:
        return "scan", "the filter leaves few rows: their codes alone are scanned"
    if listed is None:
        return "scan", "the index has no subset structure"
    if request.strategy == "subset":
        return "subset", "it was asked for"
    if request.by_score or request.probes is not None or request.candidates is not None:
        return "subset", "what was asked for is of the multi-index"
    if not coder.encoder.hashes:
        return (
            "scan",
            f"{coder.name} searches for its codes: neighbours share few buckets, and a scan finds more",
        )
    if not coder.layout.binary:
        return "scan", "the code is not binary: its tables have few buckets, and reading them is no faster than a scan"
    if listed < AUTO_ROWS:
        return "scan", f"{listed:,} rows are in posting lists; below {AUTO_ROWS:,} a scan is as fast and misses nothing"
    return "subset", f"{listed:,} rows are in posting lists"
