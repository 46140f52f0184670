"""Does the order in which vectors are added matter? ``python -m bench.order_of_adds VECTORS.npy``

Adds the same vectors in three orders (shuffled, topic by topic, along the first principal axis), in blocks, to an index
that trains itself. Prints the recall of its codes alone, and the processor time of the longest add and of all adds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex.encoders.clustering import kmeans, nearest_centres

ORDERS = ("shuffled", "topics", "axis")
TOPICS = 64
K = 10


def ordered(vectors: NDArray[np.float32], order: str) -> NDArray[np.float32]:
    """The same vectors in another order."""
    rng = np.random.default_rng(0)
    if order == "shuffled":
        return vectors[rng.permutation(len(vectors))]
    sample = vectors[rng.choice(len(vectors), min(len(vectors), 10_000), replace=False)]
    if order == "axis":
        centred = sample - sample.mean(axis=0)
        axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
        return vectors[np.argsort(vectors @ axis, kind="stable")]
    labels, _ = nearest_centres(vectors, kmeans(sample, TOPICS, 10, rng))
    return vectors[np.argsort(labels, kind="stable")]


def measure(vectors: NDArray[np.float32], queries: NDArray[np.float32], order: str, block: int) -> dict[str, Any]:
    """Add, and search."""
    own = ordered(vectors, order)
    nearest = np.argpartition(np.square(own).sum(axis=1) - 2 * queries @ own.T, K, axis=1)[:, :K]
    seconds = []
    with (
        tempfile.TemporaryDirectory() as directory,
        Index.create(Path(directory) / "index.lsq", own.shape[1], keep_vectors="float16") as index,
    ):
        for first in range(0, len(own), block):
            began = time.process_time()
            index.add(own[first : first + block])
            seconds.append(time.process_time() - began)
        found = index.search(queries, K, rerank=0).ids
        told = index.stats().get("training")
    hits = [len(np.intersect1d(*pair)) for pair in zip(found, nearest, strict=True)]
    return {
        "order": order,
        "recall": float(np.mean(hits)) / K,
        "longest add, CPU s": max(seconds),
        "median add, CPU s": float(np.median(seconds)),
        "all adds, CPU s": sum(seconds),
        "training": told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vectors", help="a .npy file of vectors; the last 2,000 are queries")
    parser.add_argument("--rows", type=int, default=None, help="take so many of them, at random")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--block", type=int, default=1000, help="vectors of an add")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    given = parser.parse_args()
    stored = np.load(given.vectors, mmap_mode="r")
    base = np.sort(np.random.default_rng(1).permutation(len(stored) - 2000)[: given.rows])
    vectors = np.asarray(stored[base], np.float32)
    queries = np.asarray(stored[-2000 : -2000 + given.queries], np.float32)
    print(f"{platform.machine()}, {os.cpu_count()} processors; {vectors.shape}, {given.block} vectors an add")
    for order in given.orders:
        print(json.dumps(measure(vectors, queries, order, given.block)), flush=True)


if __name__ == "__main__":
    main()
