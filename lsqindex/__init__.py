"""lsqindex: an embedding index you can embed."""

from .encoders import Encoder, available_encoders, make_encoder, register_encoder
from .errors import LsqIndexError
from .index import Batch, Index
from .matches import Matches

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Encoder",
    "Index",
    "LsqIndexError",
    "Matches",
    "__version__",
    "available_encoders",
    "make_encoder",
    "register_encoder",
]
