"""What one search was asked for: all of it, checked, as one immutable object that can be pickled."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from .._inputs.arguments import check_bool, check_int, is_among
from .._inputs.filters import Condition
from .._inputs.options import thread_count
from ..errors import ParameterError, shown

Strategy = Literal["auto", "scan", "subset"]
#: How rows are ranked: by one of two distances of their codes, or by the score of the multi-index.
Ranking = Literal["auto", "symmetric", "asymmetric", "score"]

_MOST = 1 << 31


class Query(NamedTuple):
    """The arguments of a search, but for the vectors. ``plan.py`` decides what is done for it in a snapshot."""

    #: At most so many rows; None for all within the limit.
    k: int | None = 10
    #: No row that is farther.
    limit: float = math.inf
    strategy: Strategy = "auto"
    distance: Ranking = "auto"
    #: How many rows to rank again by better distances; None: as many as serve.
    rerank: int | None = None
    #: Cells to visit, or buckets of the multi-index to look into; of the latter rows to rank by distance. None: as many
    #: as serve.
    probes: int | None = None
    candidates: int | None = None
    #: Whether the head of codes may be read first, where that serves.
    progressive: bool = True
    with_payloads: bool = False
    threads: int | None = None
    #: The share of the true neighbours to find, where the search itself decides how much to read.
    recall: float = 0.95
    #: Only rows that are so. (Last, so that all but it are ``query[:-1]``.)
    filter: Condition | None = None

    @property
    def needs_subset(self) -> str:
        """What was asked for that only a subset structure can do; empty if nothing."""
        if self.strategy == "subset":
            return "strategy='subset' needs a subset structure"
        if self.distance == "score":
            return "distance='score' needs a multi-index"
        if self.candidates is not None:
            return "candidates needs a multi-index"
        return "probes needs a subset structure" if self.probes is not None else ""


def read_query(*arguments: Any) -> Query:
    """The query of these arguments, in the order of its fields; checked once, for most searches ask as others did."""
    try:
        return _checked(*arguments)
    except TypeError:  # an argument without a hash: it is wrong, and the checks say how
        return _checked.__wrapped__(*arguments)


@lru_cache(maxsize=256, typed=True)
def _checked(
    k: Any,
    limit: Any,
    strategy: Any,
    distance: Any,
    rerank: Any,
    probes: Any,
    candidates: Any,
    progressive: Any,
    with_payloads: Any,
    threads: Any,
    recall: Any,
) -> Query:
    if not is_among(strategy, ("auto", "scan", "subset")):
        raise ParameterError(f"strategy={shown(strategy)}: auto, scan or subset is needed")
    if not is_among(distance, ("auto", "symmetric", "asymmetric", "score")):
        raise ParameterError(f"distance={shown(distance)}: auto, symmetric, asymmetric or score is needed")
    thread_count(threads)
    farthest = _limit(limit)
    query = Query(
        None if k is None and farthest < math.inf else check_int("k", k, 1, _MOST),
        farthest,
        strategy,
        distance,
        _number("rerank", rerank, 0),
        _number("probes", probes, 1),
        _number("candidates", candidates, 1),
        check_bool("progressive", progressive),
        check_bool("with_payloads", with_payloads),
        None if threads is None else int(threads),
        _recall(recall),
    )
    if strategy == "scan" and query.needs_subset:
        raise ParameterError(f"strategy='scan' reads all codes, but {query.needs_subset}; remove one of these options")
    if candidates is not None and distance == "score":
        raise ParameterError(
            "candidates: distance='score' returns the best scores and ranks no candidates; remove this option"
        )
    return query


def _number(name: str, value: Any, low: int) -> int | None:
    return None if value is None else check_int(name, value, low, _MOST)


def _recall(recall: Any) -> float:
    wrong = isinstance(recall, bool) or not isinstance(recall, int | float | np.floating | np.integer)
    if wrong or not 0 < recall <= 1:
        raise ParameterError(f"recall={shown(recall)}: a number above 0 and at most 1 is needed")
    return float(recall)


def _limit(limit: Any) -> float:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
        raise ParameterError(f"limit={shown(limit)}: a number is needed")
    return float(limit)
