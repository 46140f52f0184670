"""The rule of ``cython_src/cells.h``: its numbers for a recall, from what calibration has stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

#: The numbers of neighbours, and the recalls, that are measured. In between it is interpolated.
KS = (1, 10, 100)
RECALLS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995)

#: Of what a recall allows to be missed, the part that stands for ``lost`` where none is stored.
_BY_CODES = 1.0


class Rule(NamedTuple):
    """The numbers of ``cython_src/cells.h`` that decide what a query visits and compares."""

    reach: float
    slope: float
    tau: float
    misses: float
    lost: float


#: Visits everything, and compares all that could matter.
EVERYTHING = Rule(math.inf, 0.0, 1.0, 0.0, 1e-5)


def rule_for(stored: Mapping[str, float], k: int, recall: float) -> Rule:
    """The rule for the ``k`` nearest at ``recall``, from what is stored."""
    if "slope" not in stored or recall > 0.9995:
        return EVERYTHING
    missed = 1 - recall
    decade = min(math.log10(k), 4.0)
    low = min(int(decade), len(KS) - 2)
    near, far = (_reach(stored, KS[at], recall) for at in (low, low + 1))
    reach = near + (far - near) * (decade - low)
    return Rule(
        reach, stored["slope"], stored["tau"], spare_of(stored) * missed * k, stored.get("lost", _BY_CODES) * missed
    )


def spare_of(stored: Mapping[str, float]) -> float:
    """How many times too many neighbours the rule expects in the cells that are left."""
    return stored.get("spare", 1.0)


def name_of(k: int, recall: float) -> str:
    """The name under which a reach is stored."""
    return f"reach {k} {recall}"


def _reach(stored: Mapping[str, float], k: int, recall: float) -> float:
    """The reach for a measured k: nearly linear in the logarithm of what is missed."""
    known = [stored[name_of(k, at)] for at in RECALLS]
    return float(np.interp(-math.log(1 - recall), [-math.log(1 - at) for at in RECALLS], known))
