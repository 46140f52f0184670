"""The FAISS-shaped index beside FAISS itself, and in the hands of datasets and sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers.util.quantization import quantize_embeddings, semantic_search_faiss

import lsqindex
from lsqindex import LsqIndexError
from lsqindex.errors import DuplicateIdError
from lsqindex.hosts.faiss_like import METRIC_INNER_PRODUCT, METRIC_L2, Index

Vectors = NDArray[np.float32]

DIM = 24
RNG = np.random.default_rng(0)
VECTORS: Vectors = RNG.standard_normal((500, DIM)).astype(np.float32)
QUERIES: Vectors = RNG.standard_normal((20, DIM)).astype(np.float32)
METRICS = [METRIC_L2, METRIC_INNER_PRODUCT]


def pair(metric: int, vectors: Vectors = VECTORS) -> tuple[Index, Any]:
    """Ours, exact, and FAISS's; the same vectors in both."""
    ours, theirs = Index(DIM, metric, encoder="flat"), faiss.index_factory(DIM, "IDMap2,Flat", metric)
    ids = np.arange(len(vectors))
    ours.add_with_ids(vectors, ids)
    theirs.add_with_ids(vectors, ids)
    return ours, theirs


def same(ours: Index, theirs: Any, k: int) -> None:
    (distances, ids), (expected, expected_ids) = ours.search(QUERIES, k), theirs.search(QUERIES, k)
    assert (distances.dtype, ids.dtype) == (expected.dtype, expected_ids.dtype)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-4)


def test_metrics_are_faiss_numbers() -> None:
    assert (METRIC_L2, METRIC_INNER_PRODUCT) == (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10, 500])
def test_search(metric: int, k: int) -> None:
    same(*pair(metric), k)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_padding(metric: int, n: int) -> None:
    ours, theirs = pair(metric, VECTORS[:n])
    same(ours, theirs, 5)
    np.testing.assert_array_equal(ours.search(QUERIES, 5)[0][:, n:], theirs.search(QUERIES, 5)[0][:, n:])


@pytest.mark.parametrize("metric", METRICS)
def test_remove(metric: int) -> None:
    ours, theirs = pair(metric)
    selectors = [np.array([0, 1, 499, 1000]), faiss.IDSelectorRange(10, 20), faiss.IDSelectorBatch(np.array([50, 60]))]
    for selector in selectors:
        assert ours.remove_ids(selector) == theirs.remove_ids(selector)
    assert ours.ntotal == theirs.ntotal == 485
    same(ours, theirs, 10)
    ours.reset()
    theirs.reset()
    assert ours.ntotal == theirs.ntotal == 0
    same(ours, theirs, 2)


@pytest.mark.parametrize("metric", METRICS)
def test_attributes(metric: int) -> None:
    ours, theirs = pair(metric)
    for name in ("d", "ntotal", "is_trained", "metric_type", "verbose"):
        value, expected = getattr(ours, name), getattr(theirs, name)
        assert (type(value), value) == (type(expected), expected)


def test_reconstruct() -> None:
    ours, theirs = Index(DIM, keep_vectors="float32"), faiss.IndexFlatL2(DIM)
    ours.add(VECTORS)
    theirs.add(VECTORS)
    np.testing.assert_array_equal(ours.reconstruct(7), theirs.reconstruct(7))
    np.testing.assert_array_equal(ours.reconstruct_n(3, 5), theirs.reconstruct_n(3, 5))
    np.testing.assert_array_equal(ours.reconstruct_n(), theirs.reconstruct_n())
    np.testing.assert_array_equal(ours.reconstruct_batch([9, 2]), theirs.reconstruct_batch([9, 2]))
    for index in (ours, theirs):
        with pytest.raises(RuntimeError):
            index.reconstruct(500)


def test_search_and_reconstruct() -> None:
    ours, theirs = Index(DIM, keep_vectors="float32"), faiss.IndexFlatL2(DIM)
    ours.add(VECTORS[:3])
    theirs.add(VECTORS[:3])
    found, expected = ours.search_and_reconstruct(QUERIES, 4), theirs.search_and_reconstruct(QUERIES, 4)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[2][:, :3], expected[2][:, :3])
    assert np.isnan(found[2][:, 3]).all()


def test_training() -> None:
    index = Index(DIM, bits=64)
    assert not index.is_trained
    index.add(VECTORS[:100])
    index.train(VECTORS)
    assert index.is_trained
    index.add(VECTORS[100:])
    assert index.ntotal == 500
    np.testing.assert_array_equal(index.search(VECTORS, 1)[1][:, 0], np.arange(500))


