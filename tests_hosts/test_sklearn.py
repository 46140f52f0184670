"""scikit-learn: all checks of an estimator, and its users: pipelines, pickles, t-SNE, UMAP, scanpy."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import anndata
import joblib
import numpy as np
import pytest
import scanpy
import umap
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from lsqindex import LsqIndexError
from lsqindex.hosts.sklearn import LsqNeighborsTransformer

X: NDArray[np.float64]
X, Y = load_digits(return_X_y=True)

#: Codes, not vectors, are searched from 500 vectors on.
CODED: dict[str, Any] = {"train_size": 500, "encoder_params": {"bits": 128}}


@parametrize_with_checks([LsqNeighborsTransformer()])  # type: ignore[untyped-decorator]
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_graph_is_that_of_scikit_learn(metric: str, mode: str) -> None:
    options: dict[str, Any] = {"n_neighbors": 4, "metric": metric, "mode": mode}
    ours = LsqNeighborsTransformer(**options).fit(X[:1000])
    theirs = KNeighborsTransformer(**options, algorithm="brute").fit(X[:1000])
    for vectors in (X[:1000], X[1000:]):
        found, expected = ours.transform(vectors), theirs.transform(vectors)
        assert found.format == "csr"
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_allclose(np.sort(found.data), np.sort(expected.data), rtol=1e-5, atol=1e-6)
        rows, near = (np.sort(graph.indices.reshape(len(vectors), -1)) for graph in (found, expected))
        assert np.mean(rows == near) > 0.99
    np.testing.assert_array_equal(ours.get_feature_names_out().shape, (1000,))


@pytest.mark.parametrize("options", [{}, CODED], ids=["exact", "coded"])
def test_neighbors_are_those_of_scikit_learn(options: dict[str, Any]) -> None:
    ours = LsqNeighborsTransformer(**options).fit(X)
    theirs = KNeighborsTransformer().fit(X)
    assert ours._index.is_trained == bool(options)
    for vectors in (None, X[:100]):
        distances, rows = ours.kneighbors(vectors, 7)
        expected, near = theirs.kneighbors(vectors, 7)
        assert np.mean(np.abs(distances - expected) < 1e-4) > 0.99
        assert np.mean(rows == near) > 0.98
        np.testing.assert_array_equal(ours.kneighbors(vectors, 7, return_distance=False), rows)


def test_graph_without_queries_leaves_vectors_themselves_out() -> None:
    ours = LsqNeighborsTransformer(n_neighbors=3).fit(X)
    graph = ours.kneighbors_graph()
    assert graph.nnz == 3 * len(X)
    assert not graph.diagonal().any()
    assert ours.kneighbors_graph(mode="distance").data.min() > 0


def test_copies_of_one_vector_leave_only_themselves_out() -> None:
    ours = LsqNeighborsTransformer(n_neighbors=2).fit(np.ones((20, 3)))
    distances, rows = ours.kneighbors()
    assert rows.shape == (20, 2)
    assert not distances.any()
    assert (rows != np.arange(20)[:, None]).all()


@pytest.mark.parametrize("n_neighbors", [0, 5, 6])
def test_too_many_neighbors(n_neighbors: int) -> None:
    with pytest.raises(ValueError, match="n_neighbors"):
        LsqNeighborsTransformer().fit(X[:5]).kneighbors(n_neighbors=n_neighbors)


def test_jobs_are_counted_as_joblib_does() -> None:
    found = [LsqNeighborsTransformer(n_jobs=jobs).fit_transform(X) for jobs in (None, 1, 2, -1)]
    assert all((graph != found[0]).nnz == 0 for graph in found)


def test_a_fitted_transformer_keeps_its_metric() -> None:
    fitted = LsqNeighborsTransformer().fit(X)
    before = fitted.kneighbors(X[:5])[0]
    assert np.array_equal(fitted.set_params(metric="sqeuclidean").kneighbors(X[:5])[0], before)
    with pytest.raises(ValueError, match="mode='foo'"):
        fitted.kneighbors_graph(X[:5], mode="foo")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"mode": "graph"}, {"metric": "manhattan"}, {"encoder_params": {"bits": -3}}])
def test_wrong_parameters(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, LsqIndexError), match=r"mode|metric|bits"):
        LsqNeighborsTransformer(**wrong).fit(X)


@pytest.mark.parametrize("options", [{}, CODED, {**CODED, "keep_vectors": None}], ids=["exact", "coded", "codes alone"])
def test_pickles_answer_the_same(options: dict[str, Any]) -> None:
    ours = LsqNeighborsTransformer(**options).fit(X)
    expected = ours.kneighbors(X[:50])
    others = [pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), pickle.loads(pickle.dumps(copy.deepcopy(ours)))]
    del ours
    for other in others:
        np.testing.assert_array_equal(other.kneighbors(X[:50]), expected)


def test_unfitted_pickles() -> None:
    ours = pickle.loads(pickle.dumps(LsqNeighborsTransformer(n_neighbors=3)))
    assert clone(ours).get_params() == ours.get_params()
    assert ours.fit_transform(X).nnz == 4 * len(X)


def test_pipeline_with_a_classifier() -> None:
    ours, theirs = (
        cross_val_score(make_pipeline(graph, KNeighborsClassifier(5, metric="precomputed")), X, Y)
        for graph in (LsqNeighborsTransformer(n_neighbors=5, **CODED), KNeighborsTransformer(n_neighbors=5))
    )
    np.testing.assert_allclose(ours, theirs, atol=0.01)


def test_in_other_processes() -> None:
    ours = LsqNeighborsTransformer(**CODED).fit(X)
    parts = joblib.Parallel(n_jobs=2)(joblib.delayed(ours.kneighbors)(part) for part in (X[:20], X[20:40]))
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), ours.kneighbors(X[:40]))


def test_tsne() -> None:
    graph = LsqNeighborsTransformer(n_neighbors=31, **CODED)
    model = make_pipeline(graph, TSNE(perplexity=10, metric="precomputed", init="random", max_iter=250, random_state=0))
    assert model.fit_transform(X[:600]).shape == (600, 2)


def test_umap() -> None:
    distances, rows = LsqNeighborsTransformer(**CODED).fit(X).kneighbors(X, 15)
    options = {"n_neighbors": 15, "random_state": 0, "n_jobs": 1, "n_epochs": 50}
    placed = umap.UMAP(precomputed_knn=(rows, distances), **options).fit_transform(X)
    assert placed.shape == (len(X), 2)
    # Neighbours in the plane are mostly of one class.
    plane = LsqNeighborsTransformer().fit(placed).kneighbors(n_neighbors=1, return_distance=False)
    assert np.mean(Y[plane[:, 0]] == Y) > 0.9


def test_scanpy() -> None:
    ours, theirs = anndata.AnnData(X.copy()), anndata.AnnData(X.copy())
    scanpy.pp.neighbors(ours, use_rep="X", transformer=LsqNeighborsTransformer(n_neighbors=15, **CODED))
    scanpy.pp.neighbors(theirs, use_rep="X", transformer=KNeighborsTransformer(n_neighbors=15))
    difference = ours.obsp["connectivities"] - theirs.obsp["connectivities"]
    assert np.abs(difference).sum() < 0.01 * theirs.obsp["connectivities"].sum()
