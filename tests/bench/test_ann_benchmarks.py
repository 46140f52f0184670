"""The module for ann-benchmarks runs under its runner: here under one that does what that one does, on digits.

What the runner does, told again: it reads ``config.yml`` of each algorithm's folder; expands each run group into
definitions (every combination of constructor arguments) with a list of query arguments each; imports
``{module}.module``; calls ``fit`` between two looks at the memory; then, for each group of query arguments,
``set_query_arguments(*group)`` and all queries, one by one or as a batch; insists that no id comes twice; takes what
is told in addition; and calls ``done`` whatever happened.
"""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

yaml = pytest.importorskip("yaml")
datasets = pytest.importorskip("sklearn.datasets")

SOURCE = Path(__file__).parents[2] / "bench" / "ann_benchmarks"
METRICS = ("euclidean", "angular")
GROUPS = ("scan", "rerank", "subset")

#: The base class of all algorithms there, as far as a subclass can tell.
BASE = """
class BaseANN:
    def done(self):
        pass

    def get_memory_usage(self):
        raise NotImplementedError("the resident memory of the process")

    def fit(self, X):
        pass

    def query(self, q, n):
        return []

    def batch_query(self, X, n):
        self.res = [self.query(q, n) for q in X]

    def get_batch_results(self):
        return self.res

    def get_additional(self):
        return {}

    def __str__(self):
        return self.name
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout of theirs with our folder in it, as the README says, first on the path."""
    algorithms = tmp_path / "ann_benchmarks" / "algorithms"
    (algorithms / "base").mkdir(parents=True)
    (algorithms / "base" / "module.py").write_text(BASE, encoding="utf-8")
    shutil.copytree(SOURCE, algorithms / "lsqindex")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "ann_benchmarks"]:
        del sys.modules[name]


@dataclass(frozen=True)
class Definition:
    module: str
    constructor: str
    arguments: list[Any]
    query_arguments: list[list[Any]]


def combinations(arguments: Any) -> list[Any]:
    """Every choice of one of each; what is no list is a choice of one."""
    values = arguments.values() if isinstance(arguments, dict) else arguments
    choices = list(itertools.product(*(value if isinstance(value, list) else [value] for value in values)))
    if isinstance(arguments, dict):
        return [dict(zip(arguments, own, strict=True)) for own in choices]
    return [list(own) for own in choices]


def expanded(group: dict[str, Any], name: str) -> list[Any]:
    """``args`` as they are; of ``arg_groups`` each mapping is first expanded into a list of its own."""
    if f"{name[:-1]}_groups" in group:
        groups = group[f"{name[:-1]}_groups"]
        return combinations([combinations(own) if isinstance(own, dict) else own for own in groups])
    return combinations(group[name]) if name in group else []


def definitions(checkout: Path, metric: str, dim: int, groups: tuple[str, ...] = GROUPS) -> list[Definition]:
    config = yaml.safe_load((checkout / "ann_benchmarks/algorithms/lsqindex/config.yml").read_text(encoding="utf-8"))
    variables = {"@metric": metric, "@dimension": dim, "@count": 10}
    found = []
    for algorithm in config["float"][metric]:
        assert {"docker_tag", "module", "constructor", "name"} <= algorithm.keys()
        assert not algorithm.get("disabled", False)
        assert set(algorithm["run_groups"]) == set(GROUPS)
        for name in groups:
            group = algorithm["run_groups"][name]
            for own in expanded(group, "args"):
                given = [variables.get(value, value) for value in algorithm["base_args"]] + [fewer_bits(*own)]
                queries = expanded(group, "query_args")
                found.append(Definition(algorithm["module"], algorithm["constructor"], given, queries))
    return found


