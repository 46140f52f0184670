"""The operations that ``python -m bench micro`` times, in a process that knows one version of lsqindex.

Run as a program it reads lines of JSON, [operation, round], and writes the seconds that one such operation took.
Only the public face of lsqindex is used, so that one file serves every version that is compared.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import lsqindex
from lsqindex import Index, make_encoder

ROWS, DIM = 20_000, 32
#: Vectors of a bulk add and of an encoding; queries of a batch.
BULK, BATCH = 1_000, 100


class Operations:
    """Filled indexes, and what is done to them. A method returns the seconds of one operation, set-up not included."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        centres = np.repeat(rng.standard_normal((200, DIM)), ROWS // 200, axis=0)
        self.vectors = (centres + 0.5 * rng.standard_normal((ROWS, DIM))).astype(np.float32)
        self.encoder = make_encoder("lsq", bits=64).fit(self.vectors[::4])
        self.hashes = make_encoder("itq", bits=32).fit(self.vectors[::4])
        self.path, self.still = folder / "changed.lsq", folder / "still.lsq"
        for path in (self.path, self.still):
            with Index.create(
                path, DIM, encoder=self.encoder, keep_vectors="float16", subset=None, fields=["lang"]
            ) as index:
                index.add(self.vectors, payloads=[{"lang": "en" if row % 2 else "de"} for row in range(ROWS)])
        self.index, self.changed = Index.open(self.still, read_only=True), Index.open(self.path)
        self.memory = Index(DIM, encoder=self.encoder, keep_vectors="float16", subset=None)
        self.memory.add(self.vectors)
        self.exact = Index(DIM, keep_vectors="float32", train_size=ROWS, subset=None)
        self.exact.add(self.vectors[:2000])
        self.listed = Index(DIM, encoder=self.hashes, keep_vectors="float16", subset="multi-index")
        self.listed.add(self.vectors)
        self.deleted = 0

    def query(self, number: int) -> float:
        """The codes are scanned, the best 50 compared exactly."""
        return self._each(number, 100, lambda i: self.index.search(self.vectors[i], k=10, rerank=50))

    def query_without_options(self, number: int) -> float:
        return self._each(number, 50, lambda i: self.index.search(self.vectors[i], k=10))

    def filtered_query(self, number: int) -> float:
        wanted = {"lang": "en"}
        return self._each(number, 50, lambda i: self.index.search(self.vectors[i], k=10, rerank=50, filter=wanted))

    def exact_query(self, number: int) -> float:
        """No codes yet."""
        return self._each(number, 50, lambda i: self.exact.search(self.vectors[i], k=10))

    def multi_index_query(self, number: int) -> float:
        def ask(i: int) -> None:
            self.listed.search(self.vectors[i], k=10, rerank=50, probes=64, strategy="subset")

        return self._each(number, 50, ask)

    def batch_search(self, number: int) -> float:
        first = number * BATCH % (ROWS - BATCH)
        queries = self.vectors[first : first + BATCH]
        return self._each(number, 2, lambda _: self.index.search(queries, k=10, rerank=50, threads=1))

    def open(self, number: int) -> float:
        return self._each(number, 10, lambda _: Index.open(self.still, read_only=True).close())

    def open_and_first_query(self, number: int) -> float:
        def ask(i: int) -> None:
            with Index.open(self.still, read_only=True) as index:
                index.search(self.vectors[i], k=10, rerank=50)

        return self._each(number, 5, ask)

    def add_one(self, number: int) -> float:
        """Durable: the time of the disk is in it."""
        return self._each(number, 10, lambda i: self.changed.add(self.vectors[i : i + 1]))

    def add_one_in_memory(self, number: int) -> float:
        return self._each(number, 20, lambda i: self.memory.add(self.vectors[i : i + 1]))

    def bulk_add(self, number: int) -> float:
        return self._each(number, 1, lambda _: self.changed.add(self.vectors[:BULK], threads=1))

    def delete_one(self, number: int) -> float:
        first = self.deleted
        self.deleted += 10
        return self._each(0, 10, lambda i: self.changed.delete([first + i]))

    def delete_one_in_memory(self, number: int) -> float:
        return self._each(number + 1, 10, lambda i: self.memory.delete([i]))

    def encode(self, number: int) -> float:
        return self._each(number, 1, lambda _: self.encoder.encode(self.vectors[:BULK], threads=1))

    def _each(self, number: int, count: int, call: Callable[[int], object]) -> float:
        """Seconds of one of ``count`` calls, which have other arguments in every round."""
        first = number % (ROWS // count) * count
        start = time.perf_counter()
        for i in range(first, first + count):
            call(i)
        return (time.perf_counter() - start) / count


#: By name, as they are measured.
NAMES = [name for name in vars(Operations) if not name.startswith("_")]


def main(folder: str) -> None:
    """Tell which lsqindex this is, then answer."""
    operations = Operations(Path(folder))
    print(json.dumps(lsqindex.__file__), flush=True)
    for line in sys.stdin:
        name, number = json.loads(line)
        print(json.dumps(getattr(operations, name)(number)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
