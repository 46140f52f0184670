"""Sections lsq, hamming and rerank: queries a second and recall, beside FAISS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import faiss_systems
from ..faiss_systems import FaissHamming
from ..page import Curve, Plot
from ..report import Rows
from ..runner import Question, ask
from . import bars, systems
from .plan import Run
from .stored import HAMMING, KEPT, LSQ, Collection
from .systems import MODES, Mode, System

# -- lsq: the whole scan and the progressive one against FAISS's fast scan --------------------------


def lsq(run: Run) -> Iterator[Question]:
    rival = f"faiss {run.plan.faiss}"
    names = [bars.WHOLE, bars.PROGRESSIVE]
    for collection in (run.plan.real, run.plan.large):
        for mode in MODES:
            for name in [*names, *([rival] if faiss_systems.AVAILABLE else [])]:
                yield ask(collection.name, name, _of(collection, mode), run.together, name, _lsq, collection, mode)


def speed_plots(rows: Rows) -> Iterator[Plot]:
    """recall10@10 against queries a second, of all systems; from single queries, to the left, to batches."""
    found = [row for section in ("lsq", "hamming", "rerank") for row in rows.of(section)]
    for name, vectors in dict.fromkeys((row.data, row["vectors"]) for row in found):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in found:
            # What re-ranking is compared with is the progressive scan of the same codes once more.
            if (row.data, row["vectors"]) == (name, vectors) and row.system != bars.NOT_AGAIN:
                points.setdefault(row.system, []).append((row["queries/s"], row["recall10@10"]))
        curves = [Curve.through(system, own) for system, own in points.items()]
        speed = "queries a second; left: one at a time, right: a batch"
        yield Plot(f"speed-{vectors}", f"{name}, {vectors:,} vectors", speed, "recall10@10", curves, log_x=True)


def _lsq(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    plan, shelf = run.plan, run.shelf
    rival = f"faiss {plan.faiss}"
    with shelf.index(collection, LSQ) as index:
        compared = [
            systems.lsqindex(bars.WHOLE, index, progressive=False),
            systems.lsqindex(bars.PROGRESSIVE, index),
        ]
        if faiss_systems.AVAILABLE:
            compared.append(systems.faiss(rival, shelf.faiss(collection, plan.faiss).search))
        return systems.compare(plan, compared, mode, collection.queries, shelf.truth(collection), rival)


# -- hamming: binary codes, the same ones in FAISS --------------------------------------------------


def hamming(run: Run) -> Iterator[Question]:
    names = (bars.HAMMING, *((bars.FLAT, bars.FLAT_CODING) if faiss_systems.AVAILABLE else ()))
    for collection in (run.plan.real, run.plan.large):
        for mode in MODES:
            for name in names:
                parameters = _of(collection, mode)
                yield ask(collection.name, name, parameters, run.together, name, _hamming, collection, mode)


def _hamming(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    shelf, queries = run.shelf, collection.queries
    encoder = shelf.encoder(collection, HAMMING)
    with shelf.index(collection, HAMMING) as index:
        compared = [systems.lsqindex(bars.HAMMING, index, distance="symmetric")]
        if faiss_systems.AVAILABLE:
            flat = FaissHamming(shelf.codes(collection, HAMMING))
            compared.append(systems.faiss(bars.FLAT, flat.search, encoder.encode(queries)))
            compared.append(systems.faiss(bars.FLAT_CODING, lambda rows, k: flat.search(encoder.encode(rows), k)))
        found = systems.compare(run.plan, compared, mode, queries, shelf.truth(collection), bars.FLAT)
        if faiss_systems.AVAILABLE:
            found[bars.HAMMING]["unequal"] = _unequal(compared[0], compared[1], mode, queries)
    return found


def _unequal(ours: System, theirs: System, mode: Mode, queries: Any) -> int:
    """Queries whose distances differ; of rows equally far either may be returned."""
    distances = [systems.answers(system, mode, queries)[1].astype(np.float64) for system in (ours, theirs)]
    return int((np.sort(distances[0], axis=1) != np.sort(distances[1], axis=1)).any(axis=1).sum())


# -- rerank: the best again by their kept vectors ---------------------------------------------------


def rerank(run: Run) -> Iterator[Question]:
    collection = run.plan.real
    for mode in MODES:
        for name in (bars.NOT_AGAIN, bars.AGAIN):
            parameters = {**_of(collection, mode), "rerank": run.plan.rerank if name == bars.AGAIN else 0}
            yield ask(collection.name, name, parameters, run.together, name, _rerank, collection, mode)


def _rerank(run: Run, collection: Collection, mode: Mode) -> dict[str, dict[str, Any]]:
    with run.shelf.index(collection, KEPT) as index:
        compared = [
            systems.lsqindex(bars.NOT_AGAIN, index, rerank=0),
            systems.lsqindex(bars.AGAIN, index, rerank=run.plan.rerank),
        ]
        truth = run.shelf.truth(collection)
        return systems.compare(run.plan, compared, mode, collection.queries, truth, bars.NOT_AGAIN)


def _of(collection: Collection, mode: Mode) -> dict[str, Any]:
    return {"vectors": collection.size, "queries": mode}
