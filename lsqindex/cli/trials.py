"""Trials: an index in memory of a sample, searched with queries that are not in it.

sample ─▶ encoder and bits ─▶ index ─▶ plain · re-ranked by float16, int8 · multi-index      one Trial each
queries ─▶ exact neighbours by NumPy ─▶ recall      half of them to choose by, half to confirm the choice
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import Index
from ..errors import LsqIndexError
from ..storage.kept import LAYOUTS, width
from ..vectors import Vectors

#: The first are quick to train or the best, the last are slow: time may run out.
BITS = (64, 128, 256, 512, 1024)
ENCODERS = ("lsh", "lsq", "itq", "pq", "ckmeans")
_MAX_AXES = 64
#: Re-ranked: so many times ``k``.
RERANK = (2, 4, 10, 30)
_TIMINGS = 3


@dataclass(frozen=True)
class Trial:
    """One way to make and search an index, and what came of it.

    ``recall`` is that of the queries to choose by. The best of many is chosen for its luck, too: ``confirmed`` is that
    of as many others, which had no say.
    """

    create: dict[str, Any]
    search: dict[str, Any]
    recall: float
    bytes: int
    queries_per_second: float
    train_seconds: float
    confirmed: float = float("nan")

    @property
    def encoder(self) -> str:
        """The encoder's name."""
        return str(self.create["encoder"])


@dataclass
class Task:
    """What is asked for: vectors, queries (the second half of them to confirm), and the time there is."""

    sample: Vectors
    queries: Vectors
    metric: Any = "l2"
    k: int = 10
    ends: float = float("inf")
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dim = int(self.sample.shape[1])
        self.truth = exact(self.sample, self.queries, self.metric, self.k)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.ends


class _OutOfTimeError(Exception):
    """Training went on beyond the time."""


def exact(sample: Vectors, queries: Vectors, metric: str, k: int) -> NDArray[np.int64]:
    """The ``k`` nearest rows of each query, by NumPy.

    >>> exact(np.eye(3, dtype=np.float32), np.array([[0, 2, 1]], np.float32), "l2", 2)
    array([[1, 2]])
    """
    if metric == "cosine":
        sample = sample / np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-30)
    near = -2 * (queries @ sample.T)
    if metric == "l2":
        near += np.square(sample).sum(axis=1)
    first = np.argpartition(near, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(near, first, axis=1), axis=1, kind="stable")
    return np.take_along_axis(first, order, axis=1)


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Share of the true nearest among those that were found.

    >>> recall(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float(np.mean([np.isin(true, own).mean() for own, true in zip(found, truth, strict=True)]))


def candidates(dim: int, max_bytes: int | None) -> Iterator[dict[str, Any]]:
    """Encoders with their parameters: short codes first, or, where there is a limit, those that are just within it.

    >>> [(made["encoder"], made["bits"]) for made in candidates(32, 16)]
    [('lsh', 128), ('lsh', 64), ('lsq', 128), ('lsq', 64), ('pq', 128), ('pq', 64), ('ckmeans', 128), ('ckmeans', 64)]
    """
    tried = [bits for bits in BITS if max_bytes is None or bits <= 8 * max_bytes]
    tried = [bits for bits in tried if bits <= 4 * dim] or tried[:1]
    if max_bytes is not None:
        tried.reverse()
    for name, bits in product(ENCODERS, tried):
        if name == "itq" and bits > dim:
            continue  # a rotation has no more bits than dimensions
        if name in ("pq", "ckmeans") and bits > 8 * dim:
            continue
        yield {"encoder": name, "bits": bits, **({"axes": min(_MAX_AXES, dim)} if name == "lsh" else {})}


def flat(task: Task) -> Trial:
    """The vectors as they are: what every other way is compared with."""
    made = {"encoder": "flat"}
    return _measured(task, _filled(task, made, None), made, {}, 4 * task.dim, 0.0)


def tried(task: Task, made: dict[str, Any], max_bytes: int | None) -> list[Trial]:
    """All ways to use one encoder; none where it cannot be trained on this sample, or not in time."""
    name = f"{made['encoder']} {made['bits']}"
    if task.over:
        task.left_out.append(name)
        return []

    def progress(step: int, steps: int, error: float) -> None:
        del step, steps, error
        if task.over:
            raise _OutOfTimeError

    begin = time.monotonic()
    try:
        index = Index(task.dim, metric=task.metric, train_size=1 << 39, keep_vectors="float16", **made)
        index.train(task.sample, progress=progress)
    except _OutOfTimeError:
        task.left_out.append(name)
        return []
    except LsqIndexError as error:
        task.left_out.append(f"{name} ({error})")
        return []
    seconds = time.monotonic() - begin
    index.add(task.sample)
    size = int(index.stats()["code_bytes"])

    found = [_measured(task, index, made, {}, size, seconds)]
    for kind in ("int8", "float16"):
        whole = size + width(task.dim, LAYOUTS[kind])
        if max_bytes is None or whole <= max_bytes:
            kept = index if kind == "float16" else _filled(task, {"encoder": index.encoder}, kind)
            found += _reranked(task, kept, {**made, "keep_vectors": kind}, whole, seconds)
    if index.encoder.hashes and index.encoder.layout.binary and (max_bytes is None or size < max_bytes):
        found += _by_lists(task, index, made, size, max_bytes, seconds)
    return found


def _filled(task: Task, made: dict[str, Any], kind: Any) -> Index:
    index = Index(task.dim, metric=task.metric, train_size=1 << 39, keep_vectors=kind, **made)
    index.add(task.sample)
    return index


def _reranked(task: Task, index: Index, made: dict[str, Any], size: int, seconds: float) -> list[Trial]:
    """With more and more rows re-ranked, until more of them find no more."""
    found: list[Trial] = []
    for times in RERANK:
        found.append(_measured(task, index, made, {"rerank": times * task.k}, size, seconds))
        if len(found) > 1 and found[-1].recall - found[-2].recall < 0.001:
            return found[:-1]
    return found


def _by_lists(
    task: Task, index: Index, made: dict[str, Any], size: int, max_bytes: int | None, seconds: float
) -> list[Trial]:
    """By the multi-index; a row takes two bytes a table more."""
    index.set_subset("multi-index")
    made = {**made, "subset": "multi-index"}
    size += 2 * int(index.stats()["tables"])
    found: list[Trial] = []
    if max_bytes is None or size <= max_bytes:
        found.append(_measured(task, index, made, {"strategy": "subset"}, size, seconds))
    size += width(task.dim, LAYOUTS["float16"])
    if max_bytes is None or size <= max_bytes:
        options = {"strategy": "subset", "rerank": 10 * task.k}
        found.append(_measured(task, index, {**made, "keep_vectors": "float16"}, options, size, seconds))
    return found


def _measured(
    task: Task, index: Index, made: dict[str, Any], options: dict[str, Any], size: int, seconds: float
) -> Trial:
    best = float("inf")
    for _ in range(_TIMINGS):
        begin = time.perf_counter()
        found = index.search(task.queries, k=task.k, **options).ids
        best = min(best, time.perf_counter() - begin)
    half = len(found) // 2
    chosen_by, other = recall(found[:half], task.truth[:half]), recall(found[half:], task.truth[half:])
    return Trial(dict(made), dict(options), chosen_by, size, len(found) / best, seconds, other)
