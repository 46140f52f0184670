"""Vectors kept in int8: what they lose, and that everything an index does with kept vectors works with them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex._storage.format import kept, keys, meta, records
from lsqindex.errors import ParameterError
from lsqindex.testing import reference

DIM = 24
LSH: dict[str, Any] = {"encoder": "lsh", "bits": 48, "train_size": 100}


def random(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


def rounded(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """What is left of vectors."""
    return kept.from_bytes(kept.to_bytes(vectors, "int8"), "int8")


# -- a row ---------------------------------------------------------------------------------------------


def test_a_row_is_a_scale_and_then_the_numbers() -> None:
    row = kept.to_bytes(np.array([[254, -254, 3.1, -2.9, 0.9, 0]], np.float32), "int8")
    assert row.tobytes() == struct.pack("<f6b", 2.0, 127, -127, 2, -1, 0, 0)
    assert kept.from_bytes(row, "int8").tolist() == [[254, -254, 4, -2, 0, 0]]
    assert kept.width(6, "int8") == 10


def test_a_vector_of_zeros_has_scale_0() -> None:
    rows = kept.to_bytes(np.zeros((2, 3), np.float32), "int8")
    assert not rows.any()
    assert kept.from_bytes(rows, "int8").tolist() == [[0, 0, 0]] * 2
    assert kept.sound(rows, "int8")
    assert kept.to_bytes(np.zeros((0, 3), np.float32), "int8").shape == (0, 7)


@settings(deadline=None)
@given(arrays(np.float32, (3, 9), elements=st.floats(-(2.0**49), 2.0**49, width=32)))
def test_the_error_is_half_a_step_at_most(vectors: NDArray[np.float32]) -> None:
    rows = kept.to_bytes(vectors, "int8")
    back = kept.from_bytes(rows, "int8")
    assert kept.sound(rows, "int8")
    steps = np.abs(vectors.astype(np.float64)).max(axis=1, keepdims=True) / 127
    # 2⁻¹⁴⁹ is the smallest float32: a scale cannot be nearer than half of it, 127 times.
    assert (np.abs(back.astype(np.float64) - vectors) <= 0.5001 * steps + 64 * 2.0**-149).all()


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, -0.0, 3e38])
def test_a_scale_that_cannot_be_is_unsound(scale: float) -> None:
    rows = kept.to_bytes(random(3), "int8")
    assert kept.sound(rows, "int8")
    rows[1, :4] = np.array([scale], "<f4").view(np.uint8)
    assert not kept.sound(rows, "int8")


# -- an index ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("kind", ["int", "str"])
def test_an_index_with_int8_vectors_lives_as_others_do(tmp_path: Path, metric: Any, kind: Any) -> None:
    def names(numbers: Any) -> Any:
        return np.asarray(numbers) if kind == "int" else [f"id {i}" for i in numbers]

    path, vectors, new = tmp_path / "a.lsq", random(600), random(50, seed=1)
    with Index.create(path, DIM, metric=metric, ids=kind, keep_vectors="int8", **LSH) as index:
        index.add(vectors[:60], ids=names(range(60)))
        assert np.array_equal(index.get(names(range(60))), vectors[:60]), "not rounded before training"
        index.add(vectors[60:], ids=names(range(60, 600)))
        assert index.is_trained
        assert np.array_equal(index.get(names(range(600))), rounded(vectors))
        index.add(new, ids=names(range(50)), upsert=True)
        assert index.delete(names(range(590, 600))) == 10
        living = rounded(np.concatenate([new, vectors[50:590]]))
        assert_finds(index, living, names, metric)
        index.compact()
        assert_finds(index, living, names, metric)
        index.save(tmp_path / "copy.lsq")
    for file in (path, tmp_path / "copy.lsq"):
        with Index.open(file) as index:
            assert index.stats()["keep_vectors"] == "int8"
            assert_finds(index, living, names, metric)
            index.reencode("itq", bits=16)
            assert_finds(index, living, names, metric)
            index.train()
            assert_finds(index, living, names, metric)


def assert_finds(index: Index, living: NDArray[np.float32], names: Any, metric: str) -> None:
    """It holds these vectors, under ids from 0 on, and re-ranking all of them is exact search among them."""
    n = len(living)
    assert len(index) == n
    assert index.check() == []
    assert np.array_equal(index.get(names(range(n))), living)
    queries = random(4, seed=9)
    hits = index.search(queries, k=10, rerank=n)
    for query, ids, distances in zip(queries, hits.ids, hits.distances, strict=True):
        truth = reference.exact_distances(living, metric, query)
        order = np.argsort(truth, kind="stable")[:10]
        assert ids.tolist() == list(names(order))
        assert np.allclose(distances, truth[order], rtol=1e-5, atol=1e-5)


def test_reranking_by_int8_finds_nearly_what_float32_finds() -> None:
    vectors, queries = random(3000), random(30, seed=5)
    truth = np.array([np.argsort(((vectors - query) ** 2).sum(axis=1))[:10] for query in queries])

    def recall(keep: Any, rerank: int) -> float:
        index = Index(DIM, keep_vectors=keep, **LSH)
        index.add(vectors)
        ids = index.search(queries, k=10, rerank=rerank).ids
        return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids.tolist(), truth.tolist(), strict=True)]))

    assert recall("float32", 3000) == 1
    assert recall("int8", 3000) >= 0.97
    assert recall("int8", 0) < 0.8


def test_a_large_number_is_kept_where_float16_has_no_room() -> None:
    index = Index(4, keep_vectors="int8", encoder="lsh", bits=8, train_size=1)
    index.add(np.array([[1e15, -1e15, 1e14, 0]], np.float32))
    assert np.allclose(index.get([0]), [[1e15, -1e15, 1e14, 0]], rtol=0, atol=0.5e15 / 127)


@pytest.mark.parametrize("scale", [np.nan, -1.0, np.inf])
def test_check_finds_a_damaged_scale(tmp_path: Path, scale: float) -> None:
    """A record with a valid checksum may still be forged."""
    path = tmp_path / "a.lsq"
    with Index.create(path, DIM, keep_vectors="int8", **LSH) as index:
        index.add(random(200))
        assert index.check() == []
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=4, map_size=1 << 26) as env:
        vectors, options = (env.open_db(name, create=False) for name in (keys.VECTORS, keys.META))
        with env.begin(write=True) as txn:
            key = keys.row(keys.vectors_prefix(), 0)
            header, payload = records.decode(txn.get(key, db=vectors), "test")
            assert header.width == DIM + 4
            txn.put(key, records.encode(header, struct.pack("<f", scale) + bytes(payload)[4:]), db=vectors)
            state = meta.unpack(txn.get(keys.STATE, db=options), "test")
            txn.put(keys.STATE, meta.pack({**state, "txn": txn.id()}), db=options)
    with Index.open(path) as index:
        assert any("scale" in line for line in index.check())


def test_an_unknown_kind_is_refused_with_the_choices() -> None:
    kind: Any
    for kind in ("int4", "uint8", "INT8", 8):
        with pytest.raises(ParameterError, match="None, 'float16', 'float32' or 'int8' is needed"):
            Index(4, keep_vectors=kind)
