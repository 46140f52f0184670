"""The paper's experiments: units of work, recall of rankings with ties, data from files, claims, and a quick run."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.framework.errors import UserError
from bench.framework.report import Row
from bench.material import data
from bench.material.measure import rank, recall_curve
from bench.paper import claims, ranking, seeds
from bench.paper.codes import CK_MEANS, IMPROVED, ITQ, LSQ_B, LSQ_N, PQ, VECTORS, Code, Unit, codes, in_order
from bench.paper.plan import FULL, QUICK, SECTIONS
from bench.paper.seeds import Results, value
from lsqindex import Index, MultiIndex
from lsqindex._subsets.multi_index.tables import make_tables
from lsqindex.encoders.base import Distance

ROOT = Path(__file__).parents[2]


# -- recall ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "bits", "distance"),
    [
        (CK_MEANS, 4, "symmetric"),
        (CK_MEANS, 4, "asymmetric"),
        (PQ, 1, "asymmetric"),
        (LSQ_N, 5, "symmetric"),
        (IMPROVED, 1, "asymmetric"),
    ],
)
def test_curves_by_distance_are_those_of_a_ranking(method: str, bits: int, distance: Distance) -> None:
    digits = data.load("digits", 3, 1000)
    encoder = Code(method, bits, 64).encoder(seed=3).fit(digits.learn)
    codes = encoder.encode(digits.base)
    found = ranking.by_distance(encoder, codes, digits, distance)
    ranked = recall_curve(rank(encoder, codes, digits, 100, distance), digits.truth)
    # Rows of one distance come in random order here, in order of their numbers there.
    assert np.abs(found.curve(100) - ranked).max() < 0.02


def test_hamming_distance_has_ties_and_their_expectation_is_taken() -> None:
    digits = data.load("digits", 0, 1000)
    encoder = Code(LSQ_B, 1, 8).encoder(seed=0).fit(digits.learn)
    codes = encoder.encode(digits.base)
    bits = np.unpackbits(codes, axis=1), np.unpackbits(encoder.encode(digits.queries), axis=1)
    hamming = (bits[1][:, None] != bits[0][None]).sum(axis=2)
    rng = np.random.default_rng(0)
    curves = []
    for _ in range(200):
        order = rng.permutation(len(codes))
        ranked = order[np.argsort(hamming[:, order], axis=1, kind="stable")[:, :50]]
        curves.append(recall_curve(ranked, digits.truth))
    found = ranking.by_distance(encoder, codes, digits, "symmetric")
    assert found.equal.mean() > 10
    assert np.abs(found.curve(50) - np.mean(curves, axis=0)).max() < 0.01


@pytest.mark.parametrize(("method", "field_bits", "bits"), [(LSQ_B, 1, 5), (ITQ, 1, 4), (CK_MEANS, 4, 4)])
def test_scores_are_those_of_the_multi_index(method: str, field_bits: int, bits: int) -> None:
    digits = data.load("digits", 0, 1000)
    encoder = Code(method, field_bits, 32).encoder(seed=0).fit(digits.learn)
    subset = MultiIndex(bits if encoder.layout.binary else None)
    tables = len(make_tables(encoder.layout, bits, 0))
    with Index(64, encoder=encoder, subset=subset, keep_vectors=None) as index:
        index.add(digits.base)
        index.merge()
        ids, missing = index.search(digits.queries, 300, strategy="subset", distance="score", probes=tables)
    found = ranking.by_score(encoder, encoder.encode(digits.base), digits, bits, 300)
    assert 0 < found.read < tables
    compared = 0
    for query, true in enumerate(digits.truth[:, 0]):
        at = np.flatnonzero(ids[query] == true)
        if len(at):
            level = missing[query] == missing[query][at[0]]
            assert (missing[query] < missing[query][at[0]]).sum() == found.places.less[query]
            if not level[-1]:
                assert level.sum() == found.places.equal[query]
                compared += 1
    assert compared > 50


# -- claims ---------------------------------------------------------------------------------------


def _row(name: str, label: str, seed: int, **values: Any) -> Row:
    return Row("codes", name, label, {"budget": 32, "seed": seed}, values)


def _rows(name: str, label: str, *numbers: float) -> list[Row]:
    return [_row(name, label, seed, error=number) for seed, number in enumerate(numbers)]


def _better(margin: float = 0.0, less: bool = False) -> claims.Comparison:
    """LSQ(B) before ITQ in "error", where more is better unless ``less``."""
    ours, rival = (claims.Side(Code(method, 1, 32), value("error")) for method in (LSQ_B, ITQ))
    return claims.Comparison(ours, rival, margin, less)


@pytest.mark.parametrize(
    ("ours", "rival", "outcome"),
    [
        ((0.9, 0.9, 0.8), (0.8, 0.8, 0.7), "won"),
        ((0.8, 0.8, 0.7), (0.9, 0.9, 0.8), "lost"),
        ((0.9, 0.5), (0.8, 0.6), "level"),  # mean 0, spread 0.14
        ((0.9, 0.7), (0.8, 0.7), "level"),  # mean 0.05, spread 0.07
        ((0.9,), (0.8,), "won"),  # one seed: the sign decides
        ((0.8,), (0.8,), "level"),
        ((0.9, 0.1), (0.8,), "won"),  # seeds that only one side has do not count
    ],
)
def test_a_comparison_is_decided_by_the_differences_of_equal_seeds(
    ours: tuple[float, ...], rival: tuple[float, ...], outcome: str
) -> None:
    results = Results([*_rows("a", LSQ_B, *ours), *_rows("a", ITQ, *rival)])
    (judged,) = claims.judge([_better()], results, "a").judged
    assert judged.outcome == outcome
    assert judged.difference.seeds == min(len(ours), len(rival))


def test_margins_and_quantities_of_which_less_is_better() -> None:
    results = Results([*_rows("a", LSQ_B, 0.8, 0.8), *_rows("a", ITQ, 1.0, 1.0)])
    words = [
        claims.judge([comparison], results, "a").word
        for comparison in (_better(less=True), _better(0.1, True), _better(0.3, True), _better())
    ]
    assert words == ["holds", "holds", "does not hold", "does not hold"]


def test_a_claim_holds_in_part_where_some_comparisons_are_won() -> None:
    rows = [*_rows("a", LSQ_B, 0.8, 0.8), *_rows("a", ITQ, 0.7, 0.7), *_rows("b", LSQ_B, 0.5), *_rows("b", ITQ, 0.7)]
    results = Results(rows)
    some = [_better(), _better(0.5)]
    verdicts = {name: claims.judge(some, results, name) for name in ("a", "b", "c")}
    assert [verdict.word for verdict in verdicts.values()] == ["holds in part", "does not hold", "not measured"]
    assert claims.judge([_better()], results, "a").word == "holds"
    assert claims.together(verdict.word for verdict in verdicts.values()) == "holds in part"
    assert claims.together(["holds", "holds", "not measured"]) == "holds"
    assert claims.together(["holds", "does not hold"]) == "holds in part"
    assert claims.together(["does not hold", "does not hold"]) == "does not hold"


def test_what_is_read_off_a_history() -> None:
    falling, rising = (_row("a", LSQ_B, 0, history=errors) for errors in ([1.0, 0.5, 0.4, 0.399], [0.4, 0.5, 0.45]))
    assert [seeds.ROUNDS.of(row) for row in (falling, rising)] == [3, 1]
    assert [seeds.LEAST.of(row) for row in (falling, rising)] == [0.399, 0.4]
    assert [seeds.RISE.of(row) for row in (falling, rising)] == [0, pytest.approx(0.25)]
    steady = claims.Comparison(claims.Side(Code(LSQ_B, 1, 32), seeds.RISE), None, -claims.NO_RISE, less=True)
    assert claims.judge([steady], Results([falling]), "a").word == "holds"
    assert claims.judge([steady], Results([rising]), "a").word == "does not hold"


def test_every_claim_compares_codes_that_are_measured() -> None:
    """No comparison is left out because of a name that no row has."""
    for plan in (FULL, QUICK):
        measured = set(codes(plan))
        for claim in claims.CLAIMS:
            for comparisons in (claim.published, claim.improved):
                asked = list(comparisons(plan))
                assert asked
                assert {side.code for one in asked for side in (one.ours, one.rival) if side} <= measured


def test_the_first_seed_of_all_data_comes_first_and_slow_codes_come_last() -> None:
    units = [Unit(name, seed, code) for name in ("wide", "narrow") for seed in range(3) for code in codes(QUICK)]
    order = in_order(units, {"wide": 1000, "narrow": 100})
    assert sorted(map(repr, order)) == sorted(map(repr, units))
    assert [unit.seed for unit in order[: len(units) // 3]] == [0] * (len(units) // 3)
    of_one = [unit.code.method == CK_MEANS for unit in order if unit.data == "wide" and unit.seed == 0]
    assert of_one == sorted(of_one)
    assert order[0].data == "narrow" and order[-1].data == "wide"


# -- data -----------------------------------------------------------------------------------------


def _vectors(count: int, dim: int = 24) -> Any:
    return np.random.default_rng(count).standard_normal((count, dim)).astype(np.float32)


def _save_fvecs(path: Path, vectors: Any) -> None:
    heads = np.full((len(vectors), 1), vectors.shape[1], "<i4").view("<f4")
    np.hstack([heads, vectors]).astype("<f4").tofile(path)


def test_an_array_is_a_data_set_and_its_queries_are_not_in_the_base(tmp_path: Path) -> None:
    vectors = _vectors(3000)
    np.save(tmp_path / "mine.npy", vectors)
    one, two = (data.load(str(tmp_path / "mine.npy"), seed, 500) for seed in (0, 1))
    assert (one.name, one.metric, one.base.shape, one.queries.shape) == ("mine", "l2", (2700, 24), (300, 24))
    assert np.array_equal(np.unique(np.concatenate([one.base, one.queries]), axis=0), np.unique(vectors, axis=0))
    assert np.array_equal(one.queries, two.queries) and not np.array_equal(one.learn, two.learn)
    assert len(one.learn) == 500 and len(one.unseen) == 2200
    assert not (one.base[one.unseen][:, None, 0] == one.learn[None, :, 0]).any()


def test_texmex_files_beside_each_other_are_one_data_set(tmp_path: Path) -> None:
    parts = {"base": _vectors(900), "query": _vectors(50), "learn": _vectors(400)}
    for part, vectors in parts.items():
        _save_fvecs(tmp_path / f"sift_{part}.fvecs", vectors)
    found = data.load(str(tmp_path / "sift_base.fvecs"), 0, 300)
    assert np.array_equal(found.base, parts["base"]) and np.array_equal(found.queries, parts["query"])
    assert len(found.learn) == 300 and len(found.unseen) == 900
    assert np.isin(found.learn, parts["learn"]).all()


@pytest.mark.parametrize(("told", "metric"), [("euclidean", "l2"), ("angular", "cosine")])
def test_a_file_of_ann_benchmarks_tells_its_queries_and_its_metric(tmp_path: Path, told: str, metric: str) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "set.hdf5", "w") as file:
        file["train"], file["test"] = _vectors(800), _vectors(40)
        file.attrs["distance"] = told
    found = data.load(str(tmp_path / "set.hdf5"))
    assert (found.metric, found.base.shape, found.queries.shape) == (metric, (800, 24), (40, 24))
    lengths = np.linalg.norm(found.base, axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) == (metric == "cosine")


def test_data_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a file nor one of .*fashion-mnist"):
        data.require(["nowhere.npy"])
    (tmp_path / "odd.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match=r"odd\.npy"):
        data.load(str(tmp_path / "odd.npy"))
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "sets.hdf5", "w") as file:
        file["train"], file["test"] = _vectors(80), _vectors(40)
        file.attrs["distance"] = "jaccard"
    with pytest.raises(UserError, match="jaccard"):
        data.load(str(tmp_path / "sets.hdf5"))


# -- the whole ------------------------------------------------------------------------------------


def _paper(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "paper", "--quick", "--out", str(out), *options]
    return subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, encoding="utf-8")


def _kept(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one quick run."""
    out = tmp_path_factory.mktemp("paper")
    done = _paper(out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_quick_run_measures_every_code_with_two_seeds(quick: Path) -> None:
    rows = _kept(quick / "paper-quick-digits.json")["rows"]
    assert len(rows) == 2 * len(list(codes(QUICK)))
    assert {row["parameters"]["seed"] for row in rows} == {0, 1}
    for row in rows:
        values = row["values"]
        for curve in (values.get("symmetric"), values.get("asymmetric"), *values.get("subset", {}).values()):
            if curve:
                assert 0 < curve["area"] <= 1
                assert curve["recall"] == sorted(curve["recall"])
    main = [row for row in rows if row["parameters"]["budget"] == QUICK.budget]
    accuracy = {row["system"]: row["values"].get("accuracy") for row in main}
    assert accuracy[VECTORS] > 0.85 and accuracy["LSQ(N)-4"] > 0.6
    # Far from recall by chance, which is R / 1,597.
    assert min(row["values"]["asymmetric"]["area"] for row in main if row["system"] == IMPROVED) > 0.9


def test_the_quick_page_has_all_experiments_and_all_claims(quick: Path) -> None:
    text = (quick / "paper-quick.md").read_text(encoding="utf-8")
    for section in SECTIONS:
        assert f"## {section}: " in text
    claimed = text.partition("## The paper's claims")[2].partition("## ")[0]
    for number, claim in enumerate(claims.CLAIMS, 1):
        assert f"{number}. {claim.text}" in claimed
    assert "not measured" not in claimed
    assert (quick / "paper-quick.html").read_text(encoding="utf-8").count("<table>") == text.count("\n|--")


def test_a_run_goes_on_where_it_was(quick: Path, tmp_path: Path) -> None:
    name = "paper-quick-digits.json"
    before = _kept(quick / name)
    broken_off = {**before, "rows": before["rows"][:-3]}
    (tmp_path / name).write_text(json.dumps(broken_off), encoding="utf-8")
    done = _paper(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kept from an earlier run") == len(before["rows"]) - 3
    after = _kept(tmp_path / name)
    assert after == before
    page = (tmp_path / "paper-quick.md").read_bytes()
    (tmp_path / "paper-quick.md").unlink()
    again = _paper(tmp_path, "--report")
    assert "seed 0" not in again.stdout
    assert (tmp_path / "paper-quick.md").read_bytes() == page


def test_a_run_goes_on_on_another_machine_but_not_with_other_versions(quick: Path, tmp_path: Path) -> None:
    name = "paper-quick-digits.json"
    before = _kept(quick / name)
    machine = before["machine"]
    rows = [row for row in before["rows"] if (row["system"], row["parameters"]["seed"]) != ("ITQ", 0)]
    for changed in ({"cpu": "another"}, {"numpy": "1.0"}):
        (tmp_path / name).write_text(json.dumps({"machine": {**machine, **changed}, "rows": rows}), encoding="utf-8")
        done = _paper(tmp_path, "--section", "convergence", "--seeds", "1")
        if "cpu" in changed:
            assert done.returncode == 0 and done.stdout.count("kept from an earlier run") == 3, done.stderr
            assert _kept(tmp_path / name)["machine"] == {**machine, "cpu": f"another; {machine['cpu']}"}
        else:
            assert done.returncode != 0 and "other versions" in done.stderr


def test_only_what_a_section_needs_is_measured_again(quick: Path, tmp_path: Path) -> None:
    name = "paper-quick-digits.json"
    (tmp_path / name).write_bytes((quick / name).read_bytes())
    done = _paper(tmp_path, "--section", "convergence", "--seeds", "1", "--fresh")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("seed 0") == 4 and "kept" not in done.stdout and "seed 1" not in done.stdout
    key = operator.itemgetter("system", "parameters")
    before, after = (sorted(_kept(out / name)["rows"], key=lambda row: str(key(row))) for out in (quick, tmp_path))
    assert before == after


@pytest.mark.parametrize("ending", ["npy", "fvecs"])
def test_vectors_of_ones_own_are_measured(tmp_path: Path, ending: str) -> None:
    vectors = _vectors(1500)
    path = tmp_path / f"mine.{ending}"
    if ending == "npy":
        np.save(path, vectors)
    else:
        _save_fvecs(path, vectors)
    done = _paper(tmp_path, "--data", str(path), "--seeds", "1", "--section", "binary,budget")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = _kept(tmp_path / "paper-quick-mine.json")["rows"]
    assert {row["data"] for row in rows} == {"mine"}
    # 24 dimensions cannot be turned into 32 bits by a rotation.
    impossible = {(row["system"], row["parameters"]["budget"]) for row in rows if "impossible" in row["values"]}
    assert ("ITQ", 32) in impossible and ("ITQ", 16) not in impossible and ("CK-means-4", 32) not in impossible
    text = (tmp_path / "paper-quick.md").read_text(encoding="utf-8")
    assert "## Left out" in text and "at most one bit per dimension" in text and "1 seed" in text


def test_wrong_options_are_told(tmp_path: Path) -> None:
    for options, said in (
        (("--data", "nowhere.npy"), "nowhere.npy"),
        (("--section", "estimatoin"), "estimatoin"),
        (("--seeds", "0"), "--seeds 0"),
        (("--report",), "no results"),
        (("--data", "digits", "some/digits.npy"), "some/digits.npy"),
    ):
        done = _paper(tmp_path, *options)
        assert done.returncode != 0
        assert said in done.stderr and "Traceback" not in done.stderr
