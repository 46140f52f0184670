"""Encoders: they learn from vectors, and turn vectors into codes and back.

    vectors ──fit──▶ encoder ──encode──▶ codes ──decode──▶ vectors
                        └──tables(query)──▶ one look-up per field of a code = distance

``base`` has the contract, ``layout`` what a code looks like, ``registry`` the names, ``serial`` the
stored form; every other file is one encoder.
"""

from .base import Encoder
from .layout import Layout, Tables
from .registry import available_encoders, encoder_class, make_encoder, register_encoder
from .serial import from_bytes, to_bytes

__all__ = [
    "Encoder",
    "Layout",
    "Tables",
    "available_encoders",
    "encoder_class",
    "from_bytes",
    "make_encoder",
    "register_encoder",
    "to_bytes",
]
