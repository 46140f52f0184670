"""Centres of cells: k-means on a sample, for many centres.

Lloyd's algorithm compares every vector with every centre, again and again. Here only one step does so:

    groups     √k clusters of the sample; each is cut into its share of the k centres      small k-means
    nearest    the 24 nearest of all centres, for every vector                              all pairs, once
    Lloyd      a few iterations, each vector among its 24                                   24 a vector

The result depends on the vectors and the seed, not on the threads.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._threads.pool import in_parallel
from ...encoders.clustering import distinct, first_centres, moved_centres

Vectors = NDArray[np.float32]
Labels = NDArray[np.uint32]

#: The sample has so many vectors a centre.
SAMPLE_ROWS = 64

#: A vector's second cell is one of so many nearest; and so many stay its candidates while centres are trained.
NEAR = 24

_ITERATIONS = 8
#: Below, k-means is done in one go.
_FEW_CENTRES = 64
_BLOCK_ROWS = 1024


def nearest(centres: _assign.Centres, vectors: Vectors, k: int, threads: int) -> tuple[Labels, Vectors]:
    """The k nearest centres of each vector, nearest first, and their squared distances; (n, k)."""
    starts = range(0, len(vectors), _BLOCK_ROWS)
    if len(starts) < 2:
        return centres.nearest(vectors, k)
    parts = in_parallel(lambda at: centres.nearest(vectors[at : at + _BLOCK_ROWS], k), starts, threads)
    labels, squares = zip(*parts, strict=True)
    return np.concatenate(labels), np.concatenate(squares)


def train(vectors: Vectors, count: int, threads: int, seed: int = 0) -> Vectors:
    """At most ``count`` centres: all different, and each the nearest of some vector.

    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]], np.float32)
    >>> np.sort(train(points, 2, threads=1).ravel()).round(2)
    array([0.05, 5.05], dtype=float32)
    """
    rng = np.random.default_rng(seed)
    count = min(count, len(vectors))
    if count <= _FEW_CENTRES:
        centres = _different(_lloyd(vectors, first_centres(vectors, count, rng), threads, rng))
        return centres[np.unique(nearest(_assign.Centres(centres), vectors, 1, threads)[0])]
    centres = _different(_in_groups(vectors, count, threads, rng))
    candidates, _ = nearest(_assign.Centres(centres), vectors, min(NEAR, len(centres)), threads)
    labels = np.ascontiguousarray(candidates[:, 0])
    for _ in range(_ITERATIONS):
        centres = np.asarray(moved_centres(vectors, labels, centres, rng), np.float32)
        labels, before = _among(_assign.Centres(centres), vectors, candidates, threads), labels
        if np.array_equal(labels, before):
            break
    return _different(centres[np.unique(labels)])


def halve(vectors: Vectors) -> Vectors | None:
    """Two centres: halves along the line between two vectors that are far apart, then Lloyd's algorithm.

    (From these two vectors themselves it often finds a few outliers and the rest.) None where all vectors are equal, or
    nearly.
    """
    apart = np.square(vectors - vectors.mean(axis=0)).sum(axis=1)
    one = vectors[np.argmax(apart)]
    apart = np.square(vectors - one).sum(axis=1)
    if not apart.max() > 0:
        return None
    along = vectors @ (vectors[np.argmax(apart)] - one)
    order = np.argsort(along, kind="stable")
    halves = np.stack([vectors[part].mean(axis=0) for part in np.array_split(order, 2)])
    centres = _lloyd(vectors, halves, 1, np.random.default_rng(0))
    return None if np.array_equal(centres[0], centres[1]) else centres


def _in_groups(vectors: Vectors, count: int, threads: int, rng: np.random.Generator) -> Vectors:
    """``count`` centres: the vectors are cut into groups, and each group into its share of the centres."""
    groups = round(math.sqrt(count))
    some = vectors[rng.permutation(len(vectors))[: 4 * SAMPLE_ROWS * groups]]
    coarse = _different(_lloyd(some, first_centres(some, groups, rng), threads, rng))
    labels = nearest(_assign.Centres(coarse), vectors, 1, threads)[0][:, 0]
    sizes = np.bincount(labels, minlength=len(coarse))
    shares = sizes * count / len(vectors)
    wanted = np.floor(shares).astype(np.int64)
    wanted[np.argsort(wanted - shares, kind="stable")[: count - int(wanted.sum())]] += 1
    seeds = rng.integers(0, 1 << 62, len(coarse))

    def cut(group: int) -> Vectors:
        own = np.random.default_rng(seeds[group])
        members = vectors[labels == group]
        return _lloyd(members, first_centres(members, int(wanted[group]), own), 1, own)

    return np.concatenate(in_parallel(cut, np.flatnonzero(wanted).tolist(), threads))


def _lloyd(vectors: Vectors, centres: Vectors, threads: int, rng: np.random.Generator) -> Vectors:
    centres, labels = np.asarray(centres, np.float32), np.empty(0, np.uint32)
    for _ in range(_ITERATIONS):
        before, labels = labels, np.ascontiguousarray(nearest(_assign.Centres(centres), vectors, 1, threads)[0][:, 0])
        if np.array_equal(before, labels):
            break
        centres = np.asarray(moved_centres(vectors, labels, centres, rng), np.float32)
    return centres


def _among(centres: _assign.Centres, vectors: Vectors, candidates: Labels, threads: int) -> Labels:
    def work(at: int) -> Labels:
        return centres.among(vectors[at : at + _BLOCK_ROWS], candidates[at : at + _BLOCK_ROWS])[0]

    return np.concatenate(in_parallel(work, range(0, len(vectors), _BLOCK_ROWS), threads))


def _different(centres: Vectors) -> Vectors:
    """Each centre once, in their order."""
    first = distinct(centres)
    return centres if len(first) == len(centres) else centres[first]
