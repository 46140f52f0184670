import numpy as np
from numpy.typing import NDArray

scanner: object

class Codes:
    rows: int
    capsule: object
    def __init__(
        self,
        starts: NDArray[np.uint32],
        counts: NDArray[np.uint32],
        addresses: NDArray[np.uint64],
        width: int,
        head: int,
        field_starts: NDArray[np.int64],
        field_bits: NDArray[np.int64],
        field_levels: NDArray[np.int64],
        deleted: NDArray[np.uint64],
        segment_rows: int,
    ) -> None: ...
    def distances(
        self,
        values: NDArray[np.float32],
        biases: NDArray[np.float32],
        nibbles: bool,
        found: NDArray[np.int64],
        rows: NDArray[np.uint32],
    ) -> NDArray[np.float32]: ...

class Scan:
    def __init__(
        self,
        codes: Codes,
        values: NDArray[np.float32],
        biases: NDArray[np.float32],
        k: int | None,
        nibbles: bool,
        z: float | None = None,
        allowed: NDArray[np.uint8] | None = None,
        parts: int = 1,
        limit: float = ...,
    ) -> None: ...
    def run(self, part: int = 0) -> None: ...
    def finish(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32], NDArray[np.uint8]]: ...
