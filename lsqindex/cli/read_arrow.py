"""Parquet, Arrow and Feather: vectors are a column of lists of numbers, all of one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .source import Block, InputError, MissingPackageError, Source, Wanted, choose


def _pyarrow(name: str) -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise MissingPackageError(f"{name}: needs pyarrow: pip install 'lsqindex[formats]'") from None
    return pyarrow


def open_parquet(name: str, wanted: Wanted, stream: Any) -> Source:
    """A Parquet file, read by batches of its columns."""
    del stream
    pa = _pyarrow(name)
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(name)
    except pa.ArrowInvalid as error:
        raise InputError(f"{name}: is not a valid Parquet file ({error})") from error

    def batches(size: int) -> Iterator[Any]:
        return iter(file.iter_batches(batch_size=size, columns=_columns(column, wanted)))

    try:
        column = _column(name, pa, file.schema_arrow, wanted)
        return _source(name, pa, wanted, column, file.metadata.num_rows, batches, file.close)
    except BaseException:
        file.close()
        raise


def open_arrow(name: str, wanted: Wanted, stream: Any) -> Source:
    """An Arrow file or stream, or a Feather file: record batches in a memory map."""
    del stream
    pa = _pyarrow(name)
    mapped = pa.memory_map(name)
    try:
        try:
            file = pa.ipc.open_file(mapped)
            count, schema = file.count_rows(), file.schema
        except pa.ArrowInvalid:
            mapped.seek(0)
            count, schema = None, pa.ipc.open_stream(mapped).schema
        column = _column(name, pa, schema, wanted)

        def batches(size: int) -> Iterator[Any]:
            if count is None:
                mapped.seek(0)
                parts = iter(pa.ipc.open_stream(mapped))
            else:
                parts = (file.get_batch(i) for i in range(file.num_record_batches))
            for part in parts:
                for first in range(0, part.num_rows, size):
                    yield part.slice(first, size)

        return _source(name, pa, wanted, column, count, batches, mapped.close)
    except pa.ArrowInvalid as error:
        mapped.close()
        raise InputError(f"{name}: is not a valid Arrow or Feather file ({error})") from error
    except BaseException:
        mapped.close()
        raise


def _columns(column: str, wanted: Wanted) -> list[str]:
    return [column] if wanted.id_column is None else [column, wanted.id_column]


def _column(name: str, pa: Any, schema: Any, wanted: Wanted) -> str:
    """The column of vectors; the column of ids must be there, too."""
    wanted.only(name, "column", "id_column")
    fitting = [field.name for field in schema if _fits(pa, field.type)]
    column = choose(name, "column", wanted.column, schema.names, fitting)
    if column not in fitting:
        raise InputError(f"{name}: column {column!r} has type {schema.field(column).type}, not lists of numbers")
    if wanted.id_column is not None:
        choose(name, "column", wanted.id_column, schema.names, [])
    return column


def _fits(pa: Any, kind: Any) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def _source(name: str, pa: Any, wanted: Wanted, column: str, count: int | None, batches: Any, close: Any) -> Source:
    lengths = (pa.compute.list_value_length(batch.column(column)) for batch in batches(1) if batch.num_rows)
    first = next(lengths, None)
    if first is None:
        raise InputError(f"{name}: has no vectors")
    dim = first[0].as_py()
    if not dim:
        raise InputError(f"{name}: column {column!r} has no vector in row 0")

    def blocks(size: int) -> Iterator[Block]:
        done = 0
        try:
            for batch in batches(size):
                rows = _rows(name, pa, batch.column(column), dim, done)
                ids = None if wanted.id_column is None else _ids(name, pa, batch.column(wanted.id_column), done)
                done += len(rows)
                yield Block(rows, ids)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{name}: cannot be read after row {done:,} ({error})") from error

    return Source(name, dim, count, blocks, close=close)


def _rows(name: str, pa: Any, lists: Any, dim: int, first: int) -> Any:
    """A column of lists as an array (n, dim)."""
    lengths = pa.compute.fill_null(pa.compute.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    if (lengths != dim).any():
        row = int(np.argmax(lengths != dim))
        has = "no vector" if lengths[row] < 0 else f"{lengths[row]} numbers"
        raise InputError(f"{name}: row {first + row:,} has {has}, the first has {dim} numbers")
    flat = lists.flatten()
    if flat.null_count:
        row = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))) // dim
        raise InputError(f"{name}: row {first + row:,} has an empty number (null); remove or repair it")
    return flat.to_numpy(zero_copy_only=False).reshape(-1, dim)


def _ids(name: str, pa: Any, column: Any, first: int) -> Any:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{name}: row {first + row:,} has no id (null)")
    return column.to_numpy(zero_copy_only=False) if pa.types.is_integer(column.type) else column.to_pylist()
