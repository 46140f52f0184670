"""Acknowledged means durable: what a power cut leaves of a run is replayed from its logged writes.

A library that is preloaded into a writing process (tests/crash/log_writes.c) logs every write, sync and rename of
its files, and its acknowledgements among them. tests/crash/replay.py rebuilds the files as they could be at each
moment, after a kill and after a power cut that loses any part of what was not synced, opens them, and holds them
against what was acknowledged until then.

The same run without syncs must fail this test: else it would prove nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment
from tests.settings import LONG, ROOT
from tests.subsets.cells.counted import KINDS, read_counts

HERE = ROOT / "tests" / "crash"

CHANGES = ["add", "upsert", "delete", "batch", "upsert", "delete", "add"]
KEPT = {"encoder": "lsh", "bits": 32, "keep_vectors": "float32"}
#: What is done, and how.
RUNS: dict[str, dict[str, Any]] = {
    "changes": {"kinds": 4 * CHANGES},
    "growing": {"kinds": [*CHANGES, "large", *CHANGES, "clear", *CHANGES], "map_size": 1 << 16},
    "copies": {"kinds": [*CHANGES, "save", *CHANGES, "compact", *CHANGES, "save", "compact", "compact", *CHANGES]},
    "codes": {"kinds": [*CHANGES, *CHANGES, "train", *CHANGES, "reencode", "compact", "reencode"], "create": KEPT},
    "in parts": {
        "kinds": [
            "upsert",
            "large",
            "upsert",
            "clear",
            "large",
            "train",
            "upsert",
            "reencode",
            "compact",
            "save",
            "clear",
        ],
        "create": KEPT,
        "commit_bytes": 50_000,
    },
    "lists": {
        "kinds": ["upsert", "large", "train", "merge", "upsert", "subset", "upsert", "clear"],
        "create": {**KEPT, "subset": "multi-index"},
        "commit_bytes": 50_000,
        "unit_rows": 4064,
    },
    "cells": {
        # Splits by rows near each other; then these go, so that the cells that were split are dissolved.
        "kinds": ["near", "train", *2 * ["near", "upsert"], "far", *6 * ["upsert", "delete"], "merge", "cells"],
        "create": {"encoder": "itq", "bits": 8, "keep_vectors": "float32", "subset": "cells"},
        "commit_bytes": 50_000,
        "lump_rows": 60,
        "upkeep_log": "upkeep",
    },
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    path = tmp_path_factory.mktemp("library") / "log_writes.so"
    source = str(HERE / "log_writes.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(path), source, "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def run(script: str, *arguments: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def replayed(library: Path, directory: Path, name: str, *, every: int, subsets: int, sync: bool = True) -> Any:
    """Log a run and replay it; what was found."""
    files, log = directory / "files", directory / "events"
    files.mkdir()
    (files / "log").touch()
    given = {"create": {}, **RUNS[name]}
    given["create"] = {"train_size": 1 << 40, **given["create"]}
    if "upkeep_log" in given:
        given["upkeep_log"] = str(directory / given["upkeep_log"])
    arguments = {"directory": str(files), "first": 0, "seed": 1, "in_turn": True, "sync": sync, **given}
    run("writer.py", json.dumps(arguments), LD_PRELOAD=str(library), LOG_WRITES_OF=str(files), LOG_WRITES_TO=str(log))
    unit = [str(given["unit_rows"])] if "unit_rows" in given else []
    found = json.loads(run("replay.py", str(log), str(every), str(subsets), "1", *unit))
    # The log has everything: the whole run was acknowledged, and its last state is the directory's.
    assert found["operations"] == len(RUNS[name]["kinds"]) + 1 and found["flying"] is None
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_acknowledged_change_outlives_a_power_cut(name: str, library: Path, tmp_path: Path) -> None:
    every, subsets = (1, 4) if LONG else (50, 1)
    found = replayed(library, tmp_path, name, every=every, subsets=subsets)
    assert found["wrong"] == {"kill": [], "power cut": []}
    # LMDB syncs the pages of a commit, then writes its meta page through a descriptor that syncs by itself.
    assert min(found["events"]["s"], found["durable writes"]) > found["operations"] // 2
    assert found["states"]["power cut"] > 2 * found["operations"]
    if "upkeep_log" in RUNS[name]:
        counts = read_counts(tmp_path / RUNS[name]["upkeep_log"])
        assert all(counts[kind] for kind in KINDS), counts


@pytest.mark.parametrize("name", ["changes", "growing", "codes"])
def test_without_sync_the_same_run_fails(name: str, library: Path, tmp_path: Path) -> None:
    found = replayed(library, tmp_path, name, every=50, subsets=1, sync=False)
    assert found["wrong"]["power cut"]
