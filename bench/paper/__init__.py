"""The paper's experiments again: all of section 4, on its CIFAR-10 and on other data, with five seeds.

codes.py       which codes; a unit of work is a code, a data set and a seed
measuring.py   a unit: train once, then measure all that any figure asks of that code
  ranking.py   recall@R by distance estimation and by subset indexing
  features.py  codes as features for a classifier
rows, a file for each data set: a broken run goes on where it was, and processes can share the data sets
seeds.py       rows of several seeds as mean and spread, and differences by seed
figures.py     the paper's figures from the rows
claims.py      what the paper claims, and what the rows say of it
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..framework.errors import UserError
from ..framework.progress import Progress
from ..framework.report import Row, Rows, machine_facts
from ..framework.runner import chosen_sections, timed
from ..material import data
from . import report
from .codes import VECTORS, Unit, codes, in_order, sections_of
from .measuring import measure
from .plan import FULL, QUICK, SECTIONS, Plan

#: The section of all rows: one code serves several figures.
CODES = "codes"
#: No row has a time in it, and codes are the same on every processor: a run may go on on another one.
ANYWHERE = ("cpu", "cores", "SIMD")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--data", nargs="+", metavar="NAME", help="data sets by name, or files of vectors")
    parser.add_argument("--seeds", type=int, help="how many seeds; 5, or 2 with --quick")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the page of what is there")


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all units that are missing, the cheap ones first, then the page."""
    plan = QUICK if arguments.quick else FULL
    if not arguments.report:
        _measure_all(plan, arguments)
    print("\n" + report.write(plan, arguments.out, arguments.pictures))


def _measure_all(plan: Plan, arguments: argparse.Namespace) -> None:
    chosen = set(chosen_sections(arguments.section, SECTIONS))
    names = _names(arguments.data or plan.data)
    seeds = plan.seeds if arguments.seeds is None else arguments.seeds
    if seeds < 1:
        raise UserError(f"--seeds {seeds}: one or more are needed")
    wanted = [code for code in codes(plan) if chosen & sections_of(code, plan)]
    units: list[Unit] = []
    rows: dict[str, Rows] = {}
    dims: dict[str, int] = {}
    for short, name in names.items():
        dataset = load(name, 0, plan)
        here = [code for code in wanted if code.method != VECTORS or dataset.labels is not None]
        mine = [Unit(short, seed, code) for seed in range(seeds) for code in here]
        units += mine
        dims[short] = dataset.base.shape[1]
        rows[short] = _rows(arguments, plan, dataset, short, mine)
    with Progress(len(units), plan.name) as progress:
        for unit in in_order(units, dims):
            _measure(unit, names[unit.data], plan, rows[unit.data], progress)


def _rows(arguments: argparse.Namespace, plan: Plan, dataset: data.Dataset, short: str, mine: list[Unit]) -> Rows:
    """The rows there are of a data set; with ``--fresh`` without those that are to be measured."""
    all_again = arguments.fresh and arguments.section is None
    path = arguments.out / f"{plan.name}-{short}.json"
    rows = Rows(path, forget=(CODES,) if all_again else (), facts=facts(plan, dataset), may_differ=ANYWHERE)
    if arguments.fresh:
        again = [parameters(unit) for unit in mine]
        rows.forget(lambda row: row.parameters in again)
    return rows


def _names(asked: Any) -> dict[str, str]:
    """What data sets are called in results, and what they are asked for by."""
    data.require(asked)
    names: dict[str, str] = {}
    for name in asked:
        short = data.short_name(name)
        if names.setdefault(short, name) != name:
            raise UserError(f"{names[short]} and {name} would both be called {short}; rename one")
    return names


def parameters(unit: Unit) -> dict[str, Any]:
    """What tells the row of a unit from others of its data set and label."""
    code = unit.code
    config = {} if code.method == VECTORS else code.encoder(unit.seed).config
    return {**config, "method": code.method, "field bits": code.field_bits, "budget": code.budget, "seed": unit.seed}


def _measure(unit: Unit, name: str, plan: Plan, rows: Rows, progress: Progress) -> None:
    key = (CODES, unit.data, unit.code.label, parameters(unit))
    kept, seconds = rows.find(*key) is not None, 0.0
    if not kept:
        dataset = load(name, unit.seed, plan)
        values, seconds = timed(measure, unit.code, unit.seed, dataset, plan)
        rows.add(Row(*key, values))
    progress.advance(f"{unit.data}  seed {unit.seed}  {unit.code.label}, {unit.code.budget} bits", seconds, kept)


@lru_cache(maxsize=1)
def load(name: str, seed: int, plan: Plan) -> data.Dataset:
    """The data set with no more vectors and queries than the plan has; the last one stays in memory."""
    dataset = data.load(name, seed, plan.learn)
    return replace(dataset, queries=dataset.queries[: plan.queries])


def facts(plan: Plan, dataset: data.Dataset) -> dict[str, str]:
    """What the numbers of a data set depend on."""
    machine = {name: value for name, value in machine_facts().items() if name != "faiss"}
    shape = f"{len(dataset.base):,} × {dataset.base.shape[1]}, {dataset.metric}"
    return {**machine, "plan": plan.name, "vectors": f"{shape}; {len(dataset.queries):,} queries"}
