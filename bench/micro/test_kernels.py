"""Encoding, scanning, adding up posting lists, exact distances: the compiled parts, without a file around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.kernels import KERNELS, Kernel
from lsqindex import Index, MultiIndex, make_encoder
from lsqindex._compiled import encoding as _kernels
from lsqindex._compiled import exact as _exact
from lsqindex._compiled import records as _records
from lsqindex._compiled import scan as _scan
from lsqindex._query.sources import multi_index as by_lists
from lsqindex._storage.format import kept, records
from lsqindex._storage.format.columns import CHUNK_ROWS, Column
from lsqindex._storage.store import Store
from lsqindex.encoders import Encoder

Vectors = NDArray[np.float32]

BITS = 256
QUERIES = 16


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_encoding_kernel(benchmark: Any, kernel: Kernel) -> None:
    arguments = kernel.inputs(BITS, 500, np.random.default_rng(0))

    def fresh() -> tuple[tuple[object, ...], dict[str, object]]:
        return tuple(value.copy() if isinstance(value, np.ndarray) else value for value in arguments), {}

    benchmark.pedantic(getattr(_kernels, kernel.name), setup=fresh, rounds=20)


@pytest.mark.parametrize("levels", [2, 16])
def test_encode(benchmark: Any, vectors: Vectors, levels: int) -> None:
    encoder = make_encoder("lsq", bits=64, levels=levels).fit(vectors[::10])
    codes = benchmark(encoder.encode, vectors[:1000], threads=1)
    assert codes.shape == (1000, 8)


@pytest.fixture(scope="module")
def hashes(vectors: Vectors) -> Encoder:
    return make_encoder("lsh", bits=BITS).fit(vectors)


@pytest.mark.parametrize("queries", [1, QUERIES])
def test_scan(benchmark: Any, vectors: Vectors, hashes: Encoder, queries: int) -> None:
    layout, codes = hashes.layout, hashes.encode(vectors)
    column = Column(b"codes", b"c", records.CODES, codes.shape[1], head=codes.shape[1])
    record = np.frombuffer(column.encode(0, codes), np.uint8)
    stored = _scan.Codes(
        np.zeros(1, np.uint32),
        np.array([len(codes)], np.uint32),
        np.array([_records.address(record) + records.HEADER_SIZE], np.uint64),
        codes.shape[1],
        codes.shape[1],
        layout.starts,
        layout.bit_starts,
        layout.level_counts,
        np.empty(0, np.uint64),
        CHUNK_ROWS,
    )
    tables = hashes.tables(vectors[:queries], "l2", "asymmetric")

    def scan() -> int:
        work = _scan.Scan(stored, tables.values, tables.bias, 10, True)
        work.run()
        return int(work.finish()[0].sum())

    assert benchmark(scan) >= 10 * queries


def test_accumulate(benchmark: Any, vectors: Vectors, hashes: Encoder) -> None:
    with Index(dim=vectors.shape[1], encoder=hashes, subset=MultiIndex(bits=8), keep_vectors=None) as index:
        index.add(vectors)
        index.merge()
        with index._reader() as reader:
            store, coder = Store(reader, index._options), index._coder(reader)
            lists = by_lists._stored_lists(store, coder)
            values = hashes.probe_tables(vectors[:1], coder.metric).values[0]
            assert benchmark(lists.accumulate, values, 256, 1) > 0


@pytest.mark.parametrize("kind", kept.KINDS)
def test_exact(benchmark: Any, vectors: Vectors, kind: str) -> None:
    rows = kept.to_bytes(vectors[:4000], kind)
    some = np.random.default_rng(0).integers(0, 4000, 1000).astype(np.uint32)
    distances = benchmark(
        _exact.distances,
        np.zeros(1, np.uint32),
        np.array([len(rows)], np.uint32),
        np.array([_records.address(rows.reshape(-1))], np.uint64),
        kind,
        vectors.shape[1],
        "l2",
        vectors[:1],
        np.array([len(some)], np.int64),
        some,
    )
    assert len(distances) == len(some)
