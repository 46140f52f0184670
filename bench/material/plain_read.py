"""What reading costs and nothing else: the sum of all 64-bit words of the codes, where the scan reads them.

Compiled by the system's C compiler; without one NumPy adds up a copy, which lies in one piece.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex._storage.format.rows import Rows

from .compiled import compiled

_SOURCE = Path(__file__).with_name("plain_read.c")
_BLOCK_ROWS = 32


def reader(codes: Rows, directory: Path) -> tuple[str, Callable[[], int]]:
    """Who reads, and a function that reads all codes once and returns the sum of their words.

    The codes must stay where they are as long as it is called.
    """
    # Rows lie in whole blocks of 32, so a record is always a whole number of words.
    blocks = -(-codes.counts.astype(np.int64) // _BLOCK_ROWS)
    words = (blocks * (_BLOCK_ROWS * codes.column.width // 8)).astype(np.uint64)
    addresses = np.ascontiguousarray(codes.addresses, np.uint64)
    library = compiled(_SOURCE, directory)
    if library is None:
        parts = [_words(*piece) for piece in zip(addresses.tolist(), words.tolist(), strict=True)]
        copy = np.concatenate(parts)
        return "NumPy", lambda: int(copy.sum())
    library.plain_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.plain_read.restype = ctypes.c_uint64
    arguments = addresses.ctypes.data, words.ctypes.data, len(words)

    def read(keep: Any = (addresses, words)) -> int:
        return int(library.plain_read(*arguments))

    return "C", read


def _words(address: int, count: int) -> NDArray[np.uint64]:
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address))
