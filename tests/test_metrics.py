"""Each metric is one object: what it says of distances is what the kernels and the hosts use."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._inputs.options import read_options
from lsqindex._storage.format import keys
from lsqindex.errors import DamagedError, ParameterError
from lsqindex.metrics import METRICS, NAMES, MetricName, check_metric
from lsqindex.testing import reference

RNG = np.random.default_rng(5)
QUERIES, ROWS = (RNG.standard_normal((n, 24)).astype(np.float32) for n in (7, 50))


@pytest.mark.parametrize("name", NAMES)
def test_pairs_are_the_distances_of_each_pair(name: str) -> None:
    metric = METRICS[name]
    one_by_one = np.stack([metric.distances(query, ROWS) for query in QUERIES])
    assert np.allclose(metric.pairs(QUERIES.astype(np.float64), ROWS.astype(np.float64)), one_by_one, atol=1e-12)
    kernel = np.stack([reference.exact_distances(ROWS, name, query) for query in QUERIES])
    assert np.allclose(kernel, one_by_one, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_nearer_vector_is_more_similar_and_more_relevant(name: str) -> None:
    metric = METRICS[name]
    units = METRICS["cosine"].prepare(ROWS)
    distances = np.sort(metric.distances(units[0], units)).astype(np.float32)
    assert (np.diff(metric.similarities(distances)) <= 0).all()
    relevances = [metric.relevance(distance) for distance in distances.tolist()]
    assert relevances == sorted(relevances, reverse=True)
    cosines = np.sort(units.astype(np.float64) @ units[0])[::-1]
    assert np.allclose(relevances, np.clip(cosines, 0, 1), atol=1e-6)


def test_only_inner_products_may_be_below_zero() -> None:
    below = np.array([-1.0, 0.0, 2.0], np.float32)
    assert METRICS["ip"].clamp(below.copy()).tolist() == [-1, 0, 2]
    for name in ("l2", "cosine"):
        assert METRICS[name].clamp(below.copy()).tolist() == [0, 0, 2]


def test_cosine_lifts_short_queries_and_leaves_zeros() -> None:
    short = np.array([[1e-30, 2e-30], [0, 0], [3, 4]], np.float32)
    lifted = METRICS["cosine"].lift(short)
    assert (lifted[0] > 1e-3).all() and lifted[0, 1] == 2 * lifted[0, 0]
    assert lifted[1:].tolist() == short[1:].tolist()
    assert METRICS["l2"].lift(short) is short


def test_a_metric_that_there_is_not_is_refused() -> None:
    for wrong in ("manhattan", np.zeros(3), None):
        with pytest.raises(ParameterError, match="l2, cosine, ip"):
            check_metric(wrong)


def test_type_checkers_and_the_command_line_know_every_metric() -> None:
    assert get_args(MetricName) == NAMES


def test_a_file_with_an_unknown_metric_is_damaged() -> None:
    index = Index(dim=2)
    index.add([[1, 2]])
    with index._writer() as writer:
        record = replace(index._options, metric="manhattan").to_record()
        writer.run(lambda writer: writer.put(keys.META, keys.OPTIONS, record))
        writer.commit()
    with index._reader() as reader, pytest.raises(DamagedError, match="manhattan"):
        read_options(reader)
