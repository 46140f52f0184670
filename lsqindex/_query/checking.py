"""What ``Index.check`` reports beyond the file itself: what codes, vectors, payloads and the subset structure mean."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._inputs.payloads import read_payloads
from .._storage.format import kept
from .._storage.format.rows import Rows
from .._storage.store import Store
from .._subsets import stored as subsets
from ..encoders.coder import Coder
from ..errors import PayloadError
from .stored import payloads_of


def problems(store: Store, coder: Coder, following: Coder | None) -> list[str]:
    """What is wrong in a snapshot whose records are sound. ``following``: the coder of codes being rewritten."""
    structure = subsets.of(store.source, coder)
    listed = [] if structure is None else list(structure.problems(store))
    return listed or [*_codes(store, coder, following), *_payloads(store)]


def _codes(store: Store, coder: Coder, following: Coder | None) -> Iterator[str]:
    """What is wrong with codes and kept vectors: codes must be such as the encoder makes, and all numbers finite."""
    living, kind, column = store.living(), store.options.keep_vectors, store.next_codes()
    readable = coder.present or coder.floats
    if not readable:
        yield f"codes: could not be checked without their encoder: {coder.why}"
    for first in range(0, len(living), 1 << 14):
        rows = living[first : first + (1 << 14)]
        finite = not readable or bool(np.isfinite(coder.decode(store.codes().gather(rows))).all())
        if following is not None and following.present and column is not None:
            rewritten = Rows(column, store.source).gather(rows[rows < store.state.recoded])
            finite = finite and bool(np.isfinite(following.decode(rewritten)).all())
        if kind:
            finite = finite and kept.sound(store.vectors().gather(rows), kind)
        if not finite:
            yield f"vectors: NaN, infinite numbers or impossible scales in the rows from {int(rows[0])} on"


def _payloads(store: Store) -> Iterator[str]:
    """What is wrong with payloads: each must be a mapping, and indexed fields must have its values."""
    living, fields = store.living(), store.options.fields
    for first in range(0, len(living) if store.state.payloads else 0, 1 << 12):
        rows = living[first : first + (1 << 12)]
        given = payloads_of(store, rows)
        stored = [store.field(number).gather(rows) for number in range(len(fields))]
        try:
            wanted = read_payloads(given, len(given), fields)[1:]
        except PayloadError as error:
            yield f"from row {int(rows[0])} on: {error}"
        else:
            if wanted != stored:
                yield f"payloads: indexed fields differ from them in the rows from {int(rows[0])} on"
