"""kill -9 at random moments of a writing process: what was acknowledged is there, and nothing by half.

One index lives through many kills. Each life of the writer goes on with the file the last one left, logs each
operation before it begins and after it returned (tests/crash/acknowledged.py), and is killed: at any moment, or
while an operation of the wanted kind is running. Then the file is opened and held against the log: every
acknowledged change is there, the operation in flight is there whole or not at all, ``check`` finds nothing, and
search finds what ``get`` gives.

``LSQINDEX_LONG=1`` makes hundreds of kills out of dozens.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index
from lsqindex._subsets.multi_index import postings
from tests.crash.acknowledged import COPY, INDEX, Log, judge
from tests.processes import environment
from tests.settings import LONG, ROOT
from tests.subsets.cells.counted import KINDS, read_counts

HERE = ROOT / "tests" / "crash"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the writer's parent forks")


CHANGES = ["add", "upsert", "delete", "batch"]
LISTED = {"encoder": "lsh", "bits": 32, "keep_vectors": "float32", "subset": "multi-index"}
#: What writers do; which of it is to be hit; how the index is made; and constants that are made small.
CASES: dict[str, tuple[list[str], list[str], dict[str, Any], dict[str, Any]]] = {
    "changes": (CHANGES, [], {}, {}),
    "growth": ([*CHANGES, "large", "clear", "compact"], ["large"], {}, {"map_size": 1 << 16}),
    "compact": ([*CHANGES, "compact"], ["compact"], {}, {}),
    "save": ([*CHANGES, "save"], ["save"], {}, {}),
    "large add": (
        [*CHANGES, "large", "clear"],
        ["large", "clear"],
        {"keep_vectors": "float16"},
        {"commit_bytes": 100_000, "map_size": 1 << 16},
    ),
    "rewriting a large index": (
        ["large", "upsert", "compact", "save", "clear"],
        ["compact", "save"],
        {},
        {"commit_bytes": 50_000},
    ),
    "train and reencode": (
        [*CHANGES, "train", "reencode", "compact"],
        ["train", "reencode"],
        {"encoder": "lsh", "bits": 32, "keep_vectors": "float32"},
        {},
    ),
    "train and reencode a large index": (
        ["large", "upsert", "clear", "train", "reencode"],
        ["train", "reencode"],
        {"encoder": "lsh", "bits": 32, "keep_vectors": "float32"},
        {"commit_bytes": 20_000, "map_size": 1 << 16},
    ),
    "training again": (
        [*CHANGES, "large", "clear", "merge", "compact", "save"],
        ["add", "upsert", "delete", "batch", "large", "merge"],
        {"encoder": "itq", "bits": 8, "keep_vectors": "float32", "train_size": 100},
        {"recode_rows": 20, "map_size": 1 << 16, "commit_bytes": 200_000},
    ),
    "payloads": (
        [*CHANGES, "large", "clear", "compact", "save"],
        ["large", "batch", "upsert"],
        {"fields": ["id", "version"]},
        {"commit_bytes": 400_000, "map_size": 1 << 16},
    ),
    "posting lists": (
        [*CHANGES, "large", "clear", "subset", "merge", "compact"],
        ["large", "subset", "merge"],
        {**LISTED, "train_size": 200},
        {"unit_rows": 4064, "map_size": 1 << 18},
    ),
    "cells": (
        [*CHANGES, "large", "clear", "near", "near", "far", "cells", "merge", "compact", "train"],
        ["add", "upsert", "large", "near", "far", "cells", "merge"],
        {"encoder": "itq", "bits": 8, "keep_vectors": "float32", "subset": "cells", "train_size": 200},
        {"lump_rows": 60, "map_size": 1 << 18, "commit_bytes": 50_000, "upkeep_log": "upkeep"},
    ),
    "posting lists in many transactions": (
        ["large", "upsert", "subset", "merge", "reencode"],
        ["subset", "merge", "reencode"],
        {**LISTED, "train_size": 200},
        {"unit_rows": 4064, "commit_bytes": 20_000},
    ),
}


class Writers:
    """The parent of writing processes, and the log they share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.log.touch()
        self._living = 0
        self._said = ""
        self._parent = subprocess.Popen(
            [sys.executable, str(HERE / "writer.py")],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, **arguments: Any) -> None:
        self._living = int(self._ask(json.dumps({"directory": str(self.directory), **arguments})))

    def kill(self) -> None:
        """Not reaped before its parent is asked, so the number is still its own."""
        os.kill(self._living, signal.SIGKILL)
        self._living = 0
        status = int(self._ask(""))
        assert os.WIFSIGNALED(status), f"the writer ended by itself: {self.close()}"

    def _ask(self, line: str) -> str:
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(line + "\n")
        self._parent.stdin.flush()
        return self._parent.stdout.readline()

    def close(self) -> str:
        """End them all; what they complained of."""
        if self._living:  # a test failed before it killed
            os.kill(self._living, signal.SIGKILL)
            self._living = 0
        if self._parent.returncode is None:
            self._said = self._parent.communicate()[1]
        return self._said


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    made = Writers(tmp_path)
    yield made
    made.close()


