"""The door for payloads: mappings become msgpack, and msgpack mappings again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack
import numpy as np

from .._storage.format.meta import MAX_FIELDS
from .._storage.format.payload_columns import MAX_PAYLOAD_BYTES, MAX_VALUE_BYTES
from .._storage.format.records import REMEDY
from .._storage.store import PackedPayloads
from ..errors import DamagedError, ParameterError, PayloadError, shown

Payload = dict[str, Any]


class _Missing:
    """What a payload has under a name that it does not have."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()

#: Values of these types are read as they were written; of others, mappings with lists as names for example, not all can
#: be read at all.
_FLAT = frozenset((str, int, float, bool, bytes, type(None)))


def read_payloads(payloads: Any, n: int, fields: tuple[str, ...]) -> PackedPayloads:
    """``n`` payloads, and their values of ``fields``, packed; PayloadError where one cannot be stored.

    >>> read_payloads([{"a": 5}, None], 2, ("a",)) == [[msgpack.packb({"a": 5}), b""], [msgpack.packb(5), b""]]
    True
    """
    if hasattr(payloads, "columns") and hasattr(payloads, "to_dict"):
        raise PayloadError(
            "payloads: a sequence of mappings is needed, got a DataFrame; pass df.to_dict('records'), or df.to_dicts() "
            "of polars"
        )
    if isinstance(payloads, Mapping | str | bytes) or not isinstance(payloads, Iterable):
        raise PayloadError(
            f"payloads: a sequence of mappings, one per vector, is needed, got {type(payloads).__name__}"
        )
    given = list(payloads)
    if len(given) != n:
        raise PayloadError(f"payloads: {n} are needed, one per vector (None for no payload), got {len(given)}")
    packed = [_packed(payload, at) for at, payload in enumerate(given)]
    # The values are those that are stored, whatever else a mapping answers.
    return [[own for own, _ in packed], *([_value(stored, name) for _, stored in packed] for name in fields)]


def read_fields(fields: Any) -> tuple[str, ...]:
    """The names of fields that are to be indexed."""
    if isinstance(fields, str | bytes) or not isinstance(fields, Iterable):
        raise ParameterError(f"fields={fields!r}: a sequence of names is needed")
    names = tuple(fields)
    for name in names:
        if not isinstance(name, str) or not name or name.startswith("$") or not _is_utf8(name):
            raise ParameterError(f"fields: a name must not be empty or start with $, got {shown(name)}")
    if len(set(names)) != len(names) or len(names) > MAX_FIELDS:
        raise ParameterError(f"fields: at most {MAX_FIELDS} names, without duplicates, are possible; got {len(names)}")
    return tuple(str.__str__(name) for name in names)


def unpack(packed: bytes) -> Payload | None:
    """The payload of a row; None where it has none."""
    if not packed:
        return None
    try:
        payload = msgpack.unpackb(packed, strict_map_key=False)
    except Exception as error:  # msgpack raises many kinds, all of them mean damage
        raise DamagedError(f"payloads: not readable as msgpack ({error}); {REMEDY}") from error
    if not isinstance(payload, dict):
        raise DamagedError(f"payloads: not a mapping; {REMEDY}")
    return payload


def value_at(payload: Any, name: str) -> Any:
    """What a payload has under a name, or under a path of names with dots between them; MISSING where it has nothing.

    >>> value_at({"meta": {"year": 2020}}, "meta.year"), value_at({}, "year")
    (2020, MISSING)
    """
    if not isinstance(payload, Mapping):
        return MISSING
    if name in payload:
        return payload[name]
    head, _, rest = name.partition(".")
    return value_at(payload[head], rest) if rest and head in payload else MISSING


def _packed(payload: Any, at: int) -> tuple[bytes, Payload | None]:
    """A payload as it is stored, and as it will be read."""
    if payload is None:
        return b"", None
    if not isinstance(payload, Mapping):
        raise PayloadError(f"payloads: a mapping (or None) is needed, got {shown(payload)} at {at}")
    plain = dict(payload)
    for name in plain:
        if not isinstance(name, str):
            raise PayloadError(f"payloads: names must be strings, got {shown(name)} at {at}")
    packed = _pack(plain, f"payloads: at {at}")
    if len(packed) > MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"payloads: {len(packed):,} bytes at {at}, but a payload has at most {MAX_PAYLOAD_BYTES:,}; store the data "
            "elsewhere and its location here"
        )
    if _FLAT.issuperset(map(type, plain.values())):
        return packed, plain  # it can be read as it was written
    try:
        return packed, unpack(packed)
    except DamagedError as error:
        raise PayloadError(f"payloads: at {at}: could not be read again ({error.__cause__})") from error


def _value(payload: Any, name: str) -> bytes:
    value = value_at(payload, name)
    packed = b"" if value is MISSING else _pack(value, f"payloads: {name}")
    if len(packed) > MAX_VALUE_BYTES:
        raise PayloadError(
            f"payloads: {name}: {len(packed):,} bytes, but values of indexed fields have at most {MAX_VALUE_BYTES:,}; "
            "create the index without this field in `fields`"
        )
    return packed


def _pack(value: Any, what: str) -> bytes:
    try:
        packed = msgpack.packb(value, default=_plain)
        return bytes(packed)
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        raise PayloadError(
            f"{what}: {error}; use None, bool, 64-bit int, float, str, bytes, or lists and mappings of these"
        ) from error


def _is_utf8(text: str) -> bool:
    """Whether this can be stored: half of a surrogate pair cannot."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    instead = "isoformat()" if hasattr(value, "isoformat") else "list" if isinstance(value, set | frozenset) else ""
    raise TypeError(f"a {type(value).__name__} cannot be stored{f', but its {instead} can' if instead else ''}")
