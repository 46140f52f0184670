"""Ways to make and search an index, measured with queries that are not in it.

rows ─▶ sample ─▶ every encoder and size ─▶ every way to search       a recall each: which are worth a closer look?
rows ─▶ half of them ─▶ all of them ─▶ the promising ways             a recall that can be promised

Recall falls as an index grows, because neighbours come closer to each other. A sample therefore flatters every way, so
a way is judged on all rows, or on as many as there is time for. What it has with half of the rows and with all of them
tells how its misses grow, and so what to expect of more rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import Index
from ..encoders import Encoder
from ..errors import LsqIndexError
from ..metrics import METRICS
from .source import Vectors

#: Time may run out, so both begin with the defaults.
BITS = (256, 128, 512, 64, 1024)
ENCODERS = ("lsq", "itq", "lsh", "pq", "ckmeans")
_MAX_AXES = 64
#: Candidates that are re-ranked, as multiples of ``k``.
RERANK = (2, 4, 10, 30)
#: An index trains itself with so many vectors, so trials do not train with more. Also the size of the sample.
SAMPLE = 10_000
#: The bound of a promise is wrong with this probability, and at most so many promises are tried with the same queries.
DOUBT, PROMISES = 0.005, 10
_RESAMPLED = 4000
_TIMINGS = 3
_ADDED_AT_ONCE = 16_384
_COMPARED_AT_ONCE = 16_384

Shares = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """One way to make and search an index, and what came of it.

    ``create`` and ``search`` are the arguments; both are empty for an index with all its defaults. ``recall`` was
    measured on ``rows`` rows with the queries that choose, and ``expected`` is the recall that follows from it for the
    number of rows that was asked for. A way that was judged also has ``confirmed``, the recall of fresh queries on
    the same rows, and ``promised``, a lower bound of it for the number of rows that was asked for.
    """

    create: dict[str, Any]
    search: dict[str, Any]
    bytes: int
    rows: int
    recall: float
    expected: float
    queries_per_second: float
    train_seconds: float
    confirmed: float | None = None
    promised: float | None = None

    @property
    def encoder(self) -> str:
        """The encoder's name; empty for the default."""
        return str(self.create.get("encoder", ""))

    @property
    def exact(self) -> bool:
        """Whether the vectors themselves are searched."""
        return self.encoder == "flat"


