"""Files of vectors by their names: which format is which, and who reads it."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from .source import InputError, Source, Wanted, is_file

#: How a name ends → format.
SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".fvecs": "fvecs",
    ".bvecs": "bvecs",
    ".ivecs": "ivecs",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".hdf5": "hdf5",
    ".h5": "hdf5",
    ".csv": "csv",
    ".tsv": "csv",
}

#: Format → module and function; loaded when needed.
_READERS = {
    "npy": ("read_numpy", "open_npy"),
    "npz": ("read_numpy", "open_npz"),
    "fvecs": ("read_vecs", "open_fvecs"),
    "bvecs": ("read_vecs", "open_bvecs"),
    "ivecs": ("read_vecs", "open_ivecs"),
    "parquet": ("read_arrow", "open_parquet"),
    "arrow": ("read_arrow", "open_arrow"),
    "hdf5": ("read_hdf5", "open_hdf5"),
    "csv": ("read_text", "open_csv"),
    "raw": ("read_raw", "open_raw"),
}

#: Formats that can be read from a pipe, front to back.
_FROM_STDIN = ("raw", "npy", "csv")


def open_source(name: str, wanted: Wanted | None = None) -> Source:
    """The vectors in the file ``name``, or in stdin for "-"; use it in a ``with`` block."""
    wanted = wanted or Wanted()
    if name != "-" and not is_file(name):
        if os.path.isdir(name):  # noqa: PTH112
            raise InputError(f"{name}: is a directory; give a file")
        if os.path.exists(name):  # noqa: PTH110
            raise InputError(f"{name}: is a pipe or a device; give a file, or - to read from stdin")
        raise FileNotFoundError(2, "no such file", name or "''")
    kind = wanted.format or _format_of(name)
    if kind not in _READERS:
        raise InputError(f"--format {kind}: unknown; known formats are {', '.join(_READERS)}")
    stream: Any = None
    if name == "-":
        if kind not in _FROM_STDIN:
            raise InputError(f"-: {kind} cannot be read from stdin, only {', '.join(_FROM_STDIN)}; write a file first")
        stream, name = sys.stdin.buffer, "stdin"
    module, function = _READERS[kind]
    reader = getattr(importlib.import_module(f".{module}", __package__), function)
    source: Source = reader(name, wanted, stream)
    return source


def _format_of(name: str) -> str:
    if name == "-":
        return "raw"
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{name}: the name does not show the format; known endings are {' '.join(SUFFIXES)}; "
            "rename the file, or give --format"
        )
    return SUFFIXES[suffix]
