"""``python -m bench writes``: what its sections measure, and what the bars look at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import writes
from bench.framework.report import Row, Rows
from tests.settings import ROOT


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_the_quick_benchmark_measures_its_sections(tmp_path: Path) -> None:
    sections = "threads,payloads,deleted"
    command = [sys.executable, "-m", "bench", "writes", "--quick", "--section", sections, "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    rows = json.loads((tmp_path / "writes-quick.json").read_text(encoding="utf-8"))["rows"]
    assert {row["section"] for row in rows} == set(sections.split(","))
    page = (tmp_path / "writes-quick.md").read_text(encoding="utf-8")
    assert all(f"## {name}" in page for name in (*sections.split(","), "Bars"))


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_bare_lmdb_writes_as_many_pages_as_it_is_told(tmp_path: Path) -> None:
    for pages in (7, 12):
        with writes._Bare(tmp_path / str(pages), pages) as bare:
            assert pages <= bare.pages <= pages + 1


def test_bars_are_not_met_without_a_measurement(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "writes.json", facts={}, seed=0)
    bars = [bar for section in writes.SECTIONS.values() for bar in section.bars(rows, writes.FULL)]
    assert len(bars) == 13 and all(bar.measured is None and bar.met is None for bar in bars)
    rows.add(Row("one", "data", writes.OURS, {}, {"ratio": 1.7}))
    assert [bar.met for bar in writes.one_bars(rows, writes.FULL)] == [False]
