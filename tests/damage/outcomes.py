"""What a child process (trial.py) finds in damaged copies of a file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.processes import environment


def outcomes(path: Path, changes: Sequence[Any], program: str = "trial") -> list[str]:
    """What a child found for each change; where it died, a new one goes on after that."""
    found: list[str] = []
    while len(found) < len(changes):
        to_do = path.with_suffix(".json")
        to_do.write_text(json.dumps(changes[len(found) :]))
        done = run_child(program, str(path), str(to_do))
        lines = [line.partition(" ")[2] for line in done.stdout.splitlines()]
        found += [line for line in lines if line != "…"]
        if done.returncode:
            assert lines, done.stderr
            found.append(f"WRONG the process ended with {done.returncode}: {done.stderr[-1500:]}")
    return found


def run_child(*arguments: str, timeout: int = 3600) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.damage.trial", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=timeout,
    )


def wrong(changes: Sequence[Any], found: list[str]) -> list[str]:
    return [f"{change}: {what}" for change, what in zip(changes, found, strict=True) if what.startswith("WRONG")]
