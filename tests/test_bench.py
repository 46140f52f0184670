"""The benchmarks run: all sections, on small real data, with FAISS if it is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_quick_encoders_benchmark_runs_and_writes_its_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "encoders", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "encoders-quick.json").read_text(encoding="utf-8"))["rows"]
    assert {row["section"] for row in rows} == {"recall", "distortion", "paper", "speed", "kernels"}
    assert all(row["values"]["unequal"] == 0 for row in rows if row["section"] == "kernels")
    assert "## Bars" in (tmp_path / "encoders-quick.md").read_text(encoding="utf-8")


def test_missing_data_is_told_before_anything_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "LSQINDEX_DATA": str(tmp_path)}
    command = [sys.executable, "-m", "bench", "encoders", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "LSQINDEX_DATA" in done.stdout + done.stderr
