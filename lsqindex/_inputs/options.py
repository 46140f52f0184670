"""What an index is made with: options, encoder and path, checked before anything is made."""

from __future__ import annotations

import os
import uuid
from typing import Any

import numpy as np

from .._storage.format import kept, keys
from .._storage.format.meta import Options
from .._storage.format.records import REMEDY
from .._storage.lmdb.reader import Reader
from .._storage.lmdb.writer import Writer
from ..encoders import Encoder, Layout, make_encoder
from ..encoders.base import Metric
from ..encoders.coder import Coder
from ..errors import DamagedError, IndexExistsError, NotAnIndexError, ParameterError, StorageError, shown
from ..metrics import METRICS, check_metric
from .arguments import check_int, is_among
from .payloads import read_fields

Path = str | os.PathLike[str]

#: An index trains itself when it holds so many vectors.
TRAIN_SIZE = 10_000


def make_options(
    dim: int,
    metric: Metric,
    encoder: str | Encoder,
    keep_vectors: str | None,
    ids: str,
    train_size: int | None,
    fields: Any,
    parameters: dict[str, Any],
    *,
    lists: bool = False,
) -> tuple[Options, Coder]:
    """Checked options, and the coder of a new index; ``lists``: a subset structure was asked for, which needs codes."""
    dim = check_int("dim", dim, 1, 1 << 20)
    check_metric(metric)
    if keep_vectors is not None and not is_among(keep_vectors, tuple(kept.KINDS)):
        *first, last = map(repr, kept.KINDS)
        raise ParameterError(f"keep_vectors={shown(keep_vectors)}: None, {', '.join(first)} or {last} is needed")
    if not is_among(ids, ("int", "str")):
        raise ParameterError(f"ids={shown(ids)}: 'int' or 'str' is needed")
    made = make_encoder(encoder, **parameters)
    if made.is_fitted:
        check_dim(made, dim)
    else:
        made._make_layout(dim)  # parameters that cannot work are refused now, not after ten thousand vectors
        if not lists and not worth_encoding(made, dim):
            # Vectors are still kept if that was asked for: a later reencode() may take an encoder of smaller codes.
            made = flat(dim)
        elif made._min_vectors()[0] == 0:
            made = type(made)(**made.config).fit(np.empty((0, dim), np.float32))
    least = made._min_vectors()[0]
    size = max(TRAIN_SIZE, least) if train_size is None else check_int("train_size", train_size, max(1, least), 1 << 40)
    names = read_fields(fields)
    layout = None if keep_vectors is None else kept.LAYOUTS[keep_vectors]
    return Options(dim, metric, ids, layout, size, uuid.uuid4().bytes, names), Coder(made, dim, metric)


def read_options(source: Reader | Writer) -> Options:
    """The options of an index that exists, checked."""
    value = source.get(keys.META, keys.OPTIONS)
    if value is None:
        raise NotAnIndexError(f"{source.env.path}: an LMDB file, but not an index; pass the path of an index")
    options = Options.from_record(value)
    if options.metric not in METRICS:
        raise DamagedError(f"options: there is no metric {options.metric!r}; {REMEDY}")
    return options


def worth_encoding(encoder: Encoder, dim: int) -> bool:
    """Whether an encoder's codes are smaller than the vectors; with few dimensions they may not be.

    Otherwise the vectors are stored as they are, by the encoder ``flat``, and searches are exact.

    >>> [worth_encoding(make_encoder("lsq", bits=256), dim) for dim in (1, 8, 9)]
    [False, False, True]
    """
    layout = encoder._make_layout(dim)
    return layout.floats or layout.code_size < Layout.of_floats(dim).code_size


def flat(dim: int) -> Encoder:
    """The encoder that stores vectors as they are."""
    return make_encoder("flat").fit(np.empty((0, dim), np.float32))


def file_path(path: Path) -> str:
    """A path as given, made absolute: the process may change its directory."""
    try:
        name = os.fsdecode(os.fspath(path))
    except TypeError as error:
        raise ParameterError(f"path={path!r}: a path is needed") from error
    if not name or "\0" in name:
        raise ParameterError(f"path={path!r}: the name of a file is needed")
    return os.path.abspath(name)


def new_path(path: Path) -> str:
    """A path where a file can be made."""
    name = file_path(path)
    if not os.path.isdir(os.path.dirname(name)):
        raise StorageError(f"{name}: the directory does not exist; create it first")
    if os.path.isdir(name):
        raise IndexExistsError(f"{name} is a directory; pass the name of a file")
    return name


def check_opening(read_only: Any, wait: Any) -> None:
    """How a file is opened: only for reading or not, and how long to wait for another writer."""
    if not isinstance(read_only, bool | np.bool_):
        raise ParameterError(f"read_only={shown(read_only)}: True or False is needed")
    if not isinstance(wait, bool | int | float | np.integer | np.floating) or not wait >= 0:
        raise ParameterError(f"wait={shown(wait)}: True, False or a number of seconds is needed")


def check_dim(encoder: Encoder, dim: int) -> None:
    """A fitted encoder must be for the index's dimensions."""
    if encoder.dim != dim:
        raise ParameterError(f"encoder: fitted on {encoder.dim} dimensions, but the index has {dim}; fit it again")


def thread_count(threads: int | None) -> int:
    """``threads``, or as many as this process may use."""
    if threads is not None:
        return check_int("threads", threads, 1, 1024)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
