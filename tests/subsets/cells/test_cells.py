"""Cells as users see them: building, adding, deleting, changing the structure; check() after everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Cells, Index, MultiIndex
from lsqindex._storage.format import meta
from lsqindex._storage.store import Store
from lsqindex._subsets import stored as subsets
from lsqindex._subsets.cells.found import find
from lsqindex.errors import ParameterError
from tests.subsets.cells.made import around, entries_of, make


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("keep_vectors", ["float16", "float32", "int8", None])
@pytest.mark.parametrize("spill", [True, False])
def test_every_row_is_in_its_nearest_cell(metric: Any, keep_vectors: Any, spill: bool) -> None:
    index = make(metric=metric, keep_vectors=keep_vectors, subset=Cells(20, spill))
    vectors = around(900)
    index.add(vectors)
    index.merge()
    assert index.check() == [] and index.stats()["fresh"] == 0
    told = index.stats()["cells"]
    assert told["count"] == 20 and told["spilled"] == (900 if spill else 0)
    seen = index.get(np.arange(900))  # as they are kept, or as their codes tell
    if metric == "cosine":
        seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    with index._reader() as reader:
        cells = find(reader, {})
        assert cells is not None
        apart = ((seen[:, None] - cells.centres) ** 2).sum(axis=2)
        homes = entries_of(cells, reader.state.code_size, reader.state.head)
        for row, nearest in enumerate(apart.argmin(axis=1)):
            assert row in homes[nearest]
        for place, rows in enumerate(homes):
            assert cells.spreads[place] == pytest.approx(np.sqrt(apart[rows, place].mean()), rel=1e-3, abs=1e-4)
    index.close()


def test_the_second_cell_is_chosen_as_soar_does() -> None:
    index = make(keep_vectors="float32", subset=Cells(30))
    vectors = around(600).astype(np.float64)
    index.add(vectors)
    index.merge()
    with index._reader() as reader:
        cells = find(reader, {})
        assert cells is not None
        homes = entries_of(cells, reader.state.code_size, reader.state.head)
    residuals = vectors[:, None] - cells.centres
    apart = (residuals**2).sum(axis=2)
    wrong = 0
    for row in range(600):
        order = np.argsort(apart[row])[:24]
        first = residuals[row, order[0]]
        cost = apart[row, order] + (residuals[row, order] @ first) ** 2 / (first @ first)
        wanted = {int(order[0]), int(order[1:][np.argmin(cost[1:])])}
        wrong += wanted != {place for place, rows in enumerate(homes) if row in rows}
    assert wrong <= 3  # where two are equally good in float32
    index.close()


def test_an_index_gets_cells_by_itself_when_it_has_enough_vectors() -> None:
    index = make(subset="cells")
    index.add(around(19_999))
    index.merge()
    assert index.stats()["cells"]["count"] == 0 and index.stats()["fresh"] == 19_999
    index.add(around(1, seed=5))
    assert index.stats()["cells"]["count"] > 100 and index.check() == []
    index.merge()
    assert index.stats()["fresh"] == 0 and index.check() == []
    index.close()


def test_it_waits_for_training_and_refuses_what_has_no_codes() -> None:
    index = Index(dim=8, encoder="itq", bits=8, subset=Cells(4), train_size=100)
    assert index.subset == Cells(4) and index.check() == []
    index.add(around(99, dim=8))
    index.merge()
    assert index.stats()["cells"]["count"] == 0
    index.add(around(1, dim=8, seed=5))
    index.merge()
    assert index.stats()["cells"]["count"] == 4 and index.check() == []
    index.reencode("flat")
    assert index.subset == Cells(4) and index.stats()["cells"]["count"] == 0 and index.check() == []
    index.reencode("itq", bits=8)
    index.merge()
    assert index.stats()["cells"]["count"] == 4 and index.check() == []
    with pytest.raises(ParameterError, match="cells are not available"):
        Index(dim=8, encoder="flat", subset="cells")
    for wrong in ("cell", 3, Cells):
        with pytest.raises(ParameterError, match="Cells"):
            Index(dim=8, subset=wrong)  # type: ignore[arg-type]
    for options in ({"count": 0}, {"count": 1 << 21}, {"count": "x"}, {"spill": 1}):
        with pytest.raises(ParameterError):
            Cells(**options)
    index.close()


def test_a_structure_can_be_exchanged_and_its_records_go() -> None:
    index = make(subset="multi-index")
    index.add(around(500))
    index.merge()
    for subset in (Cells(7), Cells(7, spill=False), MultiIndex(8), Cells(3), None, Cells(12)):
        index.set_subset(subset)
        assert index.subset == subset and index.check() == []
        assert index.stats()["cell_bytes"] == 0 or isinstance(subset, Cells)
    assert index.stats()["cells"]["count"] == 12 and index.stats()["fresh"] == 0
    index.close()


def test_centres_outlive_the_codes(tmp_path: Path) -> None:
    index = make(subset=Cells(9))
    index.add(around(500))
    index.merge()
    before = centres_of(index)
    index.train()
    assert np.array_equal(centres_of(index), before)
    index.merge()
    assert index.check() == [] and index.stats()["fresh"] == 0
    index.reencode("lsh", bits=32)
    index.merge()
    assert np.array_equal(centres_of(index), before) and index.check() == []
    index.save(tmp_path / "copy.lsq")
    assert index.check() == [] and index.stats()["cells"]["count"] == 9 and index.stats()["fresh"] == 0
    index.delete(np.arange(100))
    index.compact()
    assert index.check() == [] and index.stats()["cells"]["spilled"] == 400
    index.close()


def centres_of(index: Index) -> Any:
    with index._reader() as reader:
        found = find(reader, {})
        assert found is not None
        return found.centres


@pytest.mark.parametrize("kind", ["constant", "duplicates", "few", "one", "zeros"])
def test_data_that_have_no_clusters(kind: str) -> None:
    vectors = {
        "constant": np.ones((2_000, 16)),
        "duplicates": np.repeat(around(5), 400, axis=0),
        "few": around(6),
        "one": around(1),
        "zeros": np.zeros((300, 16)),
    }[kind]
    for metric in ("l2", "cosine", "ip"):
        index = make(metric=metric, subset=Cells(50))
        index.add(vectors)
        index.merge()
        assert index.check() == [] and index.stats()["fresh"] == 0
        assert (
            index.stats()["cells"]["count"] <= {"constant": 1, "duplicates": 10, "few": 6, "one": 1, "zeros": 1}[kind]
        )
        for _ in range(3):
            index.add(vectors)
            index.merge()
        assert index.check() == [] and index.stats()["fresh"] == 0
        index.close()


def test_what_was_found_holds_until_cells_change() -> None:
    index = make(subset=Cells(10))
    index.add(around(600))
    index.merge()
    with index._reader() as reader:
        before = find(reader, {"a": 1.0})
    index.add(around(5, seed=2))
    with index._reader() as reader:
        again = find(reader, {})
        assert before is not None and again is not None and again.addresses is before.addresses
        assert before.rule == {"a": 1.0} and again.rule == {}
    index.merge()
    with index._reader() as reader:
        later = find(reader, {})
        assert later is not None and later.listed == 605 and later.addresses is not before.addresses
        assert int(later.counts.sum()) == 1_210 and int(later.counts[:, 1].sum()) == 10
    index.close()


def test_the_rule_is_part_of_the_structure() -> None:
    index = make(subset=Cells(5))
    index.add(around(300))
    index.merge()
    with index._writer() as writer:
        structure = subsets.read(writer)
        assert structure is not None
        record = {"kind": "cells", **structure.fields(), "rule": {"tau": 0.5}}
        writer.run(lambda own: own.put(b"meta", b"subset", meta.pack(record)))
        writer.commit()
    with index._reader() as reader:
        structure = subsets.read(reader)
        found = structure.find(Store(reader, index._options))  # type: ignore[union-attr]
        assert found.rule == {"tau": 0.5}
    index.train()
    assert index.check() == []
    index.close()


def test_searches_answer_whatever_the_structure() -> None:
    index = make(keep_vectors="float32", subset=Cells(10))
    vectors = around(700)
    index.add(vectors[:600])
    index.merge()
    index.add(vectors[600:])
    found = index.search(vectors[::50], k=1)
    assert found.ids[:, 0].tolist() == list(range(0, 700, 50))
    index.close()
