"""Sections while-adding, durable and deletes: what happens to an index that changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import data
from ..runner import Question, ask
from .adapter import NotPossible
from .children import all_cores, one_core
from .plan import KS, Run
from .stored import size
from .systems import System, shown

_K = KS[0]


# -- while-adding: single queries, with and without somebody who adds one vector after another -----------------------


def while_adding(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        parameters = {"setting": shown(system.usual(_K))}
        yield ask(name, system.name, parameters, _while_adding, run, name, system)


def _while_adding(run: Run, name: str, system: System) -> dict[str, Any]:
    seconds, extra = run.plan.change, run.shelf.array(name, "extra")
    asking = {"queries": run.shelf.array(name, "queries"), "k": _K, "setting": system.usual(_K), "seconds": seconds}
    with run.shelf.copy(name, system) as folder, run.shelf.child(name, system, one_core(1)) as writer:
        about = writer.call("about")
        if about["beside"] == "not possible":
            return {"reader": "not possible", "why": about["why"]}
        writer.call("open", folder=str(folder), change=True)
        if about["beside"] == "thread":
            writer.call("keep_to", cores=all_cores())
            alone = writer.call("reading", **asking)
            beside = writer.call("reading_beside", vectors=extra, **asking)
        else:
            with run.shelf.child(name, system) as reader:
                reader.call("open", folder=str(folder))
                alone = reader.call("reading", **asking)
                writer.tell("adding", vectors=extra, folder=str(folder), seconds=seconds)
                beside = reader.call("reading", **asking)
                beside["adds/s"] = writer.hear()["adds/s"]
                reader.call("close")
        writer.call("close")
    return {
        "reader": f"another {about['beside']}",
        **({"why": about["why"]} if about["why"] else {}),
        **{f"{what}, alone": alone[what] for what in ("queries/s", "p50", "p99")},
        **beside,
        "ratio": beside["queries/s"] / alone["queries/s"],
    }


# -- durable: one vector at a time -----------------------------------------------------------------------------------


def durable(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        for stored in dict.fromkeys((run.plan.few, len(data.load(name).base))):
            yield ask(name, system.name, {"stored": stored}, _durable, run, name, system, stored)


def _durable(run: Run, name: str, system: System, stored: int) -> dict[str, Any]:
    extra = run.shelf.array(name, "extra")
    with run.shelf.copy(name, system, stored) as folder, run.shelf.child(name, system) as child:
        child.call("open", folder=str(folder), change=True)
        found = child.call("adding", vectors=extra, folder=str(folder), seconds=run.plan.change)
        about = child.call("about")
        child.call("close")
    return {**found, "how": "add" if about["durable"] else "add, then save everything"}


# -- deletes: half of the vectors ------------------------------------------------------------------------------------


def deletes(run: Run) -> Iterator[Question]:
    for name, system in run.first_cases():
        yield ask(name, system.name, {"setting": shown(system.usual(_K))}, _deletes, run, name, system)


def _deletes(run: Run, name: str, system: System) -> dict[str, Any]:
    vectors = len(data.load(name).base)
    queries, truth = run.shelf.array(name, "queries"), run.shelf.array(name, "half-truth")
    asking = {"queries": queries, "truth": truth, "k": _K, "setting": system.usual(_K), "batch": system.batches}
    with run.shelf.copy(name, system) as folder, run.shelf.child(name, system) as child:
        found: dict[str, Any] = {"MB before": size(folder) / 1e6}
        child.call("open", folder=str(folder), change=True)
        try:
            found["delete s"] = child.call("delete", rows=vectors, folder=str(folder))["seconds"]
        except NotPossible as error:
            return {"possible": False, "why": str(error), **found}
        found["MB deleted"] = size(folder) / 1e6
        found["recall"] = child.call("recall", **asking, seconds=run.plan.recall)["recall"]
        try:
            given = child.call("give_back", folder=str(folder))
            found.update({"give back": given["how"], "give back s": given["seconds"]})
        except NotPossible as error:
            found["why"] = str(error)
        child.call("close")
        found["MB given back"] = size(folder) / 1e6
    return {"possible": True, **found}
