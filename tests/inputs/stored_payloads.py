"""Payloads of every kind, and whether an index has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Index, MultiIndex
from lsqindex._storage.format import columns

DIM = 3
CHUNK = columns.CHUNK_ROWS
#: The ways to have an index; what is the same in all of them is tested in all of them.
OPTIONS: dict[str, dict[str, Any]] = {
    "untrained": {"train_size": 1 << 40},
    "trained": {"encoder": "lsh", "bits": 16, "train_size": 10},
    "kept": {"encoder": "lsh", "bits": 16, "train_size": 10, "keep_vectors": "float16"},
    "indexed": {"fields": ["lang", "meta.year"]},
    "all": {"encoder": "lsh", "bits": 16, "train_size": 10, "keep_vectors": "int8", "fields": ["i", "lang"]},
    "lists": {"encoder": "lsh", "bits": 16, "train_size": 10, "subset": MultiIndex(bits=8), "fields": ["i"]},
}


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


def payload(i: int) -> dict[str, Any] | None:
    """None, empty, small and larger ones, by a number."""
    if i % 7 == 3:
        return None if i % 2 else {}
    return {"i": i, "lang": ["en", "vi", "eo"][i % 3], "meta": {"year": 1990 + i % 40}, "text": "é" * (i % 50)}


def payloads(first: int, end: int) -> list[Any]:
    return [payload(i) for i in range(first, end)]


def holds(index: Index, wanted: dict[Any, Any]) -> None:
    """The index has these ids and payloads, however it is asked."""
    names = sorted(wanted)
    assert [*index.ids()] == names
    given = [wanted[name] for name in names]
    assert index.payloads(names) == given
    for filter in (
        {"i": {"$gte": 40}},
        {"lang": "vi"},
        {"meta.year": {"$in": [1991, 2000]}},
        {"i": {"$exists": False}},
    ):
        ((name, test),) = filter.items()
        matching = [own for own in names if _matches(wanted[own], name, test)]
        assert [*index.ids(filter)] == matching
    assert index.check() == []


def _matches(own: Any, name: str, test: Any) -> bool:
    own = own or {}
    if name == "lang":
        return bool(own.get("lang") == test)
    if name == "meta.year":
        return own.get("meta", {}).get("year") in test["$in"]
    return ("i" in own and own["i"] >= test["$gte"]) if "$gte" in test else "i" not in own
