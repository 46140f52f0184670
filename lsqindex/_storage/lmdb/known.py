"""What a process knows of a file from one snapshot to the next: found, verified and decoded once.

    Known             one file: dropped when the path leads to another one
      columns         records of each column: where they lie, and which are verified
      deleted         which records of deletion bits are verified
      slots           what other packages keep: posting lists, decoded fields, the next encoder
      snapshot        one snapshot: dropped when another one is read

Addresses hold as long as ``Env.moved`` stays the same; whoever keeps some keeps that number with them. All else holds
as long as the file is the same one, wherever it is mapped.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ..format.columns import Column
    from ..format.rows import KnownRows

Value = TypeVar("Value")


class Slot(Generic[Value]):
    """A place for one thing that is kept. The module that keeps it makes the slot, with the type of the thing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Slot({self.name!r})"


@dataclass(eq=False)
class Known:
    """What is known of one file."""

    columns: dict[Column, KnownRows] = field(default_factory=dict)
    #: By segment: size, count and checksum of the record that was verified.
    deleted: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _slots: dict[Slot[Any], Any] = field(default_factory=dict)
    _snapshot: tuple[tuple[int, int], dict[Hashable, Any]] = ((-1, -1), {})

    def get(self, slot: Slot[Value]) -> Value | None:
        """What is kept in a slot; None if nothing is."""
        return self._slots.get(slot)

    def keep(self, slot: Slot[Value], value: Value) -> None:
        """Put something into a slot, in the place of what is there."""
        self._slots[slot] = value

    def snapshot(self, txn: int, moved: int) -> dict[Hashable, Any]:
        """What was found in the snapshot of that transaction; empty if the last one asked for was another."""
        if self._snapshot[0] != (txn, moved):
            self._snapshot = (txn, moved), {}
        return self._snapshot[1]
