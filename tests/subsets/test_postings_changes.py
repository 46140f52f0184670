"""After any change, posting lists are what the codes say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._storage import rewrite
from lsqindex._storage.format import records
from lsqindex._subsets.multi_index import lists, postings, structure
from lsqindex._write import add as loader
from lsqindex._write import training
from lsqindex.errors import (
    LsqIndexError,
)

from .listed import CHUNK, SEGMENT, UNIT, Content, agree, create, sound, state_of, vectors


def deletes(index: Index) -> None:
    index.delete(range(0, len(index) + 5000, 9))


def upserts(index: Index) -> None:
    ids = np.random.default_rng(3).permutation(UNIT)[:2500]
    index.add(vectors(len(ids), 5), ids=ids, upsert=True)


def gives_back(index: Index) -> None:
    index.delete(range(CHUNK, CHUNK + 1200))


def gives_all_back(index: Index) -> None:
    """Chunk by chunk, until nothing of the first unit is left, and then of anything."""
    for first in range(0, UNIT, 1500):
        index.delete(range(first, first + 1500))
        sound(index)
    assert state_of(index).listed >= UNIT and not Content(Path(str(index.path))).blocks().get(0)
    index.delete(index.ids())


def batch(index: Index) -> None:
    with index.batch() as changes:
        changes.add(vectors(UNIT, 7), ids=np.arange(10**6, 10**6 + UNIT))
        changes.delete(range(2 * CHUNK))
        with pytest.raises(LsqIndexError):
            changes.add(vectors(2), ids=[10**6, 1])
        changes.add(vectors(10, 8))


def failing_batch(index: Index) -> None:
    with pytest.raises(KeyboardInterrupt), index.batch() as changes:
        changes.add(vectors(UNIT, 7), ids=np.arange(10**6, 10**6 + UNIT))
        raise KeyboardInterrupt


def large_add(index: Index) -> None:
    index.add(vectors(UNIT + 3, 9), ids=np.arange(10**6, 10**6 + UNIT + 3))


def other_tables(index: Index) -> None:
    for subset in (MultiIndex(bits=4), MultiIndex(bits=16), None, "multi-index"):
        index.set_subset(subset)
        assert bool(sound(index)) == (subset is not None)


def copies(index: Index) -> None:
    assert index.path is not None
    copy = Path(index.path).with_name("copy.lsq")
    for _ in range(2):
        index.save(copy)
        with Index.open(copy) as other:
            assert other.stats()["fresh"] == 0 and other.subset is not None
            assert sound(other)[-1][1] == len(index)


CHANGES: dict[str, Callable[[Index], Any]] = {
    "deletes": deletes,
    "upserts": upserts,
    "gives back a chunk": gives_back,
    "gives everything back": gives_all_back,
    "a batch": batch,
    "a batch that fails": failing_batch,
    "a large add": large_add,
    "set_subset": other_tables,
    "merge": Index.merge,
    "compact": Index.compact,
    "save": copies,
    "reencode": lambda index: index.reencode("lsh", bits=29),
    "reencode, not binary": lambda index: index.reencode("pq", bits=16),
    "train": lambda index: index.train(vectors(50, 4)),
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_after_any_change_lists_are_what_the_codes_say(
    change: str, merged: bool, path: Path, untidy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if merged:  # in many transactions, too
        for module in (loader, training, rewrite, structure):
            monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 16)
    with create(path, UNIT + 3000, keep_vectors="float32") as index:
        if merged:
            index.merge()
        CHANGES[change](index)
        sound(index)
        ids = index.ids()
        index.add(vectors(50, 99), ids=np.arange(5 * 10**6, 5 * 10**6 + 50))
        index.delete(ids[:20])
        after = sound(index)
        agree(index)
    with Index.open(path) as index:
        assert sound(index) == after
        agree(index)


def test_a_block_is_made_anew_when_half_of_it_is_gone(path: Path, untidy: None) -> None:
    with create(path, UNIT + 10) as index:
        index.delete(range(CHUNK))
        assert sound(index) == [(0, UNIT, UNIT)], "a quarter is gone: its lists name it still"
        index.delete(range(CHUNK, 2 * CHUNK))
        assert sound(index) == [(0, UNIT, UNIT // 2)]
        index.delete(range(2 * CHUNK, 3 * CHUNK))
        assert sound(index) == [(0, UNIT, CHUNK)]
        index.delete(range(3 * CHUNK, 4 * CHUNK))
        assert sound(index) == [] and state_of(index).listed == UNIT
        assert index.ids().tolist() == list(range(UNIT, UNIT + 10))
        agree(index)
        assert index.search(vectors(1), 3, strategy="subset").ids[0, 0] >= UNIT
        index.merge()
        assert sound(index) == [(UNIT, UNIT + 10, 10)]


def test_a_block_without_a_successor_reaches_over_what_is_gone(path: Path, untidy: None) -> None:
    """The second unit of three goes: the first block then ends where the third begins."""
    with create(path) as index:
        for i in range(3):
            index.add(vectors(UNIT, i))
        index.delete(range(UNIT, 2 * UNIT))
        assert sound(index) == [(0, 2 * UNIT, UNIT), (2 * UNIT, 3 * UNIT, UNIT)]
        agree(index)
        index.delete(range(3 * CHUNK))
        assert sound(index) == [(0, 2 * UNIT, CHUNK), (2 * UNIT, 3 * UNIT, UNIT)]
        index.add(vectors(UNIT, 4))
        assert sound(index) == [(0, SEGMENT, UNIT + UNIT + CHUNK)]
        agree(index)


def test_lists_of_a_full_segment_that_are_made_anew_are_found_again(path: Path, untidy: None) -> None:
    """Readers remember where those of full segments lie: ``relisted`` tells them to look again."""
    with create(path, SEGMENT + 10, subset=MultiIndex(bits=8)) as index, Index.open(path, read_only=True) as reader:
        agree(reader)
        before = state_of(index).relisted
        index.delete(range(SEGMENT // 2))
        assert state_of(index).relisted == before + 1
        assert sound(index) == [(0, SEGMENT, SEGMENT // 2)]
        index.add(vectors(5000, 3))  # which may take the pages that were freed
        index.add(vectors(5000, 4))
        agree(reader)
        assert reader.check() == []


def test_tables_that_come_again_are_looked_up_again(path: Path) -> None:
    """The same tables of the same codes: nothing but ``relisted`` tells that their lists were made anew."""
    with create(path, SEGMENT + 10, subset=MultiIndex(bits=8)) as index, Index.open(path, read_only=True) as reader:
        agree(reader)
        index.set_subset(None)
        index.add(vectors(20_000, 3))
        index.set_subset(MultiIndex(bits=8))
        agree(reader)
        assert reader.check() == []


def test_rows_that_a_delete_moves_are_listed_when_they_fill_a_unit(path: Path, untidy: None) -> None:
    with create(path, 2 * UNIT - 100) as index:
        assert state_of(index).listed == UNIT
        index.delete(range(1100))
        assert state_of(index).rows == 2 * UNIT - 100 + CHUNK - 1100
        assert sound(index) == [(0, UNIT, UNIT), (UNIT, 2 * UNIT, UNIT)]
        agree(index)


def test_addresses_of_full_segments_are_known_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit only the last segment's lists are looked up, and none is verified twice."""
    looked: list[int] = []
    decoded: list[records.Header] = []
    entries, decode = lists.entries, postings.decode

    def seen(source: Any, row: int = 0) -> Any:
        looked.append(row)
        return entries(source, row)

    def verified(value: Any, wanted: records.Header, span: int) -> memoryview:
        decoded.append(wanted)
        return decode(value, wanted, span)

    monkeypatch.setattr(lists, "entries", seen)
    monkeypatch.setattr(postings, "decode", verified)
    with create(path, SEGMENT + UNIT + 5, subset=MultiIndex(bits=8)) as index:
        index.search(vectors(1), probes=4)
        assert looked == [0] and [(own.first, own.head) for own in decoded] == [
            (0, 0),
            (0, 1),
            (SEGMENT, 0),
            (SEGMENT, 1),
        ]
        index.search(vectors(1), probes=4)
        assert looked == [0]
        index.add(vectors(5))
        index.search(vectors(1), probes=4)
        assert looked == [0, SEGMENT] and len(decoded) == 4
        index.add(vectors(UNIT))
        index.search(vectors(1), probes=4)
        assert looked[2:] == [SEGMENT] and [own.first for own in decoded[4:]] == [SEGMENT + UNIT] * 2
