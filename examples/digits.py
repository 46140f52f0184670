"""Compress real images with every encoder, store the encoder, search the codes: the main job, small.

Run it with ``make demo``. Data: scikit-learn's handwritten digits, 1,797 images of 64 pixels.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from lsqindex import make_encoder
from lsqindex.encoders import from_bytes, to_bytes
from lsqindex.reference import distances

ENCODERS: dict[str, dict[str, int]] = {
    "lsq": {"bits": 64},
    "ckmeans": {"bits": 64, "field_bits": 4},
    "pq": {"bits": 64, "field_bits": 4},
    "itq": {"bits": 64},
    "okmeans": {"bits": 64},
    "lsh": {"bits": 64},
}


def main() -> None:
    """Print a table of bytes, error and recall, and what the stored encoder finds for one image."""
    digits = load_digits()
    images = digits.data.astype(np.float32)
    base, queries = images[:-200], images[-200:]
    exact = np.square(queries[:, None] - base[None]).sum(axis=2).argsort(axis=1)[:, :10]
    energy = float(np.square(base - base.mean(axis=0)).sum())
    print(f"{len(base):,} images of {base.shape[1]} pixels, {base.nbytes // len(base)} bytes each")
    print(f"{len(queries)} queries, not among them\n")
    print(f"{'encoder':<9}{'bytes':>6}{'error':>9}{'recall10@10':>13}{'train s':>9}")
    for name, parameters in ENCODERS.items():
        begin = time.perf_counter()
        encoder = make_encoder(name, **parameters).fit(base)
        seconds = time.perf_counter() - begin
        codes = encoder.encode(base)
        error = float(np.square(base - encoder.decode(codes)).sum()) / energy
        found = distances(codes, encoder.layout, encoder.tables(queries)).argsort(axis=1, kind="stable")[:, :10]
        recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, exact, strict=True)])
        print(f"{name:<9}{encoder.code_size:>6}{error:>9.3f}{recall:>13.3f}{seconds:>9.2f}")
        if name == "lsq":
            stored = to_bytes(encoder)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "encoder.msgpack")
        path.write_bytes(stored)
        again = from_bytes(path.read_bytes())
    near = distances(again.encode(base), again.layout, again.tables(queries[:1]))[0].argsort()[:10]
    print(
        f"\nlsq, read back from {len(stored):,} bytes: a «{digits.target[-200]}» finds {digits.target[near].tolist()}"
    )


if __name__ == "__main__":
    main()
