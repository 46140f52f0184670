"""The benchmark of hosts runs, on digits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.hosts.stores import HOSTS, OURS

ROOT = Path(__file__).parents[1]


def test_the_quick_run_adds_and_searches_through_every_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "hosts", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "hosts-quick.json").read_text(encoding="utf-8"))["rows"]
    added = {
        (row["parameters"]["host"], row["system"], row["parameters"]["call"]): row["values"]["in the file"]
        for row in rows
        if row["section"] == "add"
    }
    for name, host in HOSTS.items():
        for call in host.calls:
            assert added.pop((name, OURS, call)) == 1
            lost = added.pop((name, host.default, call))
            assert lost < 1 or call.endswith("save")
    assert not added
    found = [row["values"]["recall10@10"] for row in rows if row["section"] == "search"]
    assert len(found) == 2 * sum(len(host.modes) for host in HOSTS.values()) and min(found) > 0.95
    assert "## Bars" in (tmp_path / "hosts-quick.md").read_text(encoding="utf-8")
