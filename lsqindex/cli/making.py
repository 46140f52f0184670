"""Making an index and filling it: ``create`` and ``add``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import Index, MultiIndex
from ..errors import IdError, LsqIndexError, VectorError
from ..metrics import MetricName
from . import options as opt
from . import show
from .source import Block, InputError, Source, Wanted
from .sources import open_source
from .values import id_kind, ids_in_file, ids_of, parameters


def create(
    path: opt.IndexFile,
    dim: Annotated[int | None, typer.Option(min=1, help="Number of dimensions.")] = None,
    like: Annotated[
        str | None, typer.Option(metavar="VECTORS", help="Take the number of dimensions from this file.")
    ] = None,
    metric: Annotated[MetricName, typer.Option(help="How distances are measured; l2 is squared.")] = "l2",
    encoder: Annotated[str, typer.Option(help="How vectors are compressed; see [bold]lsqindex encoders[/].")] = "lsq",
    bits: opt.Bits = None,
    parameter: opt.Parameters = None,
    keep_vectors: Annotated[
        opt.Kept | None,
        typer.Option(
            help="Keep the vectors beside their codes, for exact re-ranking and reencode; none keeps only the codes."
        ),
    ] = None,
    subset: Annotated[
        opt.Subset,
        typer.Option(
            help="What lets a search read only part of the rows: cells, or a multi-index; auto: cells when they pay."
        ),
    ] = "auto",
    table_bits: Annotated[
        int | None, typer.Option(min=4, max=20, help="Multi-index: bits per table; chosen automatically if not given.")
    ] = None,
    ids: Annotated[opt.IdKind, typer.Option(help="What ids are.")] = "int",
    train_size: Annotated[
        int | None, typer.Option(min=1, help="Train automatically at this many vectors; 10,000 by default.")
    ] = None,
    file_format: opt.Format = None,
    column: opt.Column = None,
    dataset: opt.Dataset = None,
    as_json: opt.Json = False,
) -> None:
    """Create a new, empty index.

    \b
    Example: lsqindex create news.lsq --dim 384 --metric cosine --bits 256 --keep-vectors int8
             lsqindex create news.lsq --like vectors.npy --encoder lsh --bits 256 -p axes=64 --subset multi-index
    """
    if (dim is None) == (like is None):
        raise typer.BadParameter("give --dim, or --like with a file of vectors")
    if table_bits is not None and subset != "multi-index":
        raise typer.BadParameter("--table-bits goes with --subset multi-index")
    if like is not None:
        with open_source(like, Wanted(file_format, column, None, dataset)) as source:
            dim = source.dim
    chosen: dict[str, Any] = {
        "metric": metric,
        "encoder": encoder,
        "ids": ids,
        "train_size": train_size,
        "subset": _subset(subset, table_bits),
    }
    if keep_vectors is not None:
        chosen["keep_vectors"] = None if keep_vectors == "none" else keep_vectors
    with Index.create(path, dim or 0, **chosen, **parameters(parameter, bits)) as index:
        if as_json:
            show.print_json(index.stats())
        else:
            show.say(f"{path}: created for vectors of {index.dim} dimensions, {index.metric}, {index.encoder}")


def add(
    path: opt.IndexFile,
    vectors: opt.Vectors,
    ids: Annotated[
        str | None, typer.Option("--ids", metavar="FILE", help="Ids: a .npy file, or a text file with one id per line.")
    ] = None,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace vectors whose ids exist already.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Vectors per transaction; this many are held in memory.")] = 16_384,
    threads: opt.Threads = None,
    file_format: opt.Format = None,
    column: opt.Column = None,
    id_column: opt.IdColumn = None,
    dataset: opt.Dataset = None,
    dim: opt.RawDim = None,
    dtype: opt.RawType = None,
    as_json: opt.Json = False,
) -> None:
    """Add the vectors of a file in batches. Each batch is durable when it is done.

    Ctrl-C keeps the batches that are done. An index that is not trained trains itself
    on the way, on what has come by then: where a file is sorted by something,
    [bold]lsqindex train --on[/] first.

    \b
    Example: lsqindex add news.lsq vectors.npy
             lsqindex add news.lsq articles.parquet --column embedding --id-column url --upsert
             producer | lsqindex add news.lsq - --dim 384 --dtype float16
    """
    wanted = Wanted(file_format, column, id_column, dataset, dim, dtype)
    if ids is not None and id_column is not None:
        raise typer.BadParameter("give --ids or --id-column, not both")
    if ids == "-" == vectors:
        raise typer.BadParameter("vectors and ids cannot both come from stdin")
    with Index.open(path) as index, open_source(vectors, wanted) as source:
        if source.dim != index.dim:
            raise VectorError(f"{source.name}: has {source.dim} dimensions, {path} has {index.dim}")
        named = None if ids is None else ids_in_file(ids, id_kind(index))
        begin, before = time.perf_counter(), len(index)
        try:
            done = _add_blocks(index, source, named, upsert, batch, threads)
        except KeyboardInterrupt:
            show.complain(f"{path}: {len(index):,} vectors are in the index ({len(index) - before:,} new)")
            raise
        seconds = time.perf_counter() - begin
        if as_json:
            show.print_json({"read": done, "added": len(index) - before, "vectors": len(index), "seconds": seconds})
        else:
            rate = f"{done / seconds:,.0f} per second" if seconds else "at once"
            show.say(f"{path}: {done:,} vectors added in {seconds:.1f} s ({rate}), {len(index):,} in all")


def _subset(asked: opt.Subset, table_bits: int | None) -> Any:
    """As ``Index.create`` takes it."""
    if asked == "multi-index":
        return MultiIndex(table_bits)
    return None if asked == "none" else asked


def _add_blocks(index: Index, source: Source, ids: Any, upsert: bool, batch: int, threads: int | None) -> int:
    """Add block after block, each a transaction; how many vectors."""
    kind, done = id_kind(index), 0
    with show.working(f"adding to {Path(index.path or '').name}", source.count) as work:
        for block in _with_ids(source, ids, batch):
            names = block.ids
            if names is not None and isinstance(names, list) and kind == "int" and all(map(_is_text, names)):
                names = ids_of(names, kind, source.name)
            try:
                index.add(block.vectors, names, upsert=upsert, threads=threads, training_progress=work.training)
            except LsqIndexError as error:
                if isinstance(error, VectorError | IdError):
                    raise type(error)(f"{_place(source, done, block)}{error}") from error
                raise
            done += len(block.vectors)
            work.rows(done, source.count)
    return done


def _place(source: Source, done: int, block: Block) -> str:
    """Where in the file a batch is, for messages that count within it."""
    if not done and len(block.vectors) == source.count:
        return ""
    rows = f"rows {done:,} to {done + len(block.vectors) - 1:,}"
    return f"{source.name}, the batch of {rows} (the rows before it were added): "


def _is_text(name: Any) -> bool:
    return isinstance(name, str)


def _with_ids(source: Source, ids: Any, batch: int) -> Iterator[Block]:
    """The blocks of a source, with ids from elsewhere where there are any."""
    if ids is None:
        yield from source.blocks(batch)
        return
    if source.count is not None and len(ids) != source.count:
        raise InputError(f"{source.name}: {source.count:,} vectors but {len(ids):,} ids; give one id for each vector")
    first = 0
    for block in source.blocks(batch):
        end = first + len(block.vectors)
        if end > len(ids):
            raise InputError(f"{source.name}: more vectors than ids ({len(ids):,}); {first:,} vectors were added")
        yield Block(block.vectors, ids[first:end])
        first = end
    if first < len(ids):
        show.complain(f"{len(ids):,} ids for {first:,} vectors; the last ids were not used")
