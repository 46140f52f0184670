"""How well codes rank: distances by an encoder's tables, and recall of the rankings.

Every distance is bias + a sum of look-ups, as in :mod:`lsqindex.encoders.layout`. Where a field's
table is affine in the bits of the field (always so for fields of one bit), its look-ups are a
product of bits and weights, and all such fields together one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lsqindex.encoders import Encoder, Layout, Tables
from lsqindex.encoders.base import Codes, Distance

from .data import Dataset
from .nearest import nearest

Ranking = NDArray[np.int64]

_BLOCK_QUERIES = 250
_BLOCK_ROWS = 4096
#: An error of this share of the largest look-up is what a sum in float32 has anyway.
_FLOAT_ERROR = 1e-5


def rank(encoder: Encoder, codes: Codes, data: Dataset, k: int, distance: Distance = "asymmetric") -> Ranking:
    """The ``k`` nearest codes of each query, shape (queries, k)."""
    parts = []
    for first in range(0, len(data.queries), _BLOCK_QUERIES):
        queries = data.queries[first : first + _BLOCK_QUERIES]
        tables = encoder.tables(queries, data.metric, distance)
        parts.append(nearest(distance_blocks(codes, encoder.layout, tables), len(queries), k))
    return np.concatenate(parts)


def distance_blocks(codes: Codes, layout: Layout, tables: Tables) -> Iterator[NDArray[np.float32]]:
    """Distances of all queries to block after block of codes, each of shape (queries, rows)."""
    bias, weights, others = _affine_part(layout, tables)
    values = np.ascontiguousarray(tables.values.T)
    for first in range(0, len(codes), _BLOCK_ROWS):
        block = codes[first : first + _BLOCK_ROWS]
        bits = np.unpackbits(block, axis=1, bitorder="little", count=layout.code_bits)
        distances = bits.astype(np.float32) @ weights + bias
        fields = layout.unpack(block)
        for j in others:
            distances += values[layout.starts[j] + fields[:, j]]
        yield distances.T


def _affine_part(layout: Layout, tables: Tables) -> tuple[NDArray[np.float32], NDArray[np.float32], list[int]]:
    """Bias (queries,) and weights (code bits, queries) of the affine fields, and the numbers of the others."""
    queries = len(tables.values)
    tolerance = _FLOAT_ERROR * float(np.abs(tables.values).max())
    bias = tables.bias.astype(np.float32)
    weights = np.zeros((layout.code_bits, queries), np.float32)
    others = []
    at = 0
    for j, (width, levels) in enumerate(zip(layout.bits, layout.levels, strict=True)):
        table = tables.values[:, layout.starts[j] : layout.starts[j + 1]]
        zero, slopes = table[:, :1], table[:, 1 << np.arange(width)] - table[:, :1]
        digits = np.arange(levels)[:, None] >> np.arange(width) & 1
        if np.abs(zero + slopes @ digits.T.astype(np.float32) - table).max() <= tolerance:
            bias = bias + zero[:, 0]
            weights[at : at + width] = slopes.T
        else:
            others.append(j)
        at += width
    return bias, weights, others


def recall10_at_10(ranking: Ranking, truth: Ranking) -> float:
    """The share of the true 10 nearest among the first 10 returned."""
    found = [len(np.intersect1d(row[:10], true[:10])) for row, true in zip(ranking, truth, strict=True)]
    return float(np.mean(found)) / 10


def recall_curve(ranking: Ranking, truth: Ranking) -> NDArray[np.float64]:
    """recall@R for R = 1, 2, ...: the share of queries whose true nearest is among the first R."""
    hits = ranking == truth[:, :1]
    return np.asarray(hits.cumsum(axis=1).mean(axis=0), np.float64)
