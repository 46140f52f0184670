"""Numbers about an index in one snapshot, for ``Index.stats``."""

from __future__ import annotations

from typing import Any

from .._storage.format import kept, keys
from .._storage.lmdb import growth
from .._storage.store import Store
from .._subsets import stored as subsets
from ..encoders.coder import Coder


def stats(store: Store, coder: Coder, path: str | None, training: dict[str, Any] | None) -> dict[str, Any]:
    """What ``Index.stats`` returns; ``training`` describes the last automatic training."""
    source, state, options = store.source, store.state, store.options
    structure = subsets.of(source, coder)
    fresh = store.fresh() if structure else 0
    return {
        "path": path,
        "format": state.format,
        "vectors": state.count,
        "deleted": state.stored - state.count,
        "dim": options.dim,
        "metric": options.metric,
        "ids": options.ids,
        "encoder": coder.name,
        "encoder_available": coder.present,
        "parameters": coder.config,
        "trained": coder.trained,
        "train_size": options.train_size,
        "training": training,
        "exact": coder.floats,
        "code_bytes": coder.code_size,
        "keep_vectors": kept.NAMES[options.keep_vectors] if options.keep_vectors else None,
        "subset": structure.kind if structure else None,
        **({"tables": 0, "table_bits": None} if structure is None else structure.stats(store)),
        "listed": state.stored - fresh if structure else 0,
        "fresh": fresh,
        "payloads": bool(state.payloads),
        "fields": list(options.fields),
        "payload_bytes": growth.database_bytes(source, keys.PAYLOADS),
        "posting_bytes": growth.database_bytes(source, keys.POSTINGS),
        "cell_bytes": growth.database_bytes(source, keys.CELLS),
        "file_bytes": growth.file_size(source),
        "free_bytes": growth.free_bytes(source),
    }
