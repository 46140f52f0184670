"""txtai: an index as the vector backend of ``Embeddings``.

    index()        ─▶ an index in memory
    save(path)     ─▶ it is the file `path` from now on; append and delete are on the disk when they return
    save(another)  ─▶ a copy there; the file stays the one in use
    load(path)     ─▶ the file, mapped: but for its ids nothing is read until a search needs it

txtai writes its own parts (configuration, ids, content) at ``save`` alone. ``config["offset"]`` is the first id that
they do not know: what a file has from there on when it is loaded was added and never saved. It is not found, and the
next ``append`` replaces it. Two that append to one file must load it one after the other, as txtai's own parts demand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ClosedError, DuplicateIdError, ParameterError, StorageError, VectorError
from ..index import Index
from ..metrics import METRICS
from .files import making, save_over, searching

try:
    from txtai.ann import ANN
except ImportError as error:
    raise ImportError("lsqindex.hosts.txtai needs txtai: pip install 'lsqindex[txtai]'") from error

Vectors = NDArray[np.float32]
Result = TypeVar("Result")


class LsqANN(ANN):
    """``Embeddings(backend="lsqindex.hosts.txtai.LsqANN")``.

    Settings stand under the backend's name: those of :meth:`Index.create` except ``dim`` and ``ids`` (``metric`` is
    "cosine" by default), and those of :meth:`Index.search` except ``k`` and ``filter``.

    >>> import numpy as np
    >>> name = "lsqindex.hosts.txtai.LsqANN"
    >>> ann = LsqANN({"backend": name, name: {"encoder": "lsq", "bits": 128}})
    >>> ann.index(np.eye(4, dtype=np.float32))
    >>> ann.search(np.eye(4, dtype=np.float32)[2:3], 1)
    [[(2, 1.0)]]
    """

    config: dict[str, Any]

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.backend: Index | None = None
        #: Ids that were added and never saved, by whoever had the file before.
        self._unsaved = np.empty(0, np.int64)

    def index(self, embeddings: ArrayLike) -> None:
        """A new index of these vectors, in memory until :meth:`save`; their ids are 0, 1, 2, …"""
        quantize = self.config.get("quantize")
        if isinstance(quantize, int) and not isinstance(quantize, bool):
            raise ParameterError(
                f"quantize={quantize}: this backend compresses vectors itself; remove quantize, and set bits instead"
            )
        vectors = np.asarray(embeddings)
        options = making(self._settings())
        if options["metric"] == "l2":
            raise ParameterError("metric='l2': txtai takes scores above 0 only; 'cosine' or 'ip' is needed")
        index = Index(vectors.shape[1], **options)
        _finite(index.add, vectors)
        self._use(index)
        self.config["offset"] = len(vectors)
        self.metadata(options)

    def append(self, embeddings: ArrayLike) -> None:
        """Add vectors under the ids that follow."""
        vectors, first = np.asarray(embeddings), self.config["offset"]
        if len(self._unsaved):
            self._open().delete(self._unsaved)
            self._unsaved = self._unsaved[:0]
        ids = np.arange(first, first + len(vectors))
        try:
            _finite(lambda vectors: self._open().add(vectors, ids), vectors)
        except DuplicateIdError as error:
            raise StorageError("another process has changed the file since it was loaded; load it again") from error
        self.config["offset"] = first + len(vectors)
        self.metadata()

    def delete(self, ids: Any) -> None:
        """Delete what there is of ``ids``."""
        self._open().delete(ids)

    def search(self, queries: ArrayLike, limit: int) -> list[list[tuple[int, float]]]:
        """(id, score) of the nearest, for each query; the higher the score, the nearer."""
        index = self._open()
        asked = searching(self._settings())
        more = limit + len(self._unsaved)
        ids, distances = _finite(lambda queries: index.search(queries, more, **asked), np.asarray(queries))
        scores = METRICS[index.metric].similarities(distances)
        found = (ids >= 0) & (ids < self.config["offset"])
        return [
            list(zip(names[there].tolist(), values[there].tolist(), strict=True))[:limit]
            for names, values, there in zip(ids, scores, found, strict=True)
        ]

    def count(self) -> int:
        """How many vectors there are."""
        return len(self._open()) - len(self._unsaved)

    def save(self, path: str) -> None:
        """Everything is in the file ``path`` when this returns; whatever was there is replaced."""
        save_over(self._open(), path)

    def load(self, path: str) -> None:
        """Open the file ``path``."""
        index = Index.open(path)
        self._use(index)
        ids = index.ids()
        offset = self.config.setdefault("offset", int(ids.max(initial=-1)) + 1)
        self._unsaved = ids[ids >= offset]

    def close(self) -> None:
        """Close the index; what is in memory is gone."""
        if self.backend is not None:
            self.backend.close()
        super().close()

    def _use(self, index: Index) -> None:
        self.close()
        self.backend, self._unsaved = index, np.empty(0, np.int64)

    def _open(self) -> Index:
        if self.backend is None:
            raise ClosedError("there is no index; index(vectors) makes one, load(path) opens one")
        return self.backend

    def _settings(self) -> dict[str, Any]:
        return self.config.get(self.config["backend"]) or {}


def _finite(act: Callable[[Vectors], Result], vectors: Vectors) -> Result:
    """Act on the vectors, with zeros in the place of NaN: txtai divides by a vector's length, also where that is 0."""
    try:
        return act(vectors)
    except VectorError:
        return act(np.nan_to_num(vectors))
