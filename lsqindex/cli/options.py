"""Options that several commands share, as types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

#: How vectors are kept beside their codes.
Kept = Literal["float32", "float16", "int8", "none"]
#: What ids are.
IdKind = Literal["int", "str"]
#: Structures that let a search read only part of the rows.
Subset = Literal["auto", "cells", "multi-index", "none"]
#: How a search finds candidates, and how it ranks them.
Strategy = Literal["auto", "scan", "subset"]
Ranking = Literal["auto", "asymmetric", "symmetric", "score"]

IndexFile = Annotated[Path, typer.Argument(metavar="INDEX", help="The file of the index.")]
Vectors = Annotated[
    str,
    typer.Argument(
        metavar="VECTORS",
        help="A file: .npy .npz .fvecs .bvecs .ivecs .parquet .arrow .feather .hdf5 .csv .tsv; or - for stdin.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads; all processors by default.")]
Parameters = Annotated[
    list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A parameter of the encoder.")
]
Bits = Annotated[int | None, typer.Option(min=1, help="Bits per code; the encoder's default if not given.")]

_OF_FILES = "Reading vectors"
Format = Annotated[
    str | None,
    typer.Option("--format", rich_help_panel=_OF_FILES, help="The format of the file, if its name does not show it."),
]
Column = Annotated[
    str | None,
    typer.Option(rich_help_panel=_OF_FILES, help="Parquet, Arrow: the list column that holds the vectors."),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_OF_FILES,
        help="The column (array, dataset) that holds the ids; for a CSV file without a header, its number, from 1.",
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(rich_help_panel=_OF_FILES, help="HDF5: the dataset, 'train' by default; .npz: the array."),
]
RawDim = Annotated[int | None, typer.Option("--dim", min=1, rich_help_panel=_OF_FILES, help="Raw: numbers per vector.")]
RawType = Annotated[
    str | None,
    typer.Option("--dtype", rich_help_panel=_OF_FILES, help="Raw: the type of the numbers, float32 by default."),
]