@dataclass
class Task:
    """What is asked for: rows, queries to choose by, fresh queries to confirm the choice, and the time there is.

    ``wanted`` is the number of rows for which the recall must hold; None: as many as there are.
    """

    rows: Vectors
    queries: Vectors
    fresh: Vectors
    metric: Any = "l2"
    k: int = 10
    wanted: float | None = None
    ends: float = float("inf")
    left_out: list[str] = field(default_factory=list)
    promises: int = 0
    #: Rows encoded in a second, by the slowest encoder that was tried.
    pace: float = float("inf")

    def __post_init__(self) -> None:
        self.dim = int(self.rows.shape[1])
        self.sample = self.rows[:SAMPLE]
        self._fitted: dict[str, tuple[Encoder, float]] = {}
        self._radii: dict[int, NDArray[np.float64]] = {}
        self._nearest: dict[int, NDArray[np.int64]] = {}

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.ends

    @property
    def asked(self) -> Vectors:
        """All queries: those that choose, then the fresh ones."""
        return np.concatenate([self.queries, self.fresh])

    def doublings(self, rows: int) -> float:
        """How often ``rows`` rows must double to be as many as the recall is wanted for."""
        return max(0.0, float(np.log2((self.wanted or len(self.rows)) / rows)))

    def hits(self, found: NDArray[np.int64], rows: int) -> Shares:
        """For each query, the share of the found rows that are as near as the true ``k`` nearest of the first ``rows``.

        Rows at the same distance are equally good, so what counts is the distance and not the number of the row.
        """
        if rows not in self._radii:
            self._radii[rows] = _distances(self.rows, self.asked, self._truth(rows), self.metric).max(axis=1)
        radii = self._radii[rows][:, None]
        near = _distances(self.rows, self.asked[: len(found)], np.maximum(found, 0), self.metric)
        right = (near <= (radii + 1e-6 * np.abs(radii))[: len(found)]) & (found >= 0)
        return np.asarray(right.mean(axis=1), np.float64)

    def _truth(self, rows: int) -> NDArray[np.int64]:
        """The true nearest among the first ``rows``. What is known for fewer rows is not computed again."""
        known = max((n for n in self._nearest if n <= rows), default=0)
        found = exact(self.rows[known:rows], self.asked, self.metric, self.k) + known
        if known:
            both = np.concatenate([self._nearest[known], found], axis=1)
            order = np.argsort(_distances(self.rows, self.asked, both, self.metric), axis=1, kind="stable")
            found = np.take_along_axis(both, order[:, : self.k], axis=1)
        self._nearest[rows] = found
        return found

    def encoder(self, made: dict[str, Any]) -> tuple[Encoder, float]:
        """An encoder fitted to the sample, and the seconds that took; equal ones are fitted once."""
        index = Index(self.dim, metric=self.metric, train_size=1 << 39, **{"subset": None, **made})
        key = repr(index.encoder)
        if key not in self._fitted:

            def progress(step: int, steps: int, error: float) -> None:
                del step, steps, error
                if self.over:
                    raise OutOfTimeError

            begin = time.monotonic()
            index.train(self.sample, progress=progress)
            self._fitted[key] = index.encoder, time.monotonic() - begin
        return self._fitted[key]

    def index(self, create: dict[str, Any]) -> tuple[Index, float]:
        """An empty index as ``create`` says, trained; and how long training took."""
        made = {key: value for key, value in create.items() if key not in ("keep_vectors", "subset")}
        others = {key: value for key, value in create.items() if key not in made}
        encoder, seconds = self.encoder(made)
        return Index(self.dim, metric=self.metric, encoder=encoder, **{"subset": None, **others}), seconds

    def bytes_of(self, index: Index) -> int:
        """What a vector takes: its code, its kept vector, and two bytes in each table of the multi-index."""
        stats = index.stats()
        kept = stats["keep_vectors"]
        return int(stats["code_bytes"]) + (_kept_bytes(kept, self.dim) if kept else 0) + 2 * int(stats["tables"])


class OutOfTimeError(Exception):
    """There is no time left."""


# -- what is true ---------------------------------------------------------------------------------


def exact(rows: Vectors, queries: Vectors, metric: str, k: int) -> NDArray[np.int64]:
    """The ``k`` nearest rows of each query, by NumPy.

    >>> exact(np.eye(3, dtype=np.float32), np.array([[0, 2, 1]], np.float32), "l2", 2)
    array([[1, 2]])
    """
    best = np.empty((len(queries), 0), np.float32)
    ids = np.empty((len(queries), 0), np.int64)
    for first in range(0, len(rows), _COMPARED_AT_ONCE):
        block = rows[first : first + _COMPARED_AT_ONCE]
        near = METRICS[metric].pairs(queries, block)
        best = np.concatenate([best, near], axis=1)
        ids = np.concatenate([ids, np.broadcast_to(np.arange(first, first + len(block)), near.shape)], axis=1)
        kept = np.argpartition(best, min(k, best.shape[1]) - 1, axis=1)[:, :k]
        best, ids = np.take_along_axis(best, kept, axis=1), np.take_along_axis(ids, kept, axis=1)
    order = np.lexsort((ids, best), axis=1)
    return np.take_along_axis(ids, order, axis=1)


