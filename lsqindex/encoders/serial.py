"""A fitted encoder as bytes, and back: msgpack of plain values and named arrays, never pickle.

    {"format": 1, "name", "version", "distribution": [name, version], "dim", "config", "state"}
    state: {array name: [dtype, shape, bytes]}, little-endian, C order

Bytes from outside are not trusted: sizes are checked before anything is made of them, and the
encoder checks each array (StateReader).
"""

from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from ..errors import NewerEncoderError, StateError, UnknownEncoderError
from .base import Encoder
from .registry import distribution_of, encoder_class

FORMAT = 1
_DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "<u2", "<u4")


def to_bytes(encoder: Encoder) -> bytes:
    """Serialize a fitted encoder as msgpack.

    Parameters
    ----------
    encoder
        A fitted encoder.

    Returns
    -------
    bytes
        The encoder; :func:`from_bytes` reads it.

    Raises
    ------
    NotFittedError
        If the encoder is not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from lsqindex.encoders import from_bytes, make_encoder
    >>> encoder = make_encoder("lsh", bits=16).fit(np.eye(4))
    >>> from_bytes(to_bytes(encoder))
    LSH(bits=16, seed=0)
    """
    state = {name: _array_out(name, array) for name, array in encoder.state.items()}
    return bytes(
        msgpack.packb(
            {
                "format": FORMAT,
                "name": encoder.name,
                "version": encoder.version,
                "distribution": list(distribution_of(type(encoder))),
                "dim": encoder.dim,
                "config": encoder.config,
                "state": state,
            }
        )
    )


def from_bytes(data: bytes) -> Encoder:
    """Read an encoder that :func:`to_bytes` wrote. The bytes are not trusted, and nothing is unpickled.

    Parameters
    ----------
    data
        What :func:`to_bytes` returned.

    Returns
    -------
    Encoder
        The fitted encoder.

    Raises
    ------
    StateError
        If the data are damaged, forged, or of a newer version.
    UnknownEncoderError
        If the encoder is a plugin that is not installed.
    """
    try:
        record: Any = msgpack.unpackb(data, strict_map_key=True)
    except Exception as error:  # msgpack raises many kinds, all of them mean damage
        raise StateError(f"stored encoder: not readable as msgpack ({error}); the data is damaged") from error
    if not isinstance(record, dict) or type(record.get("format")) is not int or record["format"] < 1:
        raise StateError("stored encoder: not a record of an encoder; the data is damaged or of another program")
    if record["format"] > FORMAT:
        raise NewerEncoderError(f"stored encoder: format {record['format']} is newer than {FORMAT}; upgrade lsqindex")
    name, version, config, state = (record.get(key) for key in ("name", "version", "config", "state"))
    if not (
        isinstance(name, str) and isinstance(version, int) and isinstance(config, dict) and isinstance(state, dict)
    ):
        raise StateError("stored encoder: name, version, config or state is missing; the data is damaged")
    if version < 1:
        raise StateError(f"stored encoder: version {version} of {name!r} is impossible; the data is damaged")
    try:
        cls = encoder_class(name)
    except UnknownEncoderError as error:
        raise UnknownEncoderError(f"{error}{install_hint(record.get('distribution'))}") from None
    if version > cls.version:
        raise NewerEncoderError(
            f"stored encoder: {name!r} version {version} is newer than {cls.version}; upgrade its package"
        )
    arrays = {key: _array_in(key, value) for key, value in state.items()}
    if version < cls.version:
        arrays = cls._upgraded(arrays, version)
    return cls.from_state(config, arrays, record.get("dim"))


def install_hint(distribution: Any) -> str:
    """What to install for a stored encoder, if the record tells: [name, version]."""
    if isinstance(distribution, list) and len(distribution) == 2 and distribution[0]:
        return f" It was written with {distribution[0]} {distribution[1]}: pip install {distribution[0]}"
    return ""


def _array_out(name: str, array: NDArray[Any]) -> list[Any]:
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if array.dtype.str not in _DTYPES:
        raise StateError(f"state {name!r}: dtype {array.dtype} cannot be stored; use one of {', '.join(_DTYPES)}")
    return [array.dtype.str, list(array.shape), array.tobytes()]


def _array_in(name: str, value: Any) -> NDArray[Any]:
    if not (isinstance(value, list) and len(value) == 3 and value[0] in _DTYPES and isinstance(value[2], bytes)):
        raise StateError(f"stored encoder: array {name!r} is malformed; the data is damaged")
    dtype, shape = np.dtype(value[0]), value[1]
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
        raise StateError(f"stored encoder: array {name!r} has an impossible shape; the data is damaged")
    if len(shape) > 8 or math.prod(shape) * dtype.itemsize != len(value[2]):
        raise StateError(
            f"stored encoder: array {name!r} has {len(value[2])} bytes, not those of shape {shape}; it is damaged"
        )
    return np.frombuffer(value[2], dtype).reshape(shape).astype(dtype.newbyteorder("="))
