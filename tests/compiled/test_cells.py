"""The search of cells: the same rows, distances and visits as the reference, on every instruction set."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from lsqindex import Cells, Index
from lsqindex._compiled import cells as _cells
from lsqindex._compiled import exact as _exact
from lsqindex._compiled import scan as _scan
from lsqindex._storage.format import deleted, kept
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex._storage.store import Store
from lsqindex._subsets.cells.found import find
from lsqindex._subsets.cells.kernel import kernel_cells
from lsqindex._subsets.cells.rule import EVERYTHING, rule_for
from lsqindex._subsets.cells.vectors import living, stored_chunks
from lsqindex._subsets.stored import read
from lsqindex.metrics import METRICS
from lsqindex.testing import reference
from tests.subsets.cells.made import around, entries_of

from .levels import on_every_level
from .stored_codes import CODES

DIM, N = 16, 900


class Ways(NamedTuple):
    """How a search is asked for."""

    k: int
    recall: float = 0.95
    probes: int = 0
    depth: int = 0
    #: Of how many rows one may be found.
    share: int = 1
    #: Whether rows are compared with kept vectors, where there are any.
    compared: bool = True


WAYS = [
    *(Ways(k) for k in (1, 10, 100, N)),
    Ways(10, recall=1.0),
    Ways(10, recall=0.8, share=3),
    Ways(5, probes=2),
    Ways(5, probes=40, share=50),
    Ways(10, depth=20),
    Ways(100, depth=200, probes=9, share=2),
    Ways(10, compared=False),
    Ways(300, probes=60, compared=False),
]


def made(metric: str, codes: str, keep: str | None) -> Index:
    """Cells with tails; rows that are equal, deleted or in no cell yet."""
    index = Index(DIM, metric=metric, keep_vectors=keep, subset=Cells(50), **CODES[codes])  # type: ignore[arg-type]
    vectors = around(N, DIM)
    vectors[100:300] = vectors[100]
    index.train(vectors)
    for first, end in ((0, 800), (800, 850)):
        index.add(vectors[first:end])
        index.merge()
    index.add(vectors[850:])
    index.delete(np.arange(0, N, 9))
    return index


def searched(index: Index, queries: Any, ways: Ways) -> tuple[list[Any], list[reference.Visits]]:
    """What the kernel gives on every level, and what the reference finds."""
    with index._reader() as reader:
        store, state, coder, options = Store(reader, index._options), reader.state, index._coder(reader), index._options
        structure: Any = read(reader)
        found = find(reader, structure.rule)
        assert found is not None and (found.counts[:, 1] > 0).any() and found.listed < state.rows
        kernel, codes, ids, bits = (
            kernel_cells(reader, found, coder),
            store.codes(),
            store.ids(),
            deleted.addresses(reader),
        )
        layout, distance = coder.layout, coder.encoder.distances(coder.metric)[0]
        tables = coder.encoder._table_maker(coder.metric, distance)(queries)
        rule = EVERYTHING if ways.recall == 1 else rule_for(structure.rule, ways.k, ways.recall)
        rows = np.arange(state.rows, dtype=np.uint32)
        allowed = rows % ways.share == 0
        fields = (layout.starts, layout.bit_starts, layout.level_counts)
        where = (codes.starts, codes.counts, codes.addresses, state.code_size, state.head)
        codes.touch_all()
        compared, vectors = None, None
        if ways.compared and options.keep_vectors is not None:
            column = store.vectors()
            vectors = kept.from_bytes(column.gather(rows), options.keep_vectors)
            places = (column.starts, column.counts, column.addresses, options.keep_vectors, DIM, 0)
            compared = (_exact.Vectors(*places, bits, deleted.SEGMENT_ROWS), column.verified.view(np.uint8))

        def act() -> Any:
            prepared = _cells.Prepared(
                kernel,
                _scan.Codes(*where, *fields, bits, deleted.SEGMENT_ROWS),
                layout.by_nibbles(distance),
                found.listed,
                stored_chunks(reader, codes),
                CHUNK_ROWS,
                None,
                DIM,
                compared,
                METRICS[coder.metric].number,
                (ids.starts, ids.counts, ids.addresses),
                False,
                ways.k,
                math.inf,
                rule,
                ways.probes,
                ways.depth,
                None if ways.share == 1 else np.packbits(allowed, bitorder="little"),
            )
            return [one(prepared, q) for q in range(len(queries))]

        def one(prepared: Any, q: int) -> tuple[Any, ...]:
            distances, near = np.empty((1, ways.k), np.float32), np.empty((1, ways.k), np.int64)
            own = slice(q, q + 1)
            made = tables.values[own], tables.bias[own]
            visits = prepared.search(queries[own], None, None, distances, near, -math.inf, *made)
            return near[0], distances[0], (visits.cells, visits.rows, visits.compared, visits.left)

        parts = [entries_of(found._replace(counts=found.counts * part), state.code_size, state.head) for part in PARTS]
        plain = reference.Cells(
            list(zip(*parts, strict=True)),
            kernel.centres.view(np.float16).astype(np.float32),
            coder.encode(found.centres, threads=1),
            kernel.near,
            kernel.spreads,
            codes.gather(rows),
            list(zip(codes.starts.tolist(), codes.counts.tolist(), strict=True)),
            found.listed,
            living(reader, codes, rows) & allowed,
        )
        ask = [
            reference.Asked(
                query,
                index.metric,
                layout,
                type(tables)(tables.values[[q]], tables.bias[[q]]),
                layout.by_nibbles(distance),
                state.head,
                vectors,
                ways.k,
                reference.Rule(*rule),
                ways.probes,
                ways.depth,
            )
            for q, query in enumerate(queries)
        ]
        return on_every_level(act), [reference.search_cells(plain, asked) for asked in ask]


#: The entries of cells, and those of their tails.
PARTS = (np.array([1, 0], np.uint32), np.array([0, 1], np.uint32))


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(
    ("codes", "keep"),
    [
        ("by nibbles", None),
        ("by nibbles", "int8"),
        ("by fields", "float16"),
        ("few codes", None),
        ("few codes", "float32"),
    ],
)
def test_cells_are_searched_as_the_reference_does(metric: str, codes: str, keep: str | None) -> None:
    index = made(metric, codes, keep)
    queries = np.concatenate([around(2, DIM, seed=5), np.random.default_rng(6).standard_normal((1, DIM)) * 9])
    queries = queries.astype(np.float32)
    for ways in WAYS:
        levels, wanted = searched(index, queries, ways)
        for level in levels:
            for (rows, distances, done), visits in zip(level, wanted, strict=True):
                best, apart = visits.nearest(ways.k)
                assert done == (visits.cells, visits.rows, len(visits.compared), visits.left), ways
                assert rows[: len(best)].tolist() == best and (rows[len(best) :] == -1).all(), ways
                assert np.array_equal(distances[: len(best)], np.array(apart, np.float32)), ways
    index.close()