def _distances(rows: Vectors, queries: Vectors, ids: NDArray[np.int64], metric: str) -> NDArray[np.float64]:
    """From each query to its own ``ids``, in double precision."""
    distances = METRICS[metric].distances
    return np.array([distances(query, rows[own]) for query, own in zip(queries, ids, strict=True)]).reshape(ids.shape)


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Share of the true nearest among those that were found.

    >>> recall(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float(np.mean([np.isin(true, own).mean() for own, true in zip(found, truth, strict=True)]))


def expected(half: Shares, whole: Shares, doublings: float) -> float:
    """The recall to expect after the rows have doubled so many times more: it falls by as much with every doubling.

    ``half`` and ``whole`` are the shares that each query finds with half of the rows and with all of them.

    >>> round(expected(np.full(100, 0.98), np.full(100, 0.96), 2.0), 2)
    0.92
    """
    now = float(whole.mean())
    return max(0.0, now - doublings * max(0.0, float(half.mean()) - now))


def cautious(half: Shares, whole: Shares, doublings: float, k: int) -> Any:
    """As :func:`expected`, but the misses grow by the same factor with every doubling, which is faster than they do.

    One miss is added to those that were seen, because none seen does not mean none. The last axis is that of queries.

    >>> float(cautious(np.full(100, 0.98), np.full(100, 0.96), 2.0, 10).round(2))
    0.84
    """
    unseen = 1 / (whole.shape[-1] * k)
    before, now = 1 - half.mean(axis=-1) + unseen, 1 - whole.mean(axis=-1) + unseen
    return 1 - np.minimum(1, now * np.maximum(1, now / before) ** doublings)


def lower_bound(half: Shares, whole: Shares, doublings: float, k: int) -> float:
    """The cautious recall is below this one with the probability ``DOUBT``, by drawing the queries again and again."""
    drawn = np.random.default_rng(0).integers(0, len(whole), (_RESAMPLED, len(whole)))
    return float(np.quantile(cautious(half[drawn], whole[drawn], doublings, k), DOUBT))


# -- what is tried --------------------------------------------------------------------------------


def candidates(dim: int, max_bytes: int | None) -> Iterator[dict[str, Any]]:
    """Encoders with their parameters: usual sizes first, or, where there is a limit, the largest that it allows.

    >>> [(made["encoder"], made["bits"]) for made in candidates(32, 16)]
    [('lsq', 128), ('lsq', 64), ('lsh', 128), ('lsh', 64), ('pq', 128), ('pq', 64), ('ckmeans', 128), ('ckmeans', 64)]
    """
    tried = [bits for bits in BITS if max_bytes is None or bits <= 8 * max_bytes]
    tried = [bits for bits in tried if bits <= 4 * dim] or [min(tried, default=0)] * bool(tried)
    if max_bytes is not None:
        tried.sort(reverse=True)
    for name, bits in product(ENCODERS, tried):
        if name == "itq" and bits > dim:
            continue  # a rotation has no more bits than dimensions
        if name in ("pq", "ckmeans") and bits > 8 * dim:
            continue
        yield {"encoder": name, "bits": bits, **({"axes": min(_MAX_AXES, dim)} if name == "lsh" else {})}


def ways(create: dict[str, Any], k: int) -> list[dict[str, Any]]:
    """How an index that was made like this can be searched; each finds more than the one before it."""
    if not create:
        return [{}]
    listed: dict[str, Any] = {"strategy": "subset"} if create.get("subset") else {}
    if create.get("keep_vectors") is None:
        return [{**listed, "rerank": 0}]
    return [{**listed, "rerank": times * k} for times in RERANK]


def default(task: Task) -> list[Trial]:
    """An index with no option at all."""
    return _screened(task, {}, None)


def _kept_bytes(kind: str, dim: int) -> int:
    """What a kept vector takes; those of float16 and int8 have a scale beside their numbers."""
    return dim * np.dtype(kind).itemsize + (0 if kind == "float32" else 4)


def flat(task: Task) -> list[Trial]:
    """The vectors as they are: what every other way is compared with."""
    return _screened(task, {"encoder": "flat", "keep_vectors": None}, None)


def tried(task: Task, made: dict[str, Any], max_bytes: int | None) -> list[Trial]:
    """All ways to use one encoder, on the sample; none where it cannot be trained on it, or not in time."""
    found = _screened(task, {**made, "keep_vectors": None}, max_bytes)
    if not found:
        return []
    for kind in ("int8", "float16"):
        if max_bytes is None or found[0].bytes + _kept_bytes(kind, task.dim) <= max_bytes:
            found += _screened(task, {**made, "keep_vectors": kind}, max_bytes)
    encoder, _ = task.encoder(made)
    if encoder.hashes and encoder.layout.binary and (max_bytes is None or found[0].bytes < max_bytes):
        for kept in (None, "float16"):
            found += _screened(task, {**made, "keep_vectors": kept, "subset": "multi-index"}, max_bytes)
    return found


def _screened(task: Task, create: dict[str, Any], max_bytes: int | None) -> list[Trial]:
    """The ways to search one index of the sample, up to the one after which more re-ranking finds no more."""
    name = _name(create)
    try:
        if task.over:
            raise OutOfTimeError
        index, seconds = task.index(create)
    except OutOfTimeError:
        if name not in task.left_out:
            task.left_out.append(name)
        return []
    except LsqIndexError as error:
        task.left_out.append(f"{name} ({error})")
        return []
    n, found = len(task.sample), list[Trial]()
    index.add(task.sample[: n // 2])
    searches = ways(create, task.k)
    half = [task.hits(index.search(task.queries, k=task.k, **search).ids, n // 2) for search in searches]
    begin = time.monotonic()
    index.add(task.sample[n // 2 :])
    task.pace = min(task.pace, (n - n // 2) / max(time.monotonic() - begin, 1e-9))
    size = task.bytes_of(index)
    if max_bytes is not None and size > max_bytes:
        return []
    for search, before in zip(searches, half, strict=True):
        rate, ids = _timed(index, task.queries, task.k, search, _TIMINGS)
        shares = task.hits(ids, n)
        later = expected(before, shares, task.doublings(n))
        found.append(Trial(create, search, size, n, float(shares.mean()), later, rate, seconds))
        if len(found) > 1 and found[-1].recall - found[-2].recall < 0.001:
            return found[:-1]
    return found


def judged(task: Task, create: dict[str, Any], wanted: float, rows: int) -> list[Trial]:
    """The ways to search an index of the first ``rows`` rows, up to the first that can promise the wanted recall."""
    index, seconds = task.index(create)
    _fill(task, index, 0, rows // 2)
    searches = ways(create, task.k)
    half = [task.hits(index.search(task.asked, k=task.k, **search).ids, rows // 2) for search in searches]
    _fill(task, index, rows // 2, rows)
    size, far, mine = task.bytes_of(index), task.doublings(rows), len(task.queries)
    found: list[Trial] = []
    for search, before in zip(searches, half, strict=True):
        rate, ids = _timed(index, task.asked, task.k, search, 1)
        shares = task.hits(ids, rows)
        later = expected(before[:mine], shares[:mine], far)
        done = Trial(create, search, size, rows, float(shares[:mine].mean()), later, rate, seconds)
        confirmed = float(shares[mine:].mean())
        if done.exact:
            done = replace(done, confirmed=confirmed, promised=confirmed)
        elif later >= wanted and task.promises < PROMISES:
            task.promises += 1
            promised = lower_bound(before[mine:], shares[mine:], far, task.k)
            done = replace(done, confirmed=confirmed, promised=promised)
        found.append(done)
        if (done.promised or 0) >= wanted:
            break
    return found


def _fill(task: Task, index: Index, first: int, end: int) -> None:
    for at in range(first, end, _ADDED_AT_ONCE):
        if task.over:
            raise OutOfTimeError
        index.add(task.rows[at : min(end, at + _ADDED_AT_ONCE)])


def _timed(index: Index, queries: Vectors, k: int, search: dict[str, Any], times: int) -> tuple[float, Any]:
    """Queries per second, the best of several runs; and the ids."""
    best, ids = float("inf"), None
    for _ in range(times):
        begin = time.perf_counter()
        ids = index.search(queries, k=k, **search).ids
        best = min(best, time.perf_counter() - begin)
    return len(queries) / max(best, 1e-9), ids


def _name(create: dict[str, Any]) -> str:
    return f"{create['encoder']} {create.get('bits', '')}".strip() if create else "defaults"
