"""The benchmark beside other libraries runs, with those that are installed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from bench.peers.adapter import NotPossible, padded
from bench.peers.children import Child, one_core
from bench.peers.systems import PACKAGES, System, systems, version

ROOT = Path(__file__).parents[2]
ALL = systems(bits=64, axes=32, fields=16, lists=16, opq_learn=1000)
INSTALLED = [system for system in ALL if system.installed]


@pytest.mark.skipif("LSQINDEX_PEERS" not in os.environ, reason="make test-bench installs the peers")
def test_all_peers_are_installed() -> None:
    """What follows measures the libraries that are there; here none may be missing."""
    wheels_of_scann = sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info < (3, 14)
    missing = {system.package for system in ALL if not system.installed}
    assert missing <= (set() if wheels_of_scann else {"scann", "rabitqlib"})


def _peers(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "peers", "--quick", "--out", str(out), *options]
    return subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True)


def _record(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "peers-quick.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one quick run, and the directory it worked in."""
    out = tmp_path_factory.mktemp("peers")
    done = _peers(out, "--work", str(out / "work"))
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def _rows(out: Path, section: str) -> list[dict[str, Any]]:
    return [row for row in _record(out)["rows"] if row["section"] == section]


def test_the_quick_run_measures_every_section_of_every_library(peers: Path) -> None:
    record = _record(peers)
    sections = {row["section"] for row in record["rows"]}
    assert sections == {"size", "search", "while-adding", "durable", "cold", "deletes"}
    there = {system.name for system in INSTALLED if "l2" in system.metrics}
    assert {row["system"] for row in _rows(peers, "size")} == there == {row["system"] for row in _rows(peers, "search")}
    libraries = {system.package for system in INSTALLED}
    by_name = {system.name: system.package for system in ALL}
    for section in sections:
        assert {by_name[row["system"]] for row in _rows(peers, section)} == libraries
    assert {package: record["machine"][package] for package in PACKAGES} == {
        package: version(package) or "not installed" for package in PACKAGES
    }
    assert (peers / "peers-quick.html").exists() and (peers / "peers-quick.md").exists()


def test_searches_find_what_they_should(peers: Path) -> None:
    best: dict[tuple[str, int], float] = {}
    for row in _rows(peers, "search"):
        values, key = row["values"], (row["system"], row["parameters"]["k"])
        assert values["queries/s"] > 0 and values["asked"] >= 10
        assert 0 < values["cores"] < 1.5, "more than one thread"
        best[key] = max(best.get(key, 0), values["recall"])
    for (name, k), found in best.items():
        # Codes alone have 64 bits here; those of BinaryHash are in few of its buckets.
        codes_alone = "codes" in name or name.startswith(("faiss PQ", "faiss OPQ", "faiss ITQ"))
        assert found > (0.1 if codes_alone else 0.9), (name, k)


def test_sizes_are_told_for_a_vector(peers: Path) -> None:
    sizes = {row["system"]: row["values"] for row in _rows(peers, "size")}
    codes, kept = sizes["lsqindex lsq 64, codes"], sizes["lsqindex lsq 64 + float16"]
    # Two bytes per number and the scale of a row; rows that fill no part yet leave pages half empty.
    assert kept["disk"] - codes["disk"] == pytest.approx(2 * 64 + 4, rel=0.25)
    for values in sizes.values():
        assert values["build s"] > 0 and values["open"] > 0 and values["first"] > 0
        if sys.platform == "linux":
            assert values["resident"] >= 0


def test_what_is_not_possible_has_a_reason(peers: Path) -> None:
    for row in _rows(peers, "while-adding"):
        values = row["values"]
        if values["reader"] == "not possible":
            assert values["why"] and "queries/s" not in values
        else:
            assert values["queries/s"] > 0 and values["adds/s"] > 0 and values["p50"] <= values["p99"]
    ours = [row["values"]["reader"] for row in _rows(peers, "while-adding") if row["system"].startswith("lsqindex")]
    assert ours and set(ours) == {"another process"}
    for row in _rows(peers, "deletes"):
        values = row["values"]
        assert values["recall"] > 0.4 if values["possible"] else values["why"]


def test_our_deletes_give_space_back(peers: Path) -> None:
    rows = [row for row in _rows(peers, "deletes") if row["system"].startswith("lsqindex")]
    assert len(rows) == 4  # codes, float16, cells, multi-index
    for row in rows:
        values = row["values"]
        assert values["MB given back"] < values["MB before"]
        assert values["recall"] > (0.7 if "codes" in row["system"] else 0.97)


def test_what_was_measured_and_built_is_kept(peers: Path) -> None:
    before = _record(peers)
    again = _peers(peers, "--work", str(peers / "work"), "--section", "cold")
    assert again.returncode == 0, again.stderr
    assert "kept from an earlier run" in again.stdout and "building" not in again.stdout
    assert _record(peers) == before


# -- adapters ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Files of a few vectors, as workers read them."""
    folder = tmp_path_factory.mktemp("arrays")
    rng = np.random.default_rng(0)
    base = (np.repeat(rng.standard_normal((60, 64)), 20, axis=0) + 0.3 * rng.standard_normal((1200, 64))).astype("f4")
    made = {"base": base, "learn": base, "queries": base[:50], "extra": base[:5] + 100}
    distances = ((base[:50, None] - base[None]) ** 2).sum(-1)
    made["truth"] = np.argsort(distances, axis=1, kind="stable")[:, :100]
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    return {name: str(folder / f"{name}.npy") for name in made}


@pytest.mark.parametrize("system", [s for s in INSTALLED if not s.alike and "l2" in s.metrics], ids=lambda s: s.name)
def test_an_adapter_adds_saves_and_deletes(system: System, arrays: dict[str, Any], tmp_path: Path) -> None:
    folder = str(tmp_path)
    asking = {"queries": arrays["queries"], "truth": arrays["truth"], "k": 10, "setting": system.settings[10][-1]}
    asking["batch"] = system.batches
    with Child(system, "l2", 64) as child:
        assert child.call("build", folder=folder, base=arrays["base"], learn=arrays["learn"], rows=1200)["seconds"] > 0
        child.call("open", folder=folder, change=True)
        found = child.call("recall", **asking)
        assert found["asked"] == 50
        added = child.call("adding", vectors=arrays["extra"], folder=folder, seconds=60, most=5)
        assert added["adds"] == 5
        # What was added is far from all: answers are as before, also when it is opened again.
        child.call("close")
    with Child(system, "l2", 64) as child:
        child.call("open", folder=folder, change=True)
        assert child.call("recall", **asking)["recall"] == pytest.approx(found["recall"], abs=0.1)
        try:
            child.call("delete", rows=1200, folder=folder)
        except NotPossible as error:
            assert "not implemented" in str(error)
        else:
            # The even ones are gone, half of every answer at the most is left.
            assert child.call("recall", **asking)["recall"] <= 0.6
        child.call("close")


def test_a_worker_tells_what_went_wrong() -> None:
    with Child(INSTALLED[0], "l2", 64) as child, pytest.raises(RuntimeError, match="missing\\.npy"):
        child.call("build", folder="nowhere", base="missing.npy", learn="missing.npy", rows=1)


def test_short_answers_are_padded() -> None:
    assert padded([[1, 2, 3], []], 2).tolist() == [[1, 2], [-1, -1]]
    assert len(one_core()) == 1
