"""Counts what upkeep does to cells, so that tests can say that it happened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lsqindex._subsets.cells import upkeep

#: What is counted.
KINDS = ("split", "dissolved", "swept")


def count_upkeep(patch: pytest.MonkeyPatch, log: Path | None = None) -> Counter[str]:
    """From now on: cells that were split or dissolved, and sweeps that wrote; also a line each in ``log``."""
    counts: Counter[str] = Counter()
    reassign, sweep = upkeep._reassign, upkeep.sweep

    def count(**done: int) -> None:
        counts.update(done)
        if log is not None:
            with log.open("a") as file:
                file.writelines(f"{kind}\n" * times for kind, times in done.items())

    def counted_reassign(writer: Any, vectors: Any, cells: Any, gone: Any, new: Any, *, spill: bool) -> None:
        reassign(writer, vectors, cells, gone, new, spill=spill)
        count(split=len(new) // 2, dissolved=len(gone) - len(new) // 2)

    def counted_sweep(writer: Any, changed: int) -> None:
        before = writer.state.relisted
        sweep(writer, changed)
        count(swept=int(writer.state.relisted > before))

    patch.setattr(upkeep, "_reassign", counted_reassign)
    patch.setattr(upkeep, "sweep", counted_sweep)
    return counts


def read_counts(log: Path) -> Counter[str]:
    """What other processes wrote to ``log``."""
    return Counter(log.read_text().split()) if log.exists() else Counter()
