"""Changing what is there: ``delete``, ``train``, ``reencode``, ``compact``, ``copy``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import Index
from ..errors import IndexExistsError
from . import options as opt
from . import show
from .source import Wanted, sampled
from .sources import open_source
from .values import id_kind, ids_asked, parameters

#: More vectors are of no use to an encoder.
_TRAINING_ROWS = 65_536

On = Annotated[
    str | None,
    typer.Option("--on", metavar="VECTORS", help="Train on a sample of this file instead of the stored vectors."),
]


def delete(
    path: opt.IndexFile,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids; put -- before ids that begin with -.")
    ] = None,
    file: Annotated[str | None, typer.Option("--ids", metavar="FILE", help="Or a file of ids.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Delete vectors by id. Unknown ids are not an error.

    \b
    Example: lsqindex delete news.lsq 17 18 19
             lsqindex delete news.lsq --ids old.txt
    """
    with Index.open(path) as index:
        names = ids_asked(ids, file, id_kind(index))
        deleted = index.delete(names)
        if as_json:
            show.print_json({"deleted": deleted, "vectors": len(index)})
        else:
            show.say(f"{path}: {deleted:,} of {len(names):,} ids deleted, {len(index):,} vectors left")


def train(
    path: opt.IndexFile,
    on: On = None,
    threads: opt.Threads = None,
    file_format: opt.Format = None,
    column: opt.Column = None,
    dataset: opt.Dataset = None,
    as_json: opt.Json = False,
) -> None:
    """Train the encoder on the stored vectors or on a sample of a file, and re-encode what is stored.

    An index trains itself when it has enough vectors; a trained one can be trained
    again where vectors are kept.

    \b
    Example: lsqindex train news.lsq
             lsqindex train news.lsq --on vectors.npy
    """
    with Index.open(path) as index:
        rows = _sample(on, Wanted(file_format, column, None, dataset))
        begin = time.perf_counter()
        with show.working("training") as work:
            index.train(rows, progress=work.training, threads=threads)
        _tell_encoder(index, time.perf_counter() - begin, as_json)


def reencode(
    path: opt.IndexFile,
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="The new encoder's name.")],
    bits: opt.Bits = None,
    parameter: opt.Parameters = None,
    on: On = None,
    threads: opt.Threads = None,
    file_format: opt.Format = None,
    column: opt.Column = None,
    dataset: opt.Dataset = None,
    as_json: opt.Json = False,
) -> None:
    """Change the encoder: train it, re-encode everything, and switch over. Needs kept vectors.

    \b
    Example: lsqindex reencode news.lsq itq --bits 128
             lsqindex reencode news.lsq pq --bits 256 -p field_bits=4
    """
    made: dict[str, Any] = parameters(parameter, bits)
    with Index.open(path) as index:
        rows = _sample(on, Wanted(file_format, column, None, dataset))
        begin = time.perf_counter()
        with show.working("training") as work:
            index.reencode(encoder, vectors=rows, progress=work.training, threads=threads, **made)
        _tell_encoder(index, time.perf_counter() - begin, as_json)


def _sample(name: str | None, wanted: Wanted) -> Any:
    if name is None:
        return None
    with open_source(name, wanted) as source:
        return sampled(source, _TRAINING_ROWS)


def _tell_encoder(index: Index, seconds: float, as_json: bool) -> None:
    if as_json:
        show.print_json({**index.stats(), "seconds": seconds})
    else:
        size = index.stats()["code_bytes"]
        show.say(f"{index.path}: {index.encoder}, {size} bytes per code, {len(index):,} vectors, in {seconds:.1f} s")


def compact(path: opt.IndexFile, as_json: opt.Json = False) -> None:
    """Reclaim the space of deleted vectors. Others can read meanwhile.

    \b
    Example: lsqindex compact news.lsq
    """
    with Index.open(path) as index:
        before = index.stats()["file_bytes"]
        with show.working("compacting", len(index)) as work:
            index.compact(progress=work.rows)
        after = index.stats()["file_bytes"]
        if as_json:
            show.print_json({"bytes_before": before, "bytes_after": after})
        else:
            show.say(f"{path}: {show.size_text(before)} before, {show.size_text(after)} now")


def copy(
    path: opt.IndexFile,
    to: Annotated[Path, typer.Argument(metavar="COPY", help="The file of the copy.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing index.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Write a compacted copy of one snapshot, as a backup. Others can read and write meanwhile.

    \b
    Example: lsqindex copy news.lsq backup/news.lsq
    """
    if os.path.lexists(to) and not force:
        raise IndexExistsError(f"{to}: already exists; --force replaces it")
    with Index.open(path, read_only=True) as index:
        with show.working("copying", len(index)) as work:
            index.save(to, progress=work.rows)
        size, count = to.stat().st_size, len(index)
    if as_json:
        show.print_json({"path": str(to), "vectors": count, "file_bytes": size})
    else:
        show.say(f"{to}: {count:,} vectors, {show.size_text(size)}")
