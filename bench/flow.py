"""How far one call walks: files, functions and calls across modules of the package, for open, add, delete and search.

Counted with ``sys.setprofile`` on a warm index; Cython and C are not seen. ``--list`` names every file and function
on the way, in the order in which they are first entered.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np

import lsqindex
from lsqindex import Index

from .framework.report import machine_facts, table

PACKAGE = Path(lsqindex.__file__).parent
ROWS, DIM = 20_000, 32

#: The most files, functions and calls across modules that each operation may take.
BARS = {
    "open": (8, 40, 20),
    "add of one": (14, 80, 70),
    "delete": (10, 50, 40),
    "search": (8, 30, 20),
    "filtered search": (10, 40, 30),
}
#: What version 0.1 took.
BEFORE = {
    "open": (11, 65, 31),
    "add of one": (27, 194, 224),
    "delete": (16, 107, 116),
    "search": (24, 88, 88),
    "filtered search": (26, 99, 90),
}
COLUMNS = ("operation", "files", "functions", "calls across modules", "bar", "met", "0.1")


@dataclass
class Walk:
    """What one call passed through."""

    #: Calls of each function, by file and name, in the order of the first.
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Calls of each function from another module of the package.
    entries: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Files, functions, calls across modules."""
        return len({file for file, _ in self.calls}), len(self.calls), sum(self.entries.values())

    def listing(self) -> str:
        """Every file with its functions: how often each is called, and how often from another module."""
        lines = []
        for file in dict.fromkeys(file for file, _ in self.calls):
            lines.append(f"  {file}")
            for key, count in self.calls.items():
                if key[0] == file:
                    entered = self.entries.get(key, 0)
                    lines.append(f"    {count:4} ×  {key[1]}" + (f"  ({entered} from outside)" if entered else ""))
        return "\n".join(lines)


def walk(call: Callable[[], object]) -> Walk:
    """Make the call and record which Python functions of the package it passes."""
    root, found = f"{PACKAGE}/", Walk()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(root):
            return
        key = name.removeprefix(root), getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        found.calls[key] = found.calls.get(key, 0) + 1
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        if caller.startswith(root) and caller != name:
            found.entries[key] = found.entries.get(key, 0) + 1

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def walks(folder: Path, subset: Literal["auto"] | None) -> dict[str, Walk]:
    """The walks of all operations, each made once before it is counted."""
    vectors = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
    path = folder / f"{subset}.lsq"
    index = Index.create(path, dim=DIM, encoder="lsq", bits=64, keep_vectors="float16", subset=subset, fields=["lang"])
    index.add(vectors, payloads=[{"lang": "en" if row % 2 else "de"} for row in range(ROWS)])
    english = {"lang": "en"}
    for filter in (None, english):
        index.search(vectors[1], k=10, rerank=50, filter=filter)
    found = {
        "search": walk(lambda: index.search(vectors[1], k=10, rerank=50)),
        "filtered search": walk(lambda: index.search(vectors[1], k=10, rerank=50, filter=english)),
    }
    index.add(vectors[:1] + 1)
    found["add of one"] = walk(lambda: index.add(vectors[:1] + 2))
    found["delete"] = walk(lambda: index.delete([3]))
    index.close()
    found["open"] = walk(lambda: Index.open(path))  # nobody keeps it: letting go of it counts too
    return {name: found[name] for name in BARS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="name the files and functions of every operation")


def run(arguments: argparse.Namespace) -> None:
    """Print the table and write it as flow.json."""
    with tempfile.TemporaryDirectory(prefix="lsqindex-bench-") as folder:
        # The bars are of 0.1, whose indexes had no subset structure unless it was asked for.
        found, with_cells = walks(Path(folder), None), walks(Path(folder), "auto")
    facts = {name: value for name, value in machine_facts().items() if name in ("python", "lsqindex")}
    facts["index"] = f"{ROWS:,} vectors, {DIM} dimensions, lsq 64 bits, float16 kept, one indexed field"
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), end="\n\n")
    print(table(COLUMNS, [_line(name, way) for name, way in found.items()]))
    print("\nwith cells, as by default")
    print(
        table(COLUMNS[:4], [dict(zip(COLUMNS, (name, *way.counts), strict=False)) for name, way in with_cells.items()])
    )
    if arguments.list:
        for name, way in found.items():
            print(f"\n{name}\n{way.listing()}")
    names = ("files", "functions", "crossings")
    record = {name: dict(zip(names, way.counts, strict=True)) for name, way in found.items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "flow.json"
    path.write_text(json.dumps({"machine": facts, "operations": record}, indent=1) + "\n", encoding="utf-8")


def _line(name: str, way: Walk) -> dict[str, object]:
    counts = way.counts
    return {
        **dict(zip(COLUMNS, (name, *counts), strict=False)),
        "bar": "/".join(map(str, BARS[name])),
        "met": all(count <= most for count, most in zip(counts, BARS[name], strict=True)),
        "0.1": "/".join(map(str, BEFORE[name])),
    }
