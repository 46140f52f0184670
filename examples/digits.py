"""Index real images in a file, search it from another process, swap the encoder: the main job, small.

Run it with ``make demo``. Data: scikit-learn's handwritten digits, 1,797 images of 64 pixels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from lsqindex import Index

ENCODERS: dict[str, dict[str, int]] = {
    "lsq": {"bits": 64},
    "ckmeans": {"bits": 64, "field_bits": 4},
    "pq": {"bits": 64, "field_bits": 4},
    "itq": {"bits": 64},
    "okmeans": {"bits": 64},
    "lsh": {"bits": 64},
}

ANOTHER_PROCESS = """
import sys, time
import numpy as np
from lsqindex import Index
begin = time.perf_counter()
with Index.open(sys.argv[1], read_only=True) as index:
    opened = time.perf_counter() - begin
    found = index.search(np.load(sys.argv[2]), k=10, rerank=50)
    print(f"another process: {len(index):,} vectors opened in {1000 * opened:.1f} ms, nearest ids {found.ids.tolist()}")
"""


def recall(found: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """Share of the true ten nearest among the ten returned."""
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)]))


def main() -> None:
    """Print a table of bytes and recall by encoder, and what another process finds in the file."""
    digits = load_digits()
    images = digits.data.astype(np.float32)
    base, queries = images[:-200], images[-200:]
    exact = np.square(queries[:, None] - base[None]).sum(axis=2).argsort(axis=1, kind="stable")[:, :10]
    print(f"{len(base):,} images of {base.shape[1]} pixels, {base.nbytes // len(base)} bytes each")
    print(f"{len(queries)} queries, not among them\n")

    with tempfile.TemporaryDirectory() as folder:
        path, query = Path(folder, "digits.lsq"), Path(folder, "query.npy")
        with Index.create(path, dim=64, keep_vectors="float16", train_size=1000, bits=64) as index:
            index.add(base)
            print(f"{'encoder':<9}{'bytes':>6}{'recall10@10':>13}{'re-ranked':>11}{'train + encode s':>18}")
            for name, parameters in ENCODERS.items():
                begin = time.perf_counter()
                index.reencode(name, **parameters)  # swaps codes and encoder in one transaction
                seconds = time.perf_counter() - begin
                plain, again = (recall(index.search(queries, rerank=r).ids, exact) for r in (0, 50))
                print(f"{name:<9}{index.encoder.code_size:>6}{plain:>13.3f}{again:>11.3f}{seconds:>18.2f}")
            index.reencode("lsq", bits=64)
            index.delete(np.arange(0, 1597, 2))
            index.compact()
            print(f"\nhalf deleted and compacted: {index.stats()['file_bytes']:,} bytes, check says {index.check()}")
            np.save(query, queries[0])
            print(f"a «{digits.target[-200]}» finds {digits.target[index.search(queries[0], rerank=50).ids].tolist()}")
        subprocess.run([sys.executable, "-c", ANOTHER_PROCESS, str(path), str(query)], check=True)


if __name__ == "__main__":
    main()
