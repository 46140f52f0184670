"""How much is measured, and the indexes that are: made once, with no option set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lsqindex import Cells, Index

from ..framework import runner
from ..material import data
from ..material.data import Dataset, Vectors
from ..material.filled import fingerprint, remove


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: Data sets that are searched; those that are also built beside other libraries, changed and added to.
    data: tuple[str, ...]
    changed: tuple[str, ...]
    #: Whose vectors take the place of half of a data set's.
    other: Mapping[str, str]
    #: Rounds of batches and of single queries, and the single queries of a turn.
    rounds: int
    single_rounds: int
    singles: int
    #: Queries of each kind but the usual one.
    queries: int
    #: What is set by hand: rows compared, and for each of them cells visited until the recall is reached.
    reranks: tuple[int, ...]
    probes: tuple[int, ...]
    #: Shares of the rows that filters let through.
    shares: tuple[float, ...]
    #: Vectors of a small add; and those that a process adds in a second, for so many seconds.
    batch: int
    rate: int
    seconds: float
    #: Indexes of the first so many vectors, from few to many.
    growth: tuple[int, ...] = ()
    #: Options of every index: none, unless there are too few vectors for cells.
    options: Mapping[str, Any] = field(default_factory=dict)


FULL = Plan(
    name="cells",
    remark="No option is set but the dimensions and the metric. One thread, k = 10; what is compared takes turns.",
    data=("minilm-wordnet", "fashion-mnist"),
    changed=("minilm-wordnet", "fashion-mnist"),
    other={"minilm-wordnet": "fashion-mnist", "fashion-mnist": "minilm-wordnet"},
    rounds=7,
    single_rounds=25,
    singles=100,
    queries=250,
    reranks=(15, 20, 25, 30, 40, 60, 100),
    probes=(4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64),
    shares=(0.5, 0.1, 0.01, 0.001),
    batch=100,
    rate=1000,
    seconds=8.0,
)
MILLION = Plan(
    name="cells-million",
    remark=f"{FULL.remark} The vectors are made from MiniLM-WordNet's: w·a + (1 − w)·b, normalized.",
    data=("minilm-wordnet-1m",),
    changed=(),
    other={},
    rounds=5,
    single_rounds=15,
    singles=FULL.singles,
    queries=100,
    reranks=FULL.reranks,
    probes=FULL.probes,
    shares=FULL.shares,
    batch=FULL.batch,
    rate=FULL.rate,
    seconds=FULL.seconds,
    growth=(100_000, 1_000_000),
)
QUICK = Plan(
    name="cells-quick",
    remark="A smoke test: does everything run? Its numbers say nothing.",
    data=("digits",),
    changed=("digits",),
    other={"digits": "digits"},
    rounds=1,
    single_rounds=1,
    singles=10,
    queries=50,
    reranks=(20,),
    probes=(4, 16),
    shares=(0.5, 0.1),
    batch=100,
    rate=200,
    seconds=0.5,
    growth=(1_000, 1_500),
    options={"subset": Cells(count=16), "train_size": 1_000, "bits": 64},
)


class Shelf:
    """Indexes in a directory, each made once; what another version of the library made does not count."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        self.common, self._own, self._options = directory, directory / fingerprint(), dict(options)
        self._own.mkdir(parents=True, exist_ok=True)

    def path(self, source: Dataset, what: str, fill: Callable[[Index], Any], **options: Any) -> Path:
        """The file of an index for vectors of ``source`` that ``fill`` filled; ``what`` names it."""
        path = self._own / f"{source.name}-{what}.lsq"
        if not path.exists():
            print(f"filling an index, {source.name}, {what} …", flush=True)
            passing = path.with_suffix(".making")
            remove(passing)
            options = {**self._options, **options}
            with Index.create(passing, source.base.shape[1], metric=source.metric, **options) as index:
                fill(index)
            passing.rename(path)
            remove(passing)
        return path

    def index(self, name: str, rows: int | None = None) -> Index:
        """The first ``rows`` vectors of a data set, or all, added in one call; opened read-only."""
        source = data.load(name)
        vectors = source.base[:rows]
        path = self.path(source, f"{len(vectors)}", lambda index: index.add(vectors))
        return Index.open(path, read_only=True)


class Run(runner.Run[Plan, Shelf]):
    """One run of the benchmark."""


def in_dim(vectors: Vectors, like: Vectors) -> Vectors:
    """Vectors of another data set as vectors of this one's dimensions and mean length: by a random projection."""
    rng = np.random.default_rng(data.SEED)
    projected = vectors @ rng.standard_normal((vectors.shape[1], like.shape[1]), np.float32)
    wanted, own = (float(np.linalg.norm(some[:1000], axis=1).mean()) for some in (like, projected))
    return np.asarray(projected * np.float32(wanted / own), np.float32)
