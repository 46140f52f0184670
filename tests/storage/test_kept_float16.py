"""Vectors kept in float16: each row has a scale, so that it holds vectors of any size; files from before format 4."""

from __future__ import annotations

import shutil
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
from lsqindex._inputs.vectors import MAX_MAGNITUDE
from lsqindex._storage.format import kept, keys, meta, records
from lsqindex._storage.format.meta import Options
from lsqindex.errors import DamagedError, VectorError
from lsqindex.testing import reference
from tests.settings import FIXTURES

DIM, LAYOUT = 24, "scaled-float16"
LSH: dict[str, Any] = {"encoder": "lsh", "bits": 48, "train_size": 100}


def random(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


# -- a row ---------------------------------------------------------------------------------------------


def test_a_row_is_a_scale_and_then_the_numbers() -> None:
    vectors = np.array([[1, -2, 0.5], [2.0**20, -(2.0**20), 2.0**19], [0, 0, 0]], np.float32)
    rows = kept.to_bytes(vectors, LAYOUT)
    assert [row.tobytes() for row in rows] == [
        struct.pack("<f3e", 1, 1, -2, 0.5),
        struct.pack("<f3e", 2.0**20, 1, -1, 0.5),
        struct.pack("<f3e", 1, 0, 0, 0),
    ]
    assert np.array_equal(kept.from_bytes(rows, LAYOUT), vectors)
    assert kept.width(3, LAYOUT) == 10 and kept.to_bytes(vectors[:0], LAYOUT).shape == (0, 10)


@settings(deadline=None)
@given(arrays(np.float32, (3, 9), elements=st.floats(-MAX_MAGNITUDE, MAX_MAGNITUDE)))
def test_whatever_the_door_admits_keeps_eleven_bits_of_its_largest_number(vectors: NDArray[np.float32]) -> None:
    rows = kept.to_bytes(vectors, LAYOUT)
    assert kept.sound(rows, LAYOUT)
    largest = np.abs(vectors.astype(np.float64)).max(axis=1, keepdims=True)
    assert (np.abs(kept.from_bytes(rows, LAYOUT).astype(np.float64) - vectors) <= 2.0**-11 * largest).all()


@settings(deadline=None)
@given(arrays(np.float32, (3, 9), elements=st.floats(-65504, 65504, width=32)))
def test_vectors_of_ordinary_size_have_the_bits_of_float16(vectors: NDArray[np.float32]) -> None:
    vectors[:, 0] = 1
    rows = kept.to_bytes(vectors, LAYOUT)
    assert (rows[:, :4].copy().view("<f4") == 1).all()
    assert rows[:, 4:].tobytes() == vectors.astype("<f2").tobytes()


@pytest.mark.parametrize("largest", [65519.0, 65520.0, 2.0**-10, 2.0**-11, 2.0**-126, 2.0**-149, MAX_MAGNITUDE])
def test_the_edges_of_a_scale(largest: float) -> None:
    """65,520 would be rounded to infinity; the smallest float32 of all has no normal power of two of its own."""
    vectors = np.array([[largest, -largest]], np.float32)
    rows = kept.to_bytes(vectors, LAYOUT)
    assert kept.sound(rows, LAYOUT)
    np.testing.assert_allclose(kept.from_bytes(rows, LAYOUT), vectors, rtol=2.0**-11, atol=0)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 3.0])
def test_a_scale_that_cannot_be_is_unsound(scale: float) -> None:
    rows = kept.to_bytes(random(3), LAYOUT)
    assert kept.sound(rows, LAYOUT)
    rows[1, :4] = np.array([scale], "<f4").view(np.uint8)
    assert not kept.sound(rows, LAYOUT)


# -- an index ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("size", [1e15, 1e6, 1.0, 1e-6, 1e-15])
def test_an_index_of_vectors_of_any_size_lives(tmp_path: Path, metric: Any, size: float) -> None:
    vectors, new = (random(500) * (size / 6)).astype(np.float32), (random(40, 1) * (size / 6)).astype(np.float32)
    with Index.create(tmp_path / "a.lsq", DIM, metric=metric, keep_vectors="float16", **LSH) as index:
        index.add(vectors)
        index.add(new, ids=range(40), upsert=True)
        index.delete(range(490, 500))
        living = np.concatenate([new, vectors[40:490]])
        index.compact()
        index.save(tmp_path / "copy.lsq")
    for name in ("a.lsq", "copy.lsq"):
        with Index.open(tmp_path / name) as index:
            assert index.stats()["keep_vectors"] == "float16" and index.check() == []
            for _ in range(2):
                held = index.get(np.arange(490))
                assert (np.abs(held - living).max(axis=1) <= 2.0**-11 * np.abs(living).max(axis=1)).all()
                found = index.search(new[:5], 10, rerank=490)
                for i in range(5):
                    truth = reference.exact_distances(held, metric, new[i])
                    assert found.ids[i].tolist() == np.lexsort((np.arange(490), truth))[:10].tolist()
                    told = truth if metric == "ip" else np.maximum(truth, 0)
                    assert found.distances[i].tolist() == np.sort(told)[:10].tolist()
                index.reencode("itq", bits=16)


