"""Raw numbers, one vector after the other: stdin, or a file with ``--format raw``."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import typer

from .source import InputError, Source, Wanted, sliced, streamed


def open_raw(name: str, wanted: Wanted, stream: BinaryIO | None) -> Source:
    """Numbers of --dtype, --dim a vector, in the machine's byte order."""
    wanted.only(name, "dim", "dtype")
    if wanted.dim is None:
        raise typer.BadParameter(f"raw numbers from {name} need --dim, and --dtype if they are not float32")
    try:
        dtype = np.dtype(wanted.dtype or "float32")
    except TypeError:
        raise typer.BadParameter(f"--dtype {wanted.dtype}: not a NumPy type, such as float16") from None
    if dtype.kind not in "fiub":
        raise typer.BadParameter(f"--dtype {wanted.dtype}: is not a numeric type")
    if stream is not None:
        return Source(name, wanted.dim, None, streamed(name, stream, wanted.dim, dtype, None))
    size, width = Path(name).stat().st_size, wanted.dim * dtype.itemsize
    if not size or size % width:
        raise InputError(f"{name}: {size:,} bytes are not a whole number of vectors of {width} bytes")
    return sliced(name, np.memmap(name, dtype, "r", shape=(size // width, wanted.dim)))
