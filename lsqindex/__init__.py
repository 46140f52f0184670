"""lsqindex: an embedding index you can embed."""

from ._subsets.cells.options import Cells
from ._subsets.multi_index.tables import MultiIndex
from ._write.batch import Batch
from .encoders import Encoder, available_encoders, make_encoder, register_encoder
from .errors import LsqIndexError
from .index import Index
from .results import Matches

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cells",
    "Encoder",
    "Index",
    "LsqIndexError",
    "Matches",
    "MultiIndex",
    "__version__",
    "available_encoders",
    "make_encoder",
    "register_encoder",
]
