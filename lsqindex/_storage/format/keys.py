"""Every key of the file is built here, and nowhere else; the bytes are frozen (tests/test_format.py).

    database   key                               value
    meta       "options" | "state" | "encoder"   msgpack
    meta       "subset"                          msgpack; only where the index has a subset structure
    meta       "training"                        msgpack; only where the index trained itself
    meta       "answers" step:4                  queries and their neighbours, while cells are being calibrated
    meta       "next-encoder" | "next-training"  msgpack; the next generation's, while its codes are being written
    codes      "c" generation:4 row:4            codes from that row on
    codes      "d" segment:4                     which rows of a segment are deleted, a bit each
    ids        "i" row:4                         ids from that row on
    ids        "s" id                            rows sorted by their ids, from that id on
    vectors    "v" row:4                         kept vectors from that row on
    postings   "p" generation:4 row:4 table:2    posting lists of a table, for the block that begins with that row
    cells      "c" cell:4                        the centre of a cell, and its spread
    cells      "k" cell:4                        the entries of a cell: codes and row numbers
    cells      "t" cell:4                        its tail: entries added since the cell was last written
    cells      "z" generation:4                  the codes of all centres
    payloads   "y" row:4                         payloads from that row on
    payloads   "f" field:2 row:4                 values of an indexed field from that row on
    payloads   "l" number:8                      a large payload

Numbers are big-endian, so that LMDB's order of bytes is the order of numbers. The first block of sorted
ids has the key "s" alone and so comes before every id.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

META, CODES, IDS, VECTORS, POSTINGS = b"meta", b"codes", b"ids", b"vectors", b"postings"
PAYLOADS, CELLS = b"payloads", b"cells"
#: All of them, in the order in which formats brought them.
DATABASES = (META, CODES, IDS, VECTORS, POSTINGS, PAYLOADS, CELLS)
#: The databases of a file, by its format.
DATABASES_OF = {1: DATABASES[:4], 2: DATABASES[:5], 3: DATABASES[:6], 4: DATABASES[:6], 5: DATABASES, 6: DATABASES}

OPTIONS, STATE, ENCODER, SUBSET = b"options", b"state", b"encoder", b"subset"
#: The last automatic training, and what belongs to the next generation of codes while that is being written.
TRAINING, NEXT_ENCODER, NEXT_TRAINING = b"training", b"next-encoder", b"next-training"

#: What the keys of the queries of a calibration begin with.
ANSWERS = b"answers"

#: What the keys of all blocks of rows sorted by id begin with; also the key of the first block.
SORTED = b"s"

#: A string id has at most this many bytes of UTF-8: LMDB's keys have 511.
MAX_ID_BYTES = 480


def codes_prefix(generation: int) -> bytes:
    """All codes of a generation: an encoder's, from its training until the next."""
    return b"c" + struct.pack(">I", generation)


def ids_prefix() -> bytes:
    """All ids by row."""
    return b"i"


def vectors_prefix() -> bytes:
    """All kept vectors by row."""
    return b"v"


def payloads_prefix() -> bytes:
    """All payloads by row."""
    return b"y"


def field_prefix(number: int) -> bytes:
    """All values of an indexed field by row."""
    return b"f" + struct.pack(">H", number)


def field_of(prefix: bytes) -> int:
    """The number of an indexed field, from its prefix."""
    return int(struct.unpack(">H", prefix[1:3])[0])


def large_prefix() -> bytes:
    """All large payloads."""
    return b"l"


def large(number: int) -> bytes:
    """A large payload, by its number."""
    return b"l" + struct.pack(">Q", number)


def large_of(key: bytes) -> int | None:
    """The number of a large payload, from its key; None where it is none."""
    return int(struct.unpack(">Q", key[1:])[0]) if len(key) == 9 and key[:1] == b"l" else None


def rows(prefix: bytes) -> Callable[[int], bytes]:
    """The keys of a column, by the first row of each record.

    >>> rows(b"i")(3)
    b'i\\x00\\x00\\x00\\x03'
    """
    return partial(struct.Struct(f">{len(prefix)}sI").pack, prefix)


def row(prefix: bytes, first: int) -> bytes:
    """The record of a column that begins with row ``first``."""
    return rows(prefix)(first)


def row_of(key: bytes) -> int:
    """The first row of a column's record, from its key."""
    return int(struct.unpack(">I", key[-4:])[0])


def deleted_prefix() -> bytes:
    """All segments with deleted rows."""
    return b"d"


#: The deleted rows of a segment, by its number.
deleted: Callable[[int], bytes] = rows(deleted_prefix())


def postings_prefix() -> bytes:
    """All posting lists."""
    return b"p"


def postings(generation: int, first: int, table: int = 0) -> bytes:
    """The posting lists of a table, for the block that begins with row ``first``; table 0 comes first."""
    return b"p" + struct.pack(">IIH", generation, first, table)


def postings_of(key: bytes) -> tuple[int, int, int] | None:
    """Generation, first row and table of a key of posting lists; None where it is none."""
    if len(key) != 11 or key[:1] != b"p":
        return None
    generation, first, table = struct.unpack(">IIH", key[1:])
    return generation, first, table


def centre(cell: int) -> bytes:
    """The centre of a cell."""
    return b"c" + struct.pack(">I", cell)


def cell(number: int) -> bytes:
    """The entries of a cell."""
    return b"k" + struct.pack(">I", number)


def cell_tail(number: int) -> bytes:
    """The entries of a cell that were added last."""
    return b"t" + struct.pack(">I", number)


def centre_codes(generation: int) -> bytes:
    """The codes of all centres."""
    return b"z" + struct.pack(">I", generation)


def answers(step: int) -> bytes:
    """Queries whose neighbours are known, of a calibration that is not finished: those of a step."""
    return ANSWERS + struct.pack(">I", step)


def is_cell(key: bytes) -> bool:
    """Whether a key of the database of cells is one."""
    return len(key) == 5 and key[:1] in (b"c", b"k", b"t", b"z")


def sorted_int(value: int) -> bytes:
    """The block that begins with an int id."""
    return b"s" + struct.pack(">Q", value + (1 << 63))


def sorted_str(value: bytes) -> bytes:
    """The block that begins with a string id, in UTF-8."""
    return b"s" + value


def int_of(key: bytes) -> int:
    """The int id of a block's key."""
    return int(struct.unpack(">Q", key[1:])[0]) - (1 << 63)
