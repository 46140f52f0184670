"""The command line, run in this process or in one of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

from lsqindex.cli import main
from tests.settings import ROOT

COMMANDS = {
    "create", "add", "search", "get", "delete", "info", "check", "compact", "copy", "reencode", "train", "encoders",
    "tune", "demo",
}  # fmt: skip
RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((600, 8)).astype(np.float32)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*words: Any, code: int = 0) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        got = main([str(word) for word in words])
    done = Done(got, out.getvalue(), err.getvalue())
    assert got == code, done
    assert "Traceback" not in done.err
    if code == 3:
        assert done.err.startswith("lsqindex: ") and done.err.count("\n") == 1, done.err
    return done


def process(*words: Any) -> subprocess.CompletedProcess[str]:
    # Typer colours pipes, too, where it finds one of these.
    colours = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in colours}
    command = [sys.executable, "-m", "lsqindex", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
