"""How much of the true answer searches find, as the index itself measures it."""

from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex.errors import NoVectorsError

VECTORS = np.random.default_rng(3).standard_normal((2000, 32)).astype(np.float32)


def made(**options: Any) -> Index:
    index = Index(dim=32, encoder="lsq", bits=32, **options).train(VECTORS)
    index.add(VECTORS, payloads=[{"even": row % 2 == 0} for row in range(len(VECTORS))])
    return index


def test_searches_by_codes_alone_find_less_than_those_that_compare_all_vectors() -> None:
    index = made()
    assert index.measure_recall(rerank=0) < 0.9
    assert index.measure_recall(recall=1.0) == 1.0


def test_it_is_the_share_of_the_true_neighbours_of_queries() -> None:
    index, queries = made(), VECTORS[:50] + np.float32(0.1)
    found, true = index.search(queries, 5, rerank=0).ids, index.search(queries, 5, recall=1.0).ids
    share = np.mean([len({*own} & {*other}) / 5 for own, other in zip(found.tolist(), true.tolist(), strict=True)])
    assert index.measure_recall(queries, 5, rerank=0) == pytest.approx(share)


def test_only_rows_of_the_filter_count() -> None:
    assert made().measure_recall(filter={"even": True}, recall=1.0) == 1.0


def test_an_exact_index_needs_no_kept_vectors_and_one_of_codes_does() -> None:
    index = Index(dim=32, encoder="flat", keep_vectors=None)
    index.add(VECTORS)
    assert index.measure_recall() == index.measure_recall(VECTORS[:9]) == 1.0
    for queries in (None, VECTORS[:9]):
        with pytest.raises(NoVectorsError, match="keep_vectors='float16'"):
            made(keep_vectors=None).measure_recall(queries)
