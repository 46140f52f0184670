"""The interface of a subset structure.

The file stores its configuration, with its kind, in one record of the meta database. ``state.listed`` tells how far it
has got: rows below are in it, later ones are fresh.

    in the transaction that changes rows    follow: bounded work, in proportion to the change
    after a large change, or by merge()     catch_up: as many transactions as it takes
    when codes change their meaning         clear: all rows are fresh again; places and restore keep them listed where
                                            only vectors decide what is where

A structure is an immutable value: changing the configuration stores another one (``stored.put``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._storage.format import meta
from .._storage.format.meta import State
from .._storage.lmdb.writer import COMMIT_BYTES, Writer
from .._storage.store import Store
from ..errors import add_note

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..encoders import Encoder
    from ..encoders.coder import Coder

#: ``progress(rows listed, rows in all)``
Progress = Callable[[int, int], None]


class Structure(ABC):
    """A subset structure as it is stored; equal ones have the same configuration."""

    #: Its name in the file and in ``subset=…``.
    kind: ClassVar[str]
    #: The class of what users ask for, and how they can write it.
    asked: ClassVar[type]
    #: Whether an index that has it stores codes in any case, and never vectors as they are.
    needs_codes: ClassVar[bool] = True
    ways_to_ask: ClassVar[str]

    # -- configuration ------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def begin(cls, asked: Any, coder: Coder, n: int) -> Self:
        """The structure for what a user asked for, in an index of ``n`` vectors; ParameterError where it cannot be."""

    @classmethod
    @abstractmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """From the fields of the stored record, checked."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of the stored record, besides the kind."""

    def to_record(self) -> bytes:
        """As stored."""
        return meta.pack({"kind": self.kind, **self.fields()})

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether rows can be listed: not before the index is trained."""

    @abstractmethod
    def suits(self, state: State) -> bool:
        """Whether it can be of the stored codes, as far as that is known without their encoder."""

    @abstractmethod
    def fits(self, coder: Coder) -> bool:
        """Whether it is of the codes of ``coder``."""

    @abstractmethod
    def check_encoder(self, encoder: Encoder, dim: int) -> None:
        """ParameterError where codes of another encoder cannot have what was asked for."""

    def warn_of(self, encoder: Encoder) -> None:
        """Warn a user who asks for it with this encoder, if searches by it would miss much."""
        del encoder

    @abstractmethod
    def chosen_for(self, coder: Coder, n: int) -> Self:
        """What was asked for, chosen anew for this coder and ``n`` vectors; it stays as it is without the encoder."""

    @abstractmethod
    def outgrown(self, other: Self) -> bool:
        """Whether ``other``, chosen for the vectors there are now, is worth listing all of them again."""

    @abstractmethod
    def told(self, coder: Coder) -> Any:
        """What users are told: as they could have asked for it."""

    @abstractmethod
    def stats(self, store: Store) -> dict[str, Any]:
        """Its part of ``Index.stats``, for a snapshot."""

    # -- upkeep -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def least_rows(self) -> int:
        """The first rows are listed when there are so many; until then the configuration can change for nothing."""

    @abstractmethod
    def follow(self, writer: Writer, changed: int, gone: Sequence[int]) -> None:
        """Keep up, in the open transaction: ``changed`` rows were added or deleted, and the chunks ``gone`` given back.

        What is done is bounded by ``changed``. The rest stays fresh, and later transactions catch up.
        """

    @abstractmethod
    def due(self, state: State, *, everything: bool) -> bool:
        """Whether there are rows to be listed now: enough of them, or with ``everything`` any."""

    @abstractmethod
    def advance(self, writer: Writer, *, everything: bool) -> None:
        """List about as many rows as one transaction should write."""

    @abstractmethod
    def row_bytes(self) -> int:
        """About how much a listed row takes in the file."""

    @abstractmethod
    def remove_all(self, writer: Writer) -> None:
        """Remove all that it has stored besides its configuration."""

    @abstractmethod
    def problems(self, store: Store) -> Iterator[str]:
        """What is wrong with it in a snapshot whose columns are sound."""

    def clear(self, writer: Writer) -> None:
        """Make all rows fresh."""
        if writer.state.listed:
            self.remove_all(writer)
            writer.state.listed = 0
            writer.state.relisted += 1

    def places(self, writer: Writer) -> Any:
        """Before all codes are replaced by others of the same vectors: where rows are, as far as that stays so."""
        return None

    def restore(self, writer: Writer, places: Any) -> None:
        """After that, and cleared: list the rows where they were."""
        del writer, places

    def give_way(self, writer: Writer, other: Structure | None) -> None:
        """Before ``other``, or none, is stored in its place."""
        self.clear(writer)

    def catch_up(self, writer: Writer, *, everything: bool = False, progress: Progress | None = None) -> None:
        """List all that is due, in as many transactions as it takes, and commit.

        The first is the one that is open; none is open afterwards. ``progress`` is called before each commit: if it
        raises, that transaction is undone. Stopped in between, the rest is still fresh, and the next writer goes on.
        """
        committed = 0
        try:
            while self.ready and self.due(writer.state, everything=everything):
                writer.run(partial(self.advance, everything=everything))
                state = writer.state
                if progress is not None:
                    progress(state.listed, state.rows)
                writer.commit()
                committed = state.listed
                writer.begin(min(COMMIT_BYTES, (state.rows - state.listed) * self.row_bytes()))
            writer.commit()
        except BaseException as error:
            if committed:
                add_note(error, f"{committed} rows were listed before this, and stay so; merge() lists the others")
            raise
