"""Cells as the kernel of searching (``cython_src/cells.h``) wants them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._compiled import records as _records
from ..._storage.format import keys, records
from ..._storage.format.columns import Bytes, RowNumbers, to_blocks
from ..._storage.format.meta import State
from ..._storage.lmdb.known import Slot
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ...encoders.coder import Coder
from ...errors import DamagedError
from ...metrics import METRICS
from .entries import Floats
from .found import Cells


class KernelCells(NamedTuple):
    """The first argument of ``_compiled.cells.Prepared``."""

    #: Entries, and where payloads begin: of each cell and its tail.
    counts: NDArray[np.uint32]
    addresses: NDArray[np.uint64]
    #: Centres as float16 numbers, by which they are ranked; their codes, in blocks, by which the best are found.
    centres: Bytes
    codes: Bytes
    #: The mean cosine between rows and their centre; and the root mean square distance.
    near: Floats
    spreads: Floats


class _Known(NamedTuple):
    addresses: NDArray[np.uint64]
    kernel: KernelCells


class _Codes(NamedTuple):
    """The codes of centres, one after another, by the numbers of their cells; these ascend."""

    generation: int
    numbers: NDArray[np.uint32]
    codes: Bytes
    #: Where they are known from another transaction: it may not have been committed, and its numbers been used again.
    centres: Floats | None = None


_KERNEL: Slot[_Known] = Slot("cells for searching")
_CODES: Slot[_Codes] = Slot("codes of centres")


def kernel_cells(source: Reader | Writer, found: Cells, coder: Coder) -> KernelCells:
    """Cells for the kernel; what is known of them from an earlier snapshot is not made again."""
    known = source.env.known.get(_KERNEL)
    if known is not None and known.addresses is found.addresses:
        return known.kernel
    kernel = KernelCells(
        found.counts,
        found.addresses,
        _halves(found.centres, unit=METRICS[coder.metric].unit),
        to_blocks(_codes(source, found, coder), source.state.head),
        cosines(found),
        found.spreads,
    )
    if source.clean:
        source.env.known.keep(_KERNEL, _Known(found.addresses, kernel))
    return kernel


def cosines(found: Cells) -> Floats:
    """The mean cosine between the rows of each cell, of length 1, and its centre."""
    lengths = np.linalg.norm(found.centres, axis=1)
    near = (1 + np.square(lengths) - np.square(found.spreads)) / (2 * np.maximum(lengths, 1e-9))
    cosines: Floats = np.clip(near, -1, 1).astype(np.float32)
    return cosines


def one_cell(rows: RowNumbers, codes: Bytes, dim: int, state: State) -> tuple[KernelCells, bytes]:
    """A cell of these rows alone, in memory, and the record that it is in."""
    count = np.array([len(rows)], np.int64)
    (record,) = _assign.pack(records.CELL, np.zeros(1, np.uint32), count, rows, codes, state.head, state.generation)
    address = _records.places([record])[0] + np.uint64(records.HEADER_SIZE)
    kernel = KernelCells(
        np.array([[len(rows), 0]], np.uint32),
        np.array([[address[0], 0]], np.uint64),
        np.zeros((1, 2 * dim), np.uint8),
        to_blocks(np.zeros((1, state.code_size), np.uint8), state.head),
        np.ones(1, np.float32),
        np.ones(1, np.float32),
    )
    return kernel, record


def store_codes(writer: Writer, found: Cells, coder: Coder) -> None:
    """Store the codes of all centres, unless they are stored."""
    state, stored = writer.state, stored_codes(writer)
    if stored is not None and np.array_equal(stored.numbers, found.numbers):
        return
    codes = _codes(writer, found, coder)
    payload = np.concatenate([found.numbers.astype("<u4").view(np.uint8), codes.reshape(-1)])
    header = records.Header(records.CENTRE_CODES, len(codes), 0, state.code_size, state.generation)
    writer.put(keys.CELLS, keys.centre_codes(state.generation), records.encode(header, payload))
    state.relisted += 1


def _halves(centres: Floats, *, unit: bool) -> Bytes:
    """Centres as float16; of length 1 where only directions count."""
    if unit:
        lengths = np.linalg.norm(centres, axis=1, keepdims=True)
        centres = centres / np.maximum(lengths, np.float32(1e-30))
    with np.errstate(over="ignore"):
        return centres.astype(np.float16).view(np.uint8)


def _codes(source: Reader | Writer, found: Cells, coder: Coder) -> Bytes:
    """The codes of all centres: known, stored, or made now."""
    state, known = source.state, source.env.known.get(_CODES)
    if known is None or known.generation != state.generation:
        known = stored_codes(source)
    codes, new = np.empty((len(found.numbers), state.code_size), np.uint8), np.ones(len(found.numbers), np.bool_)
    if known is not None and len(known.numbers):
        at = np.minimum(np.searchsorted(known.numbers, found.numbers), len(known.numbers) - 1)
        same = known.numbers[at] == found.numbers
        if known.centres is not None:
            same &= (known.centres[at] == found.centres).all(axis=1)
        codes[same], new = known.codes[at[same]], ~same
    if new.any():
        codes[new] = coder.encode(found.centres[new], threads=1)
    source.env.known.keep(_CODES, _Codes(state.generation, found.numbers, codes, found.centres))
    return codes


def stored_codes(source: Reader | Writer) -> _Codes | None:
    """The codes that the file has; None without any."""
    state = source.state
    value = source.get(keys.CELLS, keys.centre_codes(state.generation))
    if value is None:
        return None
    header, payload = records.decode(value, "codes of centres")
    expected = records.Header(records.CENTRE_CODES, header.count, 0, state.code_size, state.generation)
    if header != expected or len(payload) != header.count * (4 + state.code_size):
        raise DamagedError(f"codes of centres: the record of something else; {records.REMEDY}")
    numbers = np.frombuffer(payload, "<u4", header.count).astype(np.uint32)
    if (numbers[1:] <= numbers[:-1]).any():
        raise DamagedError(f"codes of centres: their cells do not ascend; {records.REMEDY}")
    codes = np.frombuffer(payload, np.uint8, offset=4 * header.count).reshape(header.count, state.code_size)
    return _Codes(state.generation, numbers, codes.copy())
