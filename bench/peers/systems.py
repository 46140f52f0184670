"""Who is compared: systems, how each is made, and the settings that its curve is drawn through."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Setting = dict[str, Any]

#: The distribution of each adapter's library, the module of the adapter, and its class.
_ADAPTERS = {
    "lsqindex": ("lsqindex", "of_lsqindex", "LsqIndex"),
    "faiss": ("faiss-cpu", "of_faiss", "Faiss"),
    "faiss binary": ("faiss-cpu", "of_faiss", "FaissBinary"),
    "usearch": ("usearch", "of_usearch", "USearch"),
    "hnswlib": ("hnswlib", "of_hnswlib", "Hnswlib"),
    "scann": ("scann", "of_scann", "Scann"),
    "rabitq": ("rabitqlib", "of_rabitq", "RaBitQIvf"),
    "symphonyqg": ("rabitqlib", "of_rabitq", "SymphonyQG"),
    "sqlite-vec": ("sqlite-vec", "of_sqlite_vec", "SqliteVec"),
    "lancedb": ("lancedb", "of_lancedb", "LanceDB"),
}
PACKAGES = tuple(dict.fromkeys(package for package, _, _ in _ADAPTERS.values()))


@dataclass(frozen=True)
class System:
    """An index of one library, made in one way."""

    name: str
    #: Which adapter, and what it is made with.
    peer: str
    kind: Mapping[str, Any]
    #: For each k what its searches are asked with, from fast to good.
    settings: Mapping[int, Sequence[Setting]] = field(hash=False)
    #: The metrics that it is for.
    metrics: tuple[str, ...] = ("l2", "cosine")
    #: Whether another system of the list opens and changes as this one does.
    alike: bool = False
    #: Whether it takes several queries in one call.
    batches: bool = True

    @property
    def package(self) -> str:
        return _ADAPTERS[self.peer][0]

    @property
    def module(self) -> str:
        return f"bench.peers.{_ADAPTERS[self.peer][1]}"

    @property
    def adapter(self) -> str:
        return _ADAPTERS[self.peer][2]

    @property
    def installed(self) -> bool:
        return version(self.package) is not None

    def usual(self, k: int) -> Setting:
        """The setting that is taken where one must do: in the middle of the curve."""
        own = self.settings[k]
        return own[len(own) // 2]

    def __hash__(self) -> int:
        return hash(self.name)


def version(package: str) -> str | None:
    """Of a distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def shown(setting: Setting) -> str:
    """
    >>> shown({"strategy": "subset", "probes": 64})
    'strategy=subset, probes=64'
    """
    return ", ".join(f"{name}={value}" for name, value in setting.items())


def each(name: str, values: Sequence[float], **others: Any) -> list[Setting]:
    """
    >>> each("ef", [20, 50])
    [{'ef': 20}, {'ef': 50}]
    """
    return [{**others, name: value} for value in values]


_WHOLE: Setting = {"strategy": "scan", "progressive": False}
_HEADS: Setting = {"strategy": "scan"}


def _subset(sweep: Sequence[tuple[int, int]]) -> list[Setting]:
    plain = [{"strategy": "subset", "probes": probes, "rerank": 0} for probes, _ in sweep[1::2]]
    return plain + [{"strategy": "subset", "probes": p, "candidates": c, "rerank": c} for p, c in sweep]


