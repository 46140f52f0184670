"""How many cells a query should visit for a recall: measured when cells are made, or have changed much.

Some queries are answered by visiting all cells (``sampled.py``), a few by each change of rows. Of each true neighbour
it is then known which ``reach`` of the rule (``cython_src/cells.h``) finds it, so that the reach for a recall is a
quantile. The rule also visits cells as long as it expects too many neighbours in those that are left. How far that can
be trusted (``spare``) is found by trying, and so is the slope: of all that find enough, the pair that visits the fewest
cells is taken.

A part of what a recall allows to be missed is left for rows whose estimates are too far (``lost``). Which share of the
rows as far as the last neighbour that may be is found by searching with the rule itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ..._storage.format.meta import State
from ..._storage.lmdb.writer import Writer
from ...metrics import METRICS
from . import sampled
from .entries import Floats
from .found import Cells
from .kernel import cosines
from .rule import KS, RECALLS, name_of, rule_for
from .sampled import BETWEEN, FEWEST, MEANS, RANDOM, ROWS, Answered, Sample, Searcher, sample_of, tau_of
from .vectors import RowVectors

#: Cells are calibrated again when this share of their rows is new.
_CHANGED = 0.25

#: The share of what may be missed that is missed by not visiting cells: of queries like rows, and of others.
_BY_CELLS, _OF_OTHERS = 0.6, 0.84

#: What queries that are near to nothing may miss in cells, of their ten neighbours at a recall of 0.95.
_FAR_MISSED = 0.025

#: No reach is less than minus this: a number, where all neighbours are in no cell yet.
_FARTHEST = 1e30

#: Slopes that are tried, in steps of the mean growth of centres' distances from octave to octave of their order.
_SLOPES = (0.0, 0.25, 0.5)

#: How many times too many neighbours the rule may expect in cells that are left.
_SPARES = (1.0, 4.0, 16.0, 64.0, 256.0)

#: What is tried as ``lost``, in shares of what a recall allows to be missed; and how many of ten neighbours, at a
#: recall of 0.95, queries may miss by that: rows and points between them, and others, of which a few are asked.
_LOST = (2.0, 1.0, 0.5, 0.25, 0.1, 0.04)
_BY_CODES, _FAR_BY_CODES, _FEW = 0.015, 0.03, 12

#: Quantiles of the normal distribution, by the logarithm of the probability to be beyond.
_SHARES = np.geomspace(1e-15, 0.5, 128)
_FARTHEST_NORMAL = 100.0
_QUANTILES = np.array([-NormalDist().inv_cdf(share) for share in _SHARES])


def is_due(stored: Mapping[str, float], state: State) -> bool:
    """Whether cells have changed so much that they should be calibrated again."""
    if state.count < FEWEST or not state.listed:
        return False
    if "end" not in stored:
        return True
    # Replaced rows are new ones, too, and may be unlike the old ones.
    changed = abs(state.rows - stored["end"]) + max(0.0, stored["rows"] - state.count)
    return changed > _CHANGED * state.count


def advance(writer: Writer, found: Cells, steps: int | None) -> dict[str, float] | None:
    """Answer queries, in so many steps, or in all that are left; the rule of these cells when there are enough.

    To find the rule is a step, too.
    """
    vectors, wanted = RowVectors(writer), sampled.steps_of(writer.state.count)
    parts = sampled.stored(writer)
    done = len(parts)
    last = wanted if steps is None else min(wanted, done + steps)
    parts += [sampled.answered(writer, found, vectors, step) for step in range(done, last)]
    if steps is not None and done < wanted:
        for step in range(done, last):
            sampled.store(writer, step, parts[step])
        return None
    rule = _fitted(writer, found, vectors, sampled.together(parts))
    sampled.forget(writer)
    return rule


def _fitted(writer: Writer, found: Cells, vectors: RowVectors, answers: Answered) -> dict[str, float]:
    """The rule, as it is stored."""
    stored = {"rows": float(writer.state.count), "end": float(writer.state.rows)}
    sample = sample_of(answers, found, vectors)
    if sample is None:
        return stored
    tau = tau_of(vectors, sample.queries, found)
    fit = _Fit(sample, found, METRICS[vectors.options.metric].number, tau)
    # How much farther centres are from octave to octave of their order.
    growth = float((sample.apart[:, min(31, len(found.numbers) - 1)] - sample.apart[:, 0]).mean()) / 5
    tried = [fit.tried(growth * share, spare) for share, spare in product(_SLOPES, _SPARES)]
    # With the first spare as many are visited as the rule knows to do: where that is too few, it is all there is.
    allowed = max(_FAR_MISSED, min(missed for _, spare, _, missed in tried if spare == _SPARES[0]))
    slope, spare, _, _ = min((one for one in tried if one[3] <= allowed), key=lambda one: one[2])
    reaches = {name_of(k, recall): fit.reach(slope, spare, k, recall) for k, recall in product(KS, RECALLS)}
    stored |= {"slope": slope, "spare": spare, **reaches, "tau": tau}
    searcher, by_cells = Searcher(writer, found, vectors), fit.found_by_cells(slope, spare)
    # The smaller the share, the fewer are lost.
    few = bisect_left(_LOST, 1, key=lambda lost: _loses_few(searcher, answers, by_cells, {**stored, "lost": lost}))
    return {**stored, "lost": _LOST[min(few, len(_LOST) - 1)]}


def _loses_few(searcher: Searcher, answers: Answered, by_cells: Floats, stored: dict[str, float]) -> bool:
    """Whether a search with this rule finds nearly as many of ten neighbours as are in the cells that it visits."""
    k = min(10, answers.rows.shape[1])
    rule = rule_for(stored, k, 0.95)
    for kind in (ROWS, BETWEEN, MEANS, RANDOM):
        own, allowed = np.flatnonzero(answers.kinds == kind), _BY_CODES
        if kind > BETWEEN:
            own, allowed = own[:_FEW], _FAR_BY_CODES
        # A query that is a row finds itself, too.
        rows, true = searcher.rows(answers.queries[own], k + (kind == ROWS), rule), answers.rows[own, :k]
        shares = (rows[:, :, None] == true[:, None]).any(axis=1).mean(axis=1)
        if by_cells[own].mean() - shares.mean() > allowed:
            return False
    return True


class _Fit:
    """What a rule would do for the queries of a sample."""

    def __init__(self, sample: Sample, found: Cells, metric: int, tau: float) -> None:
        self._sample, self._cells = sample, len(found.numbers)
        self._octaves = np.log2(np.arange(self._cells) + 1).astype(np.float32)
        self._at = np.maximum(sample.places, 0)
        #: Rows in the cells from each place on.
        self._rows = found.counts.sum() * (1 - np.arange(self._cells) / self._cells)
        self._means, self._deviations = _spread(sample, found, metric, tau)
        self._expected: dict[tuple[float, int, float], NDArray[np.bool_]] = {}

    def tried(self, slope: float, spare: float) -> tuple[float, float, float, float]:
        """A slope and a spare, how many cells are visited on the average, and what queries near to nothing miss."""
        needed = self._needed(slope, spare, 10, 0.95)
        reach, kinds = self._reach(needed, 0.95), self._sample.kinds
        missed = max(float((needed[kinds == kind] > reach).mean()) for kind in (MEANS, RANDOM))
        return slope, spare, float(self._visited(reach, slope, spare)[kinds <= BETWEEN].mean()), missed

    def found_by_cells(self, slope: float, spare: float) -> Floats:
        """Of each query the share of ten neighbours that are in cells it visits, at a recall of 0.95."""
        needed = self._needed(slope, spare, 10, 0.95)
        found: Floats = (needed <= self._reach(needed, 0.95)).mean(axis=1)
        return found

    def reach(self, slope: float, spare: float, k: int, recall: float) -> float:
        """The reach for a recall, with which enough neighbours are found of rows and of points between them."""
        return self._reach(self._needed(slope, spare, k, recall), recall)

    def _reach(self, needed: Floats, recall: float) -> float:
        reach = -_FARTHEST
        for kind, share in ((ROWS, _BY_CELLS), (BETWEEN, _OF_OTHERS)):
            own = needed[self._sample.kinds == kind]
            reach = max(reach, float(np.quantile(own, 1 - share * (1 - recall), method="higher")))
        return reach

    def _needed(self, slope: float, spare: float, k: int, recall: float) -> Floats:
        """Of each neighbour the least reach that finds it, (queries, k): that of the last place which needs one."""
        sample, last = self._sample, min(k, self._sample.far.shape[1])
        wanted = np.where(self._expects(spare, last, recall), np.float32(-np.inf), self._beyond(slope, last))
        needed = np.take_along_axis(np.maximum.accumulate(wanted, axis=1), self._at[:, :last], axis=1)
        return np.where(sample.places[:, :last] < 0, np.float32(-np.inf), needed)

    def _visited(self, reach: float, slope: float, spare: float) -> NDArray[np.int64]:
        """How many cells each query visits for ten neighbours at a recall of 0.95."""
        last = min(10, self._sample.far.shape[1])
        goes_on = self._expects(spare, last, 0.95) | (self._beyond(slope, last) <= reach)
        ends: NDArray[np.int64] = np.where(goes_on.all(axis=1), self._cells, np.argmin(goes_on, axis=1))
        return ends

    def _beyond(self, slope: float, k: int) -> Floats:
        """What the reach is compared with, (queries, cells)."""
        beyond: Floats = self._sample.apart - self._sample.far[:, [k - 1]] + np.float32(slope) * self._octaves
        return beyond

    def _expects(self, spare: float, k: int, recall: float) -> NDArray[np.bool_]:
        """Where the rule expects too many neighbours in the cells from there on, (queries, cells)."""
        if (spare, k, recall) in self._expected:
            return self._expected[spare, k, recall]
        share = spare * (1 - recall) * k / self._rows
        limits = np.interp(np.log(share), np.log(_SHARES), _QUANTILES, right=-_FARTHEST_NORMAL).astype(np.float32)
        expects: NDArray[np.bool_] = self._means - self._sample.far[:, [k - 1]] < limits * self._deviations
        self._expected[spare, k, recall] = expects
        return expects


def _spread(sample: Sample, found: Cells, metric: int, tau: float) -> tuple[Floats, Floats]:
    """Means and deviations of the rows of cells along queries, as in ``cython_src/cells.h``; (queries, cells)."""
    spreads = found.spreads[sample.order]
    if metric == METRICS["cosine"].number:
        near = cosines(found)[sample.order]
        return 1 - near * (1 - sample.apart), tau * np.sqrt(np.maximum(0, 1 - np.square(near)))
    if metric == METRICS["ip"].number:
        return sample.apart, tau * spreads * np.linalg.norm(sample.queries, axis=1)[:, None]
    return sample.apart + np.square(spreads), 2 * tau * spreads * np.sqrt(np.maximum(0, sample.apart))
