"""``python -m bench <benchmark>``: every benchmark is a module here with ``run(arguments)``.

Options of its own it adds in ``add_arguments(parser)``; they come last and may replace common ones.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

from . import THREAD_VARIABLES
from .framework.errors import UserError

BENCHMARKS = {
    "encoders": "recall, lengths, distortion, speed and kernels of the encoders",
    "defaults": "recall of an index with no option set, for several kinds of queries",
    "storage": "opening, adding, file size and memory of the persistent index",
    "writes": "adds of one vector, of many threads and in bulk, payloads, deletions; beside LMDB and other libraries",
    "subset": "the multi-index: the paper's finding, queries per second beside the scan and FAISS, growth, size",
    "cells": "with no option set: recall and time for all kinds of queries, filters, growth, size, building, changes",
    "scan": "queries per second of the scan beside FAISS, threads, growth and gigabytes per second",
    "paper": "every experiment of the paper's section 4, and what of its claims holds",
    "peers": "recall, queries per second, size, opening and changes, beside FAISS and other libraries and databases",
    "hosts": "adding and searching through txtai and LangChain, beside their default backends (in .venv-hosts)",
}
OTHERS = {
    "micro": "the time of single operations, beside another commit's with --against COMMIT",
    "flow": "files, functions and calls across modules that open, add, delete and search pass through",
    "pages": "measures nothing: writes the pages of the results that are there again",
    "figure": "measures nothing: draws docs/pictures/recall.svg from docs/results",
}
ROOT = Path(__file__).parents[1]
_FOLDERS = {"micro": "bench/results", "flow": "bench/results", "pages": "docs/results", "figure": "docs/pictures"}


def main() -> None:
    # One thread each, for a fair comparison; before anything is imported that reads it.
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    module = importlib.import_module(f"bench.{asked}") if asked in (*BENCHMARKS, *OTHERS) else None
    arguments = _parser(asked, module).parse_args()
    assert module is not None
    try:
        module.run(arguments)
    except UserError as error:
        sys.exit(f"bench: {error}")


def _parser(asked: str, module: ModuleType | None) -> argparse.ArgumentParser:
    """All commands by name, and the options of the one that is asked for: others are not even imported."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="benchmark")
    for name, text in {**BENCHMARKS, **OTHERS}.items():
        command = commands.add_parser(name, help=text, description=text, conflict_handler="resolve")
        if name in BENCHMARKS:
            _add_common(command)
        else:
            command.add_argument("--out", type=Path, default=ROOT / _FOLDERS[name], help="where it goes")
        if module is not None and name == asked and hasattr(module, "add_arguments"):
            module.add_arguments(command)
    return parser


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quick", action="store_true", help="a small data set, under two minutes")
    command.add_argument("--section", metavar="A,B", help="only these sections")
    command.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results go")
    command.add_argument("--fresh", action="store_true", help="measure again what an earlier run has measured")
    command.add_argument("--pictures", action="store_true", help="each plot also as SVG and PNG")


if __name__ == "__main__":
    main()