def _scans(reranks: Sequence[int]) -> list[Setting]:
    return [
        *({**_HEADS, "rerank": rows} for rows in reranks),
        {**_WHOLE, "rerank": reranks[len(reranks) // 2]},
    ]


def systems(bits: int, axes: int, fields: int, lists: int, opq_learn: int) -> list[System]:
    """All of them; ``bits`` a code of ours, and as many in those of others that have codes alone."""
    both = (10, 100)
    codes: dict[int, list[Setting]] = {k: [_WHOLE, _HEADS] for k in both}
    reranks = {10: (15, 25, 50, 100), 100: (110, 150, 250, 500)}
    sweep = {
        10: ((64, 150), (128, 250), (256, 600), (512, 1300)),
        100: ((128, 600), (256, 1200), (512, 2500), (1024, 5000)),
    }
    graph = {10: (16, 32, 48, 64, 96, 128, 192, 256), 100: (100, 150, 250, 400, 600)}
    probes = {
        10: ((4, 6), (8, 6), (8, 10), (16, 10), (24, 10), (32, 10), (48, 15), (64, 20), (96, 20)),
        100: ((8, 3), (16, 4), (32, 4), (64, 6), (96, 8), (128, 10)),
    }
    leaves = {
        10: ((6, 40), (10, 60), (14, 60), (20, 100), (28, 100), (40, 100), (60, 150), (80, 200), (120, 300)),
        100: ((10, 200), (20, 200), (40, 300), (80, 500), (120, 600), (160, 800)),
    }
    nprobes = {10: (4, 8, 12, 16, 24, 32, 48, 64, 96, 128), 100: (8, 16, 32, 64, 96, 128, 192)}
    beams = {10: (16, 24, 32, 48, 64, 96, 128, 192, 256), 100: (100, 150, 250, 400, 600)}
    none: dict[int, list[Setting]] = {k: [{}] for k in both}
    refined = {k: [{"nprobe": nprobe, "k_factor": factor} for nprobe, factor in sweep] for k, sweep in probes.items()}
    lance = {
        k: [{"nprobes": nprobe, "refine_factor": factor} for nprobe, factor in sweep[1:]] for k, sweep in probes.items()
    }
    ef = {k: each("efSearch", values) for k, values in graph.items()}
    shared = {"encoder": "lsq", "bits": bits}
    return [
        System(f"lsqindex lsq {bits}, codes", "lsqindex", shared, codes),
        System(
            f"lsqindex lsq {bits} + float16",
            "lsqindex",
            {**shared, "keep_vectors": "float16"},
            {k: _scans(rows) for k, rows in reranks.items()},
        ),
        System(
            f"lsqindex lsq {bits} + int8",
            "lsqindex",
            {**shared, "keep_vectors": "int8"},
            {k: each("rerank", rows, **_HEADS) for k, rows in reranks.items()},
            alike=True,
        ),
        System(
            f"lsqindex lsq {bits} + int8, cells",
            "lsqindex",
            {**shared, "keep_vectors": "int8", "subset": "cells"},
            {k: each("recall", (0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995)) for k in both},
        ),
        System(
            f"lsqindex lsq {bits} + float16, cells",
            "lsqindex",
            {**shared, "keep_vectors": "float16", "subset": "cells"},
            {k: each("recall", (0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995)) for k in both},
            alike=True,
        ),
        System(
            f"lsqindex lsh {bits} + float16, multi-index",
            "lsqindex",
            {"encoder": "lsh", "bits": bits, "axes": axes, "keep_vectors": "float16", "subset": "multi-index"},
            {k: _subset(own) for k, own in sweep.items()},
        ),
        System("faiss Flat", "faiss", {"factory": "Flat"}, none),
        System(f"faiss PQ{fields}x4fs", "faiss", {"factory": "PQ«M»x4fs", "fields": fields}, none),
        System(
            f"faiss OPQ{fields},PQ{fields}x4fs",
            "faiss",
            {"factory": "OPQ«M»,PQ«M»x4fs", "fields": fields, "learn": opq_learn},
            none,
            alike=True,
        ),
        System(
            f"faiss IVF{lists},PQ{fields}x4fs,RFlat",
            "faiss",
            {"factory": "IVF«L»,PQ«M»x4fs,RFlat", "fields": fields, "lists": lists},
            refined,
        ),
        System("faiss HNSW16", "faiss", {"factory": "HNSW16,Flat"}, ef),
        System(f"faiss ITQ{bits}, BinaryFlat", "faiss binary", {"bits": bits}, none),
        System(
            f"faiss ITQ{bits}, BinaryHash16",
            "faiss binary",
            {"bits": bits, "hash_bits": 16},
            {k: each("nflip", (0, 1, 2)) for k in both},
            alike=True,
        ),
        *(
            System(
                f"usearch {dtype}",
                "usearch",
                {"dtype": dtype},
                {k: each("expansion", values) for k, values in graph.items()},
                # Its int8 vectors all have the same length.
                ("cosine",) if dtype == "i8" else ("l2", "cosine"),
                alike=dtype != "f16",
            )
            for dtype in ("f32", "f16", "i8")
        ),
        System("hnswlib M16", "hnswlib", {}, {k: each("ef", values) for k, values in graph.items()}),
        System(
            "scann",
            "scann",
            {},
            {k: [{"leaves": n, "reorder": rows} for n, rows in sweep] for k, sweep in leaves.items()},
        ),
        System(
            f"rabitqlib IVF{lists}, 7 bits",
            "rabitq",
            {"lists": lists, "bits": 7},
            {k: each("nprobe", values) for k, values in nprobes.items()},
        ),
        System(
            "rabitqlib SymphonyQG 32",
            "symphonyqg",
            {"degree": 32},
            {k: each("ef", values) for k, values in beams.items()},
            # It cannot be added to.
            alike=True,
        ),
        System("sqlite-vec float32", "sqlite-vec", {}, none, batches=False),
        System(
            "sqlite-vec bits, float32",
            "sqlite-vec",
            {"bits": True},
            {k: each("candidates", [k * factor for factor in (4, 16)]) for k in both},
            alike=True,
            batches=False,
        ),
        System("lancedb IVF_PQ", "lancedb", {"index": "IVF_PQ", "cells": lists // 2}, lance),
        System(
            "lancedb IVF_HNSW_SQ",
            "lancedb",
            {"index": "IVF_HNSW_SQ"},
            {k: each("ef", values[1:], nprobes=1) for k, values in graph.items()},
            alike=True,
        ),
    ]