def wait_for(log: Log, wanted: list[str], after: int) -> None:
    """Until the writer began an operation of a wanted kind; not long: the kill may come at any other moment, too."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        flying = log.read().flying
        if flying and flying.number > after + 1 and (not wanted or flying.kind in wanted):
            return
        time.sleep(0.0005)


def one_life(writers: Writers, log: Log, chance: random.Random, case: str) -> None:
    """Start a writer, kill it, and read the log."""
    kinds, wanted, create, small = CASES[case]
    if "upkeep_log" in small:
        small = {**small, "upkeep_log": str(writers.directory / small["upkeep_log"])}
    known = log.read()
    first, seconds = known.last, known.seconds
    # No training but when it is asked for.
    made = {"train_size": 1 << 40, **create} if known.state.index is None else None
    writers.start(first=first, seed=chance.getrandbits(32), kinds=kinds, create=made, **small)
    # Often the wanted operations, sometimes any moment, from the very first on: opening, creating.
    hit = chance.random() < 0.8
    if hit:
        wait_for(log, wanted, first)
    duration = max([seconds.get(kind, 0.0) for kind in wanted], default=0.0)
    time.sleep(chance.uniform(0, 1.2 * duration if hit and duration else 0.05))
    writers.kill()
    log.read()
    log.cut()


@pytest.mark.parametrize("case", CASES)
def test_what_was_acknowledged_outlives_kills(case: str, writers: Writers, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, wanted, small = writers.directory, CASES[case][1], CASES[case][3]
    if "unit_rows" in small:
        monkeypatch.setattr(postings, "UNIT_ROWS", small["unit_rows"])
        monkeypatch.setattr(postings, "SEGMENT_ROWS", 4 * small["unit_rows"])
    chance = random.Random(f"{case} 1")
    rounds = 60 if LONG else 6
    kills = hits = listed = unfinished = 0
    log = Log(writers.log)
    # (Where posting lists are the point, until there were some; likewise codes that are being rewritten, and cells that
    # were split, dissolved and swept.)
    while (
        kills < rounds
        or hits < rounds // 2
        or listed < small.get("unit_rows", small.get("lump_rows", 0))
        or ("upkeep_log" in small and len(read_counts(directory / small["upkeep_log"])) < len(KINDS))
        or ("recode_rows" in small and unfinished < rounds // 4)
    ):
        one_life(writers, log, chance, case)
        flying = log.acknowledged.flying
        kills += 1
        hits += flying is not None and (not wanted or flying.kind in wanted)
        # Some look first with a reader, which cannot tidy up after the killed writer.
        verdict, problems = judge(directory, log.acknowledged, read_only=chance.random() < 0.5)
        assert not problems, f"kill {kills}: {problems}"
        if flying:
            log.decide(verdict)
        if log.acknowledged.state.index is not None:
            with Index.open(directory / INDEX, read_only=True) as index:
                told = index.stats()
                listed = max(listed, told["listed"])
                unfinished += told["training"] is not None and told["training"]["rewritten"] is not None
        assert kills < 20 * rounds, f"only {hits} kills hit {wanted}, and {listed} rows were listed"
    # A killed compact, save or create leaves its unfinished file behind; the next one takes it away.
    with Index.open(directory / INDEX) as index:
        index.compact()
        index.save(directory / COPY)
    assert {path.name for path in directory.iterdir()} <= {"log", "upkeep", *names(INDEX), *names(COPY)}


def names(file: str) -> tuple[str, str]:
    return file, f"{file}-lock"
