"""A scan in one call of the kernel: whatever the ids, the threads and the number of queries are, the answer is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._compiled.search import Prepared, Search

RNG = np.random.default_rng(5)
VECTORS = RNG.standard_normal((2500, 12)).astype(np.float32)


def filled(ids: str, copies: int = 0) -> tuple[Index, list[Any]]:
    """Vectors under shuffled ids, the first of them ``copies`` times; and the ids of these copies."""
    index = Index(12, bits=32, ids=ids, iterations=2)  # type: ignore[arg-type]
    vectors = np.concatenate([np.tile(VECTORS[:1], (copies, 1)), VECTORS])
    names: list[Any] = RNG.permutation(len(vectors)).tolist()
    names = [f"é{name}" for name in names] if ids == "str" else names
    index.train(VECTORS).add(vectors, ids=names)
    return index, names[: copies + 1]


@pytest.mark.parametrize("ids", ["int", "str"])
@pytest.mark.parametrize("how", [{}, {"rerank": 20}, {"rerank": 0}], ids=str)
def test_of_equal_rows_those_of_the_smallest_ids_are_found(ids: str, how: dict[str, Any]) -> None:
    index, copies = filled(ids, copies=300)
    found = index.search(VECTORS[0], k=15, **how)
    assert found.ids.tolist() == sorted(copies)[:15]


@pytest.mark.parametrize("ids", ["int", "str"])
def test_strings_and_ints_are_found_alone_and_among_others(ids: str) -> None:
    index, _ = filled(ids)
    together = index.search(VECTORS[:600], k=7, threads=3, with_payloads=True)
    for number in (0, 255, 256, 599):
        alone = index.search(VECTORS[number], k=7, threads=1)
        assert alone.ids.tolist() == together.ids[number].tolist()
        assert alone.distances.tolist() == together.distances[number].tolist()
    more = index.search(VECTORS[:2], k=3000)
    assert more.ids[0, 2500:].tolist() == [None if ids == "str" else -1] * 500
    assert sorted(more.ids[1, :2500].tolist()) == sorted(index.ids())


def test_calls_that_do_not_fit_are_refused() -> None:
    index, _ = filled("int")
    index.search(VECTORS[0])
    assert index._searched is not None
    (plan,) = index._searched.plans.values()
    prepared = plan.source._prepared  # type: ignore[attr-defined]
    assert isinstance(prepared, Prepared)
    for queries, parts in ((VECTORS[:0], 1), (VECTORS[:, :5].copy(), 1), (VECTORS, 0)):
        with pytest.raises(ValueError, match="sizes"):
            Search(prepared, queries, None, None, parts)
    running = Search(prepared, VECTORS[:2], None, None, 2)
    with pytest.raises(ValueError, match="no such part"):
        running.scan(2)
    with pytest.raises(ValueError, match="several threads"):
        running.finish(lambda rows: None)
    with pytest.raises(ValueError, match="sizes"):
        running.write(None, np.empty((3, 2), np.float32), None, 0)
