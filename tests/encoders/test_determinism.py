"""The same encoder and codes, to the byte, whatever the threads and the instruction set."""

from __future__ import annotations

import json
from functools import cache

import pytest

from lsqindex._compiled import encoding as _kernels
from tests.processes import run

CASES: dict[str, tuple[str, dict[str, object]]] = {
    "lsq": ("lsq", {"bits": 64, "iterations": 3}),
    "lsq 256": ("lsq", {"iterations": 1}),
    "lsq without scalar": ("lsq", {"bits": 48, "scalar": None, "iterations": 3}),
    "lsq n-ary": ("lsq", {"bits": 64, "levels": 16, "iterations": 2}),
    "lsq three": ("lsq", {"bits": 64, "levels": 3, "iterations": 2}),
    "published": ("lsq", {"bits": 40, "refine": 0, "iterations": 4}),
    "published n-ary": ("lsq", {"bits": 128, "refine": 0, "levels": 16, "iterations": 4}),
    "itq": ("itq", {"bits": 48, "iterations": 4}),
    "okmeans": ("okmeans", {"bits": 32, "iterations": 4}),
    "ckmeans": ("ckmeans", {"bits": 48, "field_bits": 6, "rotations": 2}),
    "pq": ("pq", {"bits": 56}),
    "kmeans": ("kmeans", {"bits": 7}),
    "lsh": ("lsh", {"bits": 100}),
    "lsh among axes": ("lsh", {"bits": 100, "axes": 20}),
    "flat": ("flat", {}),
}

PROGRAM = """
import hashlib, json, sys
import numpy as np
from sklearn.datasets import load_digits
from lsqindex import make_encoder
from lsqindex.encoders import to_bytes
digits = load_digits().data.astype(np.float32)
rng = np.random.default_rng(0)
random = (rng.standard_normal((2000, 48)) * np.linspace(1, 0.05, 48)).astype(np.float32)
out = {}
for case, (name, parameters) in json.loads(sys.argv[1]).items():
    for data, vectors in {"digits": digits, "random": random}.items():
        encoder = make_encoder(name, **parameters).fit(vectors)
        parts = (to_bytes(encoder), encoder.encode(vectors).tobytes())
        out[f"{case} on {data}"] = [hashlib.sha256(part).hexdigest() for part in parts]
print(json.dumps(out))
"""


@cache
def results(threads: int, simd: str) -> dict[str, list[str]]:
    said = run(PROGRAM, json.dumps(CASES), OPENBLAS_NUM_THREADS=str(threads), LSQINDEX_SIMD=simd)
    found: dict[str, list[str]] = json.loads(said)
    return found


@pytest.mark.parametrize("data", ["digits", "random"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "simd"), [(2, _kernels.simd_levels()[-1]), (1, "portable")])
def test_encoder_and_codes_do_not_depend_on_threads_or_instruction_set(
    case: str, data: str, threads: int, simd: str
) -> None:
    best = results(1, _kernels.simd_levels()[-1])[f"{case} on {data}"]
    other = results(threads, simd)[f"{case} on {data}"]
    assert other[0] == best[0], "another encoder"
    assert other[1] == best[1], "other codes"
