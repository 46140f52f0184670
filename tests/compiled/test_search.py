"""A search in one call: the same rows, distances and comparisons as the reference, on every instruction set."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._compiled import exact as _exact
from lsqindex._compiled import scan as _scan
from lsqindex._compiled.search import Prepared
from lsqindex._storage.format import deleted, kept
from lsqindex._storage.store import Store
from lsqindex._subsets.cells.vectors import living
from lsqindex.metrics import METRICS
from lsqindex.testing import reference
from tests.subsets.cells.made import around

from .levels import on_every_level
from .stored_codes import CODES

DIM, N = 16, 900


class Ways(NamedTuple):
    """How a search is asked for."""

    k: int
    #: Numbers of candidates, and how many misses are allowed.
    wides: list[int]
    missed: float = 0.0
    #: Of how many rows one may be found.
    share: int = 1


WAYS = [
    Ways(1, [3]),
    Ways(10, [20, 60, 200, N], 0.5),
    Ways(10, [20, 60], 0.001, share=3),
    Ways(100, [100, 400], 0.1),
    Ways(N, [N], share=50),
]


def made(metric: str, codes: str, keep: str) -> Index:
    """Rows that are equal or deleted, under ids in another order."""
    index = Index(DIM, metric=metric, keep_vectors=keep, subset=None, **CODES[codes])  # type: ignore[arg-type]
    vectors = around(N, DIM)
    vectors[100:300] = vectors[100]
    index.train(vectors)
    index.add(vectors, ids=np.random.default_rng(3).permutation(N))
    index.delete(np.arange(0, N, 9))
    return index


def searched(index: Index, queries: Any, ways: Ways) -> list[tuple[list[Any], Any]]:
    """For each query what the kernel gives on every level, and what the reference finds."""
    with index._reader() as reader:
        store, state, coder, keep = (
            Store(reader, index._options),
            reader.state,
            index._coder(reader),
            index._options.keep_vectors,
        )
        codes, ids, column, bits = store.codes(), store.ids(), store.vectors(), deleted.addresses(reader)
        keep = index._options.keep_vectors
        assert keep is not None
        rows, layout = np.arange(state.rows, dtype=np.uint32), coder.layout
        distance = coder.encoder.distances(coder.metric)[0]
        tables, nibbles = coder.encoder._table_maker(coder.metric, distance)(queries), layout.by_nibbles(distance)
        may = living(reader, codes, rows) & (rows % ways.share == 0)
        vectors = kept.from_bytes(column.gather(rows), keep)
        plain = reference.Codes(codes.gather(rows), layout, state.head, ids.gather(rows), vectors, may)
        fields = (layout.starts, layout.bit_starts, layout.level_counts)
        where = (codes.starts, codes.counts, codes.addresses, state.code_size, state.head)
        places = (column.starts, column.counts, column.addresses, keep, DIM, 0, bits, deleted.SEGMENT_ROWS)

        def act(q: int) -> Any:
            prepared = Prepared(
                _scan.Codes(*where, *fields, bits, deleted.SEGMENT_ROWS),
                nibbles,
                None,
                DIM,
                (_exact.Vectors(*places), column.verified.view(np.uint8)),
                METRICS[coder.metric].number,
                (ids.starts, ids.counts, ids.addresses),
                False,
                ways.k,
                math.inf,
                math.inf,
                int(may.sum()),
                np.array(ways.wides, np.int64),
                np.full(len(ways.wides), np.nan),
                ways.missed,
                np.packbits(may, bitorder="little"),
            )
            near, distances, one = np.empty((1, ways.k), np.int64), np.empty((1, ways.k), np.float32), slice(q, q + 1)
            own = tables.values[one], tables.bias[one]
            done = prepared.search(queries[one], column.touch, None, distances, near, -math.inf, *own)
            return near[0], distances[0], done.reranked

        def wanted(q: int) -> Any:
            own, asked = type(tables)(tables.values[[q]], tables.bias[[q]]), (ways.k, ways.wides, ways.missed)
            return reference.search(plain, queries[q], index.metric, own, *asked, by_nibbles=nibbles)

        return [(on_every_level(partial(act, q)), wanted(q)) for q in range(len(queries))]


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(
    ("codes", "keep"), [("by nibbles", "float16"), ("by fields", "float32"), ("few codes", "int8")]
)
def test_a_search_is_that_of_the_reference(metric: str, codes: str, keep: str) -> None:
    index = made(metric, codes, keep)
    queries = np.concatenate([around(2, DIM, seed=5), around(N, DIM)[100:101] + np.float32(0.01)]).astype(np.float32)
    for ways in WAYS:
        for levels, (best, apart, compared) in searched(index, queries, ways):
            for near, distances, reranked in levels:
                assert near[: len(best)].tolist() == best.tolist() and (near[len(best) :] == -1).all(), ways
                assert np.array_equal(distances[: len(best)], apart) and reranked == compared, ways
    index.close()
