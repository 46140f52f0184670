"""How large everything is, and one run of the benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import THREAD_VARIABLES
from ..runner import Question, Sheet, ask
from .stored import Kind, Shelf


@dataclass(frozen=True)
class Plan:
    """How large everything is."""

    #: The name of the result files, and what a reader should know first.
    name: str
    remark: str
    #: Vectors of the two indexes that are compared.
    small: int
    large: int
    #: Vectors of a bulk add.
    batch: int
    dim: int
    bits: int
    #: Where vectors are taken from, if it is there.
    data: str
    #: Fresh processes for each measurement of opening; adds, and upserts and deletes, of one vector each.
    processes: int
    adds: int
    changes: int
    #: Bulk adds for each measurement.
    bulks: int
    #: Updates of an index of ``small`` vectors.
    cycles: int


FULL = Plan(
    name="storage",
    remark="Codes of lsq, cosine. Every add, upsert and delete is durable when its time is taken.",
    small=10_000,
    large=1_000_000,
    batch=10_000,
    dim=384,
    bits=256,
    data="minilm-wordnet",
    processes=9,
    # A chunk's worth: an add costs more the fuller the last chunk is, so all of it is gone through.
    adds=4064,
    changes=1000,
    bulks=8,
    cycles=100_000,
)
QUICK = Plan(
    name="storage-quick",
    remark="A smoke test: does everything run? The bars are meant for the full benchmark.",
    small=1_000,
    large=10_000,
    batch=2_000,
    dim=32,
    bits=64,
    data="synthetic",
    processes=1,
    adds=20,
    changes=10,
    bulks=1,
    cycles=100,
)

PLAIN = Kind()
KINDS = tuple(Kind(ids, keep) for keep in (None, "float16") for ids in ("rising", "random", "str"))
SIZED = (PLAIN, Kind("random"), Kind("str"), Kind("rising", "float16"))
ROOT = Path(__file__).parents[2]


@dataclass
class Run(Sheet):
    """One run of the benchmark."""

    plan: Plan = field(kw_only=True)
    shelf: Shelf = field(kw_only=True)

    def fresh(self, what: str, *arguments: Any) -> dict[str, Any]:
        """What a fresh process measures; its modules are compiled already, as those of an installed package."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if what == "memory":  # as users have it: a BLAS of many threads may take more
            for variable in THREAD_VARIABLES:
                environment.pop(variable, None)
        environment["PYTHONPYCACHEPREFIX"] = str(self.shelf.directory / "bytecode")
        command = [sys.executable, "-m", "bench.probe", what, *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return dict(json.loads(done.stdout))

    def ask(self, system: str, parameters: dict[str, Any], *call: Any) -> Question:
        """For a row on the run's data."""
        return ask(self.shelf.mixture.name, system, parameters, *call)
