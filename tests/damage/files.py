"""The sound files that are damaged: one of every kind of content an index can have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lsqindex import Cells, Index, MultiIndex


def vectors(n: int, dim: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def names(n: int) -> list[str]:
    return [f"név {i * 7919 % 100_003}" for i in range(n)]


def make_untrained(path: Path) -> None:
    """Int ids in no order, pieces that are not full, deleted rows, pages that are free again."""
    with Index.create(path, dim=10, keep_vectors=None) as index:
        ids = np.random.default_rng(1).permutation(10_000)[:150] - 2_000
        index.add(vectors(100, 10), ids=ids[:100])
        index.add(vectors(1, 10, 1), ids=ids[100:101])
        index.add(vectors(49, 10, 2), ids=ids[101:])
        index.delete(ids[20:50])
        index.add(vectors(10, 10, 3), ids=ids[50:60], upsert=True)


def make_untrained_str(path: Path) -> None:
    """String ids, kept vectors, an encoder that waits."""
    with Index.create(path, dim=5, ids="str", metric="cosine", keep_vectors="float32", bits=16) as index:
        index.add(vectors(90, 5), ids=names(90))
        index.delete(names(90)[10:20])


def make_trained(path: Path) -> None:
    """Trained codes, kept vectors, deleted rows, several leaves and a branch in each tree."""
    with Index.create(path, dim=8, bits=32, keep_vectors="float16", iterations=2, train_size=300) as index:
        index.add(vectors(1_300, 8))
        for i in range(5):
            index.add(vectors(3, 8, i))
        index.delete(range(100, 300))


def make_trained_str(path: Path) -> None:
    """String ids, trained by another encoder, inner product."""
    with Index.create(
        path, dim=6, ids="str", metric="ip", encoder="itq", bits=6, iterations=2, keep_vectors=None
    ) as index:
        index.add(vectors(400, 6), ids=names(400))
        index.train()
        index.delete(names(400)[::7])


def make_chunks(path: Path) -> None:
    """More than a chunk, of which the first was given back: full parts, a gap, large values, free pages."""
    with Index.create(path, dim=4, bits=16, iterations=1, train_size=500, keep_vectors=None) as index:
        index.add(vectors(9_000, 4))
        index.delete(range(1_500))
        index.delete(range(8_000, 8_100))


def make_freed(path: Path) -> None:
    """A free list too long for a leaf: training gives back the pages of all vectors."""
    with Index.create(path, dim=64, bits=16, iterations=1, keep_vectors=None) as index:
        index.add(vectors(4_100, 64))
        index.train()


def make_lists(path: Path) -> None:
    """Posting lists: a block of a unit, of which a chunk is gone, a last block, and fresh rows."""
    subset = MultiIndex(bits=15)
    with Index.create(path, dim=4, encoder="lsh", bits=18, train_size=500, subset=subset, keep_vectors=None) as index:
        index.add(vectors(17_000, 4))
        index.delete(range(4064, 2 * 4064))
        index.merge()
        index.delete(range(50))
        index.add(vectors(40, 4, 1))


def make_few_lists(path: Path) -> None:
    """Tables of 15 and of 8 bits, these in a value that is not large; the last byte has a bit more than the code."""
    with Index.create(
        path, dim=6, encoder="lsh", bits=23, ids="str", subset=MultiIndex(bits=15), keep_vectors=None
    ) as index:
        index.add(vectors(300, 6), ids=names(300))
        index.train()
        index.delete(names(300)[::9])
        index.merge()
        index.add(vectors(5, 6, 1), ids=names(310)[300:305])


def make_cells(path: Path) -> None:
    """Cells with tails; deleted and fresh rows, a chunk that is gone."""
    with Index.create(path, dim=6, encoder="lsh", bits=20, subset=Cells(9), keep_vectors="int8") as index:
        index.train(vectors(50, 6))
        index.add(vectors(9_000, 6))
        index.merge()
        index.delete(range(4064, 2 * 4064))
        index.add(vectors(40, 6, 1))
        index.merge()
        index.delete(range(50))
        index.add(vectors(5, 6, 2))


def payload(i: int) -> dict[str, Any] | None:
    return (
        None
        if i % 5 == 4
        else {"lang": ["en", "vi", "eo"][i % 3], "n": i, "tags": [f"t{i % 4}"], "text": "é" * (i % 9)}
    )


def make_payloads(path: Path) -> None:
    """Payloads in a full part, groups and pieces; two indexed fields; deleted rows and rows without a payload."""
    options: dict[str, Any] = {"encoder": "lsh", "bits": 32, "train_size": 300, "keep_vectors": "float16"}
    with Index.create(path, dim=8, fields=["lang", "tags"], **options) as index:
        index.add(vectors(700, 8), payloads=[payload(i) for i in range(700)])
        index.add(vectors(5, 8, 1))
        index.delete(range(100, 160))
        index.set_payloads([3, 300], [{"lang": "fr"}, None])


def make_large_payloads(path: Path) -> None:
    """Large payloads beside small ones, some of them gone; an indexed field."""
    with Index.create(path, dim=4, fields=["lang"], keep_vectors=None) as index:
        given = [{"lang": "en", "text": "é" * size} for size in (3, 6_000, 9_990, 40_000, 6, 9_000)]
        index.add(vectors(6, 4), payloads=given)
        index.delete([3])
        index.add(vectors(1, 4, 1), ids=[1], payloads=[{"lang": "vi", "text": "x" * 20_000}], upsert=True)


def make_rewriting(path: Path) -> None:
    """Trained by itself, and again after other vectors came: two generations of codes, the second not finished."""
    with Index.create(path, dim=8, bits=32, keep_vectors="float16", iterations=2, train_size=1_600) as index:
        index.add(vectors(1_600, 8))
        index.add(vectors(227, 8, 1) * 9 + 40)
        index.add(vectors(1, 8, 2) + 40)
        index.delete(range(30, 60))


VARIANTS: dict[str, Callable[[Path], None]] = {
    "untrained": make_untrained,
    "untrained str": make_untrained_str,
    "trained": make_trained,
    "trained str": make_trained_str,
    "chunks": make_chunks,
    "freed": make_freed,
    "lists": make_lists,
    "few lists": make_few_lists,
    "cells": make_cells,
    "payloads": make_payloads,
    "large payloads": make_large_payloads,
    "rewriting": make_rewriting,
}
