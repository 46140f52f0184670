"""``python -m bench flow``: what is counted, and what comes out."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import pytest

from bench import flow


def test_counts_files_functions_and_calls_across_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "walked"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "near.py").write_text("from . import far\ndef a():\n    b()\n    b()\ndef b():\n    far.c()\n")
    (package / "far.py").write_text("def c():\n    d()\ndef d():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(flow, "PACKAGE", package)
    way = flow.walk(importlib.import_module("walked.near").a)
    assert way.calls == {("near.py", "a"): 1, ("near.py", "b"): 2, ("far.py", "c"): 2, ("far.py", "d"): 2}
    assert way.entries == {("far.py", "c"): 2}
    assert way.counts == (2, 4, 2)


def test_the_table_and_the_file_within_the_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow.run(argparse.Namespace(out=tmp_path, list=True))
    told = capsys.readouterr().out
    stored = json.loads((tmp_path / "flow.json").read_text(encoding="utf-8"))["operations"]
    assert list(stored) == list(flow.BARS)
    for name, counts in stored.items():
        assert all(0 < count <= most for count, most in zip(counts.values(), flow.BARS[name], strict=True))
        row = next(line for line in told.splitlines() if line.startswith(f"| {name} "))
        assert [int(cell) for cell in row.split("|")[2:5]] == list(counts.values())
    assert "Index.search" in told
