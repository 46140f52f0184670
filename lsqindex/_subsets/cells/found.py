"""The cells of a snapshot, where they lie: found by one pass over their keys, verified once, known again later.

Records of the database of cells change only with ``state.relisted``, and LMDB changes no page in place. So addresses
hold in later snapshots of the same ``relisted``, also those of small records in shared pages, until the map moves. When
it changed, everything is looked up again, and only records with a new checksum are verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._compiled import assign as _assign
from ..._compiled import records as _records
from ..._storage.format import keys, records
from ..._storage.lmdb.known import Slot
from ..._storage.lmdb.reader import Reader
from ..._storage.lmdb.writer import Writer
from ...errors import DamagedError
from .entries import TAIL_ENTRIES, verify, what
from .vectors import options_of


class Cells(NamedTuple):
    """All cells of a snapshot; addresses are good as long as its transaction."""

    #: Per cell: its number, ascending; its centre (cells, dim); root mean square distance of its entries from that.
    numbers: NDArray[np.uint32]
    centres: NDArray[np.float32]
    spreads: NDArray[np.float32]
    #: Per cell, (cells, 2): entries of the cell and of its tail, and where these payloads begin; 0 without a record.
    counts: NDArray[np.uint32]
    addresses: NDArray[np.uint64]
    #: Rows below are in cells, as far as they are stored; from here on they are fresh.
    listed: int
    #: What calibration has stored.
    rule: Mapping[str, float]


@dataclass
class _Known:
    """The cells that were found, and what is known to be sound."""

    #: What voids addresses.
    epoch: tuple[int, int, int]
    cells: Cells
    #: Of each record, by key: which (letter and number), checksum, size.
    which: NDArray[np.uint64]
    checksums: NDArray[np.uint64]
    sizes: NDArray[np.int64]


_CELLS: Slot[_Known] = Slot("cells")
_KINDS = {b"c": records.CENTRE, b"k": records.CELL, b"t": records.TAIL, b"z": records.CENTRE_CODES}


def find(source: Reader | Writer, rule: Mapping[str, float]) -> Cells | None:
    """The cells of a snapshot; None where there are none."""
    env, state = source.env, source.state
    if not state.cells:
        return None
    epoch = (state.relisted, state.generation, env.moved)
    known = env.known.get(_CELLS)
    if known is None or known.epoch != epoch or not source.clean:
        known = _look_up(source, epoch, known)
        if source.clean:
            env.known.keep(_CELLS, known)
    return known.cells._replace(listed=state.listed, rule=rule)


def _look_up(source: Reader | Writer, epoch: tuple[int, int, int], old: _Known | None) -> _Known:
    state, dim = source.state, options_of(source).dim
    letters, numbers, values = _records_of(source)
    addresses, sizes = _records.places(values)
    counts, checksums, seen = _records.peek(values)
    which = letters.astype(np.uint64) << np.uint64(32) | numbers
    if seen < len(values):
        raise DamagedError(
            f"{what(_KINDS[bytes([letters[seen]])], int(numbers[seen]))}: too few bytes for a record; {records.REMEDY}"
        )
    new = np.flatnonzero(~_seen_before(old, which, checksums, sizes))
    starts = np.searchsorted(letters, np.frombuffer(b"cktu", np.uint8))
    centres, cells, tails = (slice(a, b) for a, b in pairwise(starts.tolist()))
    for part, kind in ((cells, records.CELL), (tails, records.TAIL)):
        own = new[(new >= part.start) & (new < part.stop)]
        verify(source, kind, numbers[own], addresses[own], sizes[own])
    own = new[new < centres.stop]
    width = 4 * (dim + 1)
    done = _assign.sound(addresses[own], sizes[own], numbers[own], records.CENTRE[0], width, 0, 0, 0, entries=False)
    if done < len(own):
        raise DamagedError(f"{what(records.CENTRE, int(numbers[own[done]]))}: damaged; {records.REMEDY}")
    names = numbers[centres]
    both = np.zeros((len(names), 2), np.uint32), np.zeros((len(names), 2), np.uint64)
    for column, part in enumerate((cells, tails)):
        at = np.minimum(np.searchsorted(names, numbers[part]), len(names) - 1)
        if not np.array_equal(names[at] if len(names) else names, numbers[part]):
            raise DamagedError(f"cells: entries of a cell that has no centre; {records.REMEDY}")
        both[0][at, column] = counts[part]
        both[1][at, column] = addresses[part] + np.uint64(records.HEADER_SIZE)
    if len(names) != state.cells or (both[0][:, 1] > TAIL_ENTRIES).any() or (counts[centres] != 1).any():
        raise DamagedError(f"cells: {len(names)} cells, expected {state.cells}; or one is too large; {records.REMEDY}")
    points, spreads, sound = _assign.centres(addresses[centres] + np.uint64(records.HEADER_SIZE), dim)
    if not sound:
        raise DamagedError(f"cells: a centre or a spread that is not finite; {records.REMEDY}")
    found = Cells(names, points, spreads, *both, state.listed, {})
    return _Known(epoch, found, which, checksums, sizes)


def _records_of(source: Reader | Writer) -> tuple[NDArray[np.uint8], NDArray[np.uint32], list[Any]]:
    """Letter and number of every key, and all values, in the order of the keys."""
    cursor = source.cursor(keys.CELLS)
    items = list(cursor.iternext())
    cursor.close()
    names = [name for name, _ in items]
    if not {len(name) for name in names} <= {5}:
        raise DamagedError(f"cells: a key of impossible size; {records.REMEDY}")
    table = np.frombuffer(b"".join(names), np.uint8).reshape(-1, 5)
    letters = np.ascontiguousarray(table[:, 0])
    if not np.isin(letters, np.frombuffer(b"cktz", np.uint8)).all():
        raise DamagedError(f"cells: an unknown key; {records.REMEDY}")
    return letters, np.ascontiguousarray(table[:, 1:]).view(">u4").astype(np.uint32).ravel(), [v for _, v in items]


def _seen_before(
    old: _Known | None, which: NDArray[np.uint64], checksums: NDArray[np.uint64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which records were verified before, by checksum and size."""
    if old is None or not len(old.which):
        return np.zeros(len(which), np.bool_)
    at = np.minimum(np.searchsorted(old.which, which), len(old.which) - 1)
    seen: NDArray[np.bool_] = (old.which[at] == which) & (old.checksums[at] == checksums) & (old.sizes[at] == sizes)
    return seen
