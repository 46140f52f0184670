from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Visits:
    cells: int
    rows: int
    compared: int
    left: float
    short: list[int]

class Prepared:
    def __init__(
        self,
        cells: tuple[Any, ...],
        codes: Any,
        nibbles: bool,
        fresh: int,
        there: NDArray[np.uint8],
        chunk_rows: int,
        linear: Any,
        dim: int,
        kept: tuple[Any, NDArray[np.uint8]] | None,
        metric: int,
        ids: tuple[Any, Any, Any],
        strings: bool,
        k: int,
        limit: float,
        rule: tuple[float, ...],
        probes: int = 0,
        depth: int = 0,
        allowed: NDArray[np.uint8] | None = None,
    ) -> None: ...
    def search(
        self,
        queries: NDArray[np.float32],
        touch: Callable[[NDArray[np.uint32]], None] | None,
        ids: NDArray[np.int64] | None,
        distances: NDArray[np.float32],
        rows: NDArray[np.int64] | None,
        least: float,
        values: NDArray[np.float32] | None = None,
        bias: NDArray[np.float32] | None = None,
        lifted: bool = False,
    ) -> Visits: ...
