"""lsqindex: an embedding index you can embed."""

from .encoders import Encoder, available_encoders, make_encoder, register_encoder
from .errors import LsqIndexError

__version__ = "0.1.0"

__all__ = ["Encoder", "LsqIndexError", "__version__", "available_encoders", "make_encoder", "register_encoder"]
