"""What searches reach with no parameter: recall and time, for all kinds of queries, with filters, in larger indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index

from ..framework import turns
from ..framework.bars import Verdict, at_least, at_most, told
from ..framework.report import Rows
from ..framework.runner import Question, ask
from ..material import data, systems
from ..material.data import Dataset, Vectors, normalized
from ..material.measure import recall10_at_10
from ..material.systems import MODES, K, Mode
from ..material.tuned import Options, by_turns, fastest, searches, true_recall
from .plan import Plan, Run

TARGET = 0.95
DEFAULT, BY_HAND = "no parameter", "set by hand"

# -- defaults ----------------------------------------------------------------------------------------------------------


def defaults(run: Run) -> Iterator[Question]:
    for name in run.plan.data:
        for mode in MODES:
            for system in (DEFAULT, BY_HAND):
                yield ask(name, system, {"queries": mode}, run.together, system, _defaults, name, mode)


def _defaults(run: Run, name: str, mode: Mode) -> dict[str, dict[str, Any]]:
    source, plan = data.load(name), run.plan
    with run.shelf.index(name) as index:
        asking = (source.queries, true_recall(source.truth))
        mine = fastest(DEFAULT, searches(index), [[{}]], *asking, TARGET, mode)
        ladders: list[list[Options]] = [
            [{"rerank": rows, "probes": cells} for cells in plan.probes] for rows in plan.reranks
        ]
        best = fastest(BY_HAND, searches(index), ladders, *asking, TARGET, mode)
        return by_turns(plan, [mine, best], mode, source.queries, BY_HAND)


def default_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for row in rows.of("defaults", system=DEFAULT):
        what = f"{row.data}, {row['queries']}"
        yield at_least(f"recall10@10, no parameter, {what}", TARGET, row["recall10@10"])
        yield at_most(f"time, no parameter / set by hand, {what}", 1.25, 1 / row["ratio"])


# -- kinds of queries --------------------------------------------------------------------------------------------------

_KINDS = ("held out", "farthest", "between two", "means of 8", "noisy", "random directions")


def kinds(run: Run) -> Iterator[Question]:
    for name in run.plan.data:
        for kind in _KINDS:
            yield ask(name, DEFAULT, {"queries": kind}, _kind, run, name, kind)


def _kind(run: Run, name: str, kind: str) -> dict[str, Any]:
    asked = _queries_of(data.load(name), kind, run.plan.queries)
    with run.shelf.index(name) as index:
        index.search(asked.queries, K, threads=1)
        seen = index.explain(asked.queries, K, threads=1)
        times = turns.by_turns({"": lambda number: index.search(asked.queries, K, threads=1)}, run.plan.rounds)
    n = len(asked.queries)
    counted = {"cells": seen.probes / n, "rows": seen.rows / n, "compared": seen.reranked / n}
    recall = recall10_at_10(seen.matches.ids, asked.truth)
    return {"recall10@10": recall, **counted, **systems.speed(times[""], n)}


def _queries_of(source: Dataset, kind: str, count: int) -> Dataset:
    """The data set with ``count`` queries of that kind; the usual ones are all."""
    rng = np.random.default_rng(data.SEED)
    queries: Vectors = source.queries
    if kind == "held out":
        return source
    if kind == "farthest":
        first = source.truth[:, 0]
        apart = np.square(source.queries - source.base[first]).sum(axis=1)
        return replace(source, queries=queries[np.argsort(-apart)[:count]])
    if kind == "between two":
        made = (queries[:count] + np.roll(queries, 1, axis=0)[:count]) / 2
    elif kind == "means of 8":
        made = source.base[rng.integers(0, len(source.base), (count, 8))].mean(axis=1)
    else:
        noise = normalized(rng.standard_normal((count, queries.shape[1]), np.float32))
        spread = np.linalg.norm(queries[:count] - source.base.mean(axis=0), axis=1, keepdims=True)
        made = queries[:count] + spread * noise
        if kind == "random directions":
            made = np.linalg.norm(queries[:count], axis=1, keepdims=True) * noise
    other: Vectors = np.asarray(made, np.float32)
    return replace(source, queries=normalized(other) if source.metric == "cosine" else other)


def kind_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for row in rows.of("queries"):
        bar = TARGET if row["queries"] == "held out" else 0.93
        yield at_least(f"recall10@10, {row.data}, {row['queries']}", bar, row["recall10@10"])


# -- filters -----------------------------------------------------------------------------------------------------------

#: Rows are let through at random, or those that are nearest to one of them.
_FIELDS = ("random", "near one")


def filters(run: Run) -> Iterator[Question]:
    for name in run.plan.data:
        for way in _FIELDS:
            for share in run.plan.shares:
                parameters = {"filter": way, "share": share}
                yield ask(name, DEFAULT, parameters, run.together, (way, share), _filters, name)


def _filters(run: Run, name: str) -> dict[Any, dict[str, Any]]:
    source, plan = data.load(name), run.plan
    places = dict(zip(_FIELDS, _places(source), strict=True))
    payloads = [
        dict(zip(_FIELDS, pair, strict=True)) for pair in zip(*(p.tolist() for p in places.values()), strict=True)
    ]
    path = run.shelf.path(source, "fields", lambda index: index.add(source.base, payloads=payloads), fields=_FIELDS)
    found: dict[Any, dict[str, Any]] = {}
    with Index.open(path, read_only=True) as index:
        plain = systems.lsqindex("", index)
        for way in _FIELDS:
            for share in plan.shares:
                most = round(share * len(source.base))
                rows = np.flatnonzero(places[way] < most)
                asked = replace(source, base=source.base[rows])
                some = systems.lsqindex(f"{way}, {share}", index, filter={way: {"$lt": most}})
                found[way, share] = _filtered(plan, index, plain, some, asked, rows, {way: {"$lt": most}})
    return found


def _filtered(
    plan: Plan,
    index: Index,
    plain: systems.System,
    some: systems.System,
    asked: Dataset,
    rows: NDArray[np.int64],
    condition: dict[str, Any],
) -> dict[str, Any]:
    ids = some.search(asked.queries)[0]
    seen = index.explain(asked.queries[:1], K, threads=1, filter=condition)
    told_of: dict[str, Any] = {
        "recall10@10": recall10_at_10(ids, rows[asked.truth]),
        "returned": int((ids >= 0).sum(axis=1).min()),
        "strategy": seen.strategy,
    }
    for mode in MODES:
        both = {own.name: systems.turn(plan, own, mode, asked.queries) for own in (plain, some)}
        times = turns.by_turns(both, systems.rounds(plan, mode))
        speed = systems.speed(times[some.name], systems.queries_of_turn(plan, mode, asked.queries))
        told_of |= {
            f"µs, {mode}": speed["µs"],
            f"× unfiltered, {mode}": turns.ratios(times[some.name], times[""])["ratio"],
        }
    return told_of


def _places(source: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A place for each row: in a random order, and in that of the distances from one of them."""
    rng, n = np.random.default_rng(data.SEED), len(source.base)
    apart = np.square(source.base - source.base[0]).sum(axis=1)
    return rng.permutation(n), np.argsort(np.argsort(apart, kind="stable"), kind="stable")


