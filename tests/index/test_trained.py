"""Training and encoding again, against brute force over what the codes decode to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, make_encoder
from tests.settings import LONG

from .expected import DIM, ENCODERS, METRICS, Vectors, assert_codes, assert_found, assert_holds, names_of, random


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("keep", [None, "float16", "float32"])
@pytest.mark.parametrize("metric", METRICS)
def test_an_index_trains_itself_when_enough_is_there(
    make: Callable[..., Index], metric: str, keep: Any, kind: str
) -> None:
    index = make(metric=metric, keep_vectors=keep, ids=kind, encoder="lsh", bits=40, train_size=200)
    vectors, ids = random(700), names_of(np.random.default_rng(1).permutation(700), kind)
    for first, last in ((0, 100), (100, 199), (199, 200), (200, 201), (201, 700)):
        index.add(vectors[first:last], ids=ids[first:last])
        assert index.is_trained == (last >= 200)
        if last < 200:
            assert_holds(index, ids[:last], vectors[:last])
        else:
            again = index.stats()["training"]["vectors"] > 200  # as it grew: codes are then made of what is kept
            coded = vectors[:last].astype(keep).astype(np.float32) if keep and again else vectors[:last]
            assert_codes(index, ids[:last], coded)
    if keep == "float32":
        assert_holds(index, ids, vectors)
    elif keep == "float16":
        assert_holds(index, ids, vectors.astype(np.float16))


@pytest.mark.parametrize("keep", ["float16", "float32"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ENCODERS)
def test_rerank_of_all_is_exact_for_every_encoder(name: str, metric: Any, keep: Any) -> None:
    index = Index(DIM, metric=metric, encoder=name, keep_vectors=keep, train_size=100, **ENCODERS[name])
    vectors = random(400).astype(keep).astype(np.float32)
    ids = np.random.default_rng(2).permutation(400)
    index.add(vectors, ids=ids)
    assert index.is_trained
    queries = random(5, 4)
    for rerank in (400, 1000):
        assert_found(index.search(queries, 12, rerank=rerank), queries, vectors, ids, metric, 12, rtol=1e-4)
    some = ids[::3]
    found = index.search(queries, 12, rerank=400, filter=some)
    assert_found(found, queries, vectors[::3], some, metric, 12, rtol=1e-4)
    assert index.check() == []


def test_rerank_reorders_the_best_only() -> None:
    index = Index(DIM, encoder="lsh", bits=16, keep_vectors="float32", train_size=100)
    vectors = random(400)
    index.add(vectors)
    query = random(1, 9)[0]
    best = index.search(query, 30, rerank=0).ids
    again = index.search(query, 10, rerank=30)
    assert_found(again, query, vectors[best], best, "l2", 10, rtol=1e-4)


def test_rerank_without_vectors_is_by_the_asymmetric_distance() -> None:
    index = Index(DIM, encoder="lsh", bits=16, train_size=100, keep_vectors=None)
    index.add(random(400))
    query = random(1, 9)[0]
    wanted = index.search(query, 10, distance="asymmetric")
    found = index.search(query, 10, distance="symmetric", rerank=400)
    assert found.ids.tolist() == wanted.ids.tolist()
    np.testing.assert_allclose(found.distances, wanted.distances, rtol=1e-5)


def test_symmetric_distance_is_that_of_the_codes() -> None:
    index = Index(DIM, encoder="lsh", bits=16, train_size=100, keep_vectors=None)
    vectors = random(400)
    index.add(vectors)
    query = random(1, 9)
    codes = np.unpackbits(index.encoder.encode(np.concatenate([query, vectors])), axis=1)
    hamming = np.sort((codes[1:] != codes[0]).sum(axis=1))
    assert index.search(query[0], 20, distance="symmetric").distances.tolist() == hamming[:20].tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_train_on_a_filled_index_and_on_an_empty_one(make: Callable[..., Index], metric: str) -> None:
    options: dict[str, Any] = {"metric": metric, "encoder": "itq", "bits": 5, "iterations": 3}
    filled, empty, vectors = make(**options), make(**options), random(300)
    filled.add(vectors)
    assert filled.train() is filled
    empty.train(vectors)
    assert empty.is_trained and len(empty) == 0 and empty.check() == []
    empty.add(vectors)
    for index in (filled, empty):
        assert_codes(index, np.arange(300), vectors)
    queries = random(4, 5)
    for left, right in zip(filled.search(queries), empty.search(queries), strict=True):
        assert np.array_equal(left, right), "the same sample gives the same encoder"


def test_train_on_a_sample_of_its_own() -> None:
    index, vectors = Index(DIM, encoder="lsh", bits=24, keep_vectors=None), random(300)
    index.add(vectors[:50])
    index.train(vectors[100:] + 5)
    assert np.allclose(index.encoder.state["mean"], (vectors[100:] + 5).mean(axis=0), atol=1e-2)
    assert_codes(index, np.arange(50), vectors[:50])


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("metric", METRICS)
def test_reencode_to_every_encoder_and_back(
    metric: Any, kind: Any, staged: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if staged:
        request.getfixturevalue("small_transactions")
    vectors, ids = random(4500), names_of(np.random.default_rng(1).permutation(4500), kind)
    path = tmp_path / "index.lsq"
    with Index.create(path, DIM, metric=metric, keep_vectors="float32", ids=kind) as index:
        index.add(vectors, ids=ids)
        index.delete(ids[:100])
        names = list(ENCODERS) if LONG or (metric, kind) == ("l2", "int") else ["lsh", "flat", "kmeans"]
        for name in [*names, "lsh"]:
            assert index.reencode(name, **ENCODERS[name]) is index
            assert index.encoder.name == name and index.stats()["code_bytes"] == index.encoder.code_size
            assert_holds(index, ids[100:], vectors[100:])
            if name != "flat":
                assert_codes(index, ids[100:], vectors[100:])
    with Index.open(path) as index:
        assert_codes(index, ids[100:], vectors[100:])


def test_an_untrained_index_without_kept_vectors_can_change_its_encoder() -> None:
    index, vectors = Index(DIM, keep_vectors=None), random(300)
    index.add(vectors)
    index.reencode("flat")
    assert index.is_trained
    assert_holds(index, np.arange(300), vectors)
    index.reencode("pq", **ENCODERS["pq"])
    assert_codes(index, np.arange(300), vectors)


def test_a_fitted_encoder_is_used_as_it_is(make: Callable[..., Index]) -> None:
    vectors = random(300)
    encoder = make_encoder("lsh", bits=30, seed=7).fit(vectors + 1)
    index = make(encoder=encoder, keep_vectors=None)
    assert index.is_trained and index.encoder.config == encoder.config
    index.add(vectors[:5])
    assert np.array_equal(index.get(np.arange(5)), encoder.decode(encoder.encode(vectors[:5])))
    other = make(encoder="flat", keep_vectors=None)
    other.add(vectors)
    other.reencode(encoder)
    assert np.array_equal(other.get(np.arange(300)), encoder.decode(encoder.encode(vectors)))
    assert index.check() == other.check() == []


def test_an_encoder_that_is_not_fitted_is_not_touched() -> None:
    encoder = make_encoder("lsh", bits=30)
    index = Index(DIM, encoder=encoder, train_size=10, keep_vectors=None)
    index.add(random(20))
    assert index.is_trained and not encoder.is_fitted


@pytest.mark.parametrize("data", [np.zeros((60, DIM)), np.ones((60, DIM)), random(60) * 1e14, random(60) * 1e-30])
@pytest.mark.parametrize("name", ENCODERS)
def test_training_survives_odd_vectors(name: str, data: Vectors) -> None:
    for metric in METRICS:
        index = Index(DIM, encoder=name, metric=metric, train_size=50, **ENCODERS[name])  # type: ignore[arg-type]
        index.add(data)
        found = index.search(data[:2], 3)
        assert (found.ids >= 0).all() and np.isfinite(found.distances).all()
        assert index.check() == []
