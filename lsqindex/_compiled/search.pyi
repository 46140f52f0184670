from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encoding import Linear
from .exact import Vectors
from .scan import Codes

_Floats = NDArray[np.floating[Any]]
_Touch = Callable[[NDArray[np.uint32]], None]

class Prepared:
    def __init__(
        self,
        codes: Codes,
        nibbles: bool,
        linear: Linear | None,
        dim: int,
        kept: tuple[Vectors, NDArray[np.uint8]] | None,
        metric: int,
        ids: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64]],
        strings: bool,
        k: int,
        limit: float,
        code_limit: float,
        total: int,
        wides: NDArray[np.int64],
        margins: NDArray[np.float64],
        missed: float,
        allowed: NDArray[np.uint8] | None = None,
        rows: NDArray[np.uint32] | None = None,
        at_once: int = ...,
    ) -> None: ...
    def search(
        self,
        queries: _Floats,
        touch: _Touch,
        ids: NDArray[np.int64] | None,
        distances: NDArray[np.float32],
        rows: NDArray[np.int64] | None,
        least: float,
        values: _Floats | None = None,
        bias: _Floats | None = None,
        lifted: bool = False,
    ) -> Search: ...

class Search:
    begun: bool
    most: int
    scans: int
    reranked: int
    def __init__(
        self,
        prepared: Prepared,
        queries: _Floats,
        values: _Floats | None = None,
        bias: _Floats | None = None,
        parts: int = 1,
        lifted: bool = False,
    ) -> None: ...
    def scan(self, part: int) -> None: ...
    def collect(self, touch: _Touch) -> None: ...
    def compare(self, part: int) -> None: ...
    def rank(self) -> bool: ...
    def finish(self, touch: _Touch) -> None: ...
    def write(
        self,
        ids: NDArray[np.int64] | None,
        distances: NDArray[np.float32],
        rows: NDArray[np.int64] | None,
        least: float,
    ) -> None: ...
    def left(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.uint32]] | None: ...
