"""The contract of an encoder: vectors → codes → vectors, and what a search needs to know.

The public methods check input, divide it into blocks, and call the protected methods of the encoder, which see only
checked float32 rows:

    public            checked here            an encoder writes
    fit(vectors)      shape, finite, sample   _fit(sample)
    encode(vectors)   shape, finite, blocks   _encode(block)
    decode(codes)     shape, levels           _decode(fields)
    embed(vectors)    shape, finite, blocks   _embed(fields)
    tables(queries)   shape, finite, metric   _tables(queries, metric, symmetric)
    probe_tables(…)   shape, finite, metric   _probe_tables(queries, metric), if the default does not fit

Callers that have already checked their queries use ``_checked_tables`` and ``_probe_tables``.

An encoder is recreated from ``config`` (plain values: the arguments of its constructor) and ``state`` (named arrays),
never by pickle: see :func:`lsqindex.encoders.from_bytes`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._inputs.arguments import check_int as check_int  # part of the contract: plugins use it
from .._inputs.vectors import BLOCK_ROWS, Vectors, open_rows, read_rows, sample_rows
from .._threads.pool import in_parallel
from ..errors import NotFittedError, ParameterError, StateError, TooFewVectorsError
from ..metrics import METRICS, Base, MetricName, check_metric
from .layout import Layout, Tables
from .linalg import lengths

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._compiled.encoding import Linear

Metric = MetricName
Distance = Literal["asymmetric", "symmetric"]
Codes = NDArray[np.uint8]
Fields = NDArray[np.uint16]
Config = dict[str, Any]
State = dict[str, NDArray[Any]]

#: ``progress(step, steps, error)`` is called after each step of training; ``error`` is the relative reconstruction
#: error of the step, or nan if it is not known.
Progress = Callable[[int, int, float], None]


class Encoder(ABC):
    """Learns from vectors, then turns vectors into codes and back.

    Examples
    --------
    >>> import numpy as np
    >>> from lsqindex.encoders import make_encoder
    >>> vectors = np.random.default_rng(0).standard_normal((500, 16))
    >>> encoder = make_encoder("itq", bits=16).fit(vectors)
    >>> codes = encoder.encode(vectors)
    >>> codes.shape, codes.dtype
    ((500, 2), dtype('uint8'))
    >>> encoder.decode(codes).shape
    (500, 16)
    """

    #: The registered name, set by ``register_encoder``.
    name: ClassVar[str]
    #: Increased when the meaning of ``state`` changes; an older program refuses a newer state.
    version: ClassVar[int] = 1

    #: Dimensions of the vectors; None before ``fit``.
    dim: int | None = None
    _layout: Layout | None = None

    # -- what an encoder writes ---------------------------------------------------------------

    @property
    @abstractmethod
    def config(self) -> Config:
        """The arguments of the constructor, plain values only."""

    @abstractmethod
    def _fit(self, sample: Vectors, progress: Progress) -> None:
        """Learn from ``sample``; ``self.dim`` is already set."""

    @abstractmethod
    def _make_layout(self, dim: int) -> Layout:
        """Return the layout for vectors of ``dim`` dimensions, or raise ParameterError if none fits.

        It is called before ``fit`` to check the parameters, and after it, because training may have decided something.
        """

    @abstractmethod
    def _state(self) -> State:
        """Return the arrays that, with ``config`` and ``dim``, recreate the fitted encoder."""

    @abstractmethod
    def _restore(self, state: StateReader) -> None:
        """Set what ``_state`` returned; read every array with ``state.array``, which checks it."""

    @classmethod
    def _upgraded(cls, state: State, version: int) -> State:
        """Convert a state that ``_state`` of an older ``version`` returned to the current version."""
        del version
        return state

    @abstractmethod
    def _encode(self, block: Vectors) -> Fields:
        """Return the field numbers of a block of vectors, shape (n, fields)."""

    @abstractmethod
    def _decode(self, fields: Fields) -> Vectors:
        """Reconstruct vectors from field numbers."""

    @abstractmethod
    def _tables(self, queries: Vectors, metric: Base, symmetric: bool) -> Tables:
        """Return tables that sum to the squared L2 distance, or to minus the inner product."""

    def _min_vectors(self) -> tuple[int, str]:
        """How many training vectors are needed, and the advice if there are fewer."""
        return 2, "pass more vectors"

    def _sample_size(self) -> int:
        """How many training vectors are useful."""
        return 65_536

    def _embed(self, fields: Fields) -> Vectors:
        """Return feature vectors of ``embed_dim`` numbers: here the field numbers, without those of row scalars."""
        return fields[:, self.layout.scalars :].astype(np.float32)

    def distances(self, metric: Metric = "l2") -> tuple[Distance, ...]:
        """Which distances :meth:`tables` supports for a metric.

        Parameters
        ----------
        metric
            "l2", "cosine" or "ip".

        Returns
        -------
        tuple of str
            Some of "asymmetric" and "symmetric", the best first.
        """
        return ("asymmetric", "symmetric")

    def for_metric(self, metric: Metric) -> Encoder:
        """Choose the encoder that an index with this metric trains instead of this one, which is not fitted.

        Parameters
        ----------
        metric
            The metric of the index.

        Returns
        -------
        Encoder
            The encoder itself by default; an encoder with better parameters for the metric if there are any.
        """
        del metric
        return self

    @property
    def hashes(self) -> bool:
        """Whether near vectors share fields of their codes, so that a multi-index can find them by these fields."""
        return True

    # -- the public face ----------------------------------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether ``fit`` has succeeded, or the encoder was restored from a state."""
        return self._layout is not None

    @property
    def layout(self) -> Layout:
        """The layout of the code; see :class:`Layout`. Raises NotFittedError before ``fit``."""
        if self._layout is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call fit(vectors) first")
        return self._layout

    @property
    def code_size(self) -> int:
        """Bytes of a code."""
        return self.layout.code_size

    @property
    def embed_dim(self) -> int:
        """The length of the feature vectors that :meth:`embed` returns: one number per code dimension."""
        return self.layout.m

    @property
    def state(self) -> State:
        """Named arrays from which, with ``config`` and ``dim``, the fitted encoder can be recreated."""
        self._fitted_dim()
        return self._state()

    def fit(self, vectors: ArrayLike, *, progress: Progress | None = None) -> Self:
        """Learn from vectors.

        The same vectors, parameters and seed give the same encoder, whatever the number of threads.

        Parameters
        ----------
        vectors
            Any array-like or memory map of shape (n, dim). Only as large a sample as is useful is read.
        progress
            Called as ``progress(step, steps, error)`` after each step of training. ``error`` is the relative
            reconstruction error, or nan if it is not known.

        Returns
        -------
        Encoder
            The encoder itself.

        Raises
        ------
        VectorError
            If the vectors have a wrong shape or dtype, or numbers that are not finite.
        TooFewVectorsError
            If there are fewer vectors than the encoder needs.
        ParameterError
            If the parameters do not fit the dimensions. After any error, the encoder is as it was.
        """
        rows = open_rows(vectors)
        need, advice = self._min_vectors()
        if rows.shape[0] < need:
            raise TooFewVectorsError(f"fit: {need} vectors or more are needed, got {rows.shape[0]}; {advice}")
        self._make_layout(int(rows.shape[1]))
        rng = np.random.default_rng(self.config.get("seed", 0))
        sample = sample_rows(rows, self._sample_size(), rng)
        fresh = type(self)(**self.config)
        fresh.dim = int(rows.shape[1])
        fresh._fit(sample, progress or _no_progress)
        fresh._layout = fresh._make_layout(fresh.dim)
        # All at once, so that nothing of an earlier fit stays behind.
        self.__dict__ = fresh.__dict__
        return self

    def encode(self, vectors: ArrayLike, *, threads: int = 1) -> Codes:
        """Encode vectors.

        Parameters
        ----------
        vectors
            Any array-like of shape (n, dim).
        threads
            The number of threads; it does not change the codes.

        Returns
        -------
        numpy.ndarray
            The codes: uint8, shape (n, code_size).

        Raises
        ------
        NotFittedError
            If the encoder is not fitted.
        VectorError
            If the vectors have a wrong shape or dtype, or numbers that are not finite.
        """
        rows = open_rows(vectors, self._fitted_dim())
        codes = np.empty((rows.shape[0], self.layout.code_size), np.uint8)

        def one(first: int) -> None:
            block = read_rows(rows, slice(first, first + BLOCK_ROWS), first=first)
            codes[first : first + BLOCK_ROWS] = self.layout.pack(self._encode(block))

        _over_blocks(one, rows.shape[0], threads)
        return codes

    def decode(self, codes: Codes) -> NDArray[np.float32]:
        """Reconstruct vectors from codes.

        Parameters
        ----------
        codes
            uint8, shape (n, code_size).

        Returns
        -------
        numpy.ndarray
            The reconstructions: float32, shape (n, dim).

        Raises
        ------
        NotFittedError
            If the encoder is not fitted.
        CodeError
            If this encoder cannot have made the codes.
        """
        dim = self._fitted_dim()
        codes = self.layout.check(codes)
        out = np.empty((len(codes), dim), np.float32)
        for first in range(0, len(codes), BLOCK_ROWS):
            out[first : first + BLOCK_ROWS] = self._decode(self.layout.unpack(codes[first : first + BLOCK_ROWS]))
        return out

    def embed(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Return the codes of vectors as feature vectors.

        For subspace reduction, these are the coded values. For subspace clustering, they are the projections of the
        centres onto one dimension (the paper's refinement, section 2.2.2). A plugin that does not say otherwise has
        the field numbers.

        Parameters
        ----------
        vectors
            Any array-like of shape (n, dim).

        Returns
        -------
        numpy.ndarray
            float32, shape (n, embed_dim).

        Raises
        ------
        NotFittedError
            If the encoder is not fitted.
        VectorError
            If the vectors have a wrong shape or dtype, or numbers that are not finite.
        """
        rows = open_rows(vectors, self._fitted_dim())
        out = np.empty((rows.shape[0], self.embed_dim), np.float32)
        for first in range(0, rows.shape[0], BLOCK_ROWS):
            block = read_rows(rows, slice(first, first + BLOCK_ROWS), first=first)
            out[first : first + BLOCK_ROWS] = self._embed(self._encode(block))
        return out

    def tables(self, queries: ArrayLike, metric: Metric = "l2", distance: Distance = "asymmetric") -> Tables:
        """Compute the look-up tables of queries.

        The sum of the look-ups of a code estimates the squared L2 distance, 1 − cosine, or minus the inner product.

        Parameters
        ----------
        queries
            Any array-like of shape (nq, dim).
        metric
            "l2", "cosine" or "ip". For "cosine", the vectors must have been normalized before encoding; queries are
            normalized here.
        distance
            "asymmetric" compares the query itself, "symmetric" its code (section 3.1 of the paper).

        Returns
        -------
        Tables
            The tables and a bias for each query.

        Raises
        ------
        NotFittedError
            If the encoder is not fitted.
        ParameterError
            If the encoder does not support the metric or the distance; see :meth:`distances`.
        VectorError
            If the queries have a wrong shape or dtype, or numbers that are not finite.
        """
        check_metric(metric)
        offered = self.distances(metric)
        if distance not in offered:
            raise ParameterError(
                f"distance={distance!r}: {self} supports only {' and '.join(offered)} for metric={metric!r}"
            )
        vectors = read_rows(open_rows(queries, self._fitted_dim(), what="queries"), what="queries")
        return self._checked_tables(vectors, metric, distance)

    def _checked_tables(self, queries: Vectors, metric: Metric, distance: Distance) -> Tables:
        """:meth:`tables` without its checks: ``queries`` come from ``read_rows``, and the metric and distance are
        supported.

        An encoder that has a faster way than ``_tables`` overrides it.
        """
        asked = METRICS[metric]
        tables = self._tables(
            queries / lengths(queries) if asked.unit else queries, asked.base, distance == "symmetric"
        )
        if asked.share == 1 or self.layout.floats:
            return tables
        share = np.float32(asked.share)
        return Tables(tables.values * share, tables.bias * share)

    def _table_maker(self, metric: Metric, distance: Distance) -> Callable[[Vectors], Tables]:
        """:meth:`_checked_tables` for one metric and distance: what an index calls for every search."""
        return partial(self._checked_tables, metric=metric, distance=distance)

    def _linear_tables(self, metric: Metric, distance: Distance) -> Linear | None:
        """What makes the same tables inside the compiled search; None if only :meth:`_table_maker` can."""
        del metric, distance
        return None

    def probe_tables(self, queries: ArrayLike, metric: Metric = "l2") -> Tables:
        """Compute how far each value of each code dimension is from the queries, for subset indexing.

        Only differences within a field matter. The smallest number belongs to the value to look at first: for "l2" and
        "cosine" the query's own value, as far as a linear map can tell, and for "ip" the one that adds most to the
        inner product. The others say what it costs to look at them instead (section 3.2 of the paper).

        Parameters
        ----------
        queries
            Any array-like of shape (nq, dim).
        metric
            "l2", "cosine" or "ip".

        Returns
        -------
        Tables
            In the shape of :meth:`tables`; row scalars and biases are zero.

        Raises
        ------
        NotFittedError
            If the encoder is not fitted.
        ParameterError
            If the encoder stores vectors as they are (``flat``), so that there is no code.
        VectorError
            If the queries have a wrong shape or dtype, or numbers that are not finite.
        """
        check_metric(metric)
        vectors = read_rows(open_rows(queries, self._fitted_dim(), what="queries"), what="queries")
        if self.layout.floats:
            raise ParameterError(f"{self} stores vectors as they are, so it has no probe tables; use another encoder")
        return self._probe_tables(vectors, metric)

    def _probe_tables(self, queries: Vectors, metric: Metric) -> Tables:
        """:meth:`probe_tables` without its checks.

        By default these are the asymmetric tables, or the symmetric ones if there are no others. An encoder whose own
        fields are not those of least asymmetric distance overrides it.
        """
        if "asymmetric" in self.distances(metric):
            values = self._checked_tables(queries, metric, "asymmetric").values
        else:
            near: Metric = metric if METRICS[metric].base == "l2" else "l2"
            values = self._checked_tables(queries, near, self.distances(near)[-1]).values
        if self.layout.scalars:
            values = values.copy()
            values[:, : self.layout.starts[self.layout.scalars]] = 0
        return Tables(values, np.zeros(len(queries), np.float32))

    @classmethod
    def from_state(cls, config: Mapping[str, Any], state: Mapping[str, NDArray[Any]], dim: Any) -> Self:
        """Recreate a fitted encoder.

        Parameters
        ----------
        config
            The ``config`` of the fitted encoder.
        state
            Its ``state``.
        dim
            Its ``dim``.

        Returns
        -------
        Encoder
            An equal encoder.

        Raises
        ------
        StateError
            If they do not belong together, or are damaged.
        """
        try:
            encoder = cls(**dict(config))
            if type(dim) is not int or not 1 <= dim <= 1 << 20:
                raise StateError(f"{cls.name}: dim {dim!r} is impossible; the stored encoder is damaged")
            encoder.dim = dim
            encoder._make_layout(dim)
            reader = StateReader(cls.name, state)
            encoder._restore(reader)
            encoder._layout = encoder._make_layout(dim)
        except (TypeError, ParameterError) as error:
            raise StateError(f"{cls.name}: the stored parameters do not fit ({error})") from error
        reader.finish()
        return encoder

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.config.items())
        return f"{type(self).__name__}({arguments})"

    # -- shared by encoders -------------------------------------------------------------------

    def _fitted_dim(self) -> int:
        if self.dim is None or self._layout is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call fit(vectors) first")
        return self.dim


class StateReader:
    """Reads arrays from a stored state and checks each one; a forged state raises StateError."""

    def __init__(self, owner: str, state: Mapping[str, NDArray[Any]]) -> None:
        self._owner = owner
        self._left = dict(state)

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        """Return the array ``name``, which must have this shape and dtype and be finite."""
        array = self._left.pop(name, None)
        if not isinstance(array, np.ndarray):
            raise StateError(f"{self._owner}: the stored state has no array {name!r}; it is damaged")
        if array.shape != shape or array.dtype != np.dtype(dtype):
            raise StateError(
                f"{self._owner}: stored {name!r} is {array.dtype}{array.shape}, expected {np.dtype(dtype)}{shape}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StateError(f"{self._owner}: stored {name!r} has NaN or infinite numbers")
        return np.ascontiguousarray(array)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of ``name``, for arrays whose size does not follow from the parameters."""
        array = self._left.get(name)
        return array.shape if isinstance(array, np.ndarray) else ()

    def finish(self) -> None:
        """Raise StateError if an array was not read."""
        if self._left:
            raise StateError(f"{self._owner}: unknown arrays in the stored state: {', '.join(sorted(self._left))}")


def constructor_names(encoder: type[Encoder]) -> list[str]:
    """The parameters an encoder's constructor takes."""
    return [name for name in inspect.signature(encoder.__init__).parameters if name != "self"]


def _over_blocks(one: Callable[[int], None], rows: int, threads: int) -> None:
    threads = check_int("threads", threads, 1, 1024)
    in_parallel(one, range(0, rows, BLOCK_ROWS), threads)


def _no_progress(step: int, steps: int, error: float) -> None:
    del step, steps, error
