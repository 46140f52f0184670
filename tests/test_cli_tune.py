"""``tune``: its measures are right, it chooses what it says it does, and what it prints works."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lsqindex
from lsqindex.cli import main
from lsqindex.cli.plot import scatter
from lsqindex.cli.trials import Task, Trial, candidates, exact, flat, recall, tried
from lsqindex.cli.tune import choose, unbeaten

RNG = np.random.default_rng(0)
CENTRES = RNG.standard_normal((20, 16))
ROWS = (CENTRES[RNG.integers(0, 20, 700)] + 0.4 * RNG.standard_normal((700, 16))).astype(np.float32)


def trial(recall: float, size: int, rate: float, name: str = "lsq") -> Trial:
    return Trial({"encoder": name}, {}, recall, size, rate, 0.0)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_truth_is_what_a_flat_index_finds(metric: Any) -> None:
    index = lsqindex.Index(16, metric=metric, encoder="flat")
    index.add(ROWS)
    assert np.array_equal(exact(ROWS, ROWS[:20], metric, 5), index.search(ROWS[:20], k=5).ids)
    assert flat(Task(ROWS[50:], ROWS[:50], metric)).recall == pytest.approx(1, abs=0.01)


def test_recall_is_a_share() -> None:
    assert recall(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [9, 8]])) == 0.5


def test_without_a_limit_the_smallest_is_chosen_and_with_one_the_fastest() -> None:
    small, fast, poor = trial(0.96, 20, 100), trial(0.97, 60, 900), trial(0.5, 8, 5000)
    trials = [small, fast, poor, trial(1.0, 64, 1, "flat")]
    assert choose(trials, 0.95, None) == (small, True)
    assert choose(trials, 0.95, 62) == (fast, True)
    assert choose(trials, 0.95, 10) == (poor, False)
    assert choose(trials, 0.95, 4)[1] is False
    assert [one.bytes for one in unbeaten(trials)] == [8, 20, 60, 64]


def test_all_that_is_tried_can_be_made() -> None:
    for dim in (2, 16, 100, 768):
        for limit in (None, 8, 64):
            for made in candidates(dim, limit):
                lsqindex.make_encoder(**made)._make_layout(dim)
                assert limit is None or made["bits"] <= 8 * limit


def test_one_encoder_in_all_its_ways() -> None:
    task = Task(ROWS[50:], ROWS[:50])
    ways = tried(task, {"encoder": "lsh", "bits": 64, "axes": 16}, None)
    plain, *others = ways
    assert plain.bytes == 8 and not plain.search
    assert {way.create.get("keep_vectors") for way in others} >= {"int8", "float16"}
    assert any(way.create.get("subset") == "multi-index" for way in others)
    assert max(way.recall for way in others if "rerank" in way.search) > plain.recall
    assert all(way.bytes <= 30 for way in tried(task, {"encoder": "lsh", "bits": 64}, 30))


def test_time_is_bounded() -> None:
    task = Task(ROWS[50:], ROWS[:50], ends=time.monotonic() - 1)
    assert tried(task, {"encoder": "lsq", "bits": 64}, None) == [] and task.left_out == ["lsq 64"]


def test_an_encoder_that_needs_more_vectors_is_left_out() -> None:
    task = Task(ROWS[50:150], ROWS[:50])
    assert tried(task, {"encoder": "pq", "bits": 64}, None) == []
    assert "256 vectors" in task.left_out[0]


def test_the_plot_has_every_point() -> None:
    lines = scatter([(8, 0.5, "a"), (512, 1.0, "b"), (64, 0.8, "c")], 0.9)
    assert all(any(mark in line for line in lines) for mark in "abc┄")
    assert scatter([(8, 1.0, "a")], 1.0)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", ROWS)
    words = ["tune", str(tmp_path / "v.npy"), "--bytes", "8", "--recall", "0.5", "--queries", "50", "--seconds", "20"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["reached"] and told["chosen"]["bytes"] <= 8 and told["sample"] == 600
    assert 0 < told["chosen"]["confirmed"] <= 1
    # The calls it prints can be called.
    space = {"Index": lsqindex.Index, "queries": ROWS[:3]}
    create = told["create"].replace("'vectors.lsq'", repr(str(tmp_path / "vectors.lsq")))
    index = eval(create, dict(space))
    index.train(ROWS).add(ROWS)
    assert eval(told["search"], {**space, "index": index}).ids.shape == (3, 10)

    assert main([*words, "--all"]) == 0
    told = capfd.readouterr().out
    assert "Use this" in told and "Index.create(" in told and "◉" in told
    assert main(["tune", str(tmp_path / "v.npy"), "--queries", "600"]) == 3
    assert "too few" in capfd.readouterr().err
