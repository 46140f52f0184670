"""What is searched: arrays for the workers to read, and each system's index, built once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..material import data
from ..material.data import TRUE_NEIGHBOURS
from ..material.filled import fingerprint
from ..material.nearest import nearest
from .children import Child
from .systems import System, version

#: Vectors that are added one by one to what is there.
_EXTRA = 2_000
_BLOCK = 4096


class Shelf:
    """Indexes and arrays in a directory, each made once."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._ours = directory, fingerprint()
        directory.mkdir(parents=True, exist_ok=True)

    def array(self, name: str, what: str) -> str:
        """A file of a data set: ``base``, ``learn``, ``queries``, ``extra`` vectors; ``truth``, ``half-truth``."""
        path = self._directory / f"{name}{'-held-out' if data.HELD_OUT else ''}-{what}.npy"
        if not path.exists():
            passing = path.with_suffix(".making.npy")
            np.save(passing, _array(name, what))
            passing.rename(path)
        return str(path)

    def child(self, name: str, system: System, cores: list[int] | None = None) -> Child:
        """A worker for the system, and for vectors of that data set."""
        source = data.load(name)
        return Child(system, source.metric, source.base.shape[1], cores)

    def built(self, name: str, system: System, rows: int | None = None) -> Path:
        """The folder of the index of all vectors, or of the first ``rows``."""
        count = len(data.load(name).base) if rows is None else rows
        made_by = self._ours if system.package == "lsqindex" else version(system.package)
        recipe = json.dumps([system.peer, dict(system.kind), made_by, data.HELD_OUT], sort_keys=True)
        label = "".join(letter if letter.isalnum() else "-" for letter in system.name)
        folder = self._directory / f"{name}-{label}-{count}-{hashlib.sha256(recipe.encode()).hexdigest()[:8]}"
        if not folder.exists():
            print(f"building {system.name} of {count:,} vectors, {name} …", flush=True)
            passing = folder.with_name(folder.name + ".making")
            shutil.rmtree(passing, ignore_errors=True)
            inner = passing / "index"
            inner.mkdir(parents=True)
            with self.child(name, system) as child:
                arrays = {what: self.array(name, what) for what in ("base", "learn")}
                took = child.call("build", folder=str(inner), rows=count, **arrays)
            (passing / "built.json").write_text(json.dumps(took), encoding="utf-8")
            passing.rename(folder)
        return folder / "index"

    def build_seconds(self, name: str, system: System) -> float:
        """How long it took."""
        path = self.built(name, system).parent / "built.json"
        return float(json.loads(path.read_text(encoding="utf-8"))["seconds"])

    @contextmanager
    def copy(self, name: str, system: System, rows: int | None = None) -> Iterator[Path]:
        """A copy of such a folder, to be changed; gone afterwards."""
        folder = self._directory / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.built(name, system, rows), folder)
        if hasattr(os, "sync"):
            os.sync()  # on the disk before anything is timed
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def files(folder: Path) -> list[Path]:
    """All files of an index."""
    return [path for path in folder.rglob("*") if path.is_file()]


def size(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(path.stat().st_size for path in files(folder))


def _array(name: str, what: str) -> NDArray[np.generic]:
    source = data.load(name)
    if what == "truth":
        return source.truth
    if what == "half-truth":
        return _half_truth(source)
    if what == "extra":
        # As far from the others as these are from each other: a little noise on some of them.
        rng = np.random.default_rng(data.SEED)
        picked = source.base[rng.integers(0, len(source.base), _EXTRA)]
        noisy = picked + 0.1 * picked.std(axis=1, keepdims=True) * rng.standard_normal(picked.shape)
        return data.normalized(noisy.astype(np.float32)) if source.metric == "cosine" else noisy.astype(np.float32)
    found: NDArray[np.generic] = np.ascontiguousarray(getattr(source, what))
    return found


def _half_truth(source: data.Dataset) -> NDArray[np.int64]:
    """The nearest of each query when every second vector is gone."""
    queries = source.queries.astype(np.float64)

    def distances() -> Iterator[NDArray[np.float64]]:
        for first in range(1, len(source.base), 2 * _BLOCK):
            block = source.base[first : first + 2 * _BLOCK : 2].astype(np.float64)
            yield np.einsum("ij,ij->i", block, block) - 2 * queries @ block.T

    return 2 * nearest(distances(), len(queries), TRUE_NEIGHBOURS) + 1
