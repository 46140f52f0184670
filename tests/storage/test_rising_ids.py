"""Ids above all others are appended to the last block of sorted ids without a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format import sorted_ids
from lsqindex._storage.store import LAST_AUTO_ID
from lsqindex.errors import DuplicateIdError

VECTORS = np.random.default_rng(0).standard_normal((9000, 2)).astype(np.float32)


@pytest.mark.parametrize("sizes", [[1] * 40, [1, 4063, 1, 1], [4064, 1], [4065, 4000], [9000]])
def test_rising_ids_make_the_blocks_that_a_search_for_their_places_makes(
    sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = []
    for way in ("rising", "searched"):
        if way == "searched":
            monkeypatch.setattr(sorted_ids, "plan_rising", lambda *_: None)
        with Index.create(tmp_path / way, 2, encoder="flat") as index:
            at = 0
            for size in sizes:
                index.add(VECTORS[at : at + size])
                at += size
            assert index.check() == [] and index.ids().tolist() == list(range(at))
            with index._reader() as reader:
                blocks.append([(key, rows.tolist()) for key, rows in sorted_ids.blocks(reader)])
    assert blocks[0] == blocks[1]


def test_ids_of_the_user_beyond_the_limit_stay_behind_those_that_the_index_gives(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a", 2, encoder="flat") as index:
        large = [LAST_AUTO_ID + 5, LAST_AUTO_ID + 1]
        index.add(VECTORS[:2], ids=large)
        assert index.add(VECTORS[2:4]).tolist() == [0, 1]
        index.delete(large)
        assert index.add(VECTORS[4:5]).tolist() == [2]
        index.delete([0, 1, 2])
        assert index.add(VECTORS[5:6]).tolist() == [3] and index.check() == []
        with pytest.raises(DuplicateIdError):
            index.add(VECTORS[:2], ids=[7, 3])
        index.add(VECTORS[:3], ids=[9, 8, 7])
        assert index.ids().tolist() == [3, 7, 8, 9] and index.check() == []
        assert np.array_equal(index.get([9, 7]), VECTORS[[0, 2]].astype(np.float32))
