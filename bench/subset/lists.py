"""Sections accumulate and size: postings a second beside a bare loop, and what posting lists take."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex._query.sources import multi_index as by_lists
from lsqindex._storage.store import Store
from lsqindex._subsets.multi_index.lists import Lists
from lsqindex.testing import reference

from .. import turns
from ..compiled import compiled
from ..runner import Question, ask
from . import bars
from .plan import Run

_SOURCE = Path(__file__).with_name("bare_loop.c")
_TIMES = 10
_QUERIES = 5


def accumulate(run: Run) -> Iterator[Question]:
    bits = run.plan.size_bits
    for name in (bars.KERNEL, bars.BARE_LOOP):
        parameters = {"vectors": run.plan.mixed, "table bits": bits, "probes": max(run.plan.probes)}
        yield ask(run.plan.large.name, name, parameters, run.together, name, _accumulate)


def _accumulate(run: Run) -> dict[str, dict[str, Any]]:
    plan, collection = run.plan, run.plan.large
    library = compiled(_SOURCE, run.shelf.made_here)
    if library is None:
        return {name: {"postings/s": None} for name in (bars.KERNEL, bars.BARE_LOOP)}
    library.bare_loop.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    scores = np.zeros(1 << 16, np.uint8)
    probes = max(plan.probes)
    with run.shelf.index(collection, plan.hashes, plan.size_bits) as index, index._reader() as reader:
        store, coder = Store(reader, index._options), index._coder(reader)
        stored, kernel = by_lists._found(store), by_lists._stored_lists(store, coder)
        values = coder.encoder.probe_tables(collection.queries[:_QUERIES], coder.metric).values
        rows = [_rows(stored, coder.layout, own, probes) for own in values]
        counts = [sum(len(block) for block in own) for own in rows]

        def ours(number: int) -> None:
            at = number % _QUERIES
            assert kernel.accumulate(values[at], probes, _TIMES) == _TIMES * counts[at]

        def bare(number: int) -> None:
            for _ in range(_TIMES):
                for block in rows[number % _QUERIES]:
                    library.bare_loop(block.ctypes.data, len(block), scores.ctypes.data)

        times = turns.by_turns({bars.KERNEL: ours, bars.BARE_LOOP: bare}, 4 * plan.rounds)
    rates = {
        name: statistics.median(_TIMES * counts[i % _QUERIES] / seconds for i, seconds in enumerate(found))
        for name, found in times.items()
    }
    return {
        bars.KERNEL: {
            "postings": int(np.mean(counts)),
            "postings/s": rates[bars.KERNEL],
            **turns.ratios(times[bars.BARE_LOOP], times[bars.KERNEL]),
        },
        bars.BARE_LOOP: {"postings": int(np.mean(counts)), "postings/s": rates[bars.BARE_LOOP]},
    }


def _rows(stored: Lists, layout: Any, values: NDArray[np.float32], probes: int) -> list[NDArray[np.uint16]]:
    """The rows that the lists of the cheapest probes name, block by block, one list after another."""
    fields = np.append(np.searchsorted(layout.bit_starts, stored.first_bits), len(layout.bits)).astype(np.int64)
    chosen = sorted((table, bucket) for _, table, bucket in reference.probes(layout, fields, values, probes))
    found = []
    for block, count in enumerate(stored.counts.tolist()):
        parts = []
        for table, bucket in chosen:
            starts = 2 ** stored.bits[table] + 1
            address = int(stored.addresses[block, table])
            words = np.ctypeslib.as_array((ctypes.c_uint16 * int(starts + count)).from_address(address))
            parts.append(words[starts + int(words[bucket]) : starts + int(words[bucket + 1])])
        found.append(np.concatenate(parts))
    return found


def size(run: Run) -> Iterator[Question]:
    parameters = {"vectors": run.plan.mixed, "table bits": run.plan.size_bits}
    yield ask(run.plan.large.name, "posting lists", parameters, _size, run)


def _size(run: Run) -> dict[str, Any]:
    with run.shelf.index(run.plan.large, run.plan.hashes, run.plan.size_bits) as index:
        return _bytes(index)


def _bytes(index: Index) -> dict[str, Any]:
    stats = index.stats()
    each = stats["posting_bytes"] / (len(index) * stats["tables"])
    return {"tables": stats["tables"], "MB": stats["posting_bytes"] / 1e6, "bytes a row and table": each}
