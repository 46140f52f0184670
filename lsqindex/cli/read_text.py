"""CSV: a vector in a line; names of columns above them, and a column of ids, where there are any."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np

from .source import Block, InputError, Source, Wanted, choose

_DELIMITERS = ",;\t"


def open_csv(name: str, wanted: Wanted, stream: BinaryIO | None) -> Source:
    """Lines of numbers with , or ; or tabs between them."""
    wanted.only(name, "id_column")
    text = io.TextIOWrapper(stream or io.FileIO(name), "utf-8-sig", newline="")
    try:
        return _open(name, text, wanted.id_column)
    except UnicodeDecodeError as error:
        text.close()
        raise InputError(f"{name}: is not text in UTF-8 ({error.reason})") from error
    except BaseException:
        text.close()
        raise


def _open(name: str, text: Any, id_column: str | None) -> Source:
    first = text.readline()
    delimiter = max(_DELIMITERS, key=first.count)
    lines: Iterator[list[str]] = (line for line in csv.reader(chain([first], text), delimiter=delimiter) if line)
    head = next(lines, None)
    if head is None:
        raise InputError(f"{name}: is empty")
    at = _position(name, id_column, head)
    dim = len(head) - (at is not None)
    if dim < 1:
        raise InputError(f"{name}: has no columns of numbers beside the ids")
    # A first line with the name of the id column, or without any number, has the names of columns. One with some
    # numbers is a vector, and a damaged one.
    by_name = at is not None and head[at] == id_column and not _is_number(head[at])
    named = by_name or not any(_is_number(cell) for i, cell in enumerate(head) if i != at)
    begin = next(lines, None) if named else head
    if begin is not None:
        _check_columns(name, begin, at, head if named else None)
        lines = chain([begin], lines)

    def blocks(size: int) -> Iterator[Block]:
        done = int(named)
        try:
            while part := list(islice(lines, size)):
                ids = None if at is None else [_cell(line, at) for line in part]
                yield Block(_numbers(name, part, at, dim, done), ids)
                done += len(part)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{name}: cannot be read after line {done:,} ({error})") from error

    return Source(name, dim, None, blocks, close=text.close)


def _check_columns(name: str, line: list[str], at: int | None, names: list[str] | None) -> None:
    """InputError where a column of the first vector has text; it tells which one."""
    for i, cell in enumerate(line):
        if i == at or _is_number(cell):
            continue
        column = names[i] if names is not None and i < len(names) and names[i] else str(i + 1)
        raise InputError(
            f"{name}: line {2 if names else 1} has {cell!r} in column {column} instead of a number; if these are "
            f"ids, --id-column {column} takes them; else remove the column"
        )


def _position(name: str, id_column: str | None, head: list[str]) -> int | None:
    if id_column is None:
        return None
    if id_column.isdigit() and 1 <= int(id_column) <= len(head):
        at = int(id_column) - 1
        # "1" may also be the name of a column, where the first line has names.
        if id_column not in head or all(_is_number(cell) for i, cell in enumerate(head) if i != at):
            return at
    return head.index(choose(name, "column", id_column, head, []))


def _cell(line: list[str], at: int) -> str:
    return line[at] if at < len(line) else ""


def _numbers(name: str, lines: list[list[str]], at: int | None, dim: int, done: int) -> Any:
    """The numbers of some lines; the line that has something else is told."""
    rows = [line if at is None else line[:at] + line[at + 1 :] for line in lines]
    try:
        return np.array(rows, np.float32).reshape(len(rows), dim)
    except ValueError:
        for number, row in enumerate(rows, done + 1):
            if len(row) != dim:
                raise InputError(f"{name}: line {number:,} has {len(row)} numbers, the first has {dim}") from None
            for cell in row:
                if not _is_number(cell):
                    raise InputError(
                        f"{name}: line {number:,} has {cell!r} instead of a number; if that is an id, "
                        "--id-column tells its column"
                    ) from None
        raise


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
