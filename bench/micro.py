"""The time of single operations; with ``--against COMMIT``, beside that commit's, measured by turns in one run.

The commit is unpacked and built in a folder of its own. Each version runs in a process of its own; in every round both
do the same operation, one after the other, and the ratio is taken of such neighbours.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from .framework.errors import UserError
from .framework.report import machine_facts, table
from .framework.turns import by_turns, quartiles, ratios
from .material import operations

ROOT = Path(__file__).parents[1]
#: Operations that must have become faster, and by how much; no other may be slower.
FASTER = {"query": 1.2, "add_one": 1.2, "add_one_in_memory": 1.2}
#: A ratio above this is not called slower: two runs of one commit differ as much.
NOISE = 0.95


class Version:
    """A process that does the operations of one source tree."""

    def __init__(self, tree: Path, folder: Path) -> None:
        folder.mkdir()
        run = f"import runpy; runpy.run_path({operations.__file__!r}, run_name='__main__')"
        self._process = subprocess.Popen(
            [sys.executable, "-c", run, str(folder)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            imported = Path(self._answer())
            if tree not in imported.parents:
                raise UserError(f"{imported} was imported instead of the package in {tree}")
        except UserError:
            self.__exit__()
            raise

    def __enter__(self) -> Version:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its pipes, and waits: it ends where its input ends
            pass

    def seconds(self, operation: str, number: int) -> float:
        """Of one operation in that round."""
        stdin = _pipe(self._process.stdin)
        stdin.write(json.dumps([operation, number]) + "\n")
        stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise UserError("a measuring process ended; its message is above")
        return json.loads(line)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit, built in a folder of its own")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each operation (40)")
    parser.add_argument("--only", metavar="A,B", help=f"only these operations: {', '.join(operations.NAMES)}")
    parser.add_argument("--built", type=Path, help="keep the built commit here, for the next run")


def run(arguments: argparse.Namespace) -> None:
    """Print the table and write it as micro.json."""
    names = arguments.only.split(",") if arguments.only else operations.NAMES
    if unknown := sorted(set(names) - set(operations.NAMES)):
        raise UserError(f"no operation {', '.join(unknown)}; there are {', '.join(operations.NAMES)}")
    with tempfile.TemporaryDirectory(prefix="lsqindex-bench-") as made, ExitStack() as stack:
        folder = Path(made).resolve()
        trees = {"now": ROOT}
        if arguments.against:
            trees["before"] = built(arguments.against, (arguments.built or folder / "built").resolve())
        versions = {name: stack.enter_context(Version(tree, folder / name)) for name, tree in trees.items()}
        rows = [_measure(versions, name, arguments.rounds) for name in names]
    facts = {
        **{name: value for name, value in machine_facts().items() if name not in ("faiss", "queries")},
        "index": f"{operations.ROWS:,} vectors of {operations.DIM} numbers, lsq 64 bits, float16 kept",
        "rounds": str(arguments.rounds),
        **({"before": arguments.against} if arguments.against else {}),
    }
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), end="\n\n")
    compared = ("before µs", "ratio", "low", "high", "bar", "met") if arguments.against else ()
    print(table(("operation", "µs", "spread", *compared), rows))
    if arguments.against:
        print("\nratio: before / now, the median of the rounds; low, high: their quartiles. Above 1 is faster now.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = json.dumps({"machine": facts, "rows": rows}, indent=1)
    (arguments.out / "micro.json").write_text(record + "\n", encoding="utf-8")


def built(commit: str, folder: Path) -> Path:
    """The sources of that commit in ``folder``, compiled; made once if the folder is kept."""
    hash_of = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    done = folder / ".built"
    if done.exists() and done.read_text(encoding="ascii") == hash_of:
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} holds something else than {commit}: name another folder, or remove it")
    print(f"building {commit} …", flush=True)
    safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.10.12, 3.11.4
    with tarfile.open(fileobj=io.BytesIO(_git("archive", hash_of))) as archive:
        archive.extractall(folder, **safe)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", str(os.cpu_count())]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if made.returncode:
        raise UserError(f"{commit} cannot be built:\n{made.stderr}")
    done.write_text(hash_of, encoding="ascii")
    return folder


def _measure(versions: dict[str, Version], name: str, rounds: int) -> dict[str, Any]:
    turns = {
        which: lambda number, version=version: version.seconds(name, number + 1) for which, version in versions.items()
    }
    times = by_turns(turns, rounds)
    row: dict[str, Any] = {"operation": name.replace("_", " "), **_microseconds("µs", times["now"])}
    if "before" in times:
        row |= {"before µs": _microseconds("µs", times["before"])["µs"], **ratios(times["before"], times["now"])}
        least = FASTER.get(name, NOISE)
        row |= {"bar": f">= {least:g}", "met": row["ratio"] >= least}
    print(f"{row['operation']}: {row['µs']:.1f} µs" + (f", ratio {row['ratio']:.2f}" if "ratio" in row else ""))
    return row


def _microseconds(column: str, times: Sequence[float]) -> dict[str, float]:
    low, middle, high = quartiles(times)
    return {column: 1e6 * middle, "spread": (high - low) / middle}


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise UserError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
