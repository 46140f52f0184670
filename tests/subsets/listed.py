"""Posting lists, read without this package's own readers: every block of every table, held against the codes."""

from __future__ import annotations

import shutil
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
from numpy.typing import NDArray

from lsqindex import Index
from lsqindex._storage.format import columns, keys, meta, records
from lsqindex._storage.lmdb.reader import Reader
from lsqindex._storage.store import Store
from lsqindex._subsets import stored as subsets
from lsqindex._subsets.multi_index.lists import Lists
from lsqindex._subsets.multi_index.structure import MultiIndexStructure
from lsqindex._subsets.multi_index.tables import Tables
from lsqindex.testing import reference

CHUNK, UNIT, SEGMENT = 4064, 16_256, 65_024
DIM = 4


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


def create(path: Path | None, n: int = 0, *, subset: Any = "multi-index", **options: Any) -> Index:
    """An index whose codes are LSH of 16 bits, trained, with ``n`` vectors in it."""
    options = {"dim": DIM, "encoder": "lsh", "bits": 16, "subset": subset, "keep_vectors": None, **options}
    index = Index(**options) if path is None else Index.create(path, **options)
    index.train(vectors(300))
    if n:
        index.add(vectors(n))
    return index


class Content:
    """A file, read by LMDB and msgpack alone: a copy of it, for a process may open a file once."""

    def __init__(self, path: Path) -> None:
        copy = shutil.copyfile(path, path.with_suffix(".read"))
        with lmdb.open(str(copy), subdir=False, lib_version=0, readonly=True, lock=False, max_dbs=8) as own:
            with own.begin() as txn:
                names = [name for name in keys.DATABASES if txn.get(name) is not None]
            dbs = {name: own.open_db(name, create=False) for name in names}
            with own.begin() as txn:
                self.entries = {name: dict(txn.cursor(db=db)) for name, db in dbs.items()}
        copy.unlink()
        self.meta: dict[bytes, Any] = {
            key: msgpack.unpackb(value[48:]) for key, value in self.entries[keys.META].items()
        }
        self.state, self.options = self.meta[b"state"], self.meta[b"options"]

    def codes(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The stored rows, and their codes."""
        rows, codes = [np.empty(0, np.int64)], [np.empty((0, self.state["code_size"]), np.uint8)]
        prefix = b"c" + struct.pack(">I", self.state["generation"])
        for key, value in self.entries[keys.CODES].items():
            if key.startswith(prefix):
                (first,), (count,) = struct.unpack(">I", key[5:]), struct.unpack_from("<I", value, 4)
                size, head = self.state["code_size"], self.state["head"]
                blocked = np.frombuffer(value[48:], np.uint8)
                own = columns.from_blocks(blocked, count, size, head) if head else blocked.reshape(count, size)
                rows.append(np.arange(first, first + count))
                codes.append(own[: max(0, self.state["rows"] - first)])
        return np.concatenate(rows)[: sum(map(len, codes))], np.concatenate(codes)

    def blocks(self) -> dict[int, list[bytes]]:
        """The records of all tables, by the first row of their block."""
        found: dict[int, list[bytes]] = {}
        for key, value in self.entries.get(keys.POSTINGS, {}).items():
            kind, generation, first, table = struct.unpack(">cIIH", key)
            assert (kind, generation, table) == (b"p", self.state["generation"], len(found.setdefault(first, [])))
            found[first].append(value)
        return found


def lists_of(path: Path) -> list[tuple[int, int, int]]:
    """(first row, row after, rows named) of each block; all are what the codes say, and every listed row is in one."""
    content = Content(path)
    state, subset, blocks = content.state, content.meta.get(b"subset"), content.blocks()
    if subset is None:
        assert not blocks and not state["listed"]
        return []
    rows, codes = content.codes()
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64)
    firsts, found, seen = sorted(blocks), [], 0
    for first, after in pairwise([*firsts, state["listed"]]):
        end = min(after, (first // SEGMENT + 1) * SEGMENT)
        here = (rows >= first) & (rows < end)
        seen += int(here.sum())
        count = same_lists(blocks[first], subset, first, rows[here] - first, bits[here])
        found.append((first, end, count))
    assert seen == int((rows < state["listed"]).sum()), "a listed row is in no block"
    return found


def same_lists(
    values: list[bytes], subset: dict[str, Any], first: int, rows: NDArray[np.int64], bits: NDArray[np.int64]
) -> int:
    """The records of a block name these rows, by these bits of their codes; how many they name, gone ones included."""
    counts = set()
    for table, (value, begin, width) in enumerate(zip(values, subset["tables"], subset["widths"], strict=True)):
        wanted = bits[:, begin : begin + width] @ (1 << np.arange(width))
        header, payload = records.decode(value, "lists")
        counts.add(header.count)
        assert (header.kind, header.first, header.width, header.head) == (b"p", first, width, table)
        if header.count == len(rows):
            assert payload.tobytes() == reference.list_payload(wanted, rows, width).tobytes()
            continue
        buckets, named = unpacked(payload, header.count, width)
        there = np.isin(named, rows)
        assert len(set(named.tolist())) == header.count and set(rows.tolist()) <= set(named.tolist())
        order = np.argsort(named[there], kind="stable")
        assert np.array_equal(named[there][order], rows) and np.array_equal(buckets[there][order], wanted)
    (count,) = counts
    return int(count)


def unpacked(payload: Any, count: int, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bucket and row of each posting, as docs/format.md tells."""
    bins = 1 << min(bits, 14)
    starts = np.frombuffer(payload, "<u2", bins + 1).astype(np.int64)
    rows = np.frombuffer(payload, "<u2", count, 2 * (bins + 1)).astype(np.int64)
    buckets = np.repeat(np.arange(bins), np.diff(starts))
    if bits > 14:
        low = np.frombuffer(payload, np.uint8, count, 2 * (bins + 1 + count))
        buckets = (buckets << (bits - 14)) + low
    return buckets, rows


def sound(index: Index) -> list[tuple[int, int, int]]:
    """The blocks of an index in which everything is as it must be."""
    assert index.check() == []
    assert index.path is not None
    return lists_of(Path(index.path))


def state_of(index: Index) -> meta.State:
    with index._reader() as reader:
        return reader.state


def agree(index: Index) -> None:
    """A search that looks into every bucket finds what a scan finds; lists that are remembered lie where they are."""
    if index.subset is None:
        return
    with index._reader() as reader:
        remembered = found_lists(index, reader)
        reader.env.forget()
        looked_up = found_lists(index, reader)
        for name in ("firsts", "counts", "spans", "addresses", "bits"):
            assert np.array_equal(getattr(remembered, name), getattr(looked_up, name)), name
    everything = sum(1 << int(width) for width in subset_of(index).widths)
    queries = vectors(2, 17)
    near = index.search(queries, 20, probes=everything, candidates=len(index) + 1, rerank=0)
    scanned = index.search(queries, 20, strategy="scan", rerank=0)
    assert np.array_equal(near.ids, scanned.ids) and np.array_equal(near.distances, scanned.distances)


def found_lists(index: Index, reader: Reader) -> Lists:
    subset = subsets.read(reader)
    assert isinstance(subset, MultiIndexStructure)
    found = subset.lists(Store(reader, index._options))
    assert found is not None
    return found


def subset_of(index: Index) -> Tables:
    with index._reader() as reader:
        subset = subsets.read(reader)
    assert isinstance(subset, MultiIndexStructure)
    return subset.tables
