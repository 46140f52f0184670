"""Deleting vectors: ids, or what a condition lets through, become bits; a subset structure follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._compiled.gate import Change
from .._inputs.filters import Condition, read_filter
from .._inputs.ids import once, read_ids
from .._query.select import select
from .._storage.format import keys
from .._storage.format.meta import Options
from .._storage.lmdb.writer import Writer
from .._storage.store import Store
from .._subsets import stored as subsets
from .together import Checked, commit_together


class Deletion(Change):
    """What is to be deleted: ids, each once, or what a condition on payloads lets through."""

    #: How many rows it adds.
    count = 0

    def __init__(self, options: Options, ids: Any, checked: Checked | None = None) -> None:
        self._options, self._checked = options, checked
        self._asked: Any
        if isinstance(ids, Mapping):
            self._asked, self.apart = read_filter(ids, options.ids), True
        else:
            self._asked = once(read_ids(ids, options.ids, known=True))
        #: Each is applied for itself.
        self.kind = self

    def write(self, writer: Writer) -> None:
        """Delete in the open transaction, with what other threads wait for, and commit."""
        changes = writer.together.take(self)
        if len(changes) > 1:
            commit_together(writer, self, changes)
        else:
            self.result = writer.run(self._delete)
            writer.commit()

    def ready(self, writer: Writer, added: int) -> bool:
        """Another thread can always do it, if the index is still the one it was meant for."""
        if self._checked is not None:
            self._checked(writer, self._options)
        return True

    def apply(self, writer: Writer, group: Sequence[Deletion], *, nested: bool) -> None:
        """Delete in the open transaction; ``result`` is how many there were."""
        self.result = writer.run(self._delete, nested=nested)

    def _delete(self, writer: Writer) -> int:
        store, names = Store(writer, self._options), self._asked
        if isinstance(names, Condition):
            names = once(store.ids_of(select(store, names)))
        count, gone = store.delete(names)
        if count and writer.get(keys.META, keys.SUBSET) is not None:
            subsets.follow(writer, count, gone)
        return count
