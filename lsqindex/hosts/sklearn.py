"""scikit-learn: the graph of nearest neighbours, as ``KNeighborsTransformer`` makes it, from an index.

fit(X) ─▶ an index ─▶ transform(X): CSR matrix (queries, vectors), a few entries a row ─▶ classifiers, UMAP, t-SNE, …
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..index import Index, Kept
from ..metrics import MetricName
from .files import in_own_folder

try:
    from joblib import effective_n_jobs
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("lsqindex.hosts.sklearn needs scikit-learn: pip install 'lsqindex[sklearn]'") from error

if TYPE_CHECKING:
    from typing_extensions import Self

Graph = Literal["distance", "connectivity"]

#: Our names of scikit-learn's metrics. "euclidean" is the root of what the index returns.
_METRICS: dict[str, MetricName] = {"euclidean": "l2", "sqeuclidean": "l2", "cosine": "cosine"}


class LsqNeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transform vectors into a sparse graph of their nearest neighbours among those it was fitted on.

    In the place of :class:`sklearn.neighbors.KNeighborsTransformer`, with an index instead of a tree: exact below
    ``train_size`` vectors, and above that by codes, whose best candidates are re-ranked by the vectors themselves.

    Parameters
    ----------
    n_neighbors
        How many neighbours; with ``mode="distance"`` one more, as each vector counts as its own neighbour.
    mode
        "distance", or "connectivity": ones and zeros.
    metric
        "euclidean", "sqeuclidean" or "cosine".
    encoder, encoder_params, keep_vectors, train_size
        Of the index: :meth:`lsqindex.Index.create`. ``encoder_params`` is a mapping, such as ``{"bits": 256}``.
    rerank
        Of a search: :meth:`lsqindex.Index.search`.
    n_jobs
        Threads of a search, as joblib counts them (-1: all processors); None: all processors.

    >>> from sklearn.datasets import load_digits
    >>> vectors = load_digits().data
    >>> graph = LsqNeighborsTransformer(n_neighbors=4).fit_transform(vectors)
    >>> graph.shape, graph.nnz
    ((1797, 1797), 8985)
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        mode: Graph = "distance",
        metric: Literal["euclidean", "sqeuclidean", "cosine"] = "euclidean",
        encoder: str = "lsq",
        encoder_params: dict[str, Any] | None = None,
        keep_vectors: Kept | None = "float32",
        train_size: int | None = None,
        rerank: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.metric = metric
        self.encoder = encoder
        self.encoder_params = encoder_params
        self.keep_vectors = keep_vectors
        self.train_size = train_size
        self.rerank = rerank
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fill the index with the rows of ``X``."""
        if self.mode not in ("distance", "connectivity"):
            raise ValueError(f"mode={self.mode!r}: 'distance' or 'connectivity' is needed")
        if self.metric not in _METRICS:
            raise ValueError(f"metric={self.metric!r}: one of {', '.join(_METRICS)} is needed")
        vectors = validate_data(self, X, dtype=np.float32)
        options: dict[str, Any] = {
            "metric": _METRICS[self.metric],
            "encoder": self.encoder,
            "keep_vectors": self.keep_vectors,
            "train_size": self.train_size,
            **(self.encoder_params or {}),
        }
        self._index = in_own_folder(lambda path: Index.create(path, vectors.shape[1], **options))
        self._index.add(vectors)
        self.effective_metric_ = self.metric
        self.n_samples_fit_ = self._n_features_out = len(vectors)
        return self

    def transform(self, X: ArrayLike) -> csr_matrix:
        """The graph from the rows of ``X`` to the vectors it was fitted on."""
        check_is_fitted(self)
        return self.kneighbors_graph(X, self.n_neighbors + (self.mode == "distance"), self.mode)

    def fit_transform(self, X: ArrayLike, y: Any = None) -> csr_matrix:
        """The graph among the rows of ``X``."""
        return self.fit(X).transform(X)

    def kneighbors(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Distances and numbers of the nearest, shape (n, n_neighbors); without ``X`` of each vector, less itself."""
        distances, rows = self._nearest(X, self.n_neighbors if n_neighbors is None else n_neighbors)
        return (distances, rows) if return_distance else rows

    def kneighbors_graph(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None, mode: Graph = "connectivity"
    ) -> csr_matrix:
        """The nearest as a CSR matrix, in each row the nearest first."""
        if mode not in ("distance", "connectivity"):
            raise ValueError(f"mode={mode!r}: 'distance' or 'connectivity' is needed")
        distances, rows = self._nearest(X, self.n_neighbors if n_neighbors is None else n_neighbors)
        n, k = rows.shape
        values = distances.ravel() if mode == "distance" else np.ones(n * k)
        return csr_matrix((values, rows.ravel(), np.arange(0, n * k + 1, k)), shape=(n, self.n_samples_fit_))

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        check_is_fitted(self)
        own = X is None
        vectors = (
            self._index.get(np.arange(self.n_samples_fit_))
            if own
            else validate_data(self, X, dtype=np.float32, reset=False)
        )
        if not 0 < k <= self.n_samples_fit_ - own:
            raise ValueError(
                f"n_neighbors={k}: from 1 to {self.n_samples_fit_ - own} are possible, as it was fitted with "
                f"n_samples={self.n_samples_fit_}"
            )
        threads = None if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        rows, found = self._index.search(vectors, k + own, rerank=self.rerank, threads=threads)
        distances = np.maximum(found, 0, dtype=np.float64)
        if self.effective_metric_ == "euclidean":
            np.sqrt(distances, out=distances)
        return _without_self(distances, rows) if own else (distances, rows)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__().copy()
        if "_index" in state:
            with tempfile.TemporaryDirectory(prefix="lsqindex-") as folder:
                self._index.save(Path(folder, "index"))
                state["_index"] = Path(folder, "index").read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_index" in state:
            self._index = in_own_folder(lambda path: _open_bytes(state["_index"], path))


def _open_bytes(content: bytes, path: Path) -> Index:
    path.write_bytes(content)
    return Index.open(path)


def _without_self(
    distances: NDArray[np.float64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """One neighbour less for each vector: itself, or the last, where it is not among its nearest."""
    others = rows != np.arange(len(rows))[:, None]
    others[others.all(axis=1), -1] = False
    shape = (len(rows), rows.shape[1] - 1)
    return distances[others].reshape(shape), rows[others].reshape(shape)
