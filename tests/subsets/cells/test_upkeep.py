"""Cells that keep themselves: growth by small adds, drift, deletes, equal vectors; and damage that check() finds."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from lsqindex import Cells, Index
from lsqindex._storage.format import keys, records
from lsqindex._storage.store import Store
from lsqindex._subsets import stored as subsets
from lsqindex._subsets.cells import entries, structure, upkeep
from lsqindex._subsets.cells.found import find
from lsqindex._subsets.cells.options import choose_count
from lsqindex._subsets.cells.training import halve
from lsqindex._subsets.cells.vectors import RowVectors
from tests.subsets.cells.made import around, entries_of, make


@pytest.fixture(autouse=True)
def small_lumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh rows move when there are 128, cells are chosen from 500 vectors on, and split from 16 entries on."""
    monkeypatch.setattr(structure, "LUMP_ROWS", 128)
    monkeypatch.setattr(structure, "LEAST_ROWS", 500)
    monkeypatch.setattr(upkeep, "_LEAST", 16)


def probed(index: Index, queries: Any, probes: int) -> tuple[float, float]:
    """The share of the 10 nearest that are in the nearest cells, or fresh, and the share of rows in these cells."""
    with index._reader() as reader:
        cells = find(reader, {})
        assert cells is not None
        homes = entries_of(cells, reader.state.code_size, reader.state.head)
        ids = {int(row): int(name) for row, name in zip(living(index), index_ids(index), strict=True)}
        listed = reader.state.listed
    fresh = [name for row, name in ids.items() if row >= listed]
    found = read = 0.0
    exact = index.search(queries, 10, rerank=len(index)).ids
    for query, wanted in zip(queries, exact, strict=True):
        order = np.argsort(((cells.centres - query) ** 2).sum(axis=1))[:probes]
        there = np.concatenate([homes[place] for place in order])
        read += len(there) / len(index)
        found += np.isin(wanted, [*fresh, *(ids[int(row)] for row in there if int(row) in ids)]).mean()
    return found / len(queries), read / len(queries)


def cells_beyond(index: Index, mean: float) -> int:
    """How many cells have a centre whose numbers are larger than that on the average."""
    with index._reader() as reader:
        cells = find(reader, {})
        assert cells is not None
        return int((cells.centres.mean(axis=1) > mean).sum())


def living(index: Index) -> Any:
    with index._reader() as reader:
        return Store(reader, index._options).living()


def index_ids(index: Index) -> Any:
    with index._reader() as reader:
        store = Store(reader, index._options)
        return store.ids_of(store.living())


def test_an_index_that_grows_by_small_adds_has_cells_as_if_built_at_once() -> None:
    vectors = around(6_000)
    index = make(subset="cells", keep_vectors="float32")
    counts = []
    for first in range(0, 6_000, 100):
        index.add(vectors[first : first + 100])
        counts.append(index.stats()["cells"]["count"])
        assert index.stats()["fresh"] < (500 if not counts[-1] else 400)
    assert index.check() == []
    assert counts[3] == 0 < counts[5] < counts[20] < counts[-1]
    assert 0.8 * choose_count(6_000) < counts[-1] < 1.3 * choose_count(6_000)
    told = index.stats()["cells"]
    assert told["spilled"] == 6_000 - index.stats()["fresh"] and told["largest"] < 6 * told["mean"]
    fresh = make(subset=Cells(counts[-1]), keep_vectors="float32")
    fresh.add(vectors)
    fresh.merge()
    queries = around(60, seed=7)
    (grown, read), (built, wanted) = probed(index, queries, 6), probed(fresh, queries, 6)
    assert grown > built - 0.03 and read < 1.25 * wanted and built > 0.8
    index.close()
    fresh.close()


