"""What an index is (options, fixed at creation), its subset structure, and where it stands (state, written by every
commit).

All are msgpack mappings with a schema; what is read from a file is checked against it, for a record with
a valid checksum may still be forged.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from ..._compiled import records as _records
from ...errors import DamagedError, NewerFormatError, NotAnIndexError
from . import kept, keys, records

if TYPE_CHECKING:
    from ..lmdb.reader import Reader
    from ..lmdb.writer import Writer

#: The version of the file's format. docs/format.md describes it; a reader refuses a newer one, and reads older ones.
FORMAT = 6

#: Fields of the state that came with a format: posting lists, payloads, codes that are rewritten step by step, cells,
#: large payloads.
_SINCE = {
    2: ("listed", "relisted"),
    3: ("payloads",),
    4: ("next_generation", "next_size", "next_head", "recoded"),
    5: ("cells", "next_cell"),
    6: ("large", "next_large", "staged_large"),
}

MAX_ROWS = (1 << 32) - 2
_LIMIT = 1 << 62


@dataclass(frozen=True)
class Options:
    """Fixed when the index is created."""

    dim: int
    metric: str
    ids: str
    #: The layout of kept vectors: one of ``kept.NAMES``, which has what users call it.
    keep_vectors: str | None
    train_size: int
    #: Who this index is; copies have the same.
    uuid: bytes
    #: Fields of payloads that are indexed.
    fields: tuple[str, ...] = ()

    def to_record(self) -> bytes:
        """As stored."""
        return pack({"program": "lsqindex", "format": FORMAT, **asdict(self), "fields": list(self.fields)})

    @classmethod
    def from_record(cls, value: Any) -> Options:
        """From the stored record, checked."""
        record = check_format(value)
        if record["format"] < 3 and record.setdefault("fields", []):
            raise DamagedError(
                f"options: they name indexed fields, which format {record['format']} does not have; {records.REMEDY}"
            )
        if record["format"] < 4 and record.get("keep_vectors") == "scaled-float16":
            raise DamagedError(
                f"options: they ask for scaled vectors, which format {record['format']} does not have; {records.REMEDY}"
            )
        del record["program"], record["format"]
        _schema(cls, record, "options")
        names = record["fields"]
        texts = set(map(type, names)) <= {str}
        if not texts or "" in names or not len(set(names)) == len(names) <= MAX_FIELDS:
            raise DamagedError(f"options: impossible names of fields; {records.REMEDY}")
        options = cls(**{**record, "fields": tuple(names)})
        if not (
            1 <= options.dim <= 1 << 20
            and options.ids in ("int", "str")
            and options.keep_vectors in (None, *kept.NAMES)
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
    #: Rows below are in posting lists or cells; those from here on are fresh, and scanned.
    listed: int = 0
    #: Raised whenever posting lists of a full segment are removed or replaced, and with every change of cells:
    #: addresses known from before are void.
    relisted: int = 0
    #: 1 where rows have payloads (those that were added without one: none), 0 where nobody ever gave one.
    payloads: int = 0
    #: A generation of codes that writers fill step by step, while searches use the valid one: its number, 0 for none,
    #: and the size and head of its codes. Rows below `recoded` have a code in it.
    next_generation: int = 0
    next_size: int = 0
    next_head: int = 0
    recoded: int = 0
    #: How many cells there are, and the number that the next one gets: numbers are given once.
    cells: int = 0
    next_cell: int = 0
    #: How many large payloads there are, and the number that the next one gets: numbers are given once. The last so
    #: many are of rows that are written ahead.
    large: int = 0
    next_large: int = 0
    staged_large: int = 0

    # The format of the file, which the fields there are tell; no field itself.
    format = FORMAT

    def to_record(self) -> bytes:
        """As stored."""
        record = dict(vars(self))
        record.pop("format", None)
        return pack(record)

    @classmethod
    def from_record(cls, value: Any) -> State:
        """From the stored record, checked."""
        record = unpack(value, "state")
        number = FORMAT
        while number > 1 and not record.keys() & set(_SINCE[number]):
            record.update(dict.fromkeys(_SINCE[number], 0))
            number -= 1
        _schema(cls, record, "state")
        state = cls(**record)
        state.format = number
        if (
            not 0 <= min(record.values()) <= max(record.values()) < _LIMIT
            or not state.count <= state.stored <= state.rows <= MAX_ROWS
            or not 1 <= state.code_size <= 1 << 24
            or state.head > state.code_size
            or max(state.generation, state.staged_generation, state.next_generation) >= 1 << 32
            or state.staged_rows > MAX_ROWS
            or 0 < state.staged_rows <= state.rows
            or 0 < state.staged_generation <= state.generation
            or state.listed > state.rows
            or state.payloads > 1
            or not state.cells <= state.next_cell < 1 << 32
            or not state.staged_large <= state.large <= state.next_large
            or (state.large and not state.payloads)
            or (state.staged_large and not state.staged_rows)
            or not state._next_sound()
        ):
            raise DamagedError(f"state: impossible values; {records.REMEDY}")
        return state

    def _next_sound(self) -> bool:
        """Whether the fields of the next generation agree with each other and with the valid one."""
        if not self.next_generation:
            return not (self.next_size or self.next_head or self.recoded)
        return (
            self.next_generation > self.generation
            and self.next_generation != self.staged_generation
            and 1 <= self.next_size <= 1 << 24
            and self.next_head <= self.next_size
            and self.recoded <= self.rows
        )


class StoredEncoder(NamedTuple):
    """The encoder of an index, as far as the file tells it without the encoder's own code."""

    name: str
    config: dict[str, Any]
    #: The package that it came from, and its version, for messages: not checked.
    distribution: Any
    #: :func:`lsqindex.encoders.to_bytes`; None before training.
    fitted: bytes | None

    def to_record(self) -> bytes:
        """As stored."""
        return pack(self._asdict())

    @classmethod
    def from_record(cls, value: Any) -> StoredEncoder:
        """From the stored record, checked."""
        record = unpack(value, "encoder")
        if record.keys() != set(cls._fields) or not (
            isinstance(record["name"], str)
            and isinstance(record["config"], dict)
            and set(map(type, record["config"])) <= {str}
            and isinstance(record["fitted"], bytes | None)
        ):
            raise DamagedError(f"encoder: fields are missing or of a wrong type; {records.REMEDY}")
        return cls(**record)


