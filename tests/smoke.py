"""Is the installed lsqindex whole? Run by itself, on a wheel, outside this checkout: ``python smoke.py``."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import lsqindex
from lsqindex import Index, make_encoder
from lsqindex._compiled import encoding as _kernels


def main() -> None:
    """Index vectors in files that are opened again, by codes that are scanned in different ways, and find them."""
    vectors = np.random.default_rng(0).standard_normal((3000, 32)).astype(np.float32)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name in ("lsq", "itq", "pq"):
            path = Path(folder, f"{name}.lsq")
            with Index.create(path, dim=32, encoder=make_encoder(name, bits=32), keep_vectors="float16") as index:
                index.train(vectors)
                index.add(vectors)
            with Index.open(path, read_only=True) as index:
                found = index.search(vectors[:50], k=10, rerank=200)
                assert np.array_equal(found.ids[:, 0], np.arange(50)), (name, found.ids[:, 0])
                assert index.check() == [], name
    print(f"lsqindex {version('lsqindex')} in {Path(lsqindex.__file__).parent}, {', '.join(_kernels.simd_levels())}")


if __name__ == "__main__":
    main()
