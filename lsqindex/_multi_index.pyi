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