@pytest.mark.parametrize("size", [1e-6, 1e-20, 1e-30, 1e12])
def test_cosine_of_vectors_of_any_size_finds_what_it_finds_among_unit_vectors(size: float) -> None:
    vectors, queries = random(2000), random(50, seed=5)
    index = Index(DIM, metric="cosine", keep_vectors="float16", **LSH)
    index.add(vectors * np.float32(size))
    lengths = np.linalg.norm(vectors, axis=1)
    truth = np.argsort(-(queries @ vectors.T) / lengths, axis=1)[:, :10]
    found = index.search(queries * np.float32(size), 10, rerank=2000).ids
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), truth.tolist(), strict=True)]) > 0.99


@pytest.mark.parametrize("scale", [np.nan, -1.0, 3.0])
def test_check_finds_a_damaged_scale(tmp_path: Path, scale: float) -> None:
    """A record with a valid checksum may still be forged."""
    path = tmp_path / "a.lsq"
    with Index.create(path, DIM, keep_vectors="float16", **LSH) as index:
        index.add(random(200))
        assert index.check() == []
    with lmdb.open(str(path), subdir=False, lib_version=0, max_dbs=6, map_size=1 << 26) as env:
        vectors, options = (env.open_db(name, create=False) for name in (keys.VECTORS, keys.META))
        with env.begin(write=True) as txn:
            key = keys.row(keys.vectors_prefix(), 0)
            header, payload = records.decode(txn.get(key, db=vectors), "test")
            assert header.width == 2 * DIM + 4
            txn.put(key, records.encode(header, struct.pack("<f", scale) + bytes(payload)[4:]), db=vectors)
            state = meta.unpack(txn.get(keys.STATE, db=options), "test")
            txn.put(keys.STATE, meta.pack({**state, "txn": txn.id()}), db=options)
    with Index.open(path) as index:
        assert any("scale" in line for line in index.check())


# -- files from before format 4: rows without a scale ----------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of format 1 with 563 vectors of 8 numbers in float16, and ids from -101 on."""
    shutil.copyfile(FIXTURES / "format1-trained.lsq", tmp_path / "old.lsq")
    return tmp_path / "old.lsq"


def test_an_old_file_keeps_its_rows_and_takes_new_ones(old: Path, tmp_path: Path) -> None:
    with Index.open(old) as index:
        assert index.stats()["keep_vectors"] == "float16"
        before, names = index.get(index.ids()), index.ids()
        query = before[7].astype(np.float32) + 0.25
        index.add(np.full((1, 8), 3, np.float32), ids=[77_777])
        index.compact()
        index.save(tmp_path / "copy.lsq")
    everything = np.concatenate([before, np.full((1, 8), 3, np.float32)])
    truth = np.lexsort((np.array([*names, 77_777]), reference.exact_distances(everything, "l2", query)))[:10]
    for path in (old, tmp_path / "copy.lsq"):
        with Index.open(path) as index:
            assert index.check() == [] and index.stats()["keep_vectors"] == "float16"
            assert np.array_equal(index.get([*names, 77_777]), everything)
            assert index.search(query, 10, rerank=600).ids.tolist() == [int([*names, 77_777][i]) for i in truth]


def test_an_old_file_refuses_numbers_beyond_float16(old: Path) -> None:
    big = np.array([[1] * 8, [1] * 7 + [70_000]], np.float32)
    with Index.open(old) as index:
        count = len(index)
        words = r"row 1 has numbers beyond the range of float16 \(±65504\).*; scale the vectors, or build a new index"
        with pytest.raises(VectorError, match=words):
            index.add(big, ids=[98_000, 99_000])
        with index.batch() as batch, pytest.raises(VectorError, match=words):
            batch.add(big, ids=[98_000, 99_000])
        assert len(index) == count and index.check() == []


def test_a_file_of_an_old_format_with_scales_is_damaged() -> None:
    options = {"program": "lsqindex", "dim": 8, "metric": "l2", "ids": "int", "train_size": 1, "uuid": bytes(16)}
    record = {**options, "fields": [], "keep_vectors": LAYOUT}
    assert Options.from_record(meta.pack({**record, "format": 4})).keep_vectors == LAYOUT
    with pytest.raises(DamagedError, match="scaled vectors"):
        Options.from_record(meta.pack({**record, "format": 3}))
