"""The index: public methods. They check arguments with ``_inputs``, and leave the work to ``_write`` and ``_query``.

add      vectors ─▶ _inputs ─▶ _write/add: encode ─▶ _storage: one transaction
search   queries ─▶ Query ─▶ a snapshot ─▶ _query: plan, candidates, ranking ─▶ Matches
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compiled.gate import Block, Change
from ._inputs.filters import read_filter
from ._inputs.ids import is_one, read_ids
from ._inputs.options import Path, check_opening, file_path, new_path, read_options, thread_count
from ._inputs.vectors import open_rows, read_queries
from ._query import checking
from ._query import search as searcher
from ._query.explained import explained
from ._query.plan import Plan
from ._query.query import Query, Ranking, Strategy, read_query
from ._query.recall import check_comparable, measured, sampled_ids
from ._query.select import select
from ._query.snapshot import Snapshot
from ._query.stats import stats
from ._query.stored import found_payloads, payloads_of, vectors_of
from ._query.trace import Trace
from ._storage import check, rewrite
from ._storage.format import keys
from ._storage.format.meta import Options, StoredEncoder
from ._storage.lmdb.env import Env
from ._storage.lmdb.reader import Reader, Reading, forked
from ._storage.lmdb.registry import Lease, close_env, open_env
from ._storage.lmdb.writer import Wait, Writer, Writing
from ._storage.store import Store
from ._subsets import stored as subsets
from ._subsets.base import Structure
from ._subsets.cells.options import Cells
from ._subsets.multi_index.tables import MultiIndex
from ._subsets.stored import SubsetLike, check_subset
from ._write import add as loader
from ._write import retraining, training
from ._write.batch import Batch
from ._write.create import new_index
from ._write.delete import Deletion
from ._write.merge import merge, relist
from ._write.payloads import PayloadChange
from .encoders import Encoder, make_encoder
from .encoders import coder as coders
from .encoders.base import Metric
from .encoders.base import Progress as FitProgress
from .encoders.coder import Coder
from .errors import (
    ClosedError,
    DamagedError,
    IdError,
    NotAnIndexError,
    ParameterError,
    ReadOnlyError,
    ReplacedError,
)
from .results import Explanation, Matches

if TYPE_CHECKING:
    from typing_extensions import Self

Kept = Literal["float16", "float32", "int8"]


class Index:
    """Vectors under ids, compressed, in one file or in memory.

    ``Index(dim=…)`` lives in memory until :meth:`save`; :meth:`create` makes a file, and :meth:`open` opens one.

    Parameters
    ----------
    dim, metric, encoder, keep_vectors, ids, train_size, subset, fields
        As for :meth:`create`.
    **parameters
        The parameters of the encoder, such as ``bits=256``.

    Raises
    ------
    ParameterError
        If an option is invalid.
    UnknownEncoderError
        If no encoder has this name.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).standard_normal((100, 8))
    >>> index = Index(dim=8)
    >>> index.add(vectors)[:3]
    array([0, 1, 2])
    >>> ids, distances = index.search(vectors[7], k=2)
    >>> int(ids[0]), float(distances[0])
    (7, 0.0)
    """

    _env: Env
    _path: str | None = None
    _closed = True  # until it is made
    #: The options of the index that :meth:`replace` is about to put into the place of this one.
    _expected: Options | None = None

    def __init__(
        self,
        dim: int,
        *,
        metric: Metric = "l2",
        encoder: str | Encoder = "lsq",
        keep_vectors: Kept | None = "float16",
        ids: Literal["int", "str"] = "int",
        train_size: int | None = None,
        subset: SubsetLike = "auto",
        fields: Iterable[str] = (),
        **parameters: Any,
    ) -> None:
        """An index in memory. ``parameters`` are the encoder's, such as ``bits=256``."""
        new = new_index(dim, metric, encoder, keep_vectors, ids, train_size, fields, subset, parameters)
        self._set_up(new.in_memory(), path=None, read_only=False, wait=True)

    @classmethod
    def create(
        cls,
        path: Path,
        dim: int,
        *,
        metric: Metric = "l2",
        encoder: str | Encoder = "lsq",
        keep_vectors: Kept | None = "float16",
        ids: Literal["int", "str"] = "int",
        train_size: int | None = None,
        subset: SubsetLike = "auto",
        fields: Iterable[str] = (),
        wait: Wait = True,
        **parameters: Any,
    ) -> Self:
        """Create an index in a new file.

        Parameters
        ----------
        path
            The file, which must not exist.
        dim
            Dimensions of the vectors.
        metric
            "l2" (squared), "cosine" or "ip". Smaller distances are nearer in every metric: 1 − cosine, minus the inner
            product.
        encoder
            The name of an encoder, or an :class:`Encoder`, fitted or not. If its codes would be as large as the
            vectors (with the default of 256 bits: 8 dimensions or fewer), vectors are stored as they are, by the
            encoder "flat", and every search is exact (``stats()["exact"]``). This does not happen with ``subset``.
        keep_vectors
            How the vectors are kept beside the codes: "float16", "float32", "int8" (one byte per number, in steps of
            1/127 of the vector's largest), or None. Kept vectors let :meth:`search` re-rank, :meth:`get` return what
            was added, and :meth:`train` and :meth:`reencode` work later. With None, only codes remain after training:
            the file is several times smaller, searches are approximate, and the vectors cannot be recovered.
        ids
            The type of the ids: "int" or "str".
        train_size
            The number of vectors at which the index trains itself; by default 10,000, or more if the encoder needs
            more.
        subset
            What lets a search read only part of the rows. "cells", or :class:`Cells` with options, stores rows beside
            those that are near to them; "multi-index", or a :class:`MultiIndex` with options, adds hash tables over
            parts of the codes. None has neither: every search reads all codes. "auto" makes cells when there are
            20,000 vectors, and none for an encoder without codes.
        fields
            Names of payload fields that are often used in filters; they are filtered without reading payloads.
        wait
            As for :meth:`open`.
        **parameters
            The parameters of the encoder, such as ``bits=256``.

        Returns
        -------
        Index
            The new index, open for writing.

        Raises
        ------
        IndexExistsError
            If the file exists.
        ParameterError
            If an option is invalid.
        UnknownEncoderError
            If no encoder has this name.
        StorageError
            If the file cannot be written.

        Examples
        --------
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "news.lsq")
        >>> with Index.create(path, dim=4, ids="str") as index:
        ...     index.add([[1, 0, 0, 0], [0, 1, 0, 0]], ids=["a", "b"])
        ['a', 'b']
        >>> with Index.open(path, read_only=True) as index:
        ...     index.search([0, 1, 0, 0], k=1).ids.tolist()
        ['b']
        """
        new = new_index(dim, metric, encoder, keep_vectors, ids, train_size, fields, subset, parameters)
        check_opening(False, wait)
        new.in_file(path)
        return cls.open(path, wait=wait)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, wait: Wait = True) -> Self:
        """Open an index file.

        Any number of processes can read a file while one writes. A file whose encoder is a plugin that is not
        installed opens, too: ids, payloads, filters and kept vectors can be used, while adding and searching by codes
        raise :class:`UnknownEncoderError`, which says what to install.

        Parameters
        ----------
        path
            The file.
        read_only
            Whether changes raise a :class:`ReadOnlyError`.
        wait
            How long a change waits for another writer: True (without limit), a number of seconds, or False (not at
            all).

        Returns
        -------
        Index
            The open index.

        Raises
        ------
        IndexMissingError
            If there is no such file.
        NotAnIndexError
            If the file is not an index; :class:`NewerFormatError` if a newer version of lsqindex wrote it.
        DamagedError
            If the file is damaged.
        StorageError
            If the system cannot read the file.

        Examples
        --------
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "news.lsq")
        >>> Index.create(path, dim=2).close()
        >>> with Index.open(path, read_only=True) as index:
        ...     len(index)
        0
        """
        check_opening(read_only, wait)
        name = file_path(path)
        index = cls.__new__(cls)
        index._set_up(open_env(name), path=name, read_only=bool(read_only), wait=wait)
        return index

    def _set_up(self, lease: Lease, *, path: str | None, read_only: bool, wait: Wait) -> None:
        env = lease.env
        try:
            with Reading(env) as reader:
                options, opened = read_options(reader), env.opened
                # If the encoder is not installed here, whatever needs it says so.
                StoredEncoder.from_record(reader.get(keys.META, keys.ENCODER))
        except BaseException:
            close_env(env, lease)
            raise
        # Only now: an index in memory that becomes a file stays what it was if the file cannot be read.
        self._options, self._opened = options, opened
        self._coder_known: tuple[tuple[int, int], Coder] | None = None
        self._searched: Snapshot | None = None
        self._lease, self._env, self._path, self._read_only, self._wait = lease, env, path, read_only, wait
        self._closed = False

    # -- what it is ---------------------------------------------------------------------------

    @property
    def path(self) -> str | None:
        """The path of the file; None for an index in memory."""
        return self._path

    @property
    def dim(self) -> int:
        """The number of dimensions of the vectors."""
        return self._options.dim

    @property
    def metric(self) -> Metric:
        """ "l2", "cosine" or "ip"."""
        return cast(Metric, self._options.metric)

    @property
    def encoder(self) -> Encoder:
        """The encoder; ``encoder.is_fitted`` says whether the index is trained.

        Raises :class:`UnknownEncoderError`, which says what to install, if it is a plugin that is not installed.
        """
        with self._reader() as reader:
            return self._coder(reader).encoder

    @property
    def is_trained(self) -> bool:
        """Whether vectors are stored as codes. Until then, they are stored as they are and searched exactly."""
        with self._reader() as reader:
            return self._coder(reader).trained

    @property
    def subset(self) -> MultiIndex | Cells | None:
        """The subset structure, a :class:`Cells` or a :class:`MultiIndex`; None if there is none."""
        with self._reader() as reader:
            coder = self._coder(reader)
            structure = subsets.of(reader, coder)
            return None if structure is None else structure.told(coder)

    def __len__(self) -> int:
        with self._reader() as reader:
            return reader.state.count

    def __contains__(self, name: Any) -> bool:
        with self._reader() as reader:
            try:
                ids = read_ids([name], self._options.ids, known=True)
            except IdError:
                return False
            return len(ids) == 1 and bool(Store(reader, self._options).rows_of(ids)[0] >= 0)

    def __repr__(self) -> str:
        where = self._path or "in memory"
        try:
            with self._reader() as reader:
                coder, count = self._coder(reader), reader.state.count
            made = repr(coder.encoder) if coder.present else f"encoder {coder.name} is not available here"
        except ClosedError:
            return f"<Index {where}, closed>"
        except Exception as error:  # a debugger, a log or a shell must not fail for it
            return f"<Index {where}: not readable, {type(error).__name__}>"
        return f"<Index {where}: {count:,} vectors of {self.dim} dimensions, {self.metric}, {made}>"

    def ids(self, filter: Any = None) -> Any:
        """Return all ids, or those of the rows that pass a filter.

        Parameters
        ----------
        filter
            A mapping over payload fields, or ids; None for all.

        Returns
        -------
        numpy.ndarray or list of str
            The ids, ascending: int64, or a list for string ids.

        Raises
        ------
        FilterError
            If the filter is invalid.

        Examples
        --------
        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2], [3]], payloads=[{"year": 1999}, {"year": 2020}, None])
        >>> index.ids({"year": {"$gte": 2000}})
        array([1])
        """
        condition = None if filter is None else read_filter(filter, self._options.ids)
        with self._reader() as reader:
            store = Store(reader, self._options)
            ids = store.ids_of(store.living() if condition is None else select(store, condition))
        return np.sort(ids) if isinstance(ids, np.ndarray) else sorted(ids)

    def get(self, ids: Any) -> NDArray[np.float32]:
        """Return vectors by id.

        Parameters
        ----------
        ids
            One id, or several.

        Returns
        -------
        numpy.ndarray
            float32, shape (n, dim), or (dim,) for one id. The vectors as they were added if they are kept or the index
            is not trained; otherwise reconstructions from their codes.

        Raises
        ------
        UnknownIdError
            If an id does not exist.

        Examples
        --------
        >>> index = Index(dim=2)
        >>> _ = index.add([[1, 2], [3, 4]], ids=[7, 8])
        >>> index.get(8)
        array([3., 4.], dtype=float32)
        """
        names = read_ids(ids, self._options.ids)
        with self._reader() as reader:
            store = Store(reader, self._options)
            vectors = vectors_of(store, self._coder(reader), store.known_rows(names))
        return vectors[0] if is_one(ids) else vectors

    def payloads(self, ids: Any) -> Any:
        """Return payloads by id.

        Parameters
        ----------
        ids
            One id, or several.

        Returns
        -------
        list of dict, or dict
            One mapping per id, None for a vector without a payload; for one id, the mapping itself.

        Raises
        ------
        UnknownIdError
            If an id does not exist.

        Examples
        --------
        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2]], ids=[7, 8], payloads=[{"lang": "en"}, None])
        >>> index.payloads([8, 7]), index.payloads(7)
        ([None, {'lang': 'en'}], {'lang': 'en'})
        """
        names = read_ids(ids, self._options.ids)
        with self._reader() as reader:
            store = Store(reader, self._options)
            found = payloads_of(store, store.known_rows(names))
        return found[0] if is_one(ids) else found

    def stats(self) -> dict[str, Any]:
        """Return numbers about the index, for people and for monitoring.

        Returns
        -------
        dict
            Among others, ``vectors``, ``deleted``, ``code_bytes``, ``file_bytes``, ``free_bytes``, and:

            ``exact`` is True if vectors are stored as they are, so that every search is exact.

            ``training`` describes the last automatic training. It is None if the index is not trained, or was trained
            by :meth:`train`, by :meth:`reencode`, or with an encoder fitted in advance. It has the size of the sample
            (``sampled``) and of the index (``vectors``) at that time, the expected reconstruction ``error`` relative
            to the lengths of the vectors, and the error ``now``, as last measured. If the encoder is ``outdated`` and
            vectors are kept, the index trains itself again; ``rewritten`` is then the share of codes rewritten so far,
            and None otherwise.

        Examples
        --------
        >>> index = Index(dim=16)
        >>> index.stats()["vectors"], index.stats()["keep_vectors"]
        (0, 'float16')
        """
        with self._reader() as reader:
            store = Store(reader, self._options)
            return stats(store, self._coder(reader), self._path, retraining.told(reader))

    # -- searching ----------------------------------------------------------------------------

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        strategy: Strategy = "auto",
        distance: Ranking = "auto",
        recall: float = 0.95,
        rerank: int | None = None,
        filter: Any = None,
        probes: int | None = None,
        candidates: int | None = None,
        progressive: bool = True,
        with_payloads: bool = False,
        threads: int | None = None,
    ) -> Matches:
        """Find the nearest vectors of each query.

        Parameters
        ----------
        queries
            One query of shape (dim,), or several of shape (nq, dim).
        k
            The number of neighbours.
        strategy
            "scan" reads all codes, "subset" reads the nearest cells or the rows that the multi-index returns, and
            "auto" chooses: it scans if there is neither, or if a scan is faster. :meth:`explain` shows the choice.
        distance
            "asymmetric" compares the query itself with codes, "symmetric" compares its code (section 3.1 of the
            paper), and "auto" takes the best that the encoder supports. "score" ranks by the number of tables of the
            multi-index that return a row (section 3.2); the distance is then the number of tables that do not, with
            ties ordered by the code's distance.
        recall
            The share of the true neighbours to find, above 0 and at most 1. The search decides for each query how many
            cells to visit and, if vectors are kept, how many candidates to re-rank; 1.0 compares all kept vectors
            exactly. ``rerank``, ``distance``, ``probes`` and ``candidates`` override it.
        rerank
            How many candidates to re-rank (never fewer than ``k``): exactly if vectors are kept, by the asymmetric
            distance if not. By default, a search with kept vectors re-ranks as many as ``recall`` needs. 0, or naming
            a ``distance``, ranks by codes alone.
        filter
            Only these rows can be found: an array of ids, or a mapping over payload fields such as
            ``{"lang": "en", "year": {"$gte": 2020}}``.
        probes
            Visit exactly this many cells, the nearest to the query; by default as many as ``recall`` needs. Or look
            into exactly this many buckets of the multi-index, the nearest in all tables together; by default 16 per
            table, and more until there are enough rows. With few probes, there may be fewer than ``k`` rows.
        candidates
            Of the rows that the multi-index returns, rank this many by distance, those that most buckets return. By
            default four times the larger of ``k`` and ``rerank``, and at least 256.
        progressive
            If False, read every code completely. Otherwise, if the encoder has learned that it pays, a row whose first
            bytes are far from the query is not read further.
        with_payloads
            Whether to return payloads, in ``matches.payloads``.
        threads
            The number of threads; all processors by default. It never changes an answer.

        Returns
        -------
        Matches
            ``ids`` and ``distances`` of shape (nq, k), or (k,) for a query of shape (dim,), nearest first. Equal
            distances are ordered by id. If fewer than ``k`` rows are found, the rest is id −1 (None for string ids)
            and distance inf.

        Raises
        ------
        VectorError
            If the queries have a wrong shape or dtype, or numbers that are not finite.
        ParameterError
            If an option is invalid, or needs a subset structure that the index does not have.
        FilterError
            If the filter is invalid.
        DamagedError
            If a part of the file that the search reads is damaged.

        Examples
        --------
        >>> index = Index(dim=2)
        >>> _ = index.add([[0, 0], [1, 0], [5, 5]], ids=[10, 20, 30])
        >>> index.search([1, 0], k=2, filter=[10, 30])
        Matches(ids=array([10, 30]), distances=array([ 1., 41.], dtype=float32))
        """
        query = read_query(
            k, math.inf, strategy, distance, rerank, probes, candidates, progressive, with_payloads, threads, recall
        )
        return self._search(queries, query, filter, Trace())[0]

    def explain(
        self,
        query: ArrayLike,
        k: int = 10,
        *,
        strategy: Strategy = "auto",
        distance: Ranking = "auto",
        recall: float = 0.95,
        rerank: int | None = None,
        filter: Any = None,
        probes: int | None = None,
        candidates: int | None = None,
        progressive: bool = True,
        threads: int | None = None,
    ) -> Explanation:
        """Run a search and report what it did: the strategy, the reason, and what was read.

        Parameters
        ----------
        query, k, strategy, distance, recall, rerank, filter, probes, candidates, progressive, threads
            As for :meth:`search`.

        Returns
        -------
        Explanation
            A report that prints as a short table. Its ``matches`` are what :meth:`search` returns. The numbers of
            several queries are added up.

        Raises
        ------
        LsqIndexError
            As in :meth:`search`.

        Examples
        --------
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).standard_normal((1000, 16))
        >>> index = Index(dim=16, encoder="itq", bits=16, subset="multi-index").train(vectors)
        >>> _ = index.add(vectors)
        >>> index.merge()
        >>> told = index.explain(vectors[0], k=3, strategy="subset", probes=4)
        >>> told.strategy, told.tables, told.probes
        ('subset', 4, 4)
        """
        asked = read_query(
            k, math.inf, strategy, distance, rerank, probes, candidates, progressive, False, threads, recall
        )
        trace = Trace()
        matches, plan, snapshot = self._search(query, asked, filter, trace, counting=True)
        return explained(trace, plan, snapshot, matches)

    def measure_recall(self, queries: ArrayLike | None = None, k: int = 10, **options: Any) -> float:
        """Measure how many of the true nearest neighbours searches find: they are compared with exact ones.

        Parameters
        ----------
        queries
            Vectors to search for; the more they are like those of your users, the better. By default 200 stored
            vectors, each without itself among its neighbours.
        k
            How many neighbours to ask for.
        **options
            Those of :meth:`search`, such as ``recall`` or ``probes``.

        Returns
        -------
        float
            The share of the true ``k`` nearest that were found, from 0 to 1.

        Raises
        ------
        NoVectorsError
            If the index does not keep vectors.
        LsqIndexError
            As in :meth:`search`.

        Examples
        --------
        >>> import numpy as np
        >>> index = Index(dim=16)
        >>> _ = index.add(np.random.default_rng(0).standard_normal((500, 16)))
        >>> index.measure_recall()
        1.0
        """
        with self._reader() as reader:
            store = Store(reader, self._options)
            check_comparable(store, self._coder(reader))
            own = sampled_ids(store) if queries is None else None
        return measured(self.search, self.get(own) if queries is None else queries, k, own, options)

    def _search(
        self, queries: ArrayLike, query: Query, filter: Any, trace: Trace, *, counting: bool = False
    ) -> tuple[Matches, Plan, Snapshot]:
        """What was found, what was planned, and where."""
        vectors, single = read_queries(queries, self._options.dim)
        if filter is not None:
            query = query._replace(filter=read_filter(filter, self._options.ids))
        with self._reader() as reader:
            snapshot = self._snapshot(reader)
            answer, plan = searcher.search(snapshot, reader, query, vectors, trace, counting=counting)
            payloads = found_payloads(Store(reader, self._options), answer.rows) if query.with_payloads else None
        return searcher.matches(answer, payloads, single=single), plan, snapshot

    def _snapshot(self, reader: Reader) -> Snapshot:
        """The snapshot prepared for searching: known from the last search, or prepared now."""
        known, coder = self._searched, self._coder(reader)
        if known is None or known.valid != (reader.state.txn, reader.env.moved) or known.coder is not coder:
            known = self._searched = Snapshot(Store(reader, self._options), coder)
        return known

    # -- changing -----------------------------------------------------------------------------

    def add(
        self,
        vectors: ArrayLike | Iterable[Any],
        ids: Any = None,
        payloads: Any = None,
        *,
        upsert: bool = False,
        progress: loader.Progress | None = None,
        training_progress: FitProgress | None = None,
        threads: int | None = None,
    ) -> Any:
        """Add vectors in one transaction, which is durable when this returns.

        Parameters
        ----------
        vectors
            Anything that can be read as a matrix of numbers of shape (n, dim): an array, lists, a DataFrame, a Series
            of vectors, a tensor, or a memory map larger than memory. It is added completely or not at all. An iterator
            yields batches, each a matrix, or a tuple (vectors, ids) or (vectors, ids, payloads); each batch is one
            transaction.
        ids
            One id per vector. By default, int ids continue from the largest so far.
        payloads
            One mapping or None per vector.
        upsert
            Whether to replace the vectors and payloads of existing ids.
        progress
            Called as ``progress(done, total)``.
        training_progress
            Called as ``training_progress(step, steps, error)`` while the index trains itself, like ``progress`` of
            :meth:`train`.
        threads
            The number of threads for encoding; all processors by default.

        Returns
        -------
        numpy.ndarray or list of str
            The ids of the vectors.

        Raises
        ------
        VectorError
            If the vectors have a wrong shape or dtype, or numbers that are not finite.
        IdError
            If the ids have a wrong type or number; :class:`DuplicateIdError` if one exists and ``upsert`` is False, or
            occurs twice.
        PayloadError
            If a payload cannot be stored.
        ReadOnlyError
            If the index was opened read-only.
        BusyError
            If another process writes for longer than ``wait``.
        DiskFullError
            If there is no space. After any error, the index is as it was.

        Examples
        --------
        >>> index = Index(dim=2, ids="str")
        >>> index.add([[1, 2], [3, 4]], ids=["a", "b"], payloads=[{"year": 1999}, None])
        ['a', 'b']
        >>> index.add([[5, 6]], ids=["a"], upsert=True), len(index)
        (['a'], 2)
        """
        self._check_writable()
        if isinstance(vectors, Iterator):
            loader.check_alone(ids, payloads)
            own = partial(self.add, upsert=upsert, threads=threads, training_progress=training_progress)
            return loader.add_batches(own, vectors, self._options.ids, progress)
        options = self._options
        addition = loader.Addition(
            options, vectors, ids, payloads, upsert=upsert, threads=threads, checked=self._to_change
        )
        size = addition.encode_ahead(self._last_coder())
        with self._writer(size, addition) as writer:
            if not addition.done:
                loader.add(writer, addition, self._to_change(writer, options), progress, training_progress)
                if writer.moved_rows:
                    self._tidy(writer)
        return addition.outcome()

    def _tidy(self, writer: Writer) -> None:
        """After a change that moved rows was committed: compact a small file that has become half empty."""
        rewrite.tidy_small(writer, self._options, self._copied_subset)

    def delete(self, ids: Any) -> int:
        """Delete vectors.

        Parameters
        ----------
        ids
            Ids, of which unknown ones are ignored; or a filter on payloads. (The filter ``{}`` deletes everything.)

        Returns
        -------
        int
            How many vectors were deleted.

        Raises
        ------
        IdError
            If the ids have a wrong type.
        FilterError
            If the filter is invalid.
        ReadOnlyError
            If the index was opened read-only.
        BusyError
            If another process writes for longer than ``wait``.

        Examples
        --------
        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2], [3]], payloads=[{"lang": "en"}, {"lang": "de"}, None])
        >>> index.delete({"lang": {"$exists": True}}), index.delete([7])
        (2, 0)
        """
        deletion = Deletion(self._options, ids, self._to_change)
        with self._writer(change=deletion) as writer:
            if not deletion.done:
                deletion.write(writer)
                if writer.moved_rows:
                    self._tidy(writer)
        deleted: int = deletion.outcome()
        return deleted

    def set_payloads(self, ids: Any, payloads: Any) -> None:
        """Replace the payloads of existing vectors; the vectors stay as they are.

        Parameters
        ----------
        ids
            One id, or several.
        payloads
            One mapping per id, or None for no payload.

        Raises
        ------
        UnknownIdError
            If an id does not exist; then nothing is changed.
        PayloadError
            If a payload cannot be stored.
        ReadOnlyError
            If the index was opened read-only.

        Examples
        --------
        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2]])
        >>> index.set_payloads([1], [{"lang": "vi"}])
        >>> index.search([2], k=1, with_payloads=True).payloads
        [{'lang': 'vi'}]
        """
        change = PayloadChange(self._options, ids, payloads)
        with self._writer() as writer:
            change.write(writer)
            writer.commit()
            if writer.moved_rows:
                self._tidy(writer)

    def batch(self) -> Batch:
        """Make several adds and deletes one transaction: all of them are made, or, after an exception, none.

        Returns
        -------
        Batch
            A context manager with ``add``, ``delete`` and ``set_payloads``. It holds the write lock until the block
            ends.

        Raises
        ------
        ReadOnlyError
            On entering the block, if the index was opened read-only.
        BusyError
            On entering the block, if another process writes for longer than ``wait``.

        Examples
        --------
        >>> index = Index(dim=2)
        >>> with index.batch() as batch:
        ...     _ = batch.add([[1, 2]], ids=[5])
        ...     _ = batch.add([[3, 4]], ids=[6])
        ...     _ = batch.delete([5])
        >>> index.ids()
        array([6])
        """
        return Batch(
            partial(self._begin_writing, 0, None), lambda writer: (self._options, self._coder(writer)), self._tidy
        )

    def train(
        self, vectors: ArrayLike | None = None, *, progress: FitProgress | None = None, threads: int | None = None
    ) -> Self:
        """Train the encoder, and encode the stored vectors again.

        An index that was trained by this method does not train itself again when its vectors change. As in
        :meth:`create`, vectors are stored as they are if the codes would be as large.

        Parameters
        ----------
        vectors
            What to train on; by default the stored vectors.
        progress
            Called as ``progress(step, steps, error)`` after each step of training.
        threads
            The number of threads for encoding; all processors by default.

        Returns
        -------
        Index
            The index itself.

        Raises
        ------
        NoVectorsError
            If the index is trained and keeps no vectors.
        TooFewVectorsError
            If there are fewer vectors than the encoder needs.
        VectorError
            If ``vectors`` have a wrong shape or dtype, or numbers that are not finite.
        ReadOnlyError
            If the index was opened read-only.

        Examples
        --------
        >>> import numpy as np
        >>> index = Index(dim=16, encoder="itq", bits=16)
        >>> _ = index.add(np.eye(16))
        >>> index.train().is_trained
        True
        """
        return self._retrain(None, vectors, progress, threads)

    def reencode(
        self,
        encoder: str | Encoder,
        *,
        vectors: ArrayLike | None = None,
        progress: FitProgress | None = None,
        threads: int | None = None,
        **parameters: Any,
    ) -> Self:
        """Switch the encoder: train it, encode everything again, and switch in one transaction.

        Searches use the old codes until the switch, and afterwards if anything fails. As in :meth:`create`, an
        unfitted encoder is replaced by "flat" if its codes would be as large as the vectors. An index that stored
        vectors as they are has only codes afterwards, unless it keeps vectors.

        Parameters
        ----------
        encoder
            The name of an encoder, or an :class:`Encoder`, fitted or not.
        vectors
            A sample to train on; by default the stored vectors.
        progress
            Called as ``progress(step, steps, error)`` after each step of training.
        threads
            The number of threads for encoding; all processors by default.
        **parameters
            The parameters of the encoder, such as ``bits=256``.

        Returns
        -------
        Index
            The index itself.

        Raises
        ------
        NoVectorsError
            If the index is trained and keeps no vectors.
        ParameterError
            If a parameter is invalid.
        UnknownEncoderError
            If no encoder has this name.
        ReadOnlyError
            If the index was opened read-only.

        Examples
        --------
        >>> import numpy as np
        >>> index = Index(dim=16, encoder="itq", bits=16)
        >>> _ = index.train(np.eye(16)).add(np.eye(16))
        >>> index.reencode("lsh", bits=32).stats()["code_bytes"]
        4
        """
        return self._retrain(make_encoder(encoder, **parameters), vectors, progress, threads)

    def _retrain(
        self, encoder: Encoder | None, vectors: ArrayLike | None, progress: FitProgress | None, threads: int | None
    ) -> Self:
        rows = None if vectors is None else open_rows(vectors, self.dim)
        with self._writer() as writer:
            training.retrain(writer, self._options, self._coder(writer), encoder, rows, progress, thread_count(threads))
        return self

    def set_subset(self, subset: SubsetLike, *, progress: loader.Progress | None = None) -> Self:
        """Add, change or remove the subset structure. It is built from the stored codes.

        Others can read meanwhile, and write when it is done. Rows that are not listed yet are scanned, so none is ever
        missed. An untrained index has no codes yet; it builds the structure when it is trained.

        Parameters
        ----------
        subset
            "cells", "multi-index", a :class:`Cells` or a :class:`MultiIndex` with options, or None to remove it.
        progress
            Called as ``progress(done, total)`` with numbers of rows.

        Returns
        -------
        Index
            The index itself.

        Raises
        ------
        ParameterError
            If the codes of the encoder cannot have this structure.
        ReadOnlyError
            If the index was opened read-only.

        Examples
        --------
        >>> index = Index(dim=2, encoder="lsh", bits=16)
        >>> index.set_subset("multi-index").subset
        MultiIndex(bits=None)
        >>> _ = index.add([[1, 2], [-3, 1], [2, 5]])
        >>> index.train().subset
        MultiIndex(bits=4)
        """
        asked = check_subset(subset)
        with self._writer() as writer:
            coder = self._coder(writer)
            relist(writer, subsets.begin(asked, coder, writer.state.count), progress)
        return self

    def merge(self, *, progress: loader.Progress | None = None) -> None:
        """Do now what later adds would do: list fresh rows, and finish a retraining that is under way.

        Fresh rows are those that are in no cell or posting list yet. Every search scans them, so searches are faster
        after this; adds list some thousands at a time. If the bits of a multi-index's tables were chosen automatically,
        and there are now enough vectors for more, they are chosen again and all rows are listed again. If the index is
        being trained again (``stats()["training"]``), the rest of the new codes is written. If vectors were added
        since the last check whether to train again, that check is made now.

        Parameters
        ----------
        progress
            Called as ``progress(done, total)`` with numbers of rows.

        Raises
        ------
        ReadOnlyError
            If the index was opened read-only.
        BusyError
            If another process writes for longer than ``wait``.

        Examples
        --------
        >>> import numpy as np
        >>> index = Index(dim=8, encoder="lsh", bits=32, subset="multi-index")
        >>> _ = index.train(np.eye(8)).add(np.eye(8))
        >>> index.stats()["fresh"]
        8
        >>> index.merge()
        >>> index.stats()["fresh"]
        0
        """
        with self._writer() as writer:
            merge(writer, self._options, self._coder, progress)

    # -- the file -----------------------------------------------------------------------------

    def save(self, path: Path | None = None, *, progress: loader.Progress | None = None) -> None:
        """Write a compacted copy of the index, while others read and write.

        An index in memory becomes the file: other threads can continue to read, and adds wait until it is written.

        Parameters
        ----------
        path
            Where to write. An index that is already there is replaced atomically. Without a path, this only makes sure
            that everything is on disk (an add already is).
        progress
            Called as ``progress(done, total)`` with numbers of rows.

        Raises
        ------
        ParameterError
            If the index is in memory and no path is given.
        DiskFullError
            If there is no space.
        StorageError
            If the file cannot be written.

        Examples
        --------
        >>> import os, tempfile
        >>> index = Index(dim=2)
        >>> _ = index.add([[1, 2]])
        >>> index.save(os.path.join(tempfile.mkdtemp(), "news.lsq"))
        >>> os.path.basename(index.path)
        'news.lsq'
        """
        self._check_open()
        own, name = self._path, None if path is None else new_path(path)
        if own is None:
            self._become(name, progress)
        elif name is None or os.path.realpath(name) == os.path.realpath(own):
            self._live().sync()
        else:
            self._copy_to(name, progress)

    def _become(self, path: str | None, progress: loader.Progress | None) -> None:
        """Of an index in memory: make it the file at ``path``.

        Who adds meanwhile waits, and then adds to the file. Who still reads what was in memory lets go of it.
        """
        if path is None:
            raise ParameterError("save(): this index is in memory and has no file yet; save(path) gives it one")
        with self._locked():
            if self._path is None:
                self._copy_to(path, progress)
                self._set_up(open_env(path), path=path, read_only=False, wait=self._wait)
                return
        self.save(path, progress=progress)  # another thread has given it a file meanwhile

    def _copy_to(self, path: str, progress: loader.Progress | None) -> None:
        rewrite.save_copy(self._reader, self._options, path, self._wait, progress, self._copied_subset)

    def compact(self, *, progress: loader.Progress | None = None) -> None:
        """Give the space of deleted vectors back to the system, while others read.

        The index is written to a new file, which then replaces the old one; this needs space for both.

        Parameters
        ----------
        progress
            Called as ``progress(done, total)`` with numbers of rows.

        Raises
        ------
        ParameterError
            If the index is in memory.
        DiskFullError
            If there is no space for a second file.
        ReadOnlyError
            If the index was opened read-only.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> index = Index.create(os.path.join(tempfile.mkdtemp(), "news.lsq"), dim=16)
        >>> _ = index.add(np.eye(16)); _ = index.delete([3, 4])
        >>> index.compact()
        >>> index.stats()["deleted"]
        0
        """
        if self._live().memory:
            raise ParameterError("compact(): an index in memory has no file; save(path) writes a compact one")
        with self._writer() as writer:
            rewrite.compact(writer, self._options, progress, self._copied_subset)

    def replace(self, make: Callable[[Index], Index], *, progress: loader.Progress | None = None) -> None:
        """Replace the content of the file by another index, atomically.

        Nobody else writes meanwhile, so what ``make`` reads from this index is still current when it is replaced. This
        index then holds a compacted copy of the other, which stays as it is. Others that have the file open get a
        :class:`ReplacedError`.

        Parameters
        ----------
        make
            Called with this index; returns the index to take its place.
        progress
            Called as ``progress(done, total)`` with numbers of rows.

        Raises
        ------
        ParameterError
            If the index is in memory, or ``make`` does not return another index.
        ReadOnlyError
            If the index was opened read-only.
        BusyError
            If another process writes for longer than ``wait``.

        Examples
        --------
        >>> import os, tempfile
        >>> index = Index.create(os.path.join(tempfile.mkdtemp(), "news.lsq"), dim=1, ids="str")
        >>> _ = index.add([[1]], ["a"], [{"text": "ice"}])
        >>> def wider(old):
        ...     new = Index(dim=2, ids="str")
        ...     new.add([[0, 1]], old.ids(), old.payloads(old.ids()))
        ...     return new
        >>> index.replace(wider)
        >>> index.dim, index.payloads("a")
        (2, {'text': 'ice'})
        """
        if self._live().memory:
            raise ParameterError("replace(): an index in memory has no file to be replaced; use the other one")
        with self._writer() as writer:
            other = make(self)
            if not isinstance(other, Index):
                raise ParameterError(f"replace(): make must return an Index, got {type(other).__name__}")
            if other._live() is self._env:
                raise ParameterError("replace(): the other index is this file itself; make one in memory")
            # Known before it happens: other threads, and this one after an interrupt, must not take it for a stranger.
            self._expected = other._options
            rewrite.replace(writer, other._reader, other._options, progress, other._copied_subset)
            self._options, self._coder_known, self._opened = other._options, None, writer.env.opened

    def _copied_subset(self, source: Reader | Writer) -> Structure | None:
        """The subset structure that a compacted copy gets: its bits chosen anew, where they were chosen."""
        coder = self._coder(source)
        structure = subsets.of(source, coder)
        return None if structure is None else structure.chosen_for(coder, source.state.count)

    def check(self) -> list[str]:
        """Read every page, checksum and number, and report what is wrong.

        Returns
        -------
        list of str
            One line per problem; empty if the index is intact. If the encoder is a plugin that is not installed, its
            codes cannot be checked, and one line says so.

        Examples
        --------
        >>> index = Index(dim=2)
        >>> _ = index.add([[1, 2]])
        >>> index.check()
        []
        """
        found: list[str] = []
        try:
            with self._reader() as reader:
                self._searched = None  # look at everything again
                found += check.problems(reader, self._options)
                coder = self._read_coder(reader)
                following = retraining.next_coder(reader, coder)
                found += [] if found else checking.problems(Store(reader, self._options), coder, following)
        except (DamagedError, NotAnIndexError) as error:
            found.append(str(error))
        return found

    def close(self) -> None:
        """Close the index. Results stay valid, and closing twice is not an error.

        Raises
        ------
        BusyError
            If this thread is inside a batch of the index.
        """
        if not self._closed:
            if self._env.pid == os.getpid():
                self._env.check_outside()
                close_env(self._env, self._lease)
            self._closed = True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter may be ending, and half of it be gone
            return

    def __reduce__(self) -> Any:
        self._check_open()
        if self._path is None:
            raise ParameterError("an index in memory cannot be pickled: save(path) it, and pickle that")
        return _unpickle, (self._path, self._read_only, self._wait)

    # -- inside -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the index is closed; Index.open opens it again")

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise ReadOnlyError("the index was opened read-only; Index.open(path) opens it for writing")

    def _live(self) -> Env:
        if self._closed:
            self._check_open()
        if self._env.pid != os.getpid():
            raise forked(self._env)
        return self._env

    def _reader(self) -> Reading:
        if self._closed:
            self._check_open()
        return Reading(self._env, self._follow)

    def _follow(self, reader: Reader | Writer) -> None:
        """If the file was replaced: by itself, compacted or restored, or by another index?"""
        if self._opened == reader.env.opened:
            return
        options = read_options(reader)
        if options == self._options:
            options = self._options
        elif options != self._expected:
            raise ReplacedError(f"{self._path}: replaced by another index; open it again")
        self._options, self._coder_known, self._opened = options, None, reader.env.opened

    def _locked(self) -> Block[Writer]:
        """The one writer, without a transaction yet."""
        return Writing(self._path or "in memory", self._take_turn)

    def _take_turn(self, block: Block[Any], change: Change | None = None) -> Writer:
        while True:
            if self._closed:
                self._check_open()
            env = self._env
            writer = Writer(env, self._wait, block, change)
            if env is self._env or (change is not None and change.done):
                return writer
            # While it waited, the index in memory became a file.
            block.release()

    def _writer(self, reserve: int = 0, change: Change | None = None) -> Block[Writer]:
        """The one writer, in a transaction that is undone unless it is committed; none if ``change`` is done."""
        return Writing(self._path or "in memory", partial(self._begin_writing, reserve, change))

    def _begin_writing(self, reserve: int, change: Change | None, block: Block[Any]) -> Writer:
        if self._closed or self._read_only:
            self._check_writable()
        writer = self._take_turn(block, change)
        if change is not None and change.done:
            return writer
        writer.begin(reserve)
        if self._opened != writer.env.opened:
            self._follow(writer)
        if writer.state.staged_rows or writer.state.staged_generation:
            writer.run(lambda writer: Store(writer, self._options).tidy())
        return writer

    def _to_change(self, writer: Writer, options: Options) -> Coder:
        """The coder for a change by any thread's writer; ReplacedError if it was meant for another index."""
        if self._opened != writer.env.opened:
            self._follow(writer)
        if options is not self._options and options != self._options:
            raise ReplacedError(f"{self._path}: replaced by another index; nothing was changed, open it again")
        return self._coder(writer)

    def _coder(self, reader: Reader | Writer) -> Coder:
        """The coder of a snapshot: known from before, or read."""
        key = (reader.env.opened, reader.state.generation)
        known = self._coder_known
        if known is None or known[0] != key or known[1].outdated:
            known = self._coder_known = (key, self._read_coder(reader))
        return known[1]

    def _last_coder(self) -> Coder:
        """The coder of the snapshot that was seen last; a later one may have another."""
        known = self._coder_known
        if known is not None and self._env.pid == os.getpid():
            return known[1]
        with self._reader() as reader:
            return self._coder(reader)

    def _read_coder(self, reader: Reader | Writer) -> Coder:
        state = reader.state
        record = reader.get(keys.META, keys.ENCODER)
        return coders.read_coder(record, self.dim, self.metric, state.code_size, state.head)


def _unpickle(path: str, read_only: bool, wait: Wait) -> Index:
    return Index.open(path, read_only=read_only, wait=wait)
