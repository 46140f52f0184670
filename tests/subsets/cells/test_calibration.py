"""The rule of cells: fitted to queries of several kinds, and anew when rows have changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Cells, Index
from lsqindex._storage.format import keys, records
from lsqindex._storage.store import Store
from lsqindex._subsets import stored as subsets
from lsqindex._subsets.cells import sampled, structure
from lsqindex._subsets.cells.calibration import is_due
from lsqindex._subsets.cells.rule import EVERYTHING, KS, RECALLS, name_of, rule_for, spare_of
from lsqindex._subsets.cells.vectors import RowVectors
from tests.subsets.cells.made import around, make


def rule_of(index: Index) -> dict[str, float]:
    with index._reader() as reader:
        structure: Any = subsets.read(reader)
        return dict(structure.find(Store(reader, index._options)).rule)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_the_rule_has_a_reach_for_every_recall(metric: Any) -> None:
    index = make(metric=metric, keep_vectors="float32", subset=Cells(20))
    index.add(around(900))
    index.merge()
    rule = rule_of(index)
    assert {name_of(k, recall) for k in KS for recall in RECALLS} <= rule.keys()
    for k in (1, 7, 10, 300):
        own = rule_for(rule, k, 0.95)
        assert own.misses == pytest.approx(spare_of(rule) * 0.05 * k)
    assert rule_for(rule, 10, 1.0) == rule_for({}, 10, 0.95) == EVERYTHING
    index.close()


def test_kinds_of_queries_that_are_near_to_nothing_are_answered() -> None:
    vectors = around(4_000)
    index = Index(dim=16, encoder="lsq", bits=64, keep_vectors="float32", subset=Cells(40)).train(vectors)
    index.add(vectors)
    index.merge()
    rng = np.random.default_rng(3)
    means = vectors[rng.integers(0, 4_000, (100, 8))].mean(axis=1)
    random = rng.standard_normal(means.shape).astype(np.float32)
    random *= np.linalg.norm(vectors, axis=1).mean() / np.linalg.norm(random, axis=1, keepdims=True)
    for queries in (vectors[:100], means, random):
        true = np.argsort(np.square(queries[:, None] - vectors).sum(axis=2), axis=1)[:, :10]
        found = index.search(queries, k=10).ids
        share = np.mean([len(np.intersect1d(*pair)) for pair in zip(found, true, strict=True)]) / 10
        assert share >= 0.93
    index.close()


def test_cells_are_calibrated_again_when_a_quarter_of_their_rows_is_new() -> None:
    index = make(keep_vectors="float32", subset=Cells(20))
    index.add(around(900), ids=np.arange(900))
    index.merge()
    before = rule_of(index)
    with index._reader() as reader:
        assert is_due({}, reader.state) and not is_due(before, reader.state)
    # Other vectors under the same ids: as many as before.
    index.add(20 + around(200, seed=1), ids=np.arange(200), upsert=True)
    index.merge()
    assert rule_of(index) == before
    index.add(20 + around(200, seed=2), ids=np.arange(200, 400), upsert=True)
    index.merge()
    after = rule_of(index)
    assert len(index) == 900 and after["rows"] == 900 and after["end"] > before["end"]
    assert after != before
    index.close()


def test_small_adds_calibrate_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answers a few queries, and they are kept in the file; the last one measures the rule."""
    monkeypatch.setattr(sampled, "_MOST", sampled.FEWEST)
    monkeypatch.setattr(structure, "LUMP_ROWS", 1024)
    index = Index.create(tmp_path / "index.lsq", 16, encoder="lsh", bits=40, keep_vectors="float32", subset=Cells(20))
    index.train(around(50)).add(around(900), ids=np.arange(900))
    index.merge()
    index.add(20 + around(200, seed=1), ids=np.arange(200), upsert=True)
    before, steps = rule_of(index), [0]
    for seed in range(2, 40):
        index.add(20 + around(64, seed=seed)[:64], ids=np.arange(64), upsert=True)
        index.close()
        index = Index.open(tmp_path / "index.lsq")
        with index._reader() as reader:
            steps.append(len(sampled.stored(reader)))
        assert index.check() == []
        if rule_of(index) != before:
            break
    assert rule_of(index) != before and steps[-1] == 0
    assert max(steps) == sampled.steps_of(900) > 10 and set(np.diff(steps[:-1])) <= {0, 1}
    index.close()


@pytest.mark.parametrize(("keep_vectors", "left"), [("float32", 1), (None, 0)])
def test_answers_by_kept_vectors_outlive_the_codes(keep_vectors: Any, left: int) -> None:
    """An encoder that is trained again while cells are calibrated must not begin that anew."""
    index = make(keep_vectors=keep_vectors, subset=Cells(20))
    index.add(around(900))
    index.merge()
    with index._writer() as writer:
        own: Any = subsets.read(writer)
        found = own.find(Store(writer, index._options))
        sampled.store(writer, 0, sampled.answered(writer, found, RowVectors(writer), 0))
        writer.run(own.clear)
        assert len(sampled.stored(writer)) == left
        writer.run(own.remove_all)
        assert not sampled.stored(writer)
    index.close()


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (lambda value: value[:-1] + b"\0", "wrong checksum"),
        (lambda value: _forged(value, first=1), "something else"),
        (lambda value: _forged(value, width=4), "something else"),
        (lambda value: _forged(value, words=9), "impossible"),
        (lambda value: _forged(value, words=np.float32(np.nan).view(np.uint32)), "impossible"),
    ],
)
def test_check_finds_answers_that_cannot_be(forge: Any, told: str) -> None:
    index = make(keep_vectors="float32", subset=Cells(20))
    index.add(around(900))
    index.merge()
    with index._writer() as writer:
        found = subsets.read(writer).find(Store(writer, index._options))  # type: ignore[union-attr]
        answers: Any = sampled.answered(writer, found, RowVectors(writer), 0)
        sampled.store(writer, 0, answers)
        known: Any = sampled.stored(writer)[0]
        assert all(np.array_equal(one, other) for one, other in zip(known, answers, strict=True))
        writer.commit()
    assert index.check() == []
    with index._writer() as writer:
        writer.put(keys.META, keys.answers(0), forge(bytes(writer.get(keys.META, keys.answers(0)))))
        writer.commit()
    assert any(told in problem for problem in index.check())
    index.merge()
    index.close()


def _forged(value: bytes, words: Any = None, **fields: Any) -> bytes:
    """The record with other fields of its header, or with all words the same."""
    header, payload = records.decode(value, "answers")
    changed = np.frombuffer(payload, np.uint32).copy()
    if words is not None:
        changed[:] = words
    return records.encode(replace(header, **fields), changed)
