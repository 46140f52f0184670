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

class Packed:
    def __init__(self, matrix: NDArray[Any]) -> None: ...

def product(rows: NDArray[Any], matrix: NDArray[Any] | Packed) -> NDArray[np.float32]: ...

class Bits:
    def __init__(self, search: tuple[Any, ...], scalar: tuple[Any, ...] | None = None) -> None: ...
    def of(self, vectors: Float32) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]: ...

def pack(numbers: NDArray[np.uint16], widths: NDArray[np.uint8], size: int) -> NDArray[np.uint8]: ...
def unpack(codes: NDArray[np.uint8], widths: NDArray[np.uint8]) -> NDArray[np.uint16]: ...

class Linear:
    capsule: object
    def __init__(
        self,
        matrix: Float32,
        m: int,
        theta: Float32,
        known: Float32,
        centre: Float32 | None = None,
        unit: bool = False,
        constant: float = 0,
        frontier: float = 1,
        length: float = 1,
        spread: float = 0,
    ) -> None: ...
    def of(self, queries: Float32) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
