"""``tune``: its measures are right, it chooses what it says it does, and what it prints works."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lsqindex
from lsqindex.cli import main, trials
from lsqindex.cli.plot import scatter
from lsqindex.cli.trials import (
    Task,
    Trial,
    candidates,
    cautious,
    default,
    exact,
    expected,
    flat,
    judged,
    lower_bound,
    recall,
    tried,
    ways,
)
from lsqindex.cli.tune import choose, promising, unbeaten

RNG = np.random.default_rng(0)
CENTRES = RNG.standard_normal((20, 16))
ROWS = (CENTRES[RNG.integers(0, 20, 700)] + 0.4 * RNG.standard_normal((700, 16))).astype(np.float32)


def trial(recall: float, size: int, rate: float, name: str = "lsq", promised: float | None = None) -> Trial:
    return Trial({"encoder": name, "bits": size}, {}, size, 1000, recall, recall, rate, 0.0, promised, promised)


def task(**options: Any) -> Task:
    return Task(ROWS[150:], ROWS[:50], ROWS[50:150], **options)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_truth_is_what_a_flat_index_finds(metric: Any) -> None:
    index = lsqindex.Index(16, metric=metric, encoder="flat")
    index.add(ROWS)
    assert np.array_equal(exact(ROWS, ROWS[:20], metric, 5), index.search(ROWS[:20], k=5).ids)
    assert np.array_equal(exact(ROWS, ROWS[:20], metric, 5), exact(ROWS[:20_000], ROWS[:20], metric, 5))
    (one,) = flat(task(metric=metric))
    assert one.recall == 1 and one.expected == 1


def test_truth_grows_with_the_rows() -> None:
    asked = task()
    for rows in (200, 400, 550):
        found = exact(ROWS[150 : 150 + rows], asked.asked, "l2", 10)
        assert asked.hits(found, rows).min() == 1
    assert asked.hits(exact(ROWS[150:350], asked.asked, "l2", 10), 550).mean() < 1
    assert asked.hits(np.full((150, 10), -1), 550).max() == 0


def test_rows_at_one_distance_are_equally_good() -> None:
    rows = np.repeat(ROWS[:100], 2, axis=0)
    asked = Task(rows, ROWS[:10], ROWS[10:20], k=1)
    nearest = exact(rows, asked.asked, "l2", 1)
    assert asked.hits(nearest ^ 1, 200).min() == 1  # the twin of the nearest


def test_recall_is_a_share() -> None:
    assert recall(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [9, 8]])) == 0.5


def test_without_a_limit_the_smallest_is_chosen_and_with_one_the_fastest() -> None:
    small, fast, poor = trial(0.97, 20, 100, promised=0.96), trial(0.97, 60, 900, promised=0.96), trial(0.5, 8, 5000)
    trials = [small, fast, poor, trial(1.0, 64, 1, "flat", promised=1.0)]
    assert choose(trials, 0.95, None) == (small, True)
    assert choose(trials, 0.95, 62) == (fast, True)
    assert choose(trials, 0.95, 10) == (poor, False)
    assert choose(trials, 0.95, 4)[1] is False
    assert [one.bytes for one in unbeaten(trials)] == [8, 20, 64]


def test_nothing_is_recommended_that_is_not_promised() -> None:
    hoped, near = trial(0.99, 20, 100), trial(0.96, 60, 100, promised=0.94)
    assert choose([hoped, near], 0.95, None) == (near, False)
    assert choose([hoped], 0.95, None) == (hoped, False)


def test_what_is_worth_judging() -> None:
    defaults = Trial({}, {}, 40, 1000, 0.2, 0.2, 1.0, 0.0)
    large, small, poor = trial(0.99, 60, 1), trial(0.97, 20, 1), trial(0.5, 8, 1)
    order = promising([poor, large, small, defaults], 0.95, None)
    assert order == [{}, small.create, large.create]
    assert promising([poor, large, small, defaults], 0.95, 30) == [small.create]


def test_a_promise_is_a_lower_bound() -> None:
    rng = np.random.default_rng(5)
    kept = 0
    for _ in range(8):
        # Recall 0.98 with half of the rows, 0.965 with all; 400 queries of ten neighbours.
        half, whole = rng.binomial(10, 0.98, 400) / 10, rng.binomial(10, 0.965, 400) / 10
        assert lower_bound(half, whole, 0.0, 10) < whole.mean()
        assert lower_bound(half, whole, 1.0, 10) < cautious(half, whole, 1.0, 10) < expected(half, whole, 1.0)
        kept += lower_bound(half, whole, 0.0, 10) <= 0.965
    assert kept == 8
    everything = np.ones(400)
    assert lower_bound(everything, everything, 1.0, 10) < 1  # none missed does not mean that none is missed


def test_all_that_is_tried_can_be_made() -> None:
    for dim in (2, 16, 100, 768):
        for limit in (None, 8, 64):
            for made in candidates(dim, limit):
                lsqindex.make_encoder(**made)._make_layout(dim)
                assert limit is None or made["bits"] <= 8 * limit


def test_codes_alone_are_asked_for_in_words() -> None:
    assert ways({}, 10) == [{}]
    assert ways({"encoder": "lsq", "keep_vectors": None}, 10) == [{"rerank": 0}]
    assert all(way["rerank"] for way in ways({"encoder": "lsq", "keep_vectors": "int8"}, 10))
    (plain,) = default(task())
    assert plain.create == plain.search == {}


def test_one_encoder_in_all_its_ways() -> None:
    found = tried(task(), {"encoder": "lsh", "bits": 64, "axes": 16}, None)
    plain, *others = found
    assert plain.bytes == 8 and plain.search == {"rerank": 0} and plain.create["keep_vectors"] is None
    assert {way.create.get("keep_vectors") for way in others} >= {"int8", "float16"}
    assert any(way.create.get("subset") == "multi-index" for way in others)
    assert max(way.recall for way in others if way.search["rerank"]) > plain.recall
    assert all(way.bytes <= 30 for way in tried(task(), {"encoder": "lsh", "bits": 64}, 30))


def test_what_is_judged_is_confirmed_on_all_rows_with_fresh_queries() -> None:
    asked = task(wanted=1100)
    made = {"encoder": "lsh", "bits": 64, "keep_vectors": "float16"}
    found = judged(asked, made, 0.9, 550)
    assert [one.search["rerank"] for one in found] == sorted(one.search["rerank"] for one in found)
    last = found[-1]
    assert last.rows == 550 and last.confirmed is not None and last.promised is not None
    assert 0.9 <= last.promised < last.confirmed
    assert asked.promises >= 1


def test_time_is_bounded() -> None:
    asked = task(ends=time.monotonic() - 1)
    assert tried(asked, {"encoder": "lsq", "bits": 64}, None) == [] and asked.left_out == ["lsq 64"]


def test_an_encoder_that_needs_more_vectors_is_left_out() -> None:
    asked = Task(ROWS[50:150], ROWS[:20], ROWS[20:50])
    assert tried(asked, {"encoder": "pq", "bits": 64}, None) == []
    assert "256 vectors" in asked.left_out[0]


def test_the_plot_has_every_point() -> None:
    lines = scatter([(8, 0.5, "a"), (512, 1.0, "b"), (64, 0.8, "c")], 0.9)
    assert all(any(mark in line for line in lines) for mark in "abc┄")
    assert scatter([(8, 1.0, "a")], 1.0)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", ROWS)
    words = ["tune", str(tmp_path / "v.npy"), "--bytes", "8", "--recall", "0.5", "--queries", "50", "--seconds", "20"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["reached"] and told["chosen"]["bytes"] <= 8 and told["vectors"] == 550
    assert 0.5 <= told["chosen"]["promised"] <= told["chosen"]["confirmed"] <= 1
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


def test_the_promise_holds_on_fresh_queries_and_on_twice_as_many_rows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.datasets import load_digits

    monkeypatch.setattr(trials, "ENCODERS", ("lsq",))
    digits = load_digits().data.astype(np.float32)
    digits = digits[np.random.default_rng(3).permutation(len(digits))]
    rows, queries = digits[:1400], digits[1400:]
    np.save(tmp_path / "half.npy", rows[:700])
    assert main(["tune", str(tmp_path / "half.npy"), "--recall", "0.9", "--seconds", "600", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    chosen = told["chosen"]
    assert told["reached"] and chosen["promised"] >= 0.9 and told["wanted_vectors"] == 1400
    assert chosen["bytes"] < 4 * 64  # not the vectors themselves
    for base in (rows[:700], rows):
        index = lsqindex.Index(64, metric="l2", **chosen["create"]).train(base)
        index.add(base)
        found = index.search(queries, k=10, **chosen["search"]).ids
        assert recall(found, exact(base, queries, "l2", 10)) >= 0.9


def test_it_says_when_nothing_reaches_the_recall(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", ROWS)
    words = ["tune", str(tmp_path / "v.npy"), "--bytes", "8", "--recall", "0.999", "--queries", "50"]
    assert main([*words, "--seconds", "20"]) == 0
    told = capfd.readouterr().out
    assert "Nothing that was tried can promise recall 0.999 for 1,400 vectors within 8 bytes" in told
    assert "Use this" not in told
