"""Other payloads for vectors that are there: their rows are written again, with the codes they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._inputs.ids import is_one, new_ids
from .._inputs.payloads import read_payloads
from .._storage.format.meta import Options
from .._storage.lmdb.writer import Writer
from .._storage.store import NewRows, Store
from .add import insert


class PayloadChange:
    """Payloads to be given to ids, checked as far as that is possible without the index."""

    def __init__(self, options: Options, ids: Any, payloads: Any) -> None:
        self._options, self._names = options, new_ids(ids, options.ids)
        one = is_one(ids) and (payloads is None or isinstance(payloads, Mapping))
        self._packed = read_payloads([payloads] if one else payloads, len(self._names), options.fields)

    def write(self, writer: Writer, *, nested: bool = False) -> None:
        """Write them in the open transaction; UnknownIdError, and nothing changed, where an id is not there."""
        options, store = self._options, Store(writer, self._options)
        rows = store.known_rows(self._names)
        vectors = store.vectors().gather(rows) if options.keep_vectors else None
        again = NewRows(self._names, store.codes().gather(rows), vectors, self._packed)
        insert(writer, again, options, upsert=True, nested=nested)