def test_cells_follow_vectors_that_drift() -> None:
    index = make(subset="cells", keep_vectors="float32")
    index.add(around(2_000))
    index.merge()
    other = around(2_000, seed=3) + 50
    for first in range(0, 3_000, 200):
        some = np.arange(first, first + 200) % 2_000
        index.add(other[some], ids=some, upsert=True)
    index.merge()
    assert index.check() == []
    share, read = probed(index, other[::50], 6)
    assert share > 0.85 and read < 0.5
    assert cells_beyond(index, 25) > 0.5 * choose_count(2_000)  # most of the cells are where the vectors are now
    index.close()


def test_cells_outlive_a_listing_of_all_rows_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are listed in their order: cells of the last ones are empty until the end, and must not be dissolved."""
    monkeypatch.setattr(structure, "_MANY_ROWS", 256)
    index = make(subset="cells", keep_vectors="float32")
    index.add(around(2_000))
    index.add(around(2_000, seed=3) + 50)
    index.merge()
    told = index.stats()["cells"]
    assert told["largest"] < 1_000  # the second 2,000 were in two cells first
    before = cells_beyond(index, 25)
    assert before > 5
    with index._writer() as writer:
        own = subsets.read(writer)
        assert own is not None
        writer.run(own.clear)
        writer.commit()
    for seed in range(100):
        if index.stats()["fresh"] < 128:
            break
        index.add(around(70, seed=seed))
        assert cells_beyond(index, 25) >= before
    assert index.stats()["fresh"] < 128 and index.check() == []
    index.close()


@pytest.mark.parametrize("restored", [True, False])
def test_new_codes_take_the_place_of_the_old_ones_in_their_cells(
    restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not restored:
        monkeypatch.setattr(structure, "_MOST_RESTORED", 100)
    index = make(subset=Cells(30), keep_vectors="float32")
    index.add(around(2_000))
    index.merge()
    index.delete(np.arange(0, 2_000, 3))
    index.add(around(40, seed=2))

    def homes() -> list[set[int]]:
        with index._reader() as reader:
            cells = find(reader, {})
            assert cells is not None
            alive = set(living(index).tolist())
            return [set(rows.tolist()) & alive for rows in entries_of(cells, reader.state.code_size, reader.state.head)]

    before, fresh = homes(), index.stats()["fresh"]
    monkeypatch.setattr(subsets, "settle", lambda writer: None)
    index.reencode("lsh", bits=96, seed=1)
    assert index.check() == []
    if restored:
        assert homes() == before and index.stats()["fresh"] == fresh
    else:
        assert index.stats()["fresh"] == 2_040  # deleted ones, too
    index.merge()
    assert index.check() == [] and index.stats()["fresh"] == 0
    index.close()


def test_what_an_add_looks_at_does_not_grow_with_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    get = RowVectors.__getitem__

    def counted(own: RowVectors, rows: Any) -> Any:
        looked_at[-1] += len(rows)
        return get(own, rows)

    monkeypatch.setattr(RowVectors, "__getitem__", counted)
    monkeypatch.setattr(structure, "_SEEN_TO", 1_000)
    monkeypatch.setattr(structure, "_MANY_ROWS", 256)
    most = []
    for n in (3_000, 12_000):
        index = make(subset="cells", keep_vectors="float32")
        looked_at.append(0)
        index.add(around(n))
        index.merge()
        looked_at.clear()
        for seed in range(200):
            looked_at.append(0)
            # As many again of another kind: cells are split and dissolved, and calibrated again.
            index.add(around(20, seed=seed) + 30, ids=np.arange(20 * seed, 20 * seed + 20) % n, upsert=True)
        assert index.check() == [] and sum(looked_at) > 4_000
        most.append(max(looked_at))
        index.close()
    assert most[1] < 2 * most[0]


def test_two_halves_are_found_beside_an_outlier() -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.standard_normal((50, 4)), rng.standard_normal((50, 4)) + 6, [[0, 90, 0, 0]]])
    two = halve(vectors.astype(np.float32))
    assert two is not None
    nearest = np.square(vectors[:, None] - two).sum(axis=2).argmin(axis=1)
    assert np.bincount(nearest).min() > 40


def test_deleted_rows_leave_the_cells_bit_by_bit() -> None:
    index = make(subset=Cells(20))
    index.add(around(4_000))
    index.merge()
    for first in range(0, 3_600, 100):
        index.delete(np.arange(first, first + 100))
        assert first % 900 or index.check() == []
    told = index.stats()["cells"]
    assert told["mean"] * told["count"] < 2 * 2 * len(index)  # at most half of the entries are gone
    index.delete(np.arange(4_000))
    index.add(around(300, seed=4))
    index.merge()
    assert index.check() == [] and index.search(around(1), 3).ids.shape == (1, 3)
    index.close()


def test_rows_that_moved_because_their_chunk_was_given_back_are_in_cells_again() -> None:
    index = make(subset=Cells(20))
    index.add(around(9_000))
    index.merge()
    index.delete(np.arange(0, 9_000, 2))
    index.merge()
    assert index.check() == [] and index.stats()["fresh"] == 0 and len(index) == 4_500
    with index._reader() as reader:
        assert reader.state.stored < 8_500  # chunks were given back
    index.close()


def test_cells_are_calibrated_where_queries_have_no_neighbours_and_the_first_rows_are_gone() -> None:
    """Halfway between opposite vectors there is no direction, so nothing is found; no row must stand for that."""
    index = make(subset=Cells(20), metric="cosine", keep_vectors="float32")
    index.add(np.random.default_rng(0).choice([-1.0, 1.0], (9_000, 1)) * around(1))
    index.merge()
    index.delete(np.arange(8_000))
    index.add(around(50))
    index.merge()
    with index._reader() as reader:
        assert reader.state.stored < 9_050  # chunks were given back
    assert index.check() == []
    index.close()


def test_a_small_cell_is_dissolved_and_the_last_one_is_not() -> None:
    vectors = around(1_500, centres=8)
    index = make(subset=Cells(8))
    index.add(vectors)
    index.merge()
    near = np.argsort(((vectors - vectors[0]) ** 2).sum(axis=1))[:700]
    index.delete(near)
    before = index.stats()["cells"]["count"]
    with index._writer() as writer:
        writer.run(lambda own: upkeep.maintain(own, 1, 1 << 20, spill=True))
        writer.commit()
    assert 1 <= index.stats()["cells"]["count"] < before
    assert index.check() == []
    index.close()


def test_equal_vectors_by_the_thousand_stay_in_one_cell() -> None:
    index = make(subset="cells")
    index.add(around(600))
    for _ in range(10):
        index.add(np.ones((400, 16)))
    assert index.check() == []
    told = index.stats()["cells"]
    assert told["largest"] > 3_000 and told["count"] < 2 * choose_count(len(index))
    index.close()


def test_a_split_copies_codes_and_keeps_both_entries_of_a_row() -> None:
    index = make(subset=Cells(10))
    index.add(around(2_000))
    index.merge()
    before = index.stats()["cells"]
    with index._writer() as writer:
        epoch = writer.state.relisted
        writer.run(lambda own: upkeep.maintain(own, 40, 1 << 20, spill=True))
        assert writer.state.relisted > epoch and writer.state.cells > 15
        writer.commit()
    after = index.stats()["cells"]
    assert index.check() == [] and after["spilled"] == before["spilled"] == 2_000
    assert after["largest"] < before["largest"]
    index.close()


def test_rows_of_an_only_cell_get_their_second_when_it_is_split() -> None:
    index = make(subset=Cells(1))
    index.add(around(500))
    index.merge()
    assert index.stats()["cells"]["count"] == 1 and index.stats()["cells"]["spilled"] == 0
    with index._writer() as writer:
        writer.run(lambda own: upkeep.maintain(own, 2, 1, spill=True))
        writer.commit()
    assert index.stats()["cells"]["count"] == 2 and index.stats()["cells"]["spilled"] == 500
    assert index.check() == []
    index.close()


def damage(index: Index, change: Any) -> list[str]:
    with index._writer() as writer:
        writer.run(lambda own: change(own, find(own, {})))
        writer.state.relisted += 1
        writer.commit()
    return index.check()


def drop_a_row(writer: Any, cells: Any) -> None:
    """A row that is in no cell any more."""
    for place, number in enumerate(cells.numbers.tolist()):
        held = entries.load_all(writer, cells.numbers[place : place + 1])
        entries.store(writer, records.CELL, np.array([number], np.uint32), held.only(held.rows != 7))
        entries.remove(writer, records.TAIL, np.array([number], np.uint32))


def lose(kind: bytes, writer: Any, cells: Any) -> None:
    """A record is gone, whose rows are all in a second cell."""
    entries.remove(writer, kind, cells.numbers[cells.counts[:, 1] > 0][:1])


def another_code(writer: Any, cells: Any) -> None:
    held = entries.load(writer, records.CELL, cells.numbers[:1])
    held.codes[0, 0] ^= 1
    entries.store(writer, records.CELL, cells.numbers[:1], held)


def twice_in_a_cell(writer: Any, cells: Any) -> None:
    held = entries.load(writer, records.CELL, cells.numbers[:1])
    few = entries.Entries(np.array([1]), held.rows[:1], held.codes[:1])
    entries.store(writer, records.TAIL, cells.numbers[:1], few)


def in_every_cell(writer: Any, cells: Any) -> None:
    held = entries.load(writer, records.CELL, cells.numbers[:1])
    row = entries.Entries(np.array([1]), held.rows[:1], held.codes[:1])
    for place in range(len(cells.numbers)):
        own = entries.load(writer, records.CELL, cells.numbers[place : place + 1])
        entries.store(writer, records.CELL, cells.numbers[place : place + 1], entries.together([own, row], 1))


def no_number(writer: Any, cells: Any) -> None:
    centres = cells.centres[:1].copy()
    centres[0, 3] = np.nan
    entries.store_centres(writer, cells.numbers[:1], centres, cells.spreads[:1])


def fresh_row(writer: Any, cells: Any) -> None:
    held = entries.load(writer, records.CELL, cells.numbers[:1])
    held.rows[-1] = writer.state.listed
    entries.store(writer, records.CELL, cells.numbers[:1], held)


def long_tail(writer: Any, cells: Any) -> None:
    held = entries.load(writer, records.CELL, cells.numbers[:1])
    entries.store(writer, records.TAIL, cells.numbers[:1], held)


def wrong_count(writer: Any, cells: Any) -> None:
    writer.state.cells -= 1


def odd_key(writer: Any, cells: Any) -> None:
    writer.put(keys.CELLS, b"k\0\0\0\0\0", b"x")


def another_cell(writer: Any, cells: Any) -> None:
    value = bytes(writer.get(keys.CELLS, keys.cell(int(cells.numbers[0]))))
    writer.put(keys.CELLS, keys.cell(int(cells.numbers[1])), value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drop_a_row, "row 7 is in 0, expected 2; 1 such"),
        (another_code, "a code that is not that of its row"),
        (twice_in_a_cell, "twice"),
        (in_every_cell, "is in 6, expected 2"),
        (partial(lose, records.CELL), "is in 1, expected 2"),
        (partial(lose, records.TAIL), "is in 1, expected 2"),
        (partial(lose, records.CENTRE), "no centre"),
        (no_number, "not finite"),
        (fresh_row, "wrong checksum"),
        (long_tail, "too large"),
        (wrong_count, "expected"),
        (odd_key, "impossible size|unknown (key|entry)"),
        (another_cell, "something else"),
    ],
)
def test_check_finds_cells_that_do_not_agree_with_the_rows(change: Any, told: str) -> None:
    index = make(subset=Cells(6))
    for n in (600, 10):
        index.add(around(n, seed=n))
        index.merge()
    index.add(around(20, seed=3))
    assert index.stats()["cells"]["tails"] > 0
    assert index.check() == []
    assert any(re.search(told, problem) for problem in damage(index, change))
    index.close()
