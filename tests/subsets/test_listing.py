"""The subset structure: the bits of its tables, listing that ends early, readers beside it, a full map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index, MultiIndex
from lsqindex._storage.lmdb import growth, opening
from lsqindex._storage.lmdb.writer import Writer
from lsqindex._storage.store import Store
from lsqindex._subsets.multi_index import lists, structure
from lsqindex._subsets.multi_index.structure import MultiIndexStructure
from lsqindex.errors import (
    ParameterError,
    StorageError,
)

from .listed import CHUNK, SEGMENT, UNIT, agree, create, found_lists, sound, state_of, subset_of, vectors

# -- the subset structure -------------------------------------------------------------------------


def test_bits_are_chosen_for_the_vectors_there_are(path: Path) -> None:
    with create(path) as index:
        assert index.subset == MultiIndex(bits=4)
        index.add(vectors(1000))
        assert index.subset == MultiIndex(bits=4), "nothing is listed: nothing is changed for a few rows"
        index.add(vectors(UNIT))
        assert index.subset == MultiIndex(bits=8)
        index.add(vectors(3 * UNIT))
        assert index.subset == MultiIndex(bits=8), "what is listed stays"
        index.merge()
        assert index.subset == MultiIndex(bits=10)
        assert sound(index) == [(0, SEGMENT, SEGMENT), (SEGMENT, SEGMENT + 1000, 1000)]
        index.delete(range(SEGMENT))
        index.compact()
        assert index.subset == MultiIndex(bits=4) and sound(index) == [(0, 1000, 1000)]


def test_bits_that_were_asked_for_stay(path: Path) -> None:
    with create(path, subset=MultiIndex(bits=5), keep_vectors="float32") as index:
        index.add(vectors(UNIT + 5))
        index.merge()
        index.compact()
        index.train(vectors(100))
        assert index.subset == MultiIndex(bits=5) and subset_of(index).widths == (5, 5, 5, 1)
        index.add(vectors(10), ids=range(10**6, 10**6 + 10))
        sound(index)


def test_the_tables_of_a_code_that_is_not_binary_are_its_dimensions(path: Path) -> None:
    with create(path, 3000, encoder="pq", bits=16, subset="multi-index", keep_vectors="float32") as index:
        index.merge()
        fields = index.encoder.layout.bits
        assert subset_of(index).widths == tuple(fields) and sound(index) == [(0, 3000, 3000)]
        with pytest.raises(ParameterError, match="bits"):
            index.set_subset(MultiIndex(bits=8))
        with pytest.raises(ParameterError, match="has no codes"):
            index.reencode("flat")
        assert subset_of(index).widths == tuple(fields) and sound(index) == [(0, 3000, 3000)]


def test_tables_begin_behind_row_scalars(path: Path) -> None:
    with create(path, 700, encoder="lsq", bits=40, iterations=2, subset=MultiIndex(bits=15)) as index:
        index.merge()
        layout = index.encoder.layout
        first = sum(layout.bits[: layout.scalars])
        assert first > 0 and subset_of(index).firsts[0] == first
        assert sound(index) == [(0, 700, 700)]


def test_progress_tells_how_far_listing_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "COMMIT_BYTES", 1)
    told: list[tuple[int, int | None]] = []
    with create(path, SEGMENT + UNIT + 9, subset=None) as index:
        rows = SEGMENT + UNIT + 9
        index.set_subset("multi-index", progress=lambda done, total: told.append((done, total)))
        assert told == [(SEGMENT, rows), (SEGMENT + UNIT, rows), (rows, rows)]
        assert sound(index) == [(0, SEGMENT, SEGMENT), (SEGMENT, SEGMENT + UNIT, UNIT), (SEGMENT + UNIT, rows, 9)]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_listing_that_ends_between_transactions_goes_on_later(
    step: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed stays, what was stopped is undone; the rest is fresh, and nothing is missed."""
    monkeypatch.setattr(structure, "COMMIT_BYTES", 1)

    def stop(done: int, total: int | None) -> None:
        steps.append(done)
        if len(steps) == step:
            raise KeyboardInterrupt

    with create(path, SEGMENT + UNIT + 9, subset=None) as index:
        steps: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            index.set_subset(MultiIndex(bits=8), progress=stop)
        assert steps == [SEGMENT, SEGMENT + UNIT, SEGMENT + UNIT + 9][:step]
        if step == 1:  # the first has the tables, too
            assert index.subset is None and sound(index) == []
            index.set_subset(MultiIndex(bits=8))
            assert sound(index)[-1] == (SEGMENT + UNIT, SEGMENT + UNIT + 9, 9)
            return
        assert state_of(index).listed == steps[-2]
        assert index.stats()["fresh"] == len(index) - steps[-2]
        sound(index)
        agree(index)
        index.add(vectors(1))
        assert state_of(index).listed == SEGMENT + UNIT
        index.merge()
        assert sound(index)[-1] == (SEGMENT + UNIT, SEGMENT + UNIT + 10, 10)