def filter_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for row in rows.of("filters"):
        what = f"{row.data}, {row['filter']}, {100 * row['share']:g} %"
        yield at_least(f"recall10@10, filter, {what}", TARGET, row["recall10@10"])
        yield at_least(f"results, filter, {what}", K, row["returned"])
        for mode in MODES:
            yield at_most(f"time, filter / none, {what}, {mode}", 2, row[f"× unfiltered, {mode}"])


# -- growth ------------------------------------------------------------------------------------------------------------


def growth(run: Run) -> Iterator[Question]:
    for name in run.plan.data if run.plan.growth else ():
        for mode in MODES:
            for rows in run.plan.growth:
                yield ask(name, DEFAULT, {"vectors": rows, "queries": mode}, run.together, rows, _growth, name, mode)


def _growth(run: Run, name: str, mode: Mode) -> dict[int, dict[str, Any]]:
    source, plan = data.load(name), run.plan
    sizes = plan.growth
    with ExitStack() as stack:
        own = {rows: systems.lsqindex("", stack.enter_context(run.shelf.index(name, rows))) for rows in sizes}
        found = {rows: system.search(source.queries)[0] for rows, system in own.items()}
        of_rows = {rows: systems.turn(plan, system, mode, source.queries) for rows, system in own.items()}
        times = turns.by_turns(of_rows, systems.rounds(plan, mode))
    return {
        rows: {
            "recall10@10": recall10_at_10(found[rows], replace(source, base=source.base[:rows]).truth),
            **systems.speed(times[rows], systems.queries_of_turn(plan, mode, source.queries)),
            **({} if rows == sizes[0] else turns.ratios(times[rows], times[sizes[0]])),
        }
        for rows in sizes
    }


def growth_bars(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    for row in rows.of("growth"):
        if row["ratio"] is None:
            yield told(f"recall10@10, {row['vectors']:,} vectors, {row['queries']}", row["recall10@10"])
        else:
            yield at_least(f"recall10@10, {row['vectors']:,} vectors, {row['queries']}", TARGET, row["recall10@10"])
            what = f"time a query, {row['vectors']:,} / {plan.growth[0]:,} vectors, {row['queries']}"
            yield at_most(what, 2.5, row["ratio"])
