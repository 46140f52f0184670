"""A snapshot prepared for searching: what is found once in it, and used by all its searches.

It is kept as long as nothing is written. Addresses in it are those of its transaction's pages, which LMDB does not
change while the snapshot is the last one, and they are void when the map moves: so it is used only while
:attr:`Snapshot.valid` says so. Nothing in it refers to a transaction; whoever must read gives a ``Store``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._compiled.scan import Codes
from .._storage.format import deleted
from .._storage.format.columns import RowNumbers
from .._storage.store import Store
from .._subsets import stored as subsets
from ..encoders.coder import Coder
from ..metrics import METRICS
from .ranking import Kept

if TYPE_CHECKING:
    from .field_values import Values
    from .plan import Plan
    from .select import Selection
    from .sources.multi_index import Listed


class Snapshot:
    """One committed state of an index, as its searches need it."""

    def __init__(self, store: Store, coder: Coder) -> None:
        source = store.source
        #: Of which transaction it is, and since when addresses hold.
        self.valid = (source.state.txn, source.env.moved)
        self.coder, self.options, self.state = coder, store.options, source.state
        self.metric = METRICS[coder.metric]
        self.subset = subsets.of(source, coder)
        ids = store.ids()
        ids.touch_all()
        #: Where all ids lie, verified.
        self.ids = (ids.starts, ids.counts, ids.addresses)
        #: The vectors that are kept beside codes; None without any.
        self.kept = Kept(store, self.metric) if store.options.keep_vectors and not coder.floats else None
        #: What was planned for queries without a filter; and what filters let through, the last few.
        self.plans: dict[Any, Plan] = {}
        self.selections: tuple[Selection, ...] = ()
        #: The values of indexed fields, by number; rows of zeros that share a code.
        self.fields: dict[int, Values] = {}
        self.zeros: dict[bytes, RowNumbers] = {}
        #: Posting lists, and where fresh rows lie.
        self.listed: Listed | None = None
        self._codes: Codes | None = None

    def codes(self, store: Store) -> Codes:
        """All codes, verified, where they lie."""
        if self._codes is None:
            codes = store.codes()
            codes.touch_all()
            bits = deleted.addresses(store.source)
            self._codes = self.codes_at(codes.starts, codes.counts, codes.addresses, bits)
        return self._codes

    def codes_at(
        self, starts: RowNumbers, counts: RowNumbers, addresses: NDArray[np.uint64], bits: NDArray[np.uint64]
    ) -> Codes:
        """Codes of these records; ``bits`` as :func:`deleted.addresses` gives them."""
        layout, state = self.coder.layout, self.state
        fields = (layout.starts, layout.bit_starts, layout.level_counts)
        return Codes(starts, counts, addresses, state.code_size, state.head, *fields, bits, deleted.SEGMENT_ROWS)
