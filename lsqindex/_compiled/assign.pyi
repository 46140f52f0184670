import numpy as np
from numpy.typing import NDArray

_U8 = NDArray[np.uint8]
_U32 = NDArray[np.uint32]
_U64 = NDArray[np.uint64]
_Counts = NDArray[np.int64]
_Floats = NDArray[np.float32]

class Centres:
    centres: _Floats
    def __init__(self, centres: _Floats) -> None: ...
    def __len__(self) -> int: ...
    def nearest(self, vectors: _Floats, k: int = 1) -> tuple[_U32, _Floats]: ...
    def among(self, vectors: _Floats, candidates: _U32) -> tuple[_U32, _Floats]: ...
    def spill(self, vectors: _Floats, labels: _U32, squares: _Floats) -> _Counts: ...

def sums(vectors: _Floats, labels: _U32, count: int) -> NDArray[np.float64]: ...
def pack(
    kind: bytes, numbers: _U32, counts: _Counts, rows: _U32, codes: _U8, head: int, generation: int
) -> list[bytes]: ...
def unpack(addresses: _U64, counts: _Counts, width: int, head: int) -> tuple[_U32, _U8]: ...
def sound(
    addresses: _U64,
    sizes: _Counts,
    numbers: _U32,
    kind: int,
    width: int,
    generation: int,
    head: int,
    limit: int,
    entries: bool,
) -> int: ...
def living(rows: _U32, deleted: _U64, segment_rows: int, there: _U8, chunk_rows: int) -> NDArray[np.bool_]: ...
