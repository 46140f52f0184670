"""Cells as a subset structure: configuration, and what is done when.

    enough vectors             → centres are trained, once
    4,096 fresh rows           → they move into cells, in the transaction that adds
    after a large add, merge() → all fresh rows move, a transaction full at a time; if there are far too few cells
                                 by now, all are made anew
    after fresh rows moved     → cells that became too large are split, small ones dissolved (upkeep.py)
    after deletes              → some cells are written again without what is gone

What a transaction lists is bounded; what is left stays fresh, is scanned, and the next ones list it. The codes of an
encoder that was trained again belong into the same cells, so centres outlive them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..._storage.format import keys
from ..._storage.format.meta import State
from ..._storage.format.records import REMEDY
from ..._storage.lmdb.writer import COMMIT_BYTES, Writer
from ..._storage.store import Store
from ...encoders import Encoder
from ...encoders.coder import Coder
from ...errors import DamagedError, ParameterError
from ..base import Progress, Structure
from . import calibration, checking, entries, listing, upkeep
from .found import Cells as Found
from .found import find
from .kernel import store_codes
from .options import LEAST_ROWS, MAX_CELLS, Cells, choose_count
from .training import SAMPLE_ROWS
from .vectors import available, coder_of, options_of

#: Fresh rows move into cells when there are so many.
LUMP_ROWS = 4096

#: An add that begins cells trains at most so many; the number then grows with the index.
_FIRST_CELLS = 1024

#: An add splits at most so many cells, and a transaction of merge() so many.
_SPLITS, _MANY_SPLITS = 48, 256

#: merge() makes all cells anew where there should be so many times as many.
_OUTGROWN = 2

#: A larger add does not begin cells itself: they are made after it.
_LARGE_ADD = 16_256


@dataclass(frozen=True)
class CellsStructure(Structure):
    """Rows by their nearest centres."""

    kind = "cells"
    asked = Cells
    needs_codes = False
    ways_to_ask = "'cells' or Cells(count=…, spill=…)"

    #: Cells that were asked for; 0: as many as the number of vectors suggests.
    count: int
    spill: bool
    #: Whether the index has codes.
    codes: bool
    #: What calibration found.
    rule: Mapping[str, float] = field(default_factory=dict)

    # -- configuration ------------------------------------------------------------------------

    @classmethod
    def begin(cls, asked: Cells, coder: Coder, n: int) -> CellsStructure:
        """What was asked for."""
        encoder = coder.encoder
        if (encoder.layout if encoder.is_fitted else encoder._make_layout(coder.dim)).floats:
            raise ParameterError(
                f"subset: cells are not available for {encoder}, which has no codes; use another encoder, or "
                "subset=None"
            )
        return cls(asked.count or 0, asked.spill, codes=False).chosen_for(coder, n)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> CellsStructure:
        """From the stored record, checked."""
        kinds = {"count": int, "spill": bool, "codes": bool, "rule": dict}
        if fields.keys() != kinds.keys() or not all(type(fields[name]) is kind for name, kind in kinds.items()):
            raise DamagedError(f"subset: fields are missing, unknown or of a wrong type; {REMEDY}")
        rule = fields["rule"]
        sound = all(isinstance(name, str) and type(value) is float for name, value in rule.items())
        if not sound or not 0 <= fields["count"] <= MAX_CELLS or not np.isfinite(list(rule.values())).all():
            raise DamagedError(f"subset: impossible values; {REMEDY}")
        return cls(**fields)

    def fields(self) -> dict[str, Any]:
        """The fields of the stored record."""
        return {"count": self.count, "spill": self.spill, "codes": self.codes, "rule": dict(self.rule)}

    @property
    def ready(self) -> bool:
        """There are codes."""
        return self.codes

    def suits(self, state: State) -> bool:
        """Cells are of codes, which are in blocks, and came with format 5."""
        return state.format >= 5 and (state.head > 0 if self.codes else not (state.listed or state.cells))

    def fits(self, coder: Coder) -> bool:
        """They are ready exactly if there are codes."""
        return self.codes == (coder.trained and not coder.floats)

    def check_encoder(self, encoder: Encoder, dim: int) -> None:
        """Any will do: of one without codes nothing is put into cells."""

    def chosen_for(self, coder: Coder, n: int) -> CellsStructure:
        """The same, ready or not."""
        return replace(self, codes=coder.trained and not coder.floats)

    def outgrown(self, other: CellsStructure) -> bool:
        """Never: the number of cells grows with the index."""
        return False

    def told(self, coder: Coder) -> Cells:
        """As it was asked for."""
        return Cells(self.count or None, self.spill)

    def stats(self, store: Store) -> dict[str, Any]:
        """How many cells, and how large they are."""
        found = self.find(store)
        sizes = np.zeros(1, np.int64) if found is None else found.counts.sum(axis=1, dtype=np.int64)
        listed = store.state.stored - store.fresh()
        cells = {
            "count": store.state.cells,
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
            "mean": float(sizes.mean()),
            "tails": 0 if found is None else int(found.counts[:, 1].sum(dtype=np.int64)),
            "spilled": max(0, int(sizes.sum()) - listed),
        }
        return {"tables": 0, "table_bits": None, "cells": cells}

    # -- upkeep -------------------------------------------------------------------------------

    @property
    def least_rows(self) -> int:
        """Where a number of cells was asked for, enough for all of them."""
        return min(LEAST_ROWS, SAMPLE_ROWS * self.count) if self.count else LEAST_ROWS

    def follow(self, writer: Writer, changed: int, gone: Sequence[int]) -> None:
        """Move a lump of fresh rows into cells: twice those that were changed, and 4,096.

        So what an earlier transaction left is caught up with, but not all at once.
        """
        state = writer.state
        if state.cells and (gone or state.count < state.stored):
            upkeep.sweep(writer, changed)
        if not self.due(state, everything=False) or not available(writer):
            return
        if not state.cells:
            if changed >= _LARGE_ADD:
                return
            listing.begin(writer, min(self._count(state.count), _FIRST_CELLS))
        if state.cells:
            self._list(writer, LUMP_ROWS + 2 * changed, _SPLITS)
            self._prepare_searching(writer)

    def due(self, state: State, *, everything: bool) -> bool:
        """Whether there are enough fresh rows; and enough vectors for cells, where there are none."""
        if not self.codes or state.listed == state.rows or not (state.cells or state.count):
            return False
        if state.cells:
            return everything or state.rows - state.listed >= LUMP_ROWS
        return state.count >= self.least_rows or (everything and self.count > 0)

    def catch_up(self, writer: Writer, *, everything: bool = False, progress: Progress | None = None) -> None:
        """List all that is due, and commit; nothing without the encoder, where vectors are not kept."""
        if self.codes and not available(writer):
            writer.commit()
            return
        super().catch_up(writer, everything=everything, progress=progress)

    def advance(self, writer: Writer, *, everything: bool) -> None:
        """List rows until a transaction is full."""
        state = writer.state
        count = self._count(state.count)
        if state.cells and count > _OUTGROWN * state.cells and state.rows > 2 * state.listed:
            self.clear(writer)
            self.remove_all(writer)
        if not state.cells:
            listing.begin(writer, count)
        self._list(writer, max(1, COMMIT_BYTES // self._row_bytes(state)), _MANY_SPLITS)
        self._prepare_searching(writer)

    def _prepare_searching(self, writer: Writer) -> None:
        """Store the codes of new centres; and measure the rule anew, where cells have changed much.

        Not before nearly all rows are in cells, nor without the encoder.
        """
        state, options = writer.state, options_of(writer)
        if state.rows - state.listed >= LUMP_ROWS or not coder_of(writer, options).present:
            return
        found = self.find(Store(writer, options))
        if found is None:
            return
        store_codes(writer, found, coder_of(writer, options))
        if calibration.is_due(self.rule, state):
            found = find(writer, self.rule)  # what was written may have moved it
            assert found is not None
            rule = calibration.calibrated(writer, found)
            writer.put(keys.META, keys.SUBSET, replace(self, rule=rule).to_record())

    def row_bytes(self) -> int:
        """About how much a listed row takes in the file."""
        return 36 * (1 + self.spill)

    def remove_all(self, writer: Writer) -> None:
        """Remove entries and centres."""
        entries.remove_prefix(writer, b"cktz")
        writer.state.cells = 0

    def clear(self, writer: Writer) -> None:
        """Make all rows fresh; centres stay, for the vectors are the same."""
        state = writer.state
        if state.listed:
            entries.remove_prefix(writer, b"ktz")
            state.listed = 0
            state.relisted += 1

    def give_way(self, writer: Writer, other: Structure | None) -> None:
        """Centres are removed, too, unless the same was asked for again."""
        self.clear(writer)
        same = isinstance(other, CellsStructure) and (other.count, other.spill) == (self.count, self.spill)
        same = same and isinstance(other, CellsStructure) and other.codes
        if writer.state.cells and not same:
            self.remove_all(writer)
            writer.state.relisted += 1

    def find(self, store: Store) -> Found | None:
        """The cells of a snapshot, for searches; None where there are none."""
        return find(store.source, self.rule)

    def _count(self, n: int) -> int:
        """How many cells there should be for ``n`` vectors."""
        return self.count or choose_count(n)

    def _row_bytes(self, state: State) -> int:
        return (state.code_size + 4) * (1 + self.spill)

    def _list(self, writer: Writer, rows: int, splits: int) -> None:
        """List so many rows, and see to the cells."""
        state = writer.state
        listing.list_rows(writer, min(state.rows, state.listed + rows), spill=self.spill)
        upkeep.maintain(writer, self._count(state.count), splits, spill=self.spill)

    # -- checking -----------------------------------------------------------------------------

    def problems(self, store: Store) -> Iterator[str]:
        """Cells and rows agree."""
        return checking.problems(store, self.find(store), spill=self.spill)
