"""What an index is (options, fixed at creation), and where it stands (state, written by every commit).

Both are msgpack mappings with a schema; what is read from a file is checked against it, for a record with
a valid checksum may still be forged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import msgpack

from ..errors import DamagedError, NewerFormatError, NotAnIndexError
from . import kept, keys, records

if TYPE_CHECKING:
    from .env import Env

#: The version of the file's format. docs/format.md describes it; a reader refuses a newer one.
FORMAT = 1

MAX_ROWS = (1 << 32) - 2
_LIMIT = 1 << 62


@dataclass(frozen=True)
class Options:
    """Fixed when the index is created."""

    dim: int
    metric: str
    ids: str
    keep_vectors: str | None
    train_size: int
    #: Who this index is; copies have the same.
    uuid: bytes

    def to_record(self) -> bytes:
        """As stored."""
        return pack({"program": "lsqindex", "format": FORMAT, **asdict(self)})

    @classmethod
    def from_record(cls, value: Any) -> Options:
        """From the stored record, checked."""
        record = check_format(value)
        del record["program"], record["format"]
        _schema(cls, record, "options")
        options = cls(**record)
        if not (
            1 <= options.dim <= 1 << 20
            and options.metric in ("l2", "cosine", "ip")
            and options.ids in ("int", "str")
            and options.keep_vectors in (None, *kept.KINDS)
            and 0 <= options.train_size < _LIMIT
            and len(options.uuid) == 16
        ):
            raise DamagedError(f"options: impossible values; {records.REMEDY}")
        return options


@dataclass
class State:
    """Where the index stands; a write transaction changes its own copy and stores it at commit."""

    #: The id of the LMDB transaction that wrote this: tells a stale snapshot from the right one.
    txn: int = 0
    #: The next row's number: rows are given once, and never again.
    rows: int = 0
    #: Rows that are in the columns, deleted ones included.
    stored: int = 0
    #: Rows that are not deleted: len(index).
    count: int = 0
    #: The id that the next vector without one gets.
    next_id: int = 0
    #: Which codes are valid; a training writes the next generation beside the old.
    generation: int = 0
    #: Bytes of a code; how many of them, in blocks of 32 rows by column, lie before the others. 0: codes are not
    #: in blocks, but one after another.
    code_size: int = 0
    head: int = 0
    #: Raised whenever a full part of a column is removed: addresses known from before are void.
    shape: int = 0
    #: Rows written ahead of `rows`, and a generation written ahead: of a large add or training that has
    #: not finished. Nobody sees them; the next writer removes them.
    staged_rows: int = 0
    staged_generation: int = 0

    def to_record(self) -> bytes:
        """As stored."""
        return pack(asdict(self))

    @classmethod
    def from_record(cls, value: Any) -> State:
        """From the stored record, checked."""
        record = unpack(value, "state")
        _schema(cls, record, "state")
        state = cls(**record)
        numbers = [number for number in record.values() if type(number) is int]
        if (
            not all(0 <= number < _LIMIT for number in numbers)
            or not state.count <= state.stored <= state.rows <= MAX_ROWS
            or not 1 <= state.code_size <= 1 << 24
            or state.head > state.code_size
            or max(state.generation, state.staged_generation) >= 1 << 32
            or state.staged_rows > MAX_ROWS
            or 0 < state.staged_rows <= state.rows
            or 0 < state.staged_generation <= state.generation
        ):
            raise DamagedError(f"state: impossible values; {records.REMEDY}")
        return state


def check_format(value: Any) -> dict[str, Any]:
    """The options of a file that this version can read: asked before anything else is believed."""
    record = unpack(value, "options")
    number = record.get("format")
    if record.get("program") != "lsqindex" or type(number) is not int or number < 1:
        raise NotAnIndexError("the file is of another program: its options are not those of an index")
    if number > FORMAT:
        raise NewerFormatError(f"the file has format {number}, newer than {FORMAT}: upgrade lsqindex")
    return record


def pack(values: Mapping[str, Any]) -> bytes:
    """A mapping as a record."""
    return records.encode(records.Header(records.META, count=len(values)), msgpack.packb(dict(values)))


def unpack(value: Any, what: str) -> dict[str, Any]:
    """The mapping of a record."""
    header, payload = records.decode(value, what)
    try:
        mapping = msgpack.unpackb(payload, strict_map_key=True)
    except Exception as error:  # msgpack raises many kinds, all of them mean damage
        raise DamagedError(f"{what}: not readable as msgpack ({error}); {records.REMEDY}") from error
    if header.kind != records.META or not isinstance(mapping, dict) or len(mapping) != header.count:
        raise DamagedError(f"{what}: not a mapping; {records.REMEDY}")
    if not all(isinstance(key, str) for key in mapping):
        raise DamagedError(f"{what}: names must be strings; {records.REMEDY}")
    return mapping


def _schema(cls: Any, record: dict[str, Any], what: str) -> None:
    """Every field of ``cls``, each of its type, and nothing else."""
    kinds: dict[str, Any] = {"int": int, "bool": bool, "str": str, "bytes": bytes, "str | None": (str, type(None))}
    wanted = {field.name: kinds[str(field.type)] for field in fields(cls)}
    if record.keys() != wanted.keys() or not all(
        isinstance(record[name], kind) and (kind is bool or not isinstance(record[name], bool))
        for name, kind in wanted.items()
    ):
        raise DamagedError(f"{what}: fields are missing, unknown or of a wrong type; {records.REMEDY}")


def read_state(env: Env, txn: Any, *, writing: bool = False) -> State:
    """The state of the snapshot; it must be of the very transaction that LMDB says was the last."""
    value = txn.get(keys.STATE, db=env.dbs[keys.META])
    if value is None:
        raise DamagedError(f"{env.path}: the state is missing; {records.REMEDY}")
    data, known = bytes(value), env.last_state
    state = known[1] if known and known[0] == data else State.from_record(data)
    if state.txn != txn.id() - writing:
        raise DamagedError(
            f"{env.path}: the state is of transaction {state.txn}, not {txn.id() - writing}; {records.REMEDY}"
        )
    env.last_state = (data, state)
    return state
