"""The figure of README is what its command draws from the committed results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.figure import draw
from bench.framework.errors import UserError
from tests.settings import ROOT

DOCS = ROOT / "docs"


def test_the_committed_figure_is_what_the_command_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "figure", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=DOCS.parent, env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    committed = (DOCS / "pictures" / "recall.svg").read_text(encoding="utf-8")
    assert (tmp_path / "recall.svg").read_text(encoding="utf-8") == committed, "run: python -m bench figure"


def test_it_is_well_formed_and_has_a_mark_for_each_figure() -> None:
    root = ET.fromstring(draw(DOCS / "results"))
    space = "{http://www.w3.org/2000/svg}"
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    marks = [*root.iter(f"{space}circle")]
    # Two data sets × three lines × three sizes, five systems × single and batch, and five in the legend.
    assert len(marks) == 2 * 9 + 10 + 5
    assert len([*root.iter(f"{space}rect")]) == 1 + 2 + 1  # the ground; FAISS ITQ, and in the legend
    assert all(0 < float(m.attrib["cx"]) < width and 0 < float(m.attrib["cy"]) < height for m in marks)


def test_a_result_that_moves_moves_its_mark(tmp_path: Path) -> None:
    for name in ("encoders.json", "scan.json"):
        results = json.loads((DOCS / "results" / name).read_text(encoding="utf-8"))
        for row in results["rows"]:
            if row["system"] == "lsq" and row["section"] == "recall":
                row["values"]["recall10@10"] = 0.9
        (tmp_path / name).write_text(json.dumps(results), encoding="utf-8")
    assert draw(tmp_path) != draw(DOCS / "results")


@pytest.mark.parametrize("content", [None, "no json", '{"rows": [], "machine": {}}'])
def test_missing_results_are_told(tmp_path: Path, content: str | None) -> None:
    for name in ("encoders.json", "scan.json"):
        if content is not None:
            (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot be read as results|no result of"):
        draw(tmp_path)
