import numpy as np
from numpy.typing import NDArray

def rerank() -> object: ...
def distances(
    starts: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    addresses: NDArray[np.uint64],
    kind: str,
    dim: int,
    metric: int,
    queries: NDArray[np.float32],
    found: NDArray[np.int64],
    rows: NDArray[np.uint32],
) -> NDArray[np.float32]: ...

class Vectors:
    rows: int
    capsule: object
    def __init__(
        self,
        starts: NDArray[np.uint32],
        counts: NDArray[np.uint32],
        addresses: NDArray[np.uint64],
        kind: str,
        dim: int,
        head: int,
        deleted: NDArray[np.uint64],
        segment_rows: int,
    ) -> None: ...

class Scan:
    def __init__(
        self,
        vectors: Vectors,
        metric: int,
        queries: NDArray[np.float32],
        k: int | None,
        allowed: NDArray[np.uint8] | None = None,
        parts: int = 1,
        limit: float = ...,
    ) -> None: ...
    def run(self, part: int = 0) -> None: ...
    def finish(self) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]: ...

def expected_misses(
    estimates: NDArray[np.float32], exact: NDArray[np.float32], kth: NDArray[np.float32], total: int
) -> NDArray[np.float64]: ...
