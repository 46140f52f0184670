"""Any sequence of changes leaves an index that agrees with a dict (machine.py)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from lsqindex._subsets.cells import structure as cells
from lsqindex._subsets.cells import upkeep
from lsqindex._subsets.multi_index import postings
from lsqindex._write import retraining
from tests.settings import LONG
from tests.subsets.cells.counted import KINDS, count_upkeep

from .machine import CellsMachine, IndexMachine, IntMachine, StrMachine


@pytest.mark.parametrize("machine", [IntMachine, StrMachine, CellsMachine])
def test_any_sequence_of_changes_agrees_with_a_dict(
    machine: type[IndexMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A chunk is a unit of posting lists, so that these steps fill units, and segments, too.
    monkeypatch.setattr(postings, "UNIT_ROWS", 4064)
    monkeypatch.setattr(postings, "SEGMENT_ROWS", 4 * 4064)
    # Few rows have cells, fresh ones move into them in small lumps, and small cells are split.
    monkeypatch.setattr(cells, "LEAST_ROWS", 500)
    monkeypatch.setattr(cells, "LUMP_ROWS", 300)
    monkeypatch.setattr(upkeep, "_LEAST", 8)
    # Every review finds a reason to train again, and codes are rewritten slowly: most steps see two generations.
    monkeypatch.setattr(retraining, "_DRIFT", -1.0)
    monkeypatch.setattr(retraining, "_GAIN", np.inf)
    monkeypatch.setattr(retraining, "_STEP", 300)
    monkeypatch.setattr(retraining, "_STEP_SHARE", 1)
    monkeypatch.setattr(retraining, "_SAMPLED", 500)
    chosen = settings(
        max_examples=1500 if LONG else 5 if machine is CellsMachine else 8,
        stateful_step_count=40 if LONG else 20,
        deadline=None,
        derandomize=not LONG,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    upkeep_done = count_upkeep(monkeypatch)
    run_state_machine_as_test(machine, settings=chosen)
    assert machine is not CellsMachine or all(upkeep_done[kind] for kind in KINDS), upkeep_done
