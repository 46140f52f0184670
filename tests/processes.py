"""Processes that tests start: programs that run to their end, and children that do step by step what they are told.

In a process of its own a crash or a deadlock is a failed test and not the end of all tests. Steps of several children
are ordered by what they say, never by the clock; where one must *not* go on, a short look can only miss a fault, not
invent one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lsqindex

#: A process that says nothing for so long hangs.
PATIENCE = 120


def environment(*paths: Path, **more: str) -> dict[str, str]:
    """For a process that computes with one thread and imports this package, these tests, and what is in ``paths``."""
    path = os.pathsep.join(map(str, [*paths, Path(lsqindex.__file__).parents[1]]))
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": path, **more}


def run(program: str, *arguments: Any, paths: Sequence[Path] = (), silent: bool = False, **more: str) -> str:
    """What a process prints that runs ``program``; it must end well, and ``silent`` means nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env=environment(*paths, **more),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert done.returncode == 0 and not (silent and done.stderr), (done.returncode, done.stdout, done.stderr)
    return done.stdout.strip()


_PRELUDE = """
import collections, gc, multiprocessing, os, pickle, resource, signal, sys, threading, time
import numpy as np
import lsqindex, lsqindex._write.add, lsqindex._storage.lmdb.opening, lsqindex._storage.rewrite
from lsqindex import Index
from lsqindex.errors import *
rng = np.random.default_rng(os.getpid())
"""


class FailedError(Exception):
    """An exception in the process: its name and message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Child:
    """A process that does what it is told."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "crash" / "child.py")],
            env=environment(PYTHONFAULTHANDLER="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.run(_PRELUDE)

    def start(self, code: str, **values: Any) -> None:
        """Send statements; ``answer`` waits for what they give."""
        request = {"code": textwrap.dedent(code), "values": {name: _plain(value) for name, value in values.items()}}
        self._send(json.dumps(request))

    def go_on(self) -> None:
        """What ``hear`` in the process waits for."""
        self._send("")

    def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing came yet: the process is at work, or waits."""
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], seconds)[0]

    def answer(self) -> Any:
        """The next thing it says."""
        if self.is_silent(PATIENCE):
            self._process.send_signal(signal.SIGABRT)  # it writes where it is to stderr
            self._process.wait()
            pytest.fail("the process hangs")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the process died: {self._process.wait()}")
        said = json.loads(line)
        if "error" in said:
            raise FailedError(said["error"], said["message"])
        return said.get("value", said.get("told"))

    def run(self, code: str, **values: Any) -> Any:
        self.start(code, **values)
        return self.answer()

    def fails(self, code: str, **values: Any) -> str:
        """The name of the exception that statements end in."""
        with pytest.raises(FailedError) as caught:
            self.run(code, **values)
        return caught.value.name

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # it ends by itself, unless it waits for a lock
        self.kill()
        self._process.stdout.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        data = memoryview(line.encode() + b"\n")
        while data:
            data = data[self._process.stdin.write(data) :]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
