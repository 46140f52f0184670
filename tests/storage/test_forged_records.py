"""Forged records in a sound file: every one is noticed, and none crashes or hangs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.damage.forged_cells import forged_cells
from tests.damage.forged_columns import (
    forged_columns,
    forged_deleted,
    forged_fields,
    forged_large,
    forged_parts,
    forged_payloads,
    forged_sorted,
    forged_values,
)
from tests.damage.forged_lists import forged_blocks, forged_listed, forged_postings, forged_subset
from tests.damage.forged_meta import forged_encoder, forged_next, forged_options, forged_state, malicious
from tests.damage.forging import Entries, Forgery, entries
from tests.damage.outcomes import outcomes

FORGERIES: list[tuple[str, Callable[[Entries], Iterator[tuple[str, Forgery]]]]] = [
    ("trained", forged_columns),
    ("untrained str", forged_columns),
    ("chunks", forged_parts),
    ("untrained", forged_values),
    ("untrained str", forged_values),
    ("trained", forged_values),
    ("untrained", forged_sorted),
    ("untrained str", forged_sorted),
    ("untrained", forged_deleted),
    ("untrained", forged_state),
    ("trained", forged_state),
    ("untrained", forged_options),
    ("trained", forged_options),
    ("untrained", forged_encoder),
    ("trained", forged_encoder),
    ("untrained", malicious),
    ("lists", forged_state),
    ("lists", forged_listed),
    ("few lists", forged_listed),
    ("few lists", forged_subset),
    ("lists", forged_blocks),
    ("few lists", forged_blocks),
    ("few lists", forged_postings),
    ("cells", forged_cells),
    ("cells", forged_state),
    ("payloads", forged_columns),
    ("payloads", forged_payloads),
    ("large payloads", forged_columns),
    ("large payloads", forged_large),
    ("payloads", forged_fields),
    ("payloads", forged_state),
    ("rewriting", forged_columns),
    ("rewriting", forged_state),
    ("rewriting", forged_next),
]
#: How a forgery may be noticed. A name of an encoder that is not known here may be that of a plugin: the file opens,
#: and what needs the encoder says that it is missing. (Where it was fitted, the name is stored twice, and compared.)
SOON_ENOUGH = ("noticed by", "noticed LATE by UnknownEncoderError")
#: Forgeries that give another index, as sound as the first: nothing need be noticed.
ANOTHER_INDEX = (
    "state: unfinished",  # the next writer looks for what is to be removed, and finds nothing
    "subset: {'kind': Ellipsis}",  # as older files have it: a multi-index
    "field: format 2, with payloads",  # of a database that format 2 does not know: the first write notices
    "cells: z 1 is missing",  # the codes of centres are made again
    f"encoder: seed={1 << 60}",
    f"encoder: lam={1 << 60}",
)


@pytest.mark.parametrize(("variant", "forger"), FORGERIES, ids=lambda value: getattr(value, "__name__", value))
def test_forged_records_are_noticed(
    variant: str,
    forger: Callable[[Entries], Iterator[tuple[str, Forgery]]],
    sound: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound(variant), path)
    there = entries(path)
    forgeries = list(forger(there))
    listed = [
        [(db.decode(), key.hex(), None if value is None else value.hex()) for (db, key), value in forgery.items()]
        for _, forgery in forgeries
    ]
    found = outcomes(path, listed, "survive")
    bad = {
        name: what
        for (name, _), what in zip(forgeries, found, strict=True)
        if what.startswith("WRONG") or (not what.startswith(SOON_ENOUGH) and name not in ANOTHER_INDEX)
    }
    assert not bad
