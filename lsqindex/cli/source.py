"""Vectors from somewhere, in blocks: what every format gives, and what can be asked of it.

file ─▶ sources.open_source ─▶ Source ─▶ blocks of (vectors, ids)      never all of it at once
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import LsqIndexError, VectorError

if TYPE_CHECKING:
    from typing_extensions import Self


Vectors = NDArray[np.floating[Any]]


class InputError(LsqIndexError, ValueError):
    """A file of vectors or ids that cannot be read."""


class MissingPackageError(LsqIndexError, ImportError):
    """A format needs a package that is not installed."""


def is_file(name: str) -> bool:
    """Whether there is a file of this name. (``Path.is_file`` raises where a name is too long to be one.)"""
    return os.path.isfile(name)  # noqa: PTH113


class Block(NamedTuple):
    """Some rows, shape (n, dim), and their ids, where the file has any."""

    vectors: Any
    ids: Any = None


@dataclass(frozen=True)
class Wanted:
    """What is said about a file beside its name; None: nothing."""

    format: str | None = None
    column: str | None = None
    id_column: str | None = None
    dataset: str | None = None
    dim: int | None = None
    dtype: str | None = None

    def only(self, name: str, *known: str) -> None:
        """InputError where something is said that this file's format has no use for."""
        for field in fields(self):
            if field.name not in ("format", *known) and getattr(self, field.name) is not None:
                option = "--" + field.name.replace("_", "-")
                raise InputError(f"{name}: {option} has no meaning for this format; remove it")


@dataclass(frozen=True)
class Source:
    """An open file of vectors. ``count`` None: known when all is read; ``rows``: where any of them can be sliced."""

    name: str
    dim: int
    count: int | None
    blocks: Callable[[int], Iterator[Block]]
    rows: Any = None
    close: Callable[[], Any] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sliced(name: str, rows: Any, ids: Any = None, close: Callable[[], Any] = lambda: None) -> Source:
    """A source of something with ``shape`` and slices: a memory map, a dataset."""
    if len(rows.shape) != 2:
        raise InputError(f"{name}: expected shape (n, dim), got {tuple(rows.shape)}")
    count, dim = (int(size) for size in rows.shape)
    if ids is not None and len(ids) != count:
        raise InputError(f"{name}: {count:,} vectors but {len(ids):,} ids; give one id for each vector")

    def blocks(size: int) -> Iterator[Block]:
        for first in range(0, count, size):
            part = slice(first, first + size)
            yield Block(rows[part], None if ids is None else ids[part])

    return Source(name, dim, count, blocks, rows, close)


def streamed(name: str, stream: BinaryIO, dim: int, dtype: np.dtype[Any], count: int | None) -> Callable[[int], Any]:
    """``blocks`` for numbers that follow each other in a stream; ``count`` None: until it ends."""
    width = dim * dtype.itemsize

    def blocks(size: int) -> Iterator[Block]:
        done = 0
        while count is None or done < count:
            wanted = size if count is None else min(size, count - done)
            data = _read(stream, wanted * width)
            if len(data) % width or (count is not None and len(data) < wanted * width):
                raise InputError(
                    f"{name}: ends in the middle of vector {done + len(data) // width:,}, "
                    f"{len(data) % width} of {width} bytes read; is the file truncated, or are --dim or --dtype wrong?"
                )
            if not data:
                return
            done += len(data) // width
            yield Block(np.frombuffer(data, dtype).reshape(-1, dim))

    return blocks


def _read(stream: BinaryIO, size: int) -> bytes:
    """``size`` bytes, fewer at the end: one read of a pipe gives what is there."""
    parts: list[bytes] = []
    while size and (part := stream.read(min(size, 1 << 24))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def sampled(source: Source, size: int, seed: int = 0, block: int = 4096) -> Vectors:
    """At most ``size`` vectors, drawn at random, as finite float32; never more than these and a block in memory."""
    rng = np.random.default_rng(seed)
    if source.rows is not None:
        count = source.rows.shape[0]
        # In their order, which is kind to a disk.
        chosen = np.arange(count) if count <= size else np.sort(rng.choice(count, size, replace=False))
        parts = [chosen[first : first + block] for first in range(0, len(chosen), block)]
        empty = np.empty((0, source.dim), np.float32)
        return np.concatenate([empty, *(_floats(source.rows[part], source.name, part) for part in parts)])
    # Every row draws a number; the smallest stay.
    kept, drawn, first = np.empty((0, source.dim), np.float32), np.empty(0), 0
    for part in source.blocks(block):
        rows = _floats(part.vectors, source.name, np.arange(first, first + len(part.vectors)))
        first += len(rows)
        kept, drawn = np.concatenate([kept, rows]), np.concatenate([drawn, rng.random(len(rows))])
        if len(kept) > size:
            stay = np.sort(np.argpartition(drawn, size)[:size])
            kept, drawn = kept[stay], drawn[stay]
    return kept


def _floats(vectors: Any, name: str, numbers: NDArray[np.int64]) -> Vectors:
    """Vectors as float32; VectorError with the number of a row that is not finite."""
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(vectors, np.float32)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise VectorError(f"{name}: row {numbers[np.argmax(bad)]} has NaN or infinite numbers; drop or repair it")
    return rows


def choose(name: str, what: str, wanted: str | None, known: Iterable[str], fitting: list[str]) -> str:
    """The part of a file that has the vectors: ``wanted``, or the only one that fits."""
    known = list(known)
    listed = ", ".join(known) or "none"
    if wanted is not None:
        if wanted in known:
            return wanted
        near = difflib.get_close_matches(wanted, known, n=2)
        guess = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise InputError(f"{name}: has no {what} {wanted!r}{guess} (there are: {listed})")
    if len(fitting) == 1:
        return fitting[0]
    option = "column" if what == "column" else "dataset"
    if not fitting:
        raise InputError(f"{name}: no {what} has vectors (there are: {listed})")
    raise InputError(f"{name}: several can be the vectors: {', '.join(fitting)}; choose one with --{option}")
