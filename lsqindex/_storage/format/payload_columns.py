"""Columns of payloads: each row's msgpack, and beside it the values of indexed fields.

    payload   where each ends, then all of them; a row without a payload has no bytes
    field     a number for each row (uint16), then the values, each once, as a msgpack array: row → number → value.
              A condition looks at each value once for a record, and at rows as numbers only

All rows of an index have both, or none has: the columns begin when the first payload comes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from ..._compiled import records as _records
from ..._threads.cached import cached_property
from ...errors import DamagedError
from . import keys, records
from .columns import CHUNK_ROWS, Column, RowNumbers, Values, check_cuts, cut, joined

if TYPE_CHECKING:
    from .rows import Rows

#: A payload has at most so many bytes: a part of them must stay below 4 GiB.
MAX_PAYLOAD_BYTES = 4 << 20

#: A value of an indexed field has at most so many: those of a chunk are one record.
MAX_VALUE_BYTES = 64 << 10

#: The number of a row that does not have the field.
ABSENT = 0xFFFF


class PayloadColumn(Column):
    """Payloads, as bytes; a row may be large, so records hold fewer rows than those of other columns."""

    @cached_property
    def part_rows(self) -> int:
        """An eighth of a chunk: even without a payload these are as many bytes as LMDB never moves."""
        return CHUNK_ROWS // 8

    @cached_property
    def piece_rows(self) -> int:
        """Rows of a full piece."""
        return 8

    def _packed(self, values: Values) -> bytes:
        body, ends = joined(values)
        return ends.tobytes() + body.tobytes()

    def unpacked(self, payload: memoryview, count: int) -> Values:
        """The rows of a payload that has been checked."""
        return cut(payload, count)

    def _check_list(self, payload: memoryview, count: int, what: str) -> None:
        check_cuts(payload, count, MAX_PAYLOAD_BYTES, what)

    def pick(self, column: Rows, rows: RowNumbers) -> Values:
        """Copies of ``rows``."""
        return _records.gather_strings(column.starts, column.counts, column.addresses, rows, True)


class FieldColumn(Column):
    """The values of a field, each as its msgpack; no bytes where a row does not have it."""

    @cached_property
    def what(self) -> str:
        """Its name in messages."""
        return f"field {keys.field_of(self.prefix)}"

    def _packed(self, values: Values) -> bytes:
        distinct: dict[bytes, int] = {}
        numbers = []
        for value in values:
            numbers.append(distinct.setdefault(value, len(distinct)) if value else ABSENT)
        header: bytes = msgpack.Packer().pack_array_header(len(distinct))
        return b"".join((np.array(numbers, "<u2").tobytes(), header, *distinct))

    def unpacked(self, payload: memoryview, count: int) -> Values:
        """The rows of a payload that has been checked."""
        numbers, values = self.numbered(payload, count)
        packed = [*map(msgpack.packb, values), b""]
        return [*map(packed.__getitem__, np.minimum(numbers, len(values)).tolist())]

    def numbered(self, payload: memoryview, count: int) -> tuple[NDArray[np.uint16], list[Any]]:
        """The number of each row, and the values that they number."""
        try:
            values = msgpack.unpackb(payload[2 * count :], strict_map_key=False)
        except Exception as error:  # msgpack raises many kinds, all of them mean damage
            raise DamagedError(f"{self.what}: not readable as msgpack ({error}); {records.REMEDY}") from error
        return np.frombuffer(payload, "<u2", count), values

    def _check_list(self, payload: memoryview, count: int, what: str) -> None:
        if len(payload) < 2 * count:
            raise DamagedError(f"{what}: {len(payload)} bytes cannot hold {count} rows; {records.REMEDY}")
        numbers, values = self.numbered(payload, count)
        if not isinstance(values, list) or ((numbers >= len(values)) & (numbers != ABSENT)).any():
            raise DamagedError(f"{what}: rows refer to a value that does not exist; {records.REMEDY}")

    def pick(self, column: Rows, rows: RowNumbers) -> Values:
        """Copies of ``rows``."""
        places = np.searchsorted(column.starts, rows, side="right") - 1
        found: list[bytes] = [b""] * len(rows)
        for place in np.unique(places).tolist():
            start = int(column.starts[place])
            values = self.decode(column.source.get(self.db, self.key(start)), start)
            for at in np.flatnonzero(places == place).tolist():
                found[at] = values[int(rows[at]) - start]
        return found


@lru_cache
def payload_columns(fields: int) -> tuple[Column, ...]:
    """The columns of payloads, and of so many indexed fields."""
    # (The header's generation is the field's number: a record under another field's key is noticed.)
    own = (FieldColumn(keys.PAYLOADS, keys.field_prefix(number), records.FIELD, 0, number) for number in range(fields))
    return (PayloadColumn(keys.PAYLOADS, keys.payloads_prefix(), records.PAYLOADS, 0), *own)
