"""The benchmark's side of a worker: start it, tell it what to do, hear what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import THREAD_VARIABLES
from .adapter import NotPossible

if TYPE_CHECKING:
    from .systems import System

ROOT = Path(__file__).parents[2]


class Child:
    """A process of its own for one system, on one core: ``with Child(system, metric, dim) as child``."""

    def __init__(self, system: System, metric: str, dim: int, cores: list[int] | None = None) -> None:
        self._system = system
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as those of installed packages
        self._heard: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._heard,
            text=True,
        )
        start = {"module": system.module, "name": system.adapter, "metric": metric, "dim": dim, "kind": system.kind}
        self.call("start", **start, cores=cores or one_core())

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._heard.close()

    def call(self, what: str, /, **arguments: Any) -> dict[str, Any]:
        """What its method returns; NotPossible if the library cannot."""
        self.tell(what, **arguments)
        return self.hear()

    def tell(self, what: str, /, **arguments: Any) -> None:
        """Begin, and go on here; :meth:`hear` waits for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The answer to what it was told."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"ended with {self._process.wait()}"}
        if "not possible" in answer:
            raise NotPossible(answer["not possible"])
        if "error" in answer:
            self._heard.seek(0)
            raise RuntimeError(f"{self._system.name}: {answer['error']}\n{self._heard.read()[-2000:]}")
        return dict(answer["result"])


def all_cores() -> list[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def one_core(number: int = 0) -> list[int]:
    """The last one; numbered from there, others, if there are."""
    cores = all_cores()
    return [cores[-1 - number % len(cores)]]
