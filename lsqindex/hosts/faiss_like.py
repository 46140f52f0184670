"""An index with the methods and conventions of FAISS, in a file or in memory. FAISS itself is not needed.

For code that was given a ``faiss.Index``: Hugging Face ``datasets``, ``sentence_transformers``, one's own. What differs
from FAISS: an id stays what it is when others are removed, and cannot be given twice; vectors can be added before
training, and are searched exactly until then.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import index as indexes
from ..errors import IdError, ParameterError, UnknownIdError, VectorError

if TYPE_CHECKING:
    from typing_extensions import Self

#: FAISS's numbers of its metrics.
METRIC_INNER_PRODUCT, METRIC_L2 = 0, 1

_METRICS = {METRIC_INNER_PRODUCT: "ip", METRIC_L2: "l2"}

#: What FAISS puts where nothing was found: the worst of all float32 numbers.
_WORST = np.finfo(np.float32).max


class Index:
    """An index of vectors of ``d`` dimensions, shaped like FAISS's.

    ``metric`` is ``METRIC_L2`` (squared) or ``METRIC_INNER_PRODUCT``. With ``path`` it is that file: opened if it is
    there, made if not, and everything added is on the disk when ``add`` returns. ``rerank`` is that of
    :meth:`lsqindex.Index.search`; ``options`` are those of :meth:`lsqindex.Index.create`, such as ``encoder="lsq"`` and
    ``bits=256``.

    >>> import numpy as np
    >>> index = Index(2, METRIC_INNER_PRODUCT)
    >>> index.add(np.array([[1, 0], [0, 2]], np.float32))
    >>> distances, ids = index.search(np.array([[1, 1]], np.float32), 3)
    >>> ids
    array([[ 1,  0, -1]])
    >>> distances[0, :2]
    array([2., 1.], dtype=float32)
    """

    def __init__(
        self,
        d: int,
        metric: int = METRIC_L2,
        *,
        path: str | Path | None = None,
        rerank: int | None = None,
        **options: Any,
    ) -> None:
        if metric not in _METRICS:
            raise ParameterError(f"metric={metric!r}: METRIC_L2 or METRIC_INNER_PRODUCT is needed")
        options = {"metric": _METRICS[metric], **options}
        if path is None:
            self._index = indexes.Index(d, **options)
        elif Path(path).exists():
            self._index = indexes.Index.open(path)
        else:
            self._index = indexes.Index.create(path, d, **options)
        ids = self._index.stats()["ids"]
        if (self._index.dim, self._index.metric, ids) != (d, _METRICS[metric], "int"):
            found = f"{self._index.dim} dimensions, the metric {self._index.metric!r} and ids of the kind {ids!r}"
            self._index.close()
            raise ParameterError(f"{path}: the index there has {found}; pass these, or another path")
        self.rerank = rerank
        #: As in FAISS; nothing is told.
        self.verbose = False

    @property
    def index(self) -> indexes.Index:
        """The index behind: filters, strings as ids, statistics and all else that FAISS has no words for."""
        return self._index

    @property
    def d(self) -> int:
        """Dimensions of the vectors."""
        return self._index.dim

    @property
    def ntotal(self) -> int:
        """How many vectors there are."""
        return len(self._index)

    @property
    def is_trained(self) -> bool:
        """Whether vectors are stored as codes. ``add`` and ``search`` work before that, too."""
        return self._index.is_trained

    @property
    def metric_type(self) -> int:
        """``METRIC_L2`` or ``METRIC_INNER_PRODUCT``."""
        return next(number for number, name in _METRICS.items() if name == self._index.metric)

    # -- changing -----------------------------------------------------------------------------

    def train(self, x: ArrayLike) -> None:
        """Train the encoder on ``x``, shape (n, d); else it is trained on what is added, once that is enough."""
        self._index.train(x)

    def add(self, x: ArrayLike) -> None:
        """Add vectors, shape (n, d), under the next free numbers."""
        self._index.add(x)

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors under these ids, none of which may be there."""
        self._index.add(x, ids)

    def remove_ids(self, x: Any) -> int:
        """Remove ids, an array of them or a ``faiss.IDSelector``; how many there were."""
        if hasattr(x, "is_member"):
            x = [name for name in self._index.ids().tolist() if x.is_member(name)]
        return self._index.delete(x)

    def reset(self) -> None:
        """Remove all vectors; what was trained stays."""
        self._index.delete(self._index.ids())

    # -- asking -------------------------------------------------------------------------------

    def search(self, x: ArrayLike, k: int, *, params: None = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Distances and ids of the ``k`` nearest of each query, shape (n, k) each.

        Squared distances, the smallest first, or inner products, the largest first. Where there are fewer than ``k``,
        the id is −1 and the distance the worst float32.
        """
        if params is not None:
            raise ParameterError("params: FAISS's search parameters are not supported; set `rerank` of the index")
        queries = np.asarray(x)
        if queries.ndim != 2:
            raise VectorError(f"x: shape (n, {self.d}) is needed, got {queries.shape}")
        ids, distances = self._index.search(queries, k, rerank=self.rerank)
        distances[ids < 0] = _WORST
        return (-distances if self.metric_type == METRIC_INNER_PRODUCT else distances), ids

    def reconstruct(self, key: int) -> NDArray[np.float32]:
        """The vector of an id, as it is kept, or from its code; RuntimeError for an id that is not there."""
        vector: NDArray[np.float32] = self.reconstruct_batch([key])[0]
        return vector

    def reconstruct_n(self, n0: int = 0, ni: int = -1) -> NDArray[np.float32]:
        """The vectors of the ids ``n0`` to ``n0 + ni`` − 1, all that follow where ``ni`` is −1."""
        return self.reconstruct_batch(np.arange(n0, self.ntotal if ni == -1 else n0 + ni))

    def reconstruct_batch(self, key: ArrayLike) -> NDArray[np.float32]:
        """The vectors of several ids, shape (n, d)."""
        try:
            return self._index.get(np.atleast_1d(np.asarray(key, np.int64)))
        except (UnknownIdError, IdError) as error:
            raise RuntimeError(str(error)) from error

    def search_and_reconstruct(
        self, x: ArrayLike, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        """Distances, ids and vectors, shape (n, k, d), of the nearest; NaN where there is none."""
        distances, ids = self.search(x, k)
        vectors = np.full((*ids.shape, self.d), np.nan, np.float32)
        vectors[ids >= 0] = self._index.get(ids[ids >= 0])
        return distances, ids, vectors

    # -- the file -----------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a copy to ``path``; an index in memory then *is* that file."""
        self._index.save(path)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
