import numpy as np
from numpy.typing import NDArray

def build(
    starts: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    addresses: NDArray[np.uint64],
    width: int,
    head: int,
    first_bit: int,
    bits: int,
    first: int,
    end: int,
) -> tuple[int, NDArray[np.uint8]]: ...
def sound(payload: bytes | memoryview | NDArray[np.uint8], count: int, bits: int, span: int) -> bool: ...

class Lists:
    def __init__(
        self,
        firsts: NDArray[np.uint32],
        spans: NDArray[np.uint32],
        counts: NDArray[np.uint32],
        addresses: NDArray[np.uint64],
        table_fields: NDArray[np.int64],
        table_bits: NDArray[np.uint8],
        field_starts: NDArray[np.int64],
        field_levels: NDArray[np.int64],
        deleted: NDArray[np.uint64],
        segment_rows: int,
        there: NDArray[np.uint8],
        chunk_rows: int,
    ) -> None: ...
    def best(
        self,
        values: NDArray[np.float32],
        probes: int,
        wanted: int,
        weigh: bool,
        expand: int = 0,
        most: int = 0,
        allowed: NDArray[np.uint8] | None = None,
        counting: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint16], NDArray[np.int64]]: ...
    def accumulate(self, values: NDArray[np.float32], probes: int, times: int) -> int: ...
