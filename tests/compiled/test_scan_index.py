"""An index finds what the reference of the scan finds."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import Index, make_encoder
from lsqindex._storage.format.columns import CHUNK_ROWS
from lsqindex.encoders import Encoder
from lsqindex.metrics import METRICS
from lsqindex.testing import reference

from .levels import on_every_level
from .stored_codes import Metric, assert_equal

DIM = 12
N = CHUNK_ROWS + 700
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lsq": ("lsq", {"bits": 40, "iterations": 2}),
    "lsq of 3 levels": ("lsq", {"bits": 48, "levels": 3, "iterations": 2}),
    "lsq of 5 levels": ("lsq", {"bits": 48, "levels": 5, "iterations": 2}),
    "lsq of 16 levels": ("lsq", {"bits": 64, "levels": 16, "iterations": 2}),
    "lsq with an odd scalar": ("lsq", {"bits": 40, "scalar_bits": 5, "iterations": 2}),
    "itq": ("itq", {"bits": 11, "iterations": 3}),
    "ckmeans": ("ckmeans", {"bits": 16, "field_bits": 4, "rotations": 2}),
    "okmeans": ("okmeans", {"bits": 9, "iterations": 3}),
    "pq by nibbles": ("pq", {"bits": 24, "field_bits": 4}),
    "pq by bytes": ("pq", {"bits": 24, "field_bits": 8}),
    "kmeans": ("kmeans", {"bits": 6}),
    "lsh": ("lsh", {"bits": 37}),
}


def random(n: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


@cache
def fitted(name: str, metric: Metric) -> Encoder:
    kind, parameters = ENCODERS[name]
    sample = random(1500, 0)
    return make_encoder(kind, **parameters).fit(METRICS["cosine"].prepare(sample) if metric == "cosine" else sample)


def filled(name: str, metric: Metric) -> tuple[Index, NDArray[np.int64], NDArray[np.uint8]]:
    """An index with rows of several adds, some deleted, its ids and their codes."""
    encoder = fitted(name, metric)
    index = Index(dim=DIM, metric=metric, encoder=encoder, keep_vectors=None)
    vectors, ids = random(N, 1), np.random.default_rng(2).permutation(3 * N)[:N].astype(np.int64)
    vectors[100:140] = vectors[50]  # ties, which come by id
    for first, last in ((0, N - 300), (N - 300, N - 40), (N - 40, N)):
        index.add(vectors[first:last], ids[first:last])
    index.delete(ids[::7])
    kept = np.setdiff1d(np.arange(N), np.arange(0, N, 7))
    codes = encoder.encode(METRICS["cosine"].prepare(vectors) if metric == "cosine" else vectors)
    return index, ids[kept], codes[kept]


def best(found: tuple[Any, NDArray[np.float32]], ids: NDArray[np.int64], k: int) -> tuple[list[int], list[float]]:
    rows, distances = found
    order = np.lexsort((ids[rows], distances))[:k]
    return ids[rows][order].tolist(), distances[order].tolist()


def told(distances: Any, metric: Metric) -> Any:
    """As an index tells them: zero where an estimate is below it, except for inner products."""
    if metric == "ip":
        return distances
    return [max(far, 0.0) for far in distances] if isinstance(distances, list) else np.maximum(distances, 0)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("name", ENCODERS)
def test_an_index_finds_what_the_reference_finds(name: str, metric: Metric) -> None:
    index, ids, codes = filled(name, metric)
    encoder, queries, k = fitted(name, metric), random(22, 3), 12
    for distance in encoder.distances(metric):
        tables = encoder.tables(queries, metric, distance)
        nibbles = encoder.layout.by_nibbles(distance)
        wanted = [best(found, ids, k) for found in reference.scan(codes, encoder.layout, tables, k, by_nibbles=nibbles)]
        found = index.search(queries, k, distance=distance, threads=1)
        assert list(zip(found.ids.tolist(), found.distances.tolist(), strict=True)) == [
            (names, told(far, metric)) for names, far in wanted
        ]
        # Whatever the order of additions.
        all_distances = np.sort(reference.distances(codes, encoder.layout, tables), axis=1)[:, :k]
        scale = float(np.abs(tables.values).max() + np.abs(tables.bias).max())
        assert np.allclose(found.distances, told(all_distances, metric), rtol=1e-5, atol=1e-5 * scale)
        for threads in (2, 5):
            assert_equal(index.search(queries, k, distance=distance, threads=threads), found)
        for other in on_every_level(lambda how=distance: index.search(queries, k, distance=how, threads=1)):
            # Symmetric tables hold the query's own code, which is equal on every instruction set, too.
            assert_equal(other, found)
        # A query alone: its tables may round otherwise than in a batch (BLAS), and then its distances do.
        for i in (0, 21):
            alone = index.search(queries[i], k, distance=distance)
            own = encoder.tables(queries[i : i + 1], metric, distance)
            if np.array_equal(own.values[0], tables.values[i]) and own.bias[0] == tables.bias[i]:
                assert alone.ids.tolist() == found.ids[i].tolist()
                assert alone.distances.tolist() == found.distances[i].tolist()
            assert np.allclose(alone.distances, found.distances[i], rtol=1e-4, atol=1e-4 * scale)
        # A filter copies codes together; distances are the same bits.
        some = np.random.default_rng(4).permutation(ids)[:500]
        everything = index.search(queries, len(ids), distance=distance)
        filtered = index.search(queries, 40, distance=distance, filter=some)
        for i in range(len(queries)):
            inside = np.isin(everything.ids[i], some)
            assert filtered.ids[i].tolist() == everything.ids[i][inside][:40].tolist()
            assert filtered.distances[i].tolist() == everything.distances[i][inside][:40].tolist()
    index.close()


@pytest.mark.parametrize("far", [1e4, 1e7, 1e12])
def test_a_query_far_away_from_all_vectors_has_many_ties_which_come_by_id(simd: str, far: float) -> None:
    index, ids, codes = filled("lsq", "l2")
    encoder, queries = fitted("lsq", "l2"), random(8, 5) * np.float32(far)
    tables = encoder.tables(queries, "l2")
    wanted = [best(found, ids, 5) for found in reference.scan(codes, encoder.layout, tables, 5, by_nibbles=True)]
    found = index.search(queries, 5, threads=1)
    assert list(zip(found.ids.tolist(), found.distances.tolist(), strict=True)) == wanted
    index.close()