def fewer_bits(kind: dict[str, Any]) -> dict[str, Any]:
    """An eighth: digits are 64 small numbers, and training takes a second."""
    return {**kind, "bits": kind["bits"] // 8}


def run(definition: Definition, train: Any, test: Any, count: int, batch: bool) -> Iterator[tuple[Any, list[Any]]]:
    """What the runner stores: attributes, and the ids of each query."""
    algorithm = getattr(importlib.import_module(f"{definition.module}.module"), definition.constructor)(
        *definition.arguments
    )
    assert not definition.query_arguments or hasattr(algorithm, "set_query_arguments")
    try:
        before = algorithm.get_memory_usage()
        algorithm.fit(train)
        size = algorithm.get_memory_usage() - before
        for arguments in definition.query_arguments or [[]]:
            if arguments:
                algorithm.set_query_arguments(*arguments)
            if batch:
                algorithm.batch_query(test, count)
                results = algorithm.get_batch_results()
            else:
                results = [algorithm.query(query, count) for query in test]
            for ids in results:
                assert len(ids) == len(set(ids)), "Implementation returned duplicated candidates"
            attributes = {"name": str(algorithm), "index_size": size, **algorithm.get_additional()}
            yield attributes, [[int(i) for i in ids] for ids in results]
    finally:
        algorithm.done()


@pytest.fixture(scope="module")
def digits() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    vectors = datasets.load_digits().data.astype(np.float32)
    return vectors[:-40], vectors[-40:]


def truth(train: Any, test: Any, metric: str, count: int) -> NDArray[np.int64]:
    if metric == "angular":
        train, test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
    distances = np.linalg.norm(test[:, None] - train[None], axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


def recall(found: list[Any], true: NDArray[np.int64]) -> float:
    shares = [len(np.intersect1d(ids, own)) / len(own) for ids, own in zip(found, true, strict=True)]
    return sum(shares) / len(shares)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("metric", METRICS)
def test_every_definition_runs_and_finds(checkout: Path, digits: Any, metric: str, group: str) -> None:
    train, test = digits
    true = truth(train, test, metric, 10)
    names, best = set(), 0.0
    for number, definition in enumerate(definitions(checkout, metric, train.shape[1], (group,))):
        for attributes, found in run(definition, train, test, 10, batch=number % 2 == 1):
            names.add(attributes["name"])
            assert attributes["index_size"] > 0 and attributes["code_bytes"] > 0
            assert (attributes["tables"] > 0) == (group == "subset")
            assert all(0 <= i < len(train) for ids in found for i in ids)
            best = max(best, recall(found, true))
    assert best > (0.7 if group == "scan" else 0.97)
    runs = definitions(checkout, metric, train.shape[1], (group,))
    assert len(names) == sum(len(own.query_arguments) for own in runs), "each is stored under its own name"


def test_one_by_one_and_in_a_batch_the_same_is_found(checkout: Path, digits: Any) -> None:
    train, test = digits
    definition = definitions(checkout, "euclidean", train.shape[1], ("subset",))[0]
    single, batch = ([found for _, found in run(definition, train, test, 10, way)] for way in (False, True))
    assert single == batch


def test_short_answers_come_without_padding(checkout: Path, digits: Any) -> None:
    train, test = digits
    definition = definitions(checkout, "euclidean", train.shape[1], ("subset",))[0]
    few = Definition(definition.module, definition.constructor, definition.arguments, [[{"probes": 1}]])
    ((_, found),) = run(few, train, test, 1000, batch=False)
    assert all(0 <= i < len(train) for ids in found for i in ids)
    assert min(map(len, found)) < 1000


def test_its_file_is_gone_when_it_is_done(checkout: Path, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkout / "files"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    definition = definitions(checkout, "angular", 64, ("scan",))[0]
    train, test = digits
    seen = [bool(list(folder.rglob("*.lsq"))) for _ in run(definition, train, test, 10, batch=False)]
    assert seen and all(seen)
    assert not list(folder.iterdir())


def test_a_metric_that_it_does_not_have_is_refused(checkout: Path) -> None:
    module = importlib.import_module("ann_benchmarks.algorithms.lsqindex.module")
    with pytest.raises(NotImplementedError, match="jaccard"):
        module.LsqIndex("jaccard", {})
