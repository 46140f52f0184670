"""The nearest of all vectors, in place: the bits of exact distances, in every layout and on every instruction set."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsqindex import metrics
from lsqindex._compiled import exact as _exact
from lsqindex._compiled import records as _records
from lsqindex._storage.format import kept, records
from lsqindex._storage.format.columns import Column
from lsqindex.testing import reference

from .levels import on_every_level

METRICS = ("l2", "ip", "cosine")
NUMBER = {name: metrics.METRICS[name].number for name in METRICS}
LAYOUTS = tuple(kept.NAMES)
DIMS = (1, 3, 31, 32, 33, 64, 100, 511, 512, 513, 1030)
SEGMENT_ROWS = 64

Bits = NDArray[np.uint8]


class Stored:
    """Vectors in memory, as records of a file: of kept vectors (``head`` is 0), or of codes that are vectors."""

    def __init__(
        self,
        kind: str,
        vectors: NDArray[np.float32],
        counts: list[int],
        head: int = 0,
        deleted: list[Bits | None] | None = None,
        gap: int = 0,
        hidden: int = 0,
    ) -> None:
        dim = vectors.shape[1]
        rows = kept.to_bytes(vectors, kind)
        column = Column(b"codes", b"c", records.CODES, rows.shape[1], head=head)
        self.buffers, starts, at = [], [], 0
        for i, count in enumerate(counts):
            starts.append(at + i * gap)
            # Rows of an unfinished add lie behind the others.
            own = np.concatenate([rows[at : at + count], rows[:hidden]])
            record = column.encode(starts[-1], own) if len(own) else bytes(records.HEADER_SIZE)
            self.buffers.append(np.frombuffer(b"x" * i + record, np.uint8))  # at any address
            at += count
        places = [_records.address(b) + i + records.HEADER_SIZE for i, b in enumerate(self.buffers)]
        self.arrays = np.array(starts, np.uint32), np.array(counts, np.uint32), np.array(places, np.uint64)
        self.kind, self.dim, self.deleted = kind, dim, deleted or []
        dead = np.array([0 if bits is None else _records.address(bits) for bits in self.deleted], np.uint64)
        self.vectors = _exact.Vectors(*self.arrays, kind, dim, head, dead, SEGMENT_ROWS)
        #: The number of each row, in the order of the vectors.
        self.numbers = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, counts, strict=True)]).astype(int)
        #: The vectors as they are stored.
        self.read = kept.from_bytes(rows[:at], kind)

    def may(self, allowed: Bits | None) -> NDArray[np.bool_]:
        """Which rows may be found."""
        may = np.ones(len(self.numbers), np.bool_)
        for segment, bits in enumerate(self.deleted):
            if bits is not None:
                here = self.numbers // SEGMENT_ROWS == segment
                may[here] &= ~np.unpackbits(bits, bitorder="little").astype(bool)[self.numbers[here] % SEGMENT_ROWS]
        if allowed is not None:
            flags = np.zeros(int(self.numbers.max()) + 9 + 8 * len(allowed), np.bool_)
            flags[: 8 * len(allowed)] = np.unpackbits(allowed, bitorder="little")
            may &= flags[self.numbers]
        return may


Answer = list[tuple[list[int], list[int]]]


def search(
    stored: Stored,
    metric: str,
    queries: NDArray[np.float32],
    k: int | None,
    allowed: Bits | None = None,
    parts: int = 1,
    limit: float = math.inf,
) -> Answer:
    work = _exact.Scan(stored.vectors, NUMBER[metric], queries, k, allowed, parts, limit)
    for part in range(parts):
        work.run(part)
    return answer(*work.finish())


def answer(counts: NDArray[np.int64], rows: NDArray[np.uint32], distances: NDArray[np.float32]) -> Answer:
    """For each query the rows, ascending, and the bits of their distances."""
    assert len(rows) == len(distances) == counts.sum()
    found = []
    for own, far in zip(*(np.split(array, np.cumsum(counts)[:-1]) for array in (rows, distances)), strict=True):
        order = np.argsort(own)
        found.append((own[order].tolist(), far[order].view(np.uint32).tolist()))
    return found


def expected(
    stored: Stored,
    metric: str,
    queries: NDArray[np.float32],
    k: int | None,
    allowed: Bits | None = None,
    limit: float = math.inf,
) -> Answer:
    """The same by ``reference``."""
    found, may = [], stored.may(allowed)
    for query in queries:
        with np.errstate(all="ignore"):
            distances = reference.exact_distances(stored.read, metric, query)
        rows = reference.nearest(distances, k, limit, may)
        found.append((stored.numbers[rows].tolist(), distances[rows].view(np.uint32).tolist()))
    return found


def layouts(dim: int) -> Iterator[tuple[str, int]]:
    """(kind, head): kept vectors, and codes that are vectors with heads of several sizes."""
    yield from ((kind, 0) for kind in LAYOUTS)
    yield from (("float32", head) for head in sorted({1, 2 * dim + 1, 4 * dim}))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", DIMS)
def test_the_nearest_are_those_of_the_reference(metric: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = rng.standard_normal((140, dim)).astype(np.float32)
    queries = rng.standard_normal((6, dim)).astype(np.float32)
    queries[1] = vectors[77]
    for kind, head in layouts(dim):
        stored = Stored(kind, vectors, [1, 32, 0, 33, 74], head)
        for k in (1, 10, None):
            wanted = expected(stored, metric, queries, k)
            for got in on_every_level(lambda s=stored, own=k: search(s, metric, queries, own)):
                assert got == wanted
        wanted = expected(stored, metric, queries, 10)
        assert all(search(stored, metric, queries, 10, parts=parts) == wanted for parts in (2, 5, 9))


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_the_bits_of_those_of_some_rows(metric: str) -> None:
    """As re-ranking gives them, whatever the layout is; so an answer does not change when an index is trained."""
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((100, 200)).astype(np.float32)
    queries = rng.standard_normal((3, 200)).astype(np.float32)
    rows_after_each_other, blocks = (Stored("float32", vectors, [100], head) for head in (0, 800))
    every = np.tile(np.arange(100, dtype=np.uint32), 3)
    some = _exact.distances(
        *rows_after_each_other.arrays, "float32", 200, NUMBER[metric], queries, np.full(3, 100), every
    )
    wanted = answer(np.full(3, 100), every, some)
    assert search(rows_after_each_other, metric, queries, None) == wanted
    assert search(blocks, metric, queries, None) == wanted


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Numbers of every size, deleted and allowed rows, records with gaps between them, limits that rows reach."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dim = draw(st.sampled_from((1, 5, 32, 70)))
    kind, head = draw(st.sampled_from(list(layouts(dim))))
    counts = draw(st.lists(st.sampled_from((1, 31, 32, 33, 64, 90)), min_size=1, max_size=3))
    scale = draw(st.sampled_from((1.0, 1e-30, 1e-42, 1e4, 0.0)))
    vectors = (rng.standard_normal((sum(counts), dim)) * scale).astype(np.float32)
    if draw(st.booleans()):  # ties, and vectors of zeros
        vectors = vectors[rng.integers(0, 1 + len(vectors) // 8, len(vectors))]
        vectors[rng.random(len(vectors)) < 0.1] = 0
    if kind == "float16":
        vectors = np.clip(vectors, -6e4, 6e4)
    deleted = [
        rng.integers(0, 256, SEGMENT_ROWS // 8).astype(np.uint8) if rng.random() < 0.5 else None
        for _ in range(draw(st.integers(0, 4)))
    ]
    hidden = draw(st.sampled_from((0, 0, 1, 40)))
    stored = Stored(kind, vectors, counts, head, deleted, draw(st.integers(0, 70)), min(hidden, len(vectors)))
    queries = (rng.standard_normal((draw(st.integers(1, 9)), dim)) * draw(st.sampled_from((1.0, 1e-25, 0.0)))).astype(
        np.float32
    )
    allowed = rng.integers(0, 256, draw(st.integers(0, 40))).astype(np.uint8) if draw(st.booleans()) else None
    if allowed is not None and draw(st.booleans()):
        allowed &= np.uint8(1)
    return {"stored": stored, "queries": queries, "allowed": allowed, "place": draw(st.sampled_from((0.2, 0.9, None)))}


@settings(max_examples=200, deadline=None)
@given(cases(), st.sampled_from(METRICS), st.sampled_from((None, 1, 9, 500)))
def test_filters_limits_and_numbers_of_every_size(case: dict[str, Any], metric: str, k: int | None) -> None:
    stored, queries, allowed = case["stored"], case["queries"], case["allowed"]
    limit = math.inf
    if case["place"] is not None:
        distances = np.sort(reference.exact_distances(stored.read, metric, queries[0]))
        limit = float(distances[int(case["place"] * len(distances))])
    wanted = expected(stored, metric, queries, k, allowed, limit)
    for got in on_every_level(lambda: search(stored, metric, queries, k, allowed, 1, limit)):
        assert got == wanted
    assert search(stored, metric, queries, k, allowed, 3, limit) == wanted


def test_parts_run_at_the_same_time() -> None:
    rng = np.random.default_rng(3)
    stored = Stored("float32", rng.standard_normal((900, 24)).astype(np.float32), [100] * 9, 96)
    queries = rng.standard_normal((5, 24)).astype(np.float32)
    work = _exact.Scan(stored.vectors, NUMBER["l2"], queries, 7, None, 4)
    threads = [threading.Thread(target=work.run, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answer(*work.finish()) == expected(stored, "l2", queries, 7)


def test_nothing_is_found_in_nothing() -> None:
    none = np.empty(0, np.uint32)
    empty = _exact.Vectors(none, none, np.empty(0, np.uint64), "int8", 3, 0, np.empty(0, np.uint64), SEGMENT_ROWS)
    work = _exact.Scan(empty, NUMBER["l2"], np.zeros((2, 3), np.float32), 1)
    work.run()
    assert [array.tolist() for array in work.finish()] == [[0, 0], [], []]
    stored = Stored("float32", np.ones((40, 3), np.float32), [40])
    no_queries = _exact.Scan(stored.vectors, NUMBER["l2"], np.empty((0, 3), np.float32), 1)
    no_queries.run()
    assert [array.tolist() for array in no_queries.finish()] == [[], [], []]
    assert search(stored, "ip", np.ones((1, 3), np.float32), 1, np.empty(0, np.uint8)) == [([], [])]


def test_sizes_that_do_not_fit_are_refused() -> None:
    stored = Stored("float32", np.ones((40, 3), np.float32), [40])
    starts, counts, addresses = stored.arrays
    good: dict[str, Any] = {
        "kind": "float32",
        "dim": 3,
        "head": 0,
        "deleted": np.empty(0, np.uint64),
        "segment_rows": 8,
    }
    wrong: list[dict[str, Any]] = [
        {"kind": "float8"},
        {"dim": 0},
        {"head": -1},
        {"head": 13},
        {"head": 3, "kind": "int8"},
        {"segment_rows": 0},
    ]
    for other in wrong:
        with pytest.raises(ValueError, match=r"exact: |vectors: "):
            _exact.Vectors(starts, counts, addresses, **{**good, **other})
    with pytest.raises(ValueError, match="differ in length"):
        _exact.Vectors(starts, counts[:0], addresses, **good)
    queries = np.ones((1, 3), np.float32)
    for metric, asked, k, parts, limit in (
        ("l1", queries, 1, 1, 0.0),
        ("l2", queries[:, :2].copy(), 1, 1, 0.0),
        ("l2", queries, 0, 1, 0.0),
        ("l2", queries, 1, 0, 0.0),
        ("l2", queries, 1, 1, math.nan),
    ):
        with pytest.raises(ValueError, match=r"exact: |k is 0|limit: "):
            _exact.Scan(stored.vectors, NUMBER.get(metric, 3), asked, k, None, parts, limit)
    with pytest.raises(ValueError, match="no such part"):
        _exact.Scan(stored.vectors, NUMBER["l2"], queries, 1).run(1)
