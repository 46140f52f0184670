"""Vectors of few dimensions are stored as they are; and no distance is below zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex, make_encoder
from lsqindex._inputs import options as settings
from lsqindex._write import training
from lsqindex.errors import ParameterError
from lsqindex.testing import reference

Vectors = NDArray[np.float32]


def some(n: int, dim: int, seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def encoding_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """As versions before 0.2 did."""
    for module in (settings, training):
        monkeypatch.setattr(module, "worth_encoding", lambda encoder, dim: True)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_few_dimensions_are_searched_exactly(dim: int, metric: Any) -> None:
    vectors, queries = some(1500, dim), some(20, dim, 1)
    index = Index(dim, metric=metric, train_size=1000, keep_vectors=None)
    index.add(vectors)
    found = index.search(queries, 10)
    for query, ids, distances in zip(queries, found.ids, found.distances, strict=True):
        wanted = np.maximum(reference.exact_distances(vectors, metric, query), 0 if metric != "ip" else -np.inf)
        assert np.array_equal(np.sort(wanted)[:10], distances)
        assert np.array_equal(wanted[ids], distances)
    assert np.array_equal(index.get(np.arange(1500)), vectors)


@pytest.mark.parametrize("kept", [None, "float16", "float32", "int8"])
def test_the_index_tells_that_it_stores_vectors_as_they_are(kept: Any, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index.lsq", 3, keep_vectors=kept, train_size=1000) as index:
        index.add(some(5000, 3))
        told = index.stats()
        facts = (told["encoder"], told["exact"], told["trained"], told["code_bytes"], told["keep_vectors"])
        assert facts == ("flat", True, True, 12, kept) and told["training"] is None
        assert index.is_trained and index.encoder.name == "flat" and "Flat()" in repr(index)
        assert told["train_size"] == 1000
        # Smaller than codes of 32 bytes would be: twelve bytes, an id, and what LMDB takes.
        assert told["file_bytes"] < 5000 * (32 if kept is None else 44) + 60_000
        assert index.check() == []


@pytest.mark.parametrize("kept", ["float16", "float32"])
def test_kept_vectors_outlive_another_encoder(kept: Any) -> None:
    vectors = some(600, 3).astype(np.float16).astype(np.float32)
    index = Index(3, keep_vectors=kept)
    index.add(vectors)
    assert index.stats()["exact"]
    index.reencode("lsh", bits=16)
    assert not index.stats()["exact"] and np.array_equal(index.get(np.arange(600)), vectors)


def test_codes_that_are_smaller_than_vectors_are_codes() -> None:
    made = (
        Index(9, keep_vectors=None),
        Index(8, keep_vectors=None),
        Index(8, bits=248, keep_vectors=None),
        Index(3, encoder="lsh", bits=32, keep_vectors=None),
        Index(1, encoder="lsh", bits=32, keep_vectors=None),
    )
    assert [index.encoder.name for index in made] == ["lsq", "flat", "lsq", "lsh", "flat"]
    index = Index(9, keep_vectors="float16")
    assert index.stats()["keep_vectors"] == "float16" and not index.is_trained


def test_a_subset_structure_needs_codes() -> None:
    index = Index(3, encoder="lsh", bits=128, keep_vectors="float32", subset="multi-index")
    assert index.encoder.name == "lsh"
    index.add(some(500, 3))
    index.train()
    assert index.encoder.name == "lsh" and index.subset == MultiIndex(bits=4)
    index.set_subset(None).train()  # codes are only needed for the structure
    assert index.encoder.name == "flat" and index.stats()["exact"]
    with pytest.raises(ParameterError, match="which has no codes"):
        Index(3, keep_vectors=None).set_subset("multi-index")


def test_train_and_reencode_take_codes_only_if_they_are_smaller() -> None:
    vectors = some(600, 3)
    index = Index(3, keep_vectors=None)
    index.add(vectors)
    assert index.train().encoder.name == "flat"
    assert index.reencode("lsq").encoder.name == "flat" and np.array_equal(index.get(np.arange(600)), vectors)
    fitted = make_encoder("lsq", iterations=2).fit(vectors)
    for encoder, name in ((fitted, "lsq"), ("lsh", "lsh")):
        other = Index(3, keep_vectors="float32", encoder="flat")
        other.add(vectors)
        bits: dict[str, Any] = {} if encoder is fitted else {"bits": 16}
        assert other.reencode(encoder, **bits).encoder.name == name
        assert other.check() == []
        assert other.reencode("lsq").stats()["exact"]
        assert np.array_equal(other.get(np.arange(600)), vectors)
    assert Index(3, encoder=fitted, keep_vectors=None).encoder.name == "lsq"


@pytest.mark.parametrize("how", ["add", "batch", "train"])
def test_an_older_untrained_index_stores_vectors_as_they_are_when_it_trains(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding_everything(monkeypatch)
    index = Index(3, keep_vectors="float16", train_size=500)
    index.add(some(400, 3))
    assert index.encoder.name == "lsq" and not index.is_trained
    monkeypatch.undo()
    if how == "batch":
        with index.batch() as batch:
            batch.add(some(200, 3, 1))
    else:
        index.add(some(200 if how == "add" else 10, 3, 1))
    if how == "train":
        index.train()
    assert index.stats()["exact"] and index.is_trained and index.check() == []
    index.add(some(2000, 3, 2))
    assert index.stats()["exact"] and index.stats()["training"] is None


# -- distances below zero -------------------------------------------------------------------------

SEARCHES: dict[str, dict[str, Any]] = {
    "scan": {},
    "whole codes": {"progressive": False},
    "symmetric": {"distance": "symmetric"},
    "filter": {"filter": range(0, 3000, 2)},
    "few": {"filter": range(40)},
    "rerank by codes": {"distance": "symmetric", "rerank": 50},
    "subset": {"strategy": "subset", "probes": 500},
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_no_distance_is_below_zero(metric: Any, search: str) -> None:
    vectors = some(3000, 16)
    index = Index(16, metric=metric, bits=32, iterations=2, subset="multi-index", keep_vectors=None).train(vectors)
    index.add(vectors)
    found = index.search(vectors[:200], 5, **SEARCHES[search])
    assert (found.distances >= 0).all()


def test_estimates_below_zero_keep_their_order() -> None:
    vectors = some(3000, 16)
    index = Index(16, bits=32, iterations=2, keep_vectors=None).train(vectors)
    index.add(vectors)
    encoder, queries = index.encoder, vectors[:100]
    estimates = reference.distances(encoder.encode(vectors), encoder.layout, encoder.tables(queries))
    assert (estimates < 0).any(axis=1).sum() > 5  # or this tests nothing
    found = index.search(queries, 5)
    own = np.take_along_axis(estimates, found.ids, axis=1)
    np.testing.assert_allclose(found.distances, np.maximum(own, 0), atol=1e-4)
    assert (np.diff(own, axis=1) > -1e-4).all()


def test_inner_products_are_not_cut_off() -> None:
    index = Index(16, metric="ip", bits=32, iterations=2, keep_vectors=None).train(some(3000, 16))
    index.add(some(3000, 16))
    assert (index.search(some(5, 16, 1), 3).distances < 0).all()
