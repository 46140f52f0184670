"""Rebuild the files of a logged run (log_writes.c) as they could be after a kill or a power cut, and judge them.

``python replay.py LOG EVERY SUBSETS SEED [UNIT]`` looks at moments of the run: every sync, rename and
acknowledgement, and every EVERY-th other event. (UNIT: the rows of a unit of posting lists.) Of each moment it makes

- the state after a kill: everything that was written until then is there;
- SUBSETS states after a power cut: what was synced is there, of the rest some pages of some writes, and of the
  renames since the directory was synced only the first few.

It prints JSON: how many states of each sort there were, and what was wrong with them.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.acknowledged import COPY, INDEX, Acknowledged, judge, small_units

_HEADER = struct.Struct("<QQQII")
_PAGE = 4096


@dataclass
class Event:
    """One record of the log."""

    kind: str
    inode: int
    at: int
    durable: bool
    data: bytes


def read_events(path: Path) -> list[Event]:
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        inode, where, size, kind, durable = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        events.append(Event(chr(kind), inode, where, bool(durable), data[at : at + size]))
        at += size
    return events


class Disk:
    """The files after some events: what is safe, and what is only in the system's memory."""

    def __init__(self) -> None:
        self._safe: dict[int, bytearray] = {}
        self._waiting: dict[int, list[Event]] = {}
        self._safe_names: dict[str, int] = {}
        self._waiting_names: list[Event] = []

    def apply(self, event: Event) -> None:
        if event.kind in "wt":
            if event.durable:
                _write(self._safe.setdefault(event.inode, bytearray()), event)
            # Kept also where it is durable: in the system's memory writes come in their order.
            self._waiting.setdefault(event.inode, []).append(event)
        elif event.kind == "s":
            content = self._safe.setdefault(event.inode, bytearray())
            for waiting in self._waiting.pop(event.inode, []):
                _write(content, waiting)
        elif event.kind in "nu":
            self._waiting_names.append(event)
        else:
            _name(self._safe_names, self._waiting_names)
            self._waiting_names = []

    def killed(self) -> dict[str, bytes]:
        """All that was written: a kill takes nothing from the system's memory."""
        names = dict(self._safe_names)
        _name(names, self._waiting_names)
        return {name: self._content(inode, None) for name, inode in names.items()}

    def power_cut(self, chance: random.Random) -> dict[str, bytes]:
        """What was synced, and any part of the rest."""
        names = dict(self._safe_names)
        _name(names, self._waiting_names[: chance.randint(0, len(self._waiting_names))])
        return {name: self._content(inode, chance) for name, inode in names.items()}

    def _content(self, inode: int, chance: random.Random | None) -> bytes:
        content = bytearray(self._safe.get(inode, b""))
        share = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0]) if chance else 1.0
        for event in self._waiting.get(inode, []):
            if event.durable or event.kind == "t":
                _write(content, event)
                continue
            for first in range(0, len(event.data), _PAGE):
                if chance is None or chance.random() < share:
                    part = event.data[first : first + _PAGE]
                    _write(content, Event("w", inode, event.at + first, False, part))
        return bytes(content)


def _write(content: bytearray, event: Event) -> None:
    end = event.at + len(event.data)
    if event.kind == "t":
        del content[event.at :]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[event.at : end] = event.data


def _name(names: dict[str, int], events: list[Event]) -> None:
    for event in events:
        name = event.data.decode()
        if event.kind == "n":
            names[name] = event.inode
        else:
            names.pop(name, None)


def judge_state(files: dict[str, bytes], acknowledged: Acknowledged) -> list[str]:
    directory = Path(tempfile.mkdtemp())
    try:
        for name in (INDEX, COPY):
            if name in files:
                (directory / name).write_bytes(files[name])
        return judge(directory, acknowledged)[1]
    finally:
        shutil.rmtree(directory)


def replay(log: Path, every: int, subsets: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    disk, acknowledged = Disk(), Acknowledged()
    events = read_events(log)
    acknowledging = next(event.inode for event in events if event.kind == "w" and event.data.startswith(b"[1, "))
    states: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {"kill": [], "power cut": []}
    for number, event in enumerate(events):
        if event.kind == "w" and event.inode == acknowledging:
            acknowledged.read(event.data.decode())
        else:
            disk.apply(event)
        if event.kind == "w" and event.inode != acknowledging and number % every:
            continue
        moments = [("kill", disk.killed()), *(("power cut", disk.power_cut(chance)) for _ in range(subsets))]
        for sort, files in moments:
            states[sort] += 1
            wrong[sort] += [f"event {number}: {what}" for what in judge_state(files, acknowledged)]
    flying = acknowledged.flying
    return {
        "events": Counter(event.kind for event in events),
        "durable writes": sum(event.durable for event in events),
        "operations": acknowledged.last,
        "flying": flying.kind if flying else None,
        "states": states,
        "wrong": {sort: found[:20] for sort, found in wrong.items()},
    }


if __name__ == "__main__":
    if len(sys.argv) > 5:
        small_units(int(sys.argv[5]))
    print(json.dumps(replay(Path(sys.argv[1]), *(int(number) for number in sys.argv[2:5]))))
