"""A process that adds vectors at a steady rate: ``python -m bench.cells.writer INDEX VECTORS.npy BATCH RATE``.

It prints a line when it begins, and, as JSON, what it has added.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from lsqindex import Index


def main(path: str, file: str, batch: int, rate: int) -> None:
    vectors, times, added = np.load(file), [], 0
    with Index.open(path) as index:
        first = len(index)
        print("open", flush=True)
        start = time.perf_counter()
        while added < len(vectors):
            began = time.perf_counter()
            added += len(index.add(vectors[added : added + batch], threads=1))
            now = time.perf_counter()
            times.append(now - began)
            time.sleep(max(0.0, start + added / rate - now))
        seconds = time.perf_counter() - start
    told = {"worst": max(times), "late": float(np.quantile(times, 0.99)), "median": float(np.median(times))}
    print(json.dumps({"added": added, "first": first, "seconds": seconds, **told}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
