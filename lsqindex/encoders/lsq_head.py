"""How much of a row must be read to know that it is not among the nearest: learned on the training sample.

Rows of V come by falling length, so the first bytes of a code, the *head*, say most of its distance:

    row      |── head: read for all ──|── rest: read if the head's sum is small ──|
    rule     sum over the head ≤ mean − z · deviation         (of the query's head sums over all rows)

Training vectors play queries. For each head and each ratio r = k/n of wanted rows, z is the largest at which KEPT of
the nearest r·n rows (by the whole code) pass; the fewer are wanted the nearer they are, and the larger is z. Rows lie
in blocks of 32, and a block is read to its end if one of its rows passes: the best head is that of the least cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .layout import MARGIN_SHARES
from .linalg import Float32, Float64, gram, product, settled

#: The share of the nearest rows that must pass.
KEPT = 0.996
#: Rows the nearest are looked for in, those of them that play queries, and of these the ones whose passing rows are
#: counted. Fewer rows than LEAST say too little.
AMONG, QUERIES, COUNTED, LEAST = 20_000, 400, 64, 500
#: Going on with a block costs as much as so many bytes of each row, and those of its rest.
TURN = 12
#: Rows of a block: read to the end together.
BLOCK = 32


def learn_head(
    bits: Float32, weights: Float32, own: NDArray[np.intp], scalar_bits: int
) -> tuple[int, tuple[float, ...]]:
    """Bytes of the best head, and z for each of MARGIN_SHARES; (0, ()) where none is worth it.

    ``bits`` are rows of 0 and 1, shape (n, bits of a row); ``weights`` what each adds to the distance, shape
    (queries, bits of a row); ``own`` the row that each query itself is, left out.
    """
    n, width = bits.shape
    size = (width + 7) // 8
    heads = [h for h in range(2, size, 2) if size <= 4 * h and 8 * h <= 7 * size and 8 * h >= scalar_bits]
    if n < LEAST or not heads:
        return 0, ()
    ends = [8 * h for h in heads]
    mean, deviation = _moments(bits, weights, ends)
    away = (mean - _nearest_sums(bits, weights, own, ends)) / deviation
    margins = np.empty((len(heads), len(MARGIN_SHARES)), np.float32)
    for i, ratio in enumerate(MARGIN_SHARES):
        values = np.sort(away[:, :, : _wanted(ratio, n)].reshape(len(heads), -1), axis=1)
        margins[:, i] = settled(values[:, int((1 - KEPT) * values.shape[1])])
    # Indexes are larger than the sample: the smallest ratio is the one to be fast at.
    limits = mean[:, :COUNTED, 0] - margins[:, -1:] * deviation[:, :COUNTED, 0]
    read = _blocks_read(bits, weights[:COUNTED], limits, ends)
    cost = np.array(heads) + read * (size - np.array(heads) + TURN)
    best = int(np.argmin(cost))
    if cost[best] > size:
        return 0, ()
    return heads[best], tuple(float(z) for z in margins[best])


def _wanted(ratio: float, n: int) -> int:
    return max(1, round(ratio * n))


def _moments(bits: Float32, weights: Float32, ends: list[int]) -> tuple[Float32, Float32]:
    """Mean and deviation of every query's sums over the first ``ends`` bits, shapes (heads, queries, 1)."""
    mean_bit = bits.mean(axis=0, dtype=np.float64)
    # Counts, so exact: how often two bits are set together.
    covariance = gram(bits, bits) / len(bits) - mean_bit[:, None] * mean_bit
    wide = weights.astype(np.float64)
    mean = np.stack([wide[:, :end] @ mean_bit[:end] for end in ends])
    variance = np.stack([np.einsum("qb,qb->q", wide[:, :end] @ covariance[:end, :end], wide[:, :end]) for end in ends])
    deviation = np.sqrt(np.maximum(variance, np.finfo(np.float32).tiny))
    return settled(mean)[:, :, None], settled(deviation)[:, :, None]


def _nearest_sums(bits: Float32, weights: Float32, own: NDArray[np.intp], ends: list[int]) -> Float32:
    """Sums over the first ``ends`` bits of each query's nearest rows, nearest first, shape (heads, queries, wanted)."""
    wanted = _wanted(MARGIN_SHARES[0], len(bits))
    out = np.empty((len(ends), len(weights), wanted), np.float32)
    for first in range(0, len(weights), COUNTED):
        some, places = weights[first : first + COUNTED], own[first : first + COUNTED]
        sums = product(some, bits)
        sums[np.arange(len(some)), places] = np.inf
        near = np.argpartition(sums, wanted - 1, axis=1)[:, :wanted]
        order = np.argsort(np.take_along_axis(sums, near, axis=1), axis=1, kind="stable")
        their_bits = bits[np.take_along_axis(near, order, axis=1)]
        total, begin = np.zeros(near.shape, np.float32), 0
        for i, end in enumerate(ends):
            total += np.einsum("qrb,qb->qr", their_bits[:, :, begin:end], some[:, begin:end])
            out[i, first : first + COUNTED], begin = total, end
    return out


def _blocks_read(bits: Float32, weights: Float32, limits: Float32, ends: list[int]) -> Float64:
    """The share of blocks with a row whose head sums to no more than ``limits`` (heads, queries), for each head."""
    total, begin = np.zeros((len(weights), len(bits)), np.float32), 0
    read = []
    for end, limit in zip(ends, limits, strict=True):
        total += product(weights[:, begin:end], bits[:, begin:end])
        passing = (total <= limit[:, None]).mean(axis=1)
        read.append(float((1 - (1 - passing) ** BLOCK).mean()))
        begin = end
    return np.array(read)