def test_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(LsqIndexError, match="metric"):
        Index(DIM, 7)
    index = Index(DIM, path=tmp_path / "index")
    index.add_with_ids(VECTORS[:2], [3, 4])
    with pytest.raises(DuplicateIdError):
        index.add_with_ids(VECTORS[:1], [3])
    with pytest.raises(ValueError, match="shape"):
        index.search(QUERIES[0], 1)
    with pytest.raises(ValueError, match="dimensions"):
        index.search(QUERIES[:, 1:], 1)
    with pytest.raises(LsqIndexError, match="24 dimensions"):
        Index(DIM + 1, path=tmp_path / "index")
    assert index.search(QUERIES, 1, params=None)[1].shape == (len(QUERIES), 1)
    with pytest.raises(LsqIndexError, match="params"):
        index.search(QUERIES, 1, params=faiss.SearchParameters())  # type: ignore[arg-type]
    for key in (-1, 77):
        with pytest.raises(RuntimeError):
            index.reconstruct(key)
    lsqindex.Index.create(tmp_path / "named", DIM, ids="str").close()
    with pytest.raises(LsqIndexError, match="'str'"):
        Index(DIM, path=tmp_path / "named")


def test_file(tmp_path: Path) -> None:
    with Index(DIM, METRIC_INNER_PRODUCT, path=tmp_path / "index") as index:
        index.add(VECTORS)
    with Index(DIM, METRIC_INNER_PRODUCT, path=tmp_path / "index") as index:
        assert (index.ntotal, index.metric_type) == (500, METRIC_INNER_PRODUCT)
        index.save(tmp_path / "copy")
    with Index(DIM, METRIC_INNER_PRODUCT, path=tmp_path / "copy") as index:
        assert index.index.check() == []
        assert index.ntotal == 500


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("train_size", [None, 400])
def test_datasets(tmp_path: Path, metric: int, train_size: int | None) -> None:
    rows = Dataset.from_dict({"number": list(range(500)), "vector": list(VECTORS)}).with_format("numpy")
    index = Index(DIM, metric, path=tmp_path / "index", bits=128, keep_vectors="float32")
    rows.add_faiss_index("vector", custom_index=index, train_size=train_size, batch_size=100, faiss_verbose=True)
    assert index.is_trained == (train_size is not None)
    theirs = Dataset.from_dict({"number": list(range(500)), "vector": list(VECTORS)}).with_format("numpy")
    theirs.add_faiss_index("vector", metric_type=metric)
    for query in QUERIES:
        found, expected = (part.get_nearest_examples("vector", query, k=5) for part in (rows, theirs))
        np.testing.assert_array_equal(found.examples["number"], expected.examples["number"])
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    batch = rows.get_nearest_examples_batch("vector", QUERIES, k=600)
    assert [len(part["number"]) for part in batch.total_examples] == [500] * len(QUERIES)


def test_semantic_search() -> None:
    corpus: Vectors = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    index = Index(DIM, METRIC_INNER_PRODUCT, keep_vectors="float32")
    index.add(corpus)
    found, _, same_index = semantic_search_faiss(
        QUERIES, corpus_index=index, corpus_precision="float32", top_k=5, rescore=False, output_index=True
    )
    expected, _ = semantic_search_faiss(
        QUERIES, corpus_embeddings=corpus, corpus_precision="float32", top_k=5, rescore=False
    )
    assert same_index is index
    _same_hits(found, expected)


def test_semantic_search_rescored() -> None:
    """Of quantized vectors, ranked again by ``reconstruct``."""
    ranges = np.array([VECTORS.min(axis=0), VECTORS.max(axis=0)])
    corpus = quantize_embeddings(VECTORS, "uint8", ranges=ranges)
    index = Index(DIM, METRIC_INNER_PRODUCT, keep_vectors="float32")
    index.add(corpus)
    options: dict[str, Any] = {"corpus_precision": "uint8", "top_k": 5, "ranges": ranges, "rescore_multiplier": 4}
    found, _ = semantic_search_faiss(QUERIES, corpus_index=index, **options)
    expected, _ = semantic_search_faiss(QUERIES, corpus_embeddings=corpus, **options)
    _same_hits(found, expected)


def _same_hits(found: list[list[dict[str, Any]]], expected: list[list[dict[str, Any]]]) -> None:
    assert [[hit["corpus_id"] for hit in hits] for hits in found] == [
        [hit["corpus_id"] for hit in hits] for hits in expected
    ]
    np.testing.assert_allclose(
        [[hit["score"] for hit in hits] for hits in found],
        [[hit["score"] for hit in hits] for hits in expected],
        rtol=1e-4,
    )
