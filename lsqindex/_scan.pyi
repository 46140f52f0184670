import numpy as np
from numpy.typing import NDArray

def scan(
    starts: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    addresses: NDArray[np.uint64],
    width: int,
    head: int,
    nibbles: bool,
    field_starts: NDArray[np.int64],
    field_bits: NDArray[np.int64],
    field_levels: NDArray[np.int64],
    values: NDArray[np.float32],
    biases: NDArray[np.float32],
    deleted: NDArray[np.uint64],
    segment_rows: int,
    allowed: NDArray[np.uint8] | None,
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]: ...
