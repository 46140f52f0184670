"""Where the true nearest comes in a ranking, and recall@R from it.

Codes often have rows at one distance, or of one score. These are taken to come in random order, and recall@R is its
expectation: with ``less`` rows before the true nearest and ``equal`` of its own distance, itself among them, it is
among the first R with probability (R − less) / equal, within 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex._subsets.multi_index.tables import make_tables
from lsqindex.encoders import Encoder, Layout, Tables
from lsqindex.encoders.base import Codes, Distance

from ..material.data import Dataset
from ..material.measure import distance_blocks

#: Distances that are held at once, at most.
_AT_ONCE = 1 << 25
#: So few rows that their sums stay in the processor's cache while look-ups are added.
_ROWS = 256


@dataclass(frozen=True)
class Places:
    """For each query: rows before its true nearest, and rows level with it; ``less`` is inf where it is not found."""

    less: NDArray[np.float64]
    equal: NDArray[np.float64]

    def curve(self, answers: int) -> NDArray[np.float64]:
        """recall@R for R = 1 … answers.

        >>> Places(np.array([0.0, 1.0]), np.array([1.0, 2.0])).curve(3)
        array([0.5 , 0.75, 1.  ])
        """
        ranks = np.arange(1, answers + 1)
        share: NDArray[np.float64] = np.clip((ranks - self.less[:, None]) / self.equal[:, None], 0, 1)
        return np.asarray(share.mean(axis=0), np.float64)


def joined(parts: list[Places]) -> Places:
    """The places of several blocks of queries as one."""
    return Places(np.concatenate([part.less for part in parts]), np.concatenate([part.equal for part in parts]))


def places(distances: NDArray[Any], truth: NDArray[np.int64]) -> Places:
    """Of distances of shape (rows, queries) and the true nearest row of each query."""
    own = distances[truth, np.arange(len(truth))]
    less = (distances < own).sum(axis=0)
    return Places(less.astype(np.float64), (distances == own).sum(axis=0).astype(np.float64))


def by_distance(encoder: Encoder, codes: Codes, data: Dataset, distance: Distance) -> Places:
    """Distance estimation (section 3.1 of the paper): all rows by the distance of their codes."""
    parts = []
    for part in _query_blocks(data):
        tables = encoder.tables(data.queries[part], data.metric, distance)
        linear = encoder.layout.linear and (distance == "asymmetric" or encoder.layout.binary)
        found = _sums(codes, encoder.layout, tables) if linear else looked_up(codes, encoder.layout, tables)
        parts.append(places(found, data.truth[part, 0]))
    return joined(parts)


def _query_blocks(data: Dataset) -> list[slice]:
    step = max(1, _AT_ONCE // len(data.base))
    return [slice(first, first + step) for first in range(0, len(data.queries), step)]


def _sums(codes: Codes, layout: Layout, tables: Tables) -> NDArray[np.float32]:
    """Distances, shape (rows, queries), of tables that are affine in the bits."""
    return np.concatenate([block.T for block in distance_blocks(codes, layout, tables)])


def looked_up(codes: Codes, layout: Layout, tables: Tables) -> NDArray[np.float32]:
    """Distances, shape (rows, queries), of any tables."""
    values = np.ascontiguousarray(tables.values.T)
    out = np.empty((len(codes), len(tables.bias)), np.float32)
    one = np.empty((_ROWS, out.shape[1]), np.float32)
    for first in range(0, len(codes), _ROWS):
        rows = out[first : first + _ROWS]
        at = layout.unpack(codes[first : first + _ROWS]) + layout.starts[:-1]
        rows[:] = tables.bias
        for field in np.ascontiguousarray(at.T):
            np.take(values, field, axis=0, out=one[: len(rows)], mode="clip")
            rows += one[: len(rows)]
    return out


@dataclass(frozen=True)
class Subset:
    """What subset indexing finds: places by score, rows read of a query / all rows, queries short of answers."""

    places: Places
    read: float
    short: float


def by_score(encoder: Encoder, codes: Codes, data: Dataset, bits: int, answers: int) -> Subset:
    """Subset indexing (section 3.2 of the paper): rows by the number of tables in which they are under the query's key.

    A row of no table is not found. ``bits``: of a table of a binary code.
    """
    lists = [_posting_lists(keys) for keys in _keys(encoder.layout, codes, bits)]
    asked = _keys(encoder.layout, encoder.encode(data.queries), bits).T
    less, equal, read, short = [], [], 0, 0
    for keys, true in zip(asked, data.truth[:, 0], strict=True):
        rows = np.concatenate(
            [rows[starts[key] : starts[key + 1]] for (rows, starts), key in zip(lists, keys, strict=True)]
        )
        scores = np.bincount(rows, minlength=len(codes))
        less.append(float((scores > scores[true]).sum()) if scores[true] else np.inf)
        equal.append(float((scores == scores[true]).sum()))
        read += len(rows)
        short += int(np.count_nonzero(scores) < answers)
    count = len(data.queries)
    return Subset(Places(np.array(less), np.array(equal)), read / count / len(codes), short / count)


def _keys(layout: Layout, codes: Codes, bits: int) -> NDArray[np.uint16]:
    """The key of every row in every table, shape (tables, rows)."""
    tables = make_tables(layout, bits, 0)
    digits = np.unpackbits(codes, axis=1, bitorder="little", count=layout.code_bits).T.astype(np.uint16, order="C")
    parts = zip(tables.firsts, tables.widths, strict=True)
    return np.stack([(1 << np.arange(width, dtype=np.uint16)) @ digits[at : at + width] for at, width in parts])


def _posting_lists(keys: NDArray[np.uint16]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows by their keys, and where those of each possible key begin."""
    ends = np.cumsum(np.bincount(keys, minlength=1 << 16))
    return np.argsort(keys, kind="stable"), np.concatenate([[0], ends])