def test_an_add_is_done_even_where_its_lists_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing after a durable add is help, not part of it: what fails there stays fresh, and is no error of the add."""

    def full(*_: Any, **__: Any) -> None:
        raise StorageError("no room")

    with create(path) as index, monkeypatch.context() as patch:
        patch.setattr(MultiIndexStructure, "follow", lambda *_: None)
        patch.setattr(MultiIndexStructure, "catch_up", full)
        index.add(vectors(UNIT))
        assert (len(index), index.stats()["fresh"]) == (UNIT, UNIT)
        patch.undo()
        index.add(vectors(1))
        assert sound(index) == [(0, UNIT, UNIT)]


# -- readers beside a writer ----------------------------------------------------------------------


def test_a_snapshot_stays_as_it_was_while_a_writer_lists(path: Path) -> None:
    with create(path, UNIT + 5, subset=MultiIndex(bits=8)) as index, index._reader() as reader:
        before = found_lists(index, reader)
        tables = subset_of(index)
        payloads = [bytes(value) for _, value in lists.entries(reader)]
        with Index.open(path) as other:  # in the same process: the same environment
            other.add(vectors(3 * UNIT, 2))
            other.delete(range(2 * CHUNK))
            other.set_subset(MultiIndex(bits=16))
            assert sound(other)
        assert [bytes(value) for _, value in lists.entries(reader)] == payloads
        again = lists.find(reader, tables, Store(reader, index._options).codes)
        assert (again.listed, again.firsts.tolist()) == (UNIT, [0])
        assert again.bits.tolist() == [8, 8] and np.array_equal(again.addresses, before.addresses)


def test_an_older_snapshot_than_the_last_one_seen_finds_its_own_lists(path: Path) -> None:
    """What is remembered of a newer snapshot must not be taken for an older one's."""
    with create(path, SEGMENT - 5, subset=MultiIndex(bits=8)) as index, index._reader() as old:
        with Index.open(path) as other:
            other.add(vectors(SEGMENT, 2))
            agree(other)  # now the newer lists are known
        found = found_lists(index, old)
        assert (found.listed, found.firsts.tolist()) == (3 * UNIT, [0])
        assert found.counts.tolist() == [3 * UNIT]
        agree(index)


# -- a full map -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pages", range(24, 124, 20))
def test_nothing_is_lost_when_the_map_is_full_while_listing(
    pages: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "INITIAL_MAP", 4096 * pages)
    monkeypatch.setattr(growth, "lacks", lambda file, room: 0)  # it is not grown beforehand
    replayed: list[int] = []
    replay = Writer._replay

    def seen(writer: Writer) -> None:
        replayed.append(writer.state.listed)
        replay(writer)

    monkeypatch.setattr(Writer, "_replay", seen)
    with create(path, subset=None) as index:
        index.add(vectors(UNIT + 500))
        del replayed[:]
        index.set_subset(MultiIndex(bits=4))
        index.add(vectors(UNIT))
        index.delete(range(2 * CHUNK))
        index.merge()
        assert sound(index)[-1][1] == state_of(index).rows
        agree(index)
        assert replayed, "the map was never full"
    with Index.open(path) as index:
        assert sound(index)[-1][1] == state_of(index).rows
