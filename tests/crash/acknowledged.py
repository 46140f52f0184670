"""What was acknowledged, and so must be in the index: the model that a file is held against after a crash.

A writing process keeps a log, a line of JSON before and after each operation:

    [number, kind, put, gone, version]     it begins: ids that get their vectors of that version, ids that go
    [number, "done"]                       it has returned: acknowledged
    [number, "undone"]                     written by the judge: it was in flight, and is not there

An id's vector follows from the id and the version, so that a whole vector, and no mixture, can be told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex import Cells, Index, MultiIndex
from lsqindex._subsets.cells import structure, upkeep
from lsqindex._subsets.multi_index import postings
from lsqindex._write import retraining
from lsqindex.errors import LsqIndexError

DIM = 8
INDEX, COPY = "index.lsq", "copy.lsq"

#: Vectors of ids from here on are near each other, and far from others.
NEAR = 20_000

#: The version of each id.
Content = dict[int, int]


def small_units(rows: int) -> None:
    """Units of posting lists of so few rows that thousands of vectors fill several, and segments, too."""
    setattr(postings, "UNIT_ROWS", rows)  # noqa: B010
    setattr(postings, "SEGMENT_ROWS", 4 * rows)  # noqa: B010


def small_lumps(rows: int) -> None:
    """So few fresh rows move into cells at a time, and small cells are split, that most operations change cells."""
    for module, name, value in ((structure, "LUMP_ROWS", rows), (structure, "LEAST_ROWS", rows), (upkeep, "_LEAST", 8)):
        setattr(module, name, value)


def rewrite_slowly(rows: int) -> None:
    """Train again at every occasion, and rewrite so few codes at a time that most operations find some unfinished."""
    for name, value in (("_DRIFT", -1.0), ("_GAIN", float("inf")), ("_STEP", rows), ("_STEP_SHARE", 1), ("_LOOK", 16)):
        setattr(retraining, name, value)


def vectors(ids: Iterable[int], versions: Iterable[int]) -> NDArray[np.float32]:
    """The vectors of ids at their versions: small whole numbers, exact in every float."""
    names, numbers = np.array(list(ids), np.uint64), np.array(list(versions), np.uint64)
    places = np.arange(DIM, dtype=np.uint64)[None]
    mixed = (names * np.uint64(0x9E3779B97F4A7C15) + numbers * np.uint64(0xC2B2AE3D27D4EB4F))[:, None]
    mixed = (mixed + places * np.uint64(0x165667B19E3779F9)) * np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    spread = np.where(names < NEAR, 2048, 64).astype(np.uint64)[:, None]
    whole: NDArray[np.float32] = ((mixed >> np.uint64(40)) % spread).astype(np.float32)
    return whole + np.where(names < NEAR, -1024, 1500).astype(np.float32)[:, None]


def payloads(ids: Iterable[int], versions: Iterable[int]) -> list[Any]:
    """The payloads of ids at their versions, of several sizes; some have none."""
    made = zip(ids, versions, strict=True)
    return [
        None if name % 5 == 4 else {"id": int(name), "version": int(number), "text": "x" * int(7 * name % 400)}
        for name, number in made
    ]


@dataclass
class Operation:
    """A change, begun."""

    number: int
    kind: str
    put: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    version: int = 0


@dataclass
class State:
    """The index and its copy; None: not there."""

    index: Content | None = None
    copy: Content | None = None

    def after(self, operation: Operation) -> State:
        content = dict(self.index or {})
        if operation.kind == "save":
            return State(self.index, content)
        content.update((name, operation.version) for name in operation.put)
        for name in operation.gone:
            content.pop(name, None)
        return State(content, self.copy)


@dataclass
class Acknowledged:
    """A log, read: what must be there, and what was in flight at its end."""

    state: State = field(default_factory=State)
    flying: Operation | None = None
    #: Seconds that operations took, by kind.
    seconds: dict[str, float] = field(default_factory=dict)
    last: int = 0

    def read(self, line: str) -> None:
        fields: list[Any] = json.loads(line)
        if fields[1] in ("done", "undone"):
            assert self.flying is not None
            if fields[1] == "done":
                self.state = self.state.after(self.flying)
                if len(fields) > 2:
                    kind = self.flying.kind
                    self.seconds[kind] = max(fields[2], self.seconds.get(kind, 0.0))
            self.flying = None
        else:
            assert self.flying is None
            self.flying = Operation(*fields)
            self.last = self.flying.number

    def allowed(self) -> list[tuple[str, State]]:
        """The states that the files may be in, and what each says of the operation in flight."""
        return [("undone", self.state)] + ([("done", self.state.after(self.flying))] if self.flying else [])


class Log:
    """A log that is being written, read as far as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged = Acknowledged()
        self._at = 0

    def read(self) -> Acknowledged:
        """What it says now; a line that is not whole yet does not count."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode().splitlines():
            self.acknowledged.read(line)
        return self.acknowledged

    def cut(self) -> None:
        """Remove a last line that is not whole: the writer was killed while it wrote it."""
        with self.path.open("r+b") as file:
            file.truncate(self._at)

    def decide(self, verdict: str) -> None:
        """The operation in flight was done, or not."""
        assert self.acknowledged.flying is not None
        with self.path.open("a") as file:
            file.write(f'[{self.acknowledged.flying.number}, "{verdict}"]\n')
        self.read()


def judge(directory: Path, acknowledged: Acknowledged, *, read_only: bool = False) -> tuple[str, list[str]]:
    """("done" or "undone" for the operation in flight, what is wrong with the files)."""
    complaints: list[str] = []
    for verdict, state in acknowledged.allowed():
        found = [
            *(f"index: {what}" for what in _differences(directory / INDEX, state.index, read_only)),
            *(f"copy: {what}" for what in _differences(directory / COPY, state.copy, read_only)),
        ]
        if not found:
            return verdict, []
        complaints += [f"if {verdict}: {what}" for what in found]
    flying = acknowledged.flying
    return "undone", [*complaints, f"in flight: {flying.kind if flying else 'nothing'}"]


def _differences(path: Path, content: Content | None, read_only: bool) -> list[str]:
    """What of an index is not as it must be."""
    if content is None or not path.exists():
        return [] if (content is None) == (not path.exists()) else [f"there: {path.exists()}"]
    try:
        with Index.open(path, read_only=read_only) as index:
            return [*index.check(), *_wrong(index, content)]
    except LsqIndexError as error:
        return [f"{type(error).__name__}: {error}"]


def _wrong(index: Index, content: Content) -> list[str]:
    names = sorted(content)
    found = index.ids().tolist()
    if found != names:
        missing, extra = sorted(set(names) - set(found)), sorted(set(found) - set(names))
        return [f"{len(missing)} ids are missing ({missing[:5]}), {len(extra)} too many ({extra[:5]})"]
    if len(index) != len(names):
        return [f"len is {len(index)}, and {len(names)} ids are there"]
    if not names:
        return [] if index.search(np.zeros(DIM), k=1).ids.tolist() == [-1] else ["an empty index that finds something"]
    wanted = vectors(names, [content[name] for name in names])
    differ = np.flatnonzero((index.get(names) != wanted).any(axis=1))
    if len(differ):
        return [f"get: {len(differ)} vectors differ, the first of id {names[int(differ[0])]}"]
    if index.stats()["payloads"] and index.payloads(names) != payloads(names, [content[name] for name in names]):
        return ["payloads: not those of the vectors"]
    some = np.unique(np.linspace(0, len(names) - 1, 20).astype(int))
    # Everything is ordered again by the kept vectors, so that answers are exact with any encoder.
    everywhere: dict[str, Any] = {"probes": 1 << 16} if isinstance(index.subset, Cells) else {}
    hits = index.search(wanted[some], k=1, rerank=len(names) if index.stats()["keep_vectors"] else 0, **everywhere)
    lost = np.flatnonzero((hits.ids[:, 0] != np.array(names)[some]) | (hits.distances[:, 0] != 0))
    if len(lost):
        return [f"search: does not find ids {np.array(names)[some][lost].tolist()}"]
    if not isinstance(index.subset, MultiIndex) or not index.is_trained:
        return []
    # A vector is in its own bucket of every table: no other row has a better score, though many may have the same.
    hits = index.search(wanted[some], k=1, strategy="subset", candidates=len(names), rerank=len(names))
    lost = np.flatnonzero((hits.ids[:, 0] != np.array(names)[some]) | (hits.distances[:, 0] != 0))
    return [f"subset search: does not find ids {np.array(names)[some][lost].tolist()}"] if len(lost) else []
