from typing import Any

import numpy as np
from numpy.typing import NDArray

#: float32; see lsqindex._inputs.vectors.Vectors
Float32 = NDArray[np.floating[Any]]

LANES: int

def simd_levels() -> tuple[str, ...]: ...
def simd_level() -> str: ...
def simd_level_number() -> int: ...
def use_simd(name: str) -> None: ...
def flips(
    bits: NDArray[np.uint8],
    r: NDArray[np.int32],
    g2: NDArray[np.int32],
    diagonal: NDArray[np.int32],
    steps: int,
) -> None: ...
def feedback(c: Float32, columns: Float32) -> NDArray[np.uint8]: ...
def descend(levels: NDArray[np.uint16], r: Float32, g: Float32, count: int, sweeps: int) -> None: ...
def product(rows: Float32, matrix: Float32) -> NDArray[np.float32]: ...
def pack(fields: NDArray[np.uint16], widths: NDArray[np.uint8], size: int) -> NDArray[np.uint8]: ...
def unpack(codes: NDArray[np.uint8], widths: NDArray[np.uint8]) -> NDArray[np.uint16]: ...
def length_tables(
    inner: NDArray[np.float32],
    known: NDArray[np.float32],
    length: float,
    z: float,
    values: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> None: ...
def bit_tables(
    inner: NDArray[np.float32],
    queries: NDArray[np.float32] | None,
    weights: NDArray[np.float32],
    steps: NDArray[np.float32],
    constant: float,
    values: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> None: ...
