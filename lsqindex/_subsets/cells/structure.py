"""Cells as a subset structure: configuration, and what is done when.

    enough vectors             → centres are trained, once
    2,048 fresh rows           → half of them move into cells, in the transaction that adds
    512 more fresh rows        → cells that became too large are split, small ones dissolved (upkeep.py)
    a quarter of them are new  → searches are calibrated again, a few queries at a time (calibration.py)
    after deletes              → some cells are written again without what is gone
    after a large add, merge() → all fresh rows move, a transaction full at a time; if there are far too few cells
                                 by now, all are made anew

What a transaction does is bounded: a small one does one of these things. Rows that are left stay fresh, are scanned,
and the next ones list them. The codes of an encoder that was trained again belong into the same cells, so the rows of
cells outlive them: the transaction that makes new codes valid copies them into the cells.
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
from . import calibration, checking, entries, listing, sampled, upkeep
from .found import Cells as Found
from .found import find
from .kernel import store_codes, stored_codes
from .options import LEAST_ROWS, MAX_CELLS, Cells, choose_count
from .training import SAMPLE_ROWS
from .vectors import available, coder_of, options_of

#: Fresh rows move into cells when there are so many.
LUMP_ROWS = 2048

#: Where there are many more, because codes were written again, so many move at a time.
_MANY_ROWS = 2048

#: An add that begins cells trains at most so many; the number then grows with the index.
_FIRST_CELLS = 1024

#: An add that sees to cells compares so many entries, and of long vectors so many numbers. A transaction of merge()
#: compares so many entries.
_SEEN_TO, _SEEN_TO_NUMBERS, _SEEN_TO_AT_ONCE = 12_288, 5 << 20, 1 << 20

#: A cell of many new rows is split again and again: a large add sees to cells so many times, and merge() at the end.
_FEW_ROUNDS, _ROUNDS = 4, 12

#: merge() makes all cells anew where there should be so many times as many.
_OUTGROWN = 2

#: With more rows in cells than this, all are listed anew, step by step, when their codes were replaced.
_MOST_RESTORED = 1 << 20

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
        """Move a lump of fresh rows into cells, twice those that were changed and more, or see to the cells.

        So what an earlier transaction left is caught up with, but not all at once.
        """
        state = writer.state
        if state.cells and (gone or state.count < state.stored):
            upkeep.sweep(writer, changed)
        if not state.cells:
            if not self.due(state, everything=False) or changed >= _LARGE_ADD or not available(writer):
                return
            listing.begin(writer, min(self._count(state.count), _FIRST_CELLS))
        if not state.cells or not self.codes or not available(writer):
            return
        fresh, large = state.rows - state.listed, changed >= LUMP_ROWS // 2
        lists, work = fresh >= LUMP_ROWS, min(_SEEN_TO, _SEEN_TO_NUMBERS // options_of(writer).dim)

        def passed(rows: int) -> bool:
            """Whether the change has made the fresh rows pass a multiple of ``rows``."""
            return fresh // rows > (fresh - changed) // rows

        if lists:
            more = LUMP_ROWS // 2 if fresh < 4 * LUMP_ROWS + 2 * changed else _MANY_ROWS
            self._list(writer, more + 2 * changed, 1)
        if large:
            self._maintain(writer, max(work, 8 * changed), _FEW_ROUNDS)
        elif passed(LUMP_ROWS // 4) and not lists:
            self._maintain(writer, work, 1)
        elif passed(LUMP_ROWS // 16) and not lists:
            self._calibrate(writer, 1)

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
        self._list(writer, max(1, COMMIT_BYTES // self._row_bytes(state)), None)
        self._maintain(writer, _SEEN_TO_AT_ONCE, _ROUNDS if state.listed == state.rows else 1)
        self._calibrate(writer, None)

    def _list(self, writer: Writer, rows: int, threads: int | None) -> None:
        """List so many rows."""
        state = writer.state
        listing.list_rows(writer, min(state.rows, state.listed + rows), spill=self.spill, threads=threads)

    def _maintain(self, writer: Writer, work: int, rounds: int) -> None:
        """See to the cells, so many times, comparing so many entries each; and store the codes of new centres."""
        changed = stored_codes(writer) is None
        for _ in range(rounds):
            if not upkeep.maintain(writer, self._count(writer.state.count), work, spill=self.spill):
                break
            changed = True
        coder = coder_of(writer, options_of(writer))
        found = find(writer, {}) if changed and coder.present else None
        if found is not None:
            store_codes(writer, found, coder)

    def _calibrate(self, writer: Writer, steps: int | None) -> None:
        """Where cells have changed much, measure the rule anew; so many steps of that, or all.

        Not before nearly all rows are in cells, nor without the encoder.
        """
        state = writer.state
        if not calibration.is_due(self.rule, state) or state.rows - state.listed >= 2 * LUMP_ROWS:
            return
        found = find(writer, self.rule)
        if found is None or not coder_of(writer, options_of(writer)).present:
            return
        rule = calibration.advance(writer, found, steps)
        if rule is not None:
            writer.put(keys.META, keys.SUBSET, replace(self, rule=rule).to_record())

    def row_bytes(self) -> int:
        """About how much a listed row takes in the file."""
        return 36 * (1 + self.spill)

    def remove_all(self, writer: Writer) -> None:
        """Remove entries and centres."""
        entries.remove_prefix(writer, b"cktz")
        sampled.forget(writer)
        writer.state.cells = 0

    def clear(self, writer: Writer) -> None:
        """Make all rows fresh; centres stay, for the vectors are the same."""
        state = writer.state
        if state.listed:
            entries.remove_prefix(writer, b"ktz")
            if options_of(writer).keep_vectors is None:
                sampled.forget(writer)  # neighbours by codes that go
            state.listed = 0
            state.relisted += 1

    def places(self, writer: Writer) -> listing.Places | None:
        """The rows of all cells, unless these are too many for a transaction, or vectors are what codes stand for."""
        if writer.state.listed > _MOST_RESTORED or options_of(writer).keep_vectors is None:
            return None
        return listing.places(writer)

    def restore(self, writer: Writer, places: listing.Places | None) -> None:
        """The same rows in the same cells, with the codes of now."""
        if places is not None and self.codes and writer.state.cells:
            listing.restore(writer, places)

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

    # -- checking -----------------------------------------------------------------------------

    def problems(self, store: Store) -> Iterator[str]:
        """Cells and rows agree."""
        return checking.problems(store, self.find(store), spill=self.spill)
