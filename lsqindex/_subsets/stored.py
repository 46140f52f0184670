"""Which subset structures there are, and the one that a file has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from .._storage.format import keys, meta
from .._storage.format.records import REMEDY
from .._storage.format.upgrade import upgrade
from .._storage.lmdb.reader import Reader
from .._storage.lmdb.writer import Writer
from ..encoders.coder import Coder
from ..errors import Committed, DamagedError, ParameterError, shown
from .base import Structure
from .cells.options import Cells
from .cells.structure import CellsStructure
from .multi_index.structure import MultiIndexStructure
from .multi_index.tables import MultiIndex

#: By the kind that the file names.
KINDS: dict[str, type[Structure]] = {kind.kind: kind for kind in (MultiIndexStructure, CellsStructure)}

#: What ``subset`` may be: none, a structure as it comes, or one with options; "auto" for what serves best.
SubsetLike = MultiIndex | Cells | Literal["auto", "multi-index", "cells"] | None


def check_subset(subset: Any) -> Any:
    """What was asked for, as options; None for no structure, "auto" as it is."""
    if (
        subset is None
        or (isinstance(subset, str) and subset == "auto")
        or isinstance(subset, tuple(kind.asked for kind in KINDS.values()))
    ):
        return subset
    if isinstance(subset, str) and subset in KINDS:
        return KINDS[subset].asked()
    ways = ", ".join(kind.ways_to_ask for kind in KINDS.values())
    raise ParameterError(f"subset={subset!r}: None, 'auto', {ways} is needed")


def begin(asked: Any, coder: Coder, n: int) -> Structure | None:
    """The structure for checked options, in an index of ``n`` vectors; ParameterError where it cannot be."""
    if isinstance(asked, str):  # "auto": cells, unless there will be no codes to put into them
        encoder = coder.encoder
        layout = encoder.layout if encoder.is_fitted else encoder._make_layout(coder.dim)
        asked = None if layout.floats else Cells()
    if asked is None:
        return None
    structure = next(kind for kind in KINDS.values() if isinstance(asked, kind.asked)).begin(asked, coder, n)
    structure.warn_of(coder.encoder)
    return structure


def read(source: Reader | Writer) -> Structure | None:
    """The subset structure of a snapshot; None where it has none."""
    value = source.get(keys.META, keys.SUBSET) if source.state.format >= 2 else None
    if value is None:
        if source.state.listed:
            raise DamagedError(f"subset: missing, although {source.state.listed} rows are listed; {REMEDY}")
        return None
    structure = from_record(bytes(value))
    if not structure.suits(source.state):
        raise DamagedError(f"subset: it does not match the stored codes; {REMEDY}")
    return structure


def of(source: Reader | Writer, coder: Coder) -> Structure | None:
    """As :func:`read`; DamagedError where it is not of the coder's codes."""
    structure = read(source)
    if structure is not None and not structure.fits(coder):
        raise DamagedError(f"subset: it does not match the encoder's codes; {REMEDY}")
    return structure


def put(writer: Writer, structure: Structure | None) -> None:
    """Store a structure, or none, in the place of what there was; nothing is listed in it yet."""
    upgrade(writer)
    # Not read(): while codes are switched, the state is already that of the new codes, which it does not suit.
    value = writer.get(keys.META, keys.SUBSET)
    old = None if value is None else from_record(bytes(value))
    if old is not None:
        old.give_way(writer, structure)
    if structure is not None:
        writer.put(keys.META, keys.SUBSET, structure.to_record())
    elif old is not None:
        writer.delete(keys.META, keys.SUBSET)


def choose(writer: Writer, coder: Coder, added: int) -> None:
    """Before the first rows are listed: choose the structure again, for the vectors there will be.

    What was chosen before, for fewer, costs nothing to change as long as nothing is listed.
    """
    state = writer.state
    structure = None if state.listed or not coder.trained else read(writer)
    if structure is None or state.rows + added < structure.least_rows:
        return
    chosen = structure.chosen_for(coder, state.count + added)
    if chosen != structure:
        writer.run(lambda writer: put(writer, chosen))


def follow(writer: Writer, changed: int, gone: Sequence[int]) -> None:
    """Let the structure, if there is one, follow a change of rows in the open transaction."""
    structure = read(writer)
    if structure is not None:
        structure.follow(writer, changed, gone)


def settle(writer: Writer) -> None:
    """List what is due after a change that is durable; what cannot be listed now (a full disk) stays fresh."""
    with Committed("the change was committed"):
        writer.begin()
        structure = read(writer)
        if structure is not None:
            structure.catch_up(writer)
    writer.abort()


@lru_cache
def from_record(record: bytes) -> Structure:
    """The structure of a stored record, checked. A record without a kind is of a multi-index."""
    fields = meta.unpack(record, "subset")
    name = fields.pop("kind", "multi-index")
    if not isinstance(name, str) or name not in KINDS:
        raise DamagedError(f"subset: of an unknown kind, {shown(name)}; upgrade lsqindex, or {REMEDY}")
    return KINDS[name].from_fields(fields)
