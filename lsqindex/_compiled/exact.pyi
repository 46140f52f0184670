import numpy as np
from numpy.typing import NDArray

def distances(
    starts: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    addresses: NDArray[np.uint64],
    kind: str,
    dim: int,
    metric: str,
    queries: NDArray[np.float32],
    found: NDArray[np.int64],
    rows: NDArray[np.uint32],
) -> NDArray[np.float32]: ...
def expected_misses(
    estimates: NDArray[np.float32], exact: NDArray[np.float32], kth: NDArray[np.float32], total: int
) -> NDArray[np.float64]: ...