@dataclass(frozen=True)
class Training:
    """An automatic training: what it saw, and how well its encoder does.

    Only an index that trained itself has this record, so only such an index trains itself again. Errors are squared
    reconstruction errors, relative to the squared lengths of the vectors.
    """

    #: Vectors in the sample that the encoder was fitted on, including those held out to measure its error.
    sampled: int
    #: Vectors in the index at that time.
    vectors: int
    #: The error to expect: that on the vectors that were held out, and later as much larger or smaller as ``ideal`` is.
    error: float
    #: The error measured last, over all vectors; without kept vectors, over the vectors that had just been added.
    now: float
    #: ``rows`` of the state when it was measured.
    reviewed: int
    #: The error that an ideal code of as many bits would have on the vectors of then; 0 where it is not known.
    ideal: float = 0.0

    def to_record(self) -> bytes:
        """As stored."""
        return pack(asdict(self))

    @classmethod
    def from_record(cls, value: Any) -> Training:
        """From the stored record, checked."""
        record = unpack(value, "training")
        record.setdefault("ideal", 0.0)  # files of earlier versions do not have it
        _schema(cls, record, "training")
        training = cls(**record)
        counts, errors = (
            (training.sampled, training.vectors, training.reviewed),
            (training.error, training.now, training.ideal),
        )
        # (NaN is not within these limits either.)
        if not all(0 <= count < _LIMIT for count in counts) or not all(0 <= error <= MAX_ERROR for error in errors):
            raise DamagedError(f"training: impossible values; {records.REMEDY}")
        return training


#: Errors of a training are stored up to here: finite, and far beyond what any encoder that works has.
MAX_ERROR = 1e30

#: How many fields of payloads can be indexed.
MAX_FIELDS = 256


def check_format(value: Any) -> dict[str, Any]:
    """The options of a file that this version can read: asked before anything else is believed."""
    record = unpack(value, "options")
    number = record.get("format")
    if record.get("program") != "lsqindex" or type(number) is not int or number < 1:
        raise NotAnIndexError("the file belongs to another program: it does not have the options of an index")
    if number > FORMAT:
        raise NewerFormatError(f"the file has format {number}, and this version reads up to {FORMAT}; upgrade lsqindex")
    return record


def read_training(source: Reader | Writer, key: bytes = keys.TRAINING) -> Training | None:
    """The record of the last automatic training; None where there was none."""
    value = source.get(keys.META, key) if source.state.format >= 4 else None
    return None if value is None else _training(bytes(value))


def review_due(source: Reader | Writer, share: int) -> bool:
    """Whether one row in ``share`` was added since the error of an automatic training was last measured.

    Not while the codes of another encoder are being written.
    """
    known, state = read_training(source), source.state
    if known is None or state.next_generation:
        return False
    return state.rows - known.reviewed >= max(1, state.count // share)


@lru_cache
def _training(record: bytes) -> Training:
    return Training.from_record(record)


def pack(values: dict[str, Any]) -> bytes:
    """A mapping as a record."""
    return _records.encode(records.META, len(values), 0, 0, 0, 0, msgpack.packb(values))


def unpack(value: Any, what: str) -> dict[str, Any]:
    """The mapping of a record."""
    found = None if value is None else _records.decode(value)
    if not found:
        raise records.damage(value, what)
    kind, count, *_ = found
    try:
        mapping = msgpack.unpackb(memoryview(value)[records.HEADER_SIZE :], strict_map_key=True)
    except Exception as error:  # msgpack raises many kinds, all of them mean damage
        raise DamagedError(f"{what}: not readable as msgpack ({error}); {records.REMEDY}") from error
    if kind != records.META or not isinstance(mapping, dict) or len(mapping) != count:
        raise DamagedError(f"{what}: not a mapping; {records.REMEDY}")
    if not set(map(type, mapping)) <= {str}:
        raise DamagedError(f"{what}: names must be strings; {records.REMEDY}")
    return mapping


def _schema(cls: Any, record: dict[str, Any], what: str) -> None:
    """Every field of ``cls``, each of its type, and nothing else."""
    wanted = _types(cls)
    sound = record.keys() == wanted.keys()
    for name in wanted if sound else ():
        sound = sound and type(record[name]) in wanted[name]
    if not sound:
        raise DamagedError(f"{what}: fields are missing, unknown or of a wrong type; {records.REMEDY}")


@lru_cache
def _types(cls: Any) -> dict[str, tuple[type, ...]]:
    """What msgpack gives for each field of ``cls``."""
    kinds: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float,), "str": (str,), "bytes": (bytes,)}
    kinds["str | None"], kinds["tuple[str, ...]"] = (str, type(None)), (list,)
    return {field.name: kinds[str(field.type)] for field in fields(cls)}
