"""The index: checks input, decides, delegates.

add      vectors ─▶ ids.py, vectors.py ─▶ loader: encode ─▶ storage: one transaction
search   queries ─▶ a snapshot ─▶ searcher: distances, the nearest, their ids
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compiled.gate import Block
from ._inputs.filters import read_filter
from ._inputs.ids import is_one, read_ids
from ._inputs.options import Path, check_wait, file_path, fill, make_options, new_path, thread_count
from ._inputs.vectors import as_array, open_rows, read_rows
from ._query import search as searcher
from ._query import snapshot
from ._query.query import Asked, Ranking, Request, Strategy
from ._query.stored import found_payloads, payloads_of, unsound, unsound_payloads, vectors_of
from ._storage import check, rewrite
from ._storage.format import kept, keys
from ._storage.format.meta import Options
from ._storage.format.records import REMEDY
from ._storage.lmdb import files, growth
from ._storage.lmdb.env import Env
from ._storage.lmdb.forks import check_process
from ._storage.lmdb.in_memory import memory_env
from ._storage.lmdb.locks import Wait, Writing, check_outside, take_turn
from ._storage.lmdb.reader import Reader, Reading
from ._storage.lmdb.registry import Lease, close_env, open_env
from ._storage.lmdb.writer import Writer
from ._storage.store import Store
from ._subsets import stored as subsets
from ._subsets.base import Structure
from ._subsets.multi_index.structure import MultiIndexStructure
from ._subsets.multi_index.tables import MultiIndex
from ._subsets.stored import SubsetLike, check_subset
from ._write import add as loader
from ._write import retraining, training
from ._write.batch import Batch
from ._write.delete import delete, read_deletion
from ._write.payloads import PayloadChange
from .encoders import Encoder, make_encoder
from .encoders import coder as coders
from .encoders.base import Metric, check_bool
from .encoders.base import Progress as FitProgress
from .encoders.coder import Coder
from .errors import (
    ClosedError,
    DamagedError,
    IdError,
    IndexExistsError,
    NotAnIndexError,
    ParameterError,
    ReadOnlyError,
    ReplacedError,
)
from .results import Explanation, Matches

if TYPE_CHECKING:
    from typing_extensions import Self

Kept = Literal["float16", "float32", "int8"]

#: A search returns at most so many ids.
_MAX_ANSWERS = 1 << 28


class Index:
    """Vectors under ids, compressed, in one file or in memory.

    ``Index(dim=…)`` lives in memory until ``save(path)``; :meth:`create` makes a file, :meth:`open` opens one.

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
        subset: SubsetLike = None,
        fields: Iterable[str] = (),
        **parameters: Any,
    ) -> None:
        """An index in memory. ``parameters`` are the encoder's, such as ``bits=256``."""
        asked = check_subset(subset)
        lists = asked is not None
        options, coder = make_options(
            dim, metric, encoder, keep_vectors, ids, train_size, fields, parameters, lists=lists
        )
        tables = subsets.begin(asked, coder, 0)
        lease = memory_env(lambda env: fill(env, options, coder, tables))
        self._set_up(lease, path=None, read_only=False, wait=True)

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
        subset: SubsetLike = None,
        fields: Iterable[str] = (),
        wait: Wait = True,
        **parameters: Any,
    ) -> Self:
        """A new index in the file ``path``, which must not exist.

        ``metric`` is "l2" (squared), "cosine" or "ip"; ``encoder`` a name, with its ``parameters``, or an
        :class:`Encoder`, fitted or not. ``ids`` are "int" or "str". The index trains itself when it holds
        ``train_size`` vectors (10,000, or what the encoder needs).

        ``keep_vectors`` is how the vectors are kept beside the codes: "float16" (the default), "float32", "int8" (one
        byte a number, in steps of 1/127 of the vector's largest), or None. Kept vectors let :meth:`search` re-rank what
        the codes find, :meth:`get` return what was added, and :meth:`train` and :meth:`reencode` work later. With None
        only the codes remain after training: the file is several times smaller, searches are approximate, and the
        vectors cannot be recovered.

        ``subset="multi-index"``, or a :class:`MultiIndex` with options, lists rows by parts of their codes, so that a
        search need not read all of them. ``fields`` are names of payload fields that filters ask for often: these are
        decided without reading payloads. ``wait`` is that of :meth:`open`.

        If codes would be as large as the vectors (with the default of 256 bits: 8 dimensions or fewer), vectors are
        stored as they are, by the encoder "flat", and every search is exact (``stats()["exact"]``). With ``subset``
        they are encoded all the same.

        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "news.lsq")
        >>> with Index.create(path, dim=4, ids="str") as index:
        ...     index.add([[1, 0, 0, 0], [0, 1, 0, 0]], ids=["a", "b"])
        ['a', 'b']
        >>> with Index.open(path, read_only=True) as index:
        ...     index.search([0, 1, 0, 0], k=1).ids.tolist()
        ['b']
        """
        asked = check_subset(subset)
        lists = asked is not None
        options, coder = make_options(
            dim, metric, encoder, keep_vectors, ids, train_size, fields, parameters, lists=lists
        )
        check_wait(wait)
        tables = subsets.begin(asked, coder, 0)
        name = new_path(path)
        if os.path.lexists(name):
            raise IndexExistsError(f"{name}: is there already; Index.open opens it, or remove it first")
        # Whole under a passing name, and then given its own: nobody ever meets half an index.
        with files.new_file(name) as new:
            fill(new, options, coder, tables)
            try:
                files.place(files.finish(new), os.path.realpath(name))
            except FileExistsError as error:
                raise IndexExistsError(f"{name}: was made by another meanwhile; Index.open opens it") from error
        return cls.open(path, wait=wait)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, wait: Wait = True) -> Self:
        """The index in the file ``path``.

        Any number of processes may read while one writes. A second writer waits for the first (``wait=True``),
        waits so many seconds, or gets a :class:`BusyError` at once (``wait=False``).

        A file whose encoder is a plugin that is not installed opens, too. Ids, payloads, filters and kept vectors can
        be used; adding and searching by codes raise :class:`UnknownEncoderError`, which says what to install.
        """
        check_wait(wait)
        read_only = check_bool("read_only", read_only)
        name = file_path(path)
        index = cls.__new__(cls)
        index._set_up(open_env(name), path=name, read_only=read_only, wait=wait)
        return index

    def _set_up(self, lease: Lease, *, path: str | None, read_only: bool, wait: Wait) -> None:
        env = lease.env
        try:
            with Reading(env) as reader:
                options, opened = _read_options(reader), env.opened
                # Its encoder may be missing here: whatever needs it says so then.
                coders.read_record(_encoder_record(reader))
        except BaseException:
            close_env(env, lease)
            raise
        # Only now: an index in memory that becomes a file stays what it was if the file cannot be read.
        self._options, self._opened = options, opened
        self._coder_known: tuple[tuple[int, int], Coder] | None = None
        self._lease, self._env, self._path, self._read_only, self._wait = lease, env, path, read_only, wait
        self._closed = False

    # -- what it is ---------------------------------------------------------------------------

    @property
    def path(self) -> str | None:
        """Where the file is; None in memory."""
        return self._path

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self._options.dim

    @property
    def metric(self) -> Metric:
        """ "l2", "cosine" or "ip"."""
        return self._options.metric  # type: ignore[return-value]

    @property
    def encoder(self) -> Encoder:
        """The encoder; ``encoder.is_fitted`` tells whether the index is trained.

        Where its plugin is not installed this raises :class:`UnknownEncoderError`, which says what to install.
        """
        with self._reader() as reader:
            return self._coder(reader).encoder

    @property
    def is_trained(self) -> bool:
        """Whether vectors are stored as codes; until then as they are, and searched exactly."""
        with self._reader() as reader:
            return self._coder(reader).trained

    @property
    def subset(self) -> MultiIndex | None:
        """The subset structure, with the bits of its tables where they are known (of a binary code); None: none."""
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
        """All ids, or those that ``filter`` lets through, ascending: an int64 array, or a list of str.

        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2], [3]], payloads=[{"year": 1999}, {"year": 2020}, None])
        >>> index.ids({"year": {"$gte": 2000}})
        array([1])
        """
        allowed = self._allowed(filter)
        with self._reader() as reader:
            store = Store(reader, self._options)
            rows = store.living() if allowed is None else searcher.allowed_rows(store, allowed)
            ids = store.ids_of(rows)
        return np.sort(ids) if isinstance(ids, np.ndarray) else sorted(ids)

    def _allowed(self, filter: Any) -> Any:
        """A filter, checked: ids, or a condition on payloads."""
        if isinstance(filter, Mapping):
            return read_filter(filter, lambda ids: read_ids(ids, self._options.ids, known=True))
        return None if filter is None else read_ids(filter, self._options.ids, known=True)

    def get(self, ids: Any) -> NDArray[np.float32]:
        """The vectors of ``ids``, shape (n, dim), or (dim,) for one id.

        As they were added where they are kept or the index is not trained; else reconstructed from their codes.
        An unknown id is an :class:`UnknownIdError`.
        """
        names = read_ids(ids, self._options.ids)
        with self._reader() as reader:
            store = Store(reader, self._options)
            vectors = vectors_of(store, self._coder(reader), store.known_rows(names))
        return vectors[0] if is_one(ids) else vectors

    def payloads(self, ids: Any) -> Any:
        """The payloads of ``ids``: a list of mappings, None for a vector without one; or one, for one id.

        An unknown id is an :class:`UnknownIdError`.

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
        """Numbers about the index, for people and for monitoring.

        ``exact``: vectors are stored as they are, so every search is exact. ``training`` tells of the last automatic
        training; it is None for an index that is not trained, or that was trained by :meth:`train`, :meth:`reencode` or
        with an encoder fitted before. It has the number of vectors that were ``sampled`` and that were there
        (``vectors``), the reconstruction ``error`` to expect, relative to the lengths of the vectors, and the error
        ``now``, as it was measured last. If the encoder is ``outdated`` and vectors are kept, the index trains itself
        again, and ``rewritten`` is the share of codes that are rewritten so far, None if none are being rewritten.
        """
        with self._reader() as reader:
            state, coder = reader.state, self._coder(reader)
            structure = subsets.of(reader, coder)
            fresh = Store(reader, self._options).fresh() if structure else 0
            return {
                "path": self._path,
                "format": state.format,
                "vectors": state.count,
                "deleted": state.stored - state.count,
                "dim": self.dim,
                "metric": self.metric,
                "ids": self._options.ids,
                "encoder": coder.name,
                "encoder_available": coder.present,
                "parameters": coder.config,
                "trained": coder.trained,
                "train_size": self._options.train_size,
                "training": retraining.told(reader),
                "exact": coder.floats,
                "code_bytes": coder.code_size,
                "keep_vectors": kept.NAMES[self._options.keep_vectors] if self._options.keep_vectors else None,
                "subset": structure.kind if structure else None,
                **({"tables": 0, "table_bits": None} if structure is None else structure.stats()),
                "listed": state.stored - fresh if structure else 0,
                "fresh": fresh,
                "payloads": bool(state.payloads),
                "fields": list(self._options.fields),
                "payload_bytes": growth.database_bytes(reader, keys.PAYLOADS),
                "posting_bytes": growth.database_bytes(reader, keys.POSTINGS),
                "file_bytes": growth.file_size(reader),
                "free_bytes": growth.free_bytes(reader),
            }

    # -- searching ----------------------------------------------------------------------------

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        strategy: Strategy = "auto",
        distance: Ranking = "auto",
        rerank: int | None = None,
        filter: Any = None,
        probes: int | None = None,
        candidates: int | None = None,
        progressive: bool = True,
        with_payloads: bool = False,
        threads: int | None = None,
    ) -> Matches:
        """The ``k`` nearest of each query: shape (nq, k), or (k,) for a 1-D query.

        ``distance``: "asymmetric" compares the query as it is with codes, "symmetric" its own code (section 3.1 of the
        paper); "auto" takes the encoder's best. ``rerank=r`` re-ranks the best ``r`` candidates (never fewer than
        ``k``), exactly where vectors are kept and by the asymmetric distance where they are not. By default a search
        with kept vectors re-ranks until it expects to miss no more than 3 % of the true neighbours; ``rerank=0``, or a
        ``distance`` that is named, ranks by codes alone.

        ``filter`` is an array of ids, or a mapping over payload fields such as
        ``{"lang": "en", "year": {"$gte": 2020}}``: only what it lets through can be found. ``with_payloads`` brings
        ``matches.payloads``. ``progressive=False`` reads all of every code; otherwise, where the encoder has learned
        that it pays, a row whose first bytes are far is not read further. ``threads`` (all processors by default) never
        changes an answer. Smaller distances are nearer; equal ones come by id.

        ``strategy``: "scan" reads all codes; "subset" reads what the multi-index returns; "auto" chooses: it scans
        where there is no multi-index, where few rows are in it, or where the encoder's codes do not suit it.
        :meth:`explain` tells what was done and why. Of the multi-index are:

        - ``probes``: look into so many buckets, the nearest to the query of all tables together, and no more (there may
          then be fewer than ``k`` rows). By default 16 a table, and more until there are enough rows.
        - ``candidates``: rank so many rows by distance, those that most of these buckets hold. By default four times
          the larger of ``k`` and ``rerank``, and at least 256.
        - ``distance="score"``: rank by the number of tables that return a row, as section 3.2 of the paper does. The
          distance is then the number of tables that do not; ties come by the code's distance.

        >>> index = Index(dim=2)
        >>> _ = index.add([[0, 0], [1, 0], [5, 5]], ids=[10, 20, 30])
        >>> index.search([1, 0], k=2, filter=[10, 30])
        Matches(ids=array([10, 30]), distances=array([ 1., 41.], dtype=float32))
        """
        asked = Asked(k, strategy, distance, rerank, probes, candidates, progressive, threads)
        return self._search(queries, asked, filter, with_payloads=with_payloads)[0]

    def explain(
        self,
        query: ArrayLike,
        k: int = 10,
        *,
        strategy: Strategy = "auto",
        distance: Ranking = "auto",
        rerank: int | None = None,
        filter: Any = None,
        probes: int | None = None,
        candidates: int | None = None,
        progressive: bool = True,
        threads: int | None = None,
    ) -> Explanation:
        """Do what :meth:`search` with the same arguments would, and tell how: strategy, why, what was read.

        Printed, it is a short table; its ``matches`` are what :meth:`search` returns. Numbers of several queries are
        added up.

        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).standard_normal((1000, 16))
        >>> index = Index(dim=16, encoder="itq", bits=16, subset="multi-index").train(vectors)
        >>> _ = index.add(vectors)
        >>> index.merge()
        >>> told = index.explain(vectors[0], k=3, strategy="subset", probes=4)
        >>> told.strategy, told.tables, told.probes
        ('subset', 4, 4)
        """
        asked = Asked(k, strategy, distance, rerank, probes, candidates, progressive, threads)
        found, taken, why, request, bits = self._search(query, asked, filter, counting=True)
        used = bits if taken == "subset" else ()
        return Explanation(taken, why, len(used), max(used, default=0), **asdict(request.trace), matches=found)

    def _search(
        self, queries: ArrayLike, asked: Asked, filter: Any, *, with_payloads: bool = False, counting: bool = False
    ) -> tuple[Matches, str, str, Request, tuple[int, ...]]:
        with_payloads = check_bool("with_payloads", with_payloads)
        vectors = as_array(queries, what="queries")
        single = len(vectors.shape) == 1 and vectors.shape[0] > 0  # (An empty list is no query at all.)
        rows = open_rows(vectors[None] if single else vectors, self.dim, what="queries")
        checked = read_rows(rows, what="queries")
        if len(checked) * asked.k > _MAX_ANSWERS:
            raise ParameterError(
                f"k={asked.k} for {len(checked)} queries: more than {_MAX_ANSWERS:,} answers; ask in parts"
            )
        allowed = self._allowed(filter)
        with self._reader() as reader:
            store, coder = Store(reader, self._options), self._coder(reader)
            subset = snapshot.once(store, "tables", lambda: subsets.of(reader, coder))
            kept = self._options.keep_vectors is not None
            request = asked.request(coder, checked, allowed, kept=kept, subset=subset is not None, counting=counting)
            answer, strategy, why = searcher.search(store, coder, request)
            payloads = found_payloads(store, answer.rows) if with_payloads else None
        found = Matches(answer.ids[0], answer.distances[0]) if single else Matches(answer.ids, answer.distances)
        if payloads is not None:
            found.payloads = payloads[0] if single else payloads
        widths = subset.tables.widths if isinstance(subset, MultiIndexStructure) else ()
        return found, strategy, why, request, widths

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
        """Store vectors, shape (n, dim), under ``ids``; the ids. When it returns they are on the disk.

        An array, of any size, is added as a whole or not at all; it may be a memory map larger than memory. Anything
        that can be read as a matrix of numbers will do: lists, a DataFrame, a Series of vectors, a tensor. An iterator
        gives batches, each a matrix, or a tuple (vectors, ids) or (vectors, ids, payloads), and each batch is a
        transaction of its own. Without ``ids`` the next free numbers are taken. An id that exists is a
        :class:`DuplicateIdError`, unless ``upsert`` replaces its vector and payload. ``payloads`` are mappings, one
        for each vector, or None. ``progress(done, total)`` is called on the way, and
        ``training_progress(step, steps, error)`` while the index trains itself, as :meth:`train` calls its own.
        """
        report = progress or _no_progress
        self._check_writable()
        if isinstance(vectors, Iterator):
            if ids is not None or payloads is not None:
                raise IdError(
                    "ids and payloads: with an iterator they come with its batches, as pairs (vectors, ids) or triples "
                    "(vectors, ids, payloads)"
                )
            own = partial(self.add, upsert=upsert, threads=threads, training_progress=training_progress)
            return loader.add_batches(own, vectors, self._options.ids, report)
        options = self._options
        addition = loader.Addition(options, vectors, ids, payloads, upsert=upsert, threads=threads)
        addition.encode_ahead(coder := self._last_coder())
        with self._writer(addition.bytes(coder)) as writer:
            if options is not self._options and options != self._options:
                raise ReplacedError(f"{self._path}: was replaced by another index meanwhile; nothing was added")
            names = loader.add(writer, addition, self._coder(writer), report, training_progress)
            self._tidy(writer)
            return names

    def _tidy(self, writer: Writer) -> None:
        """After a change was committed: compact a small file that has become half empty."""
        if writer.moved_rows:
            rewrite.tidy_small(writer, self._options, self._copied_subset)

    def delete(self, ids: Any) -> int:
        """Delete what there is of ``ids``, or all that a filter over payloads lets through; how many there were.

        Unknown ids are not an error. (The filter ``{}`` lets everything through.)

        >>> index = Index(dim=1)
        >>> _ = index.add([[1], [2], [3]], payloads=[{"lang": "en"}, {"lang": "de"}, None])
        >>> index.delete({"lang": {"$exists": True}}), index.delete([7])
        (2, 0)
        """
        asked = read_deletion(ids, self._options.ids)
        with self._writer() as writer:
            deleted = delete(writer, self._options, asked)
            writer.commit()
            self._tidy(writer)
            return deleted

    def set_payloads(self, ids: Any, payloads: Any) -> None:
        """Give vectors that are there other payloads, None for none; their vectors stay as they are.

        An unknown id is an :class:`UnknownIdError`, and nothing is changed.

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
            self._tidy(writer)

    def batch(self) -> Batch:
        """Several adds and deletes as one transaction: all of them, or, after an exception, none.

        >>> index = Index(dim=2)
        >>> with index.batch() as batch:
        ...     _ = batch.add([[1, 2]], ids=[5])
        ...     _ = batch.add([[3, 4]], ids=[6])
        ...     _ = batch.delete([5])
        >>> index.ids()
        array([6])
        """
        return Batch(partial(self._begin_writing, 0), lambda writer: (self._options, self._coder(writer)), self._tidy)

    def train(
        self, vectors: ArrayLike | None = None, *, progress: FitProgress | None = None, threads: int | None = None
    ) -> Self:
        """Train the encoder, on ``vectors`` or on what the index holds, and encode what it holds anew.

        A trained index can be trained again where vectors are kept. As in :meth:`create`, vectors are stored as they
        are if the encoder's codes would take as much room. An index that is trained by this method does not train
        itself again when its vectors change.
        """
        rows = None if vectors is None else open_rows(vectors, self.dim)
        with self._writer() as writer:
            training.retrain(writer, self._options, self._coder(writer), None, rows, progress, thread_count(threads))
        return self

    def reencode(
        self,
        encoder: str | Encoder,
        *,
        vectors: ArrayLike | None = None,
        progress: FitProgress | None = None,
        threads: int | None = None,
        **parameters: Any,
    ) -> Self:
        """Swap the encoder: train it, encode everything anew, and switch, all at once.

        Needs the vectors: kept ones, or an index that is not trained yet. The old codes answer until the
        switch, and go on if anything fails. ``vectors`` are an optional sample to train on. As in :meth:`create`, an
        encoder that is not fitted is replaced by "flat" if its codes would take as much room as the vectors. The other
        way round, an index that stored vectors as they are has only their codes afterwards, unless it keeps vectors.
        """
        made = make_encoder(encoder, **parameters)
        rows = None if vectors is None else open_rows(vectors, self.dim)
        with self._writer() as writer:
            training.retrain(writer, self._options, self._coder(writer), made, rows, progress, thread_count(threads))
        return self

    def set_subset(self, subset: SubsetLike, *, progress: loader.Progress | None = None) -> Self:
        """Add, change or remove (None) the subset structure; lists are made from the stored codes.

        ``subset`` as in :meth:`create`. Others read meanwhile, and write when it is done; what is not listed yet is
        scanned, so no row is ever missing. ``progress(rows listed, rows in all)`` is called on the way. An index that
        is not trained has no codes to list: it keeps what is asked for until it has.

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
            self._relist(writer, subsets.begin(asked, coder, writer.state.count), progress)
        return self

    def merge(self, *, progress: loader.Progress | None = None) -> None:
        """List all fresh rows now: those that were added last, and are in no posting list yet.

        A search by the multi-index scans them, so it is faster after this. Adding lists rows by itself, 16,256 at a
        time. Where the bits of the tables were chosen, and there are vectors enough for more bits now, these are chosen
        anew and all rows are listed again. If the index is being trained again (``stats()["training"]``), this writes
        the rest of the new codes; and if vectors were added since it was last decided whether to, it decides now.

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
            coder = self._coder(writer)
            for _ in range(2):  # finish what was begun; then see whether the encoder still suits the vectors
                if not writer.state.next_generation and not retraining.review_due(writer, soon=True):
                    break
                writer.commit()
                retraining.review(writer, self._options, coder)
                retraining.catch_up(writer, self._options, coder, thread_count(None))
                writer.begin()
                coder = self._coder(writer)
            structure = subsets.of(writer, coder)
            if structure is not None:
                chosen = structure.chosen_for(coder, writer.state.count)
                self._relist(writer, chosen if structure.outgrown(chosen) else structure, progress)

    def _relist(self, writer: Writer, structure: Structure | None, progress: loader.Progress | None) -> None:
        """Make ``structure`` the subset structure, if it is not, and list everything; commits."""
        if structure != subsets.read(writer):
            writer.run(lambda writer: subsets.put(writer, structure))
        if structure is None:
            writer.commit()
        else:
            structure.catch_up(writer, everything=True, progress=progress)

    # -- the file -----------------------------------------------------------------------------

    def save(self, path: Path | None = None, *, progress: loader.Progress | None = None) -> None:
        """Without ``path``: everything is on the disk when this returns (an add already is).

        With ``path``: a compacted copy there, while others read and write; an index that is there is
        replaced, at once and whole. An index in memory then *is* that file: other threads may go on reading, and
        adding waits until it is.
        """
        self._check_open()
        if path is None and self._path is None:
            raise ParameterError("save(): this index is in memory and has no file yet; save(path) gives it one")
        name = None if path is None else new_path(path)
        if name is None or (self._path is not None and os.path.realpath(name) == os.path.realpath(self._path)):
            self._live().sync()
            return
        copied = (self._options, name, self._wait, progress or _no_progress, self._copied_subset)
        if self._path is not None:
            rewrite.save_copy(self._reader, *copied)
            return
        # Who adds meanwhile waits, and then adds to the file. Who still reads what was in memory lets go of it.
        with self._locked():
            if self._path is None:
                rewrite.save_copy(self._reader, *copied)
                self._set_up(open_env(name), path=name, read_only=False, wait=self._wait)
                return
        self.save(path, progress=progress)  # another thread has given it a file meanwhile

    def compact(self, *, progress: loader.Progress | None = None) -> None:
        """Give the space of deleted vectors back to the system, while others read.

        The index is rewritten beside the file, which it then replaces; twice the space is needed meanwhile.
        """
        if self._live().memory:
            raise ParameterError("compact(): an index in memory has no file; save(path) writes a compact one")
        with self._writer() as writer:
            rewrite.compact(writer, self._options, progress or _no_progress, self._copied_subset)

    def replace(self, make: Callable[[Index], Index], *, progress: loader.Progress | None = None) -> None:
        """Put another index, the one that ``make(self)`` returns, into the place of the file, at once and whole.

        Nobody else writes meanwhile, so what ``make`` reads here still holds when this is replaced. This index is then
        a compacted copy of the other, which stays as it is. Others that have the file open get a
        :class:`ReplacedError`.

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
            rewrite.replace(writer, other._reader, other._options, progress or _no_progress, other._copied_subset)
            self._options, self._coder_known, self._opened = other._options, None, writer.env.opened

    def _copied_subset(self, source: Reader | Writer) -> Structure | None:
        """The subset structure that a compacted copy gets: its bits chosen anew, where they were chosen."""
        coder = self._coder(source)
        structure = subsets.of(source, coder)
        return None if structure is None else structure.chosen_for(coder, source.state.count)

    def check(self) -> list[str]:
        """What is wrong with the index: every page, checksum and number is looked at. Empty if it is sound.

        Codes can be checked only by their encoder. Where its plugin is not installed, one line says so.
        """
        found: list[str] = []
        try:
            with self._reader() as reader:
                reader.file.check_pages(reader.txn)
                reader.env.columns.clear()  # look at everything again
                found += check.problems(reader, self._options)
                coder = self._read_coder(reader)
                structure, store = subsets.of(reader, coder), Store(reader, self._options)
                if not found and structure is not None:
                    found += structure.problems(store)
                following = retraining.next_coder(reader, coder)
                found += [] if found else [*unsound(store, coder, following), *unsound_payloads(store)]
        except (DamagedError, NotAnIndexError) as error:
            found.append(str(error))
        return found

    def close(self) -> None:
        """Close the index; results stay valid. Closing twice is no error."""
        if not self._closed:
            if self._env.pid == os.getpid():
                check_outside(self._env)
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
        self._check_open()
        check_process(self._env)
        return self._env

    def _reader(self) -> Reading:
        return Reading(self._live(), self._follow)

    def _follow(self, reader: Reader | Writer) -> None:
        """If the file was replaced: by itself, compacted or restored, or by another index?"""
        if self._opened == reader.env.opened:
            return
        options = _read_options(reader)
        if options == self._options:
            options = self._options
        elif options != self._expected:
            raise ReplacedError(f"{self._path}: was replaced by another index; open it again")
        self._options, self._coder_known, self._opened = options, None, reader.env.opened

    def _locked(self) -> Block[Writer]:
        """The one writer, without a transaction yet."""
        return Writing(self._path, self._take_turn)

    def _take_turn(self, block: Block[Any]) -> Writer:
        while True:
            env = self._live()
            writer = take_turn(env, self._wait, block)
            if env is self._env:
                return writer
            # While it waited the index in memory became a file.
            block.release()

    def _writer(self, reserve: int = 0) -> Block[Writer]:
        """The one writer, in a transaction that is undone unless it is committed."""
        return Writing(self._path, partial(self._begin_writing, reserve))

    def _begin_writing(self, reserve: int, block: Block[Any]) -> Writer:
        self._check_writable()
        writer = self._take_turn(block)
        writer.begin(reserve)
        self._follow(writer)
        if writer.state.staged_rows or writer.state.staged_generation:
            writer.run(lambda writer: Store(writer, self._options).tidy())
        return writer

    def _coder(self, reader: Reader | Writer) -> Coder:
        """The coder of a snapshot: known from before, or read."""
        key = (reader.env.opened, reader.state.generation)
        known = self._coder_known
        if known is None or known[0] != key or known[1].outdated:
            known = self._coder_known = (key, self._read_coder(reader))
        return known[1]

    def _last_coder(self) -> Coder:
        """The coder of the snapshot that was seen last; a later one may have another."""
        if self._coder_known is not None:
            self._live()
            return self._coder_known[1]
        with self._reader() as reader:
            return self._coder(reader)

    def _read_coder(self, reader: Reader | Writer) -> Coder:
        state = reader.state
        return coders.read_coder(_encoder_record(reader), self.dim, self.metric, state.code_size, state.head)


def _read_options(reader: Reader | Writer) -> Options:
    value = reader.get(keys.META, keys.OPTIONS)
    if value is None:
        raise NotAnIndexError(f"{reader.env.path}: an LMDB file without the options of an index")
    return Options.from_record(value)


def _encoder_record(reader: Reader | Writer) -> Any:
    value = reader.get(keys.META, keys.ENCODER)
    if value is None:
        raise DamagedError(f"{reader.env.path}: the encoder is missing; {REMEDY}")
    return value


def _unpickle(path: str, read_only: bool, wait: Wait) -> Index:
    return Index.open(path, read_only=read_only, wait=wait)


def _no_progress(done: int, total: int | None) -> None:
    del done, total
