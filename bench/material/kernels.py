"""The compiled kernels against the plain ones: equal to the bit at every SIMD level, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex._compiled import encoding as _kernels
from lsqindex.testing import reference

Arrays = tuple[Any, ...]

SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 64, 100, 256)
_CHECKED_ROWS = 6
_TIMED_ROWS = 4000
_TIMED_SIZE = 256
_STEPS = 40
_SWEEPS = 4
_REPEATS = 3


@dataclass(frozen=True)
class Kernel:
    """A kernel, its reference, inputs for ``m`` dimensions and ``n`` rows, and what one operation is."""

    name: str
    unit: str
    #: Operations a row.
    operations: int
    inputs: Callable[[int, int, np.random.Generator], Arrays]


def measure(kernel: Kernel, level: str) -> dict[str, Any]:
    """Cases in which the kernel differs from the reference, and nanoseconds an operation, at a SIMD level."""
    before = _kernels.simd_level()
    _kernels.use_simd(level)
    try:
        unequal = sum(not _equal(kernel, m, seed) for m in SIZES for seed in range(2))
        seconds = min(_seconds(kernel) for _ in range(_REPEATS))
    finally:
        _kernels.use_simd(before)
    operations = _TIMED_ROWS * kernel.operations
    return {"cases": 2 * len(SIZES), "unequal": unequal, "ns": seconds / operations * 1e9, "per": kernel.unit}


def _equal(kernel: Kernel, m: int, seed: int) -> bool:
    arguments = kernel.inputs(m, _CHECKED_ROWS, np.random.default_rng([m, seed]))
    compiled, plain = (_outputs(module, kernel, arguments) for module in (_kernels, reference))
    return all(np.array_equal(a, b) for a, b in zip(compiled, plain, strict=True))


def _outputs(module: Any, kernel: Kernel, arguments: Arrays) -> Iterator[NDArray[Any]]:
    """The result of a call, and its arguments, which may have been changed."""
    arguments = _copied(arguments)
    result = getattr(module, kernel.name)(*arguments)
    yield from (value for value in (result, *arguments) if isinstance(value, np.ndarray))


def _seconds(kernel: Kernel) -> float:
    arguments = kernel.inputs(_TIMED_SIZE, _TIMED_ROWS, np.random.default_rng(0))
    call = getattr(_kernels, kernel.name)
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def _copied(arguments: Arrays) -> Arrays:
    return tuple(value.copy() if isinstance(value, np.ndarray) else value for value in arguments)


def _problem(m: int, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """G = VVᵀ of a code of falling weights, and b = Vx of some vectors."""
    V = rng.standard_normal((m, m)) * np.linspace(2, 1, m)[:, None]
    X = 5 * rng.standard_normal((n, m))
    return (V @ V.T).astype(np.float32), (X @ V.T).astype(np.float32)


def _feedback(m: int, n: int, rng: np.random.Generator) -> Arrays:
    G, _ = _problem(m, n, rng)
    columns = np.linalg.cholesky(G.astype(np.float64) + np.eye(m)).T
    return rng.standard_normal((n, m)).astype(np.float32), np.ascontiguousarray(columns, np.float32)


def _flips(m: int, n: int, rng: np.random.Generator) -> Arrays:
    G, B = _problem(m, n, rng)
    bits = (B >= 0).astype(np.uint8)
    scale = 2.0**28 / np.abs(G).sum(axis=1).max()
    fixed = np.rint(G * scale).astype(np.int32)
    g2 = np.zeros((m + 1, -(-m // _kernels.LANES) * _kernels.LANES), np.int32)
    g2[:m, :m] = 2 * fixed
    residual = B - (bits.astype(np.float32) * 2 - 1) @ G
    r = np.clip(np.rint(residual * scale), -(2**29), 2**29).astype(np.int32)
    return bits, r, g2, np.ascontiguousarray(np.diag(fixed)), _STEPS


def _descend(m: int, n: int, rng: np.random.Generator) -> Arrays:
    G, B = _problem(m, n, rng)
    count = int(rng.choice([3, 4, 16, 256]))
    levels = rng.integers(0, count, (n, m)).astype(np.uint16)
    theta = levels.astype(np.float32) * np.float32(2 / (count - 1)) - 1
    return levels, B - theta @ G, G, count, _SWEEPS


def _pack(m: int, n: int, rng: np.random.Generator) -> Arrays:
    widths = rng.integers(1, 17, m).astype(np.uint8)
    fields = rng.integers(0, 1 << widths.astype(np.int64), (n, m)).astype(np.uint16)
    return fields, widths, -(-int(widths.sum()) // 8)


def _unpack(m: int, n: int, rng: np.random.Generator) -> Arrays:
    fields, widths, size = _pack(m, n, rng)
    return np.ascontiguousarray(reference.pack(fields, widths, size)), widths


KERNELS = (
    Kernel("feedback", "row", 1, _feedback),
    Kernel("flips", "step", _STEPS, _flips),
    Kernel("descend", "row", 1, _descend),
    Kernel("pack", "row", 1, _pack),
    Kernel("unpack", "row", 1, _unpack),
)
