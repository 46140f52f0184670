"""``python -m bench <benchmark>``: every benchmark is a module here with ``run(arguments)``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from . import THREAD_VARIABLES
from .errors import UserError

BENCHMARKS = {
    "encoders": "recall, distortion, the paper's figures, speed and kernels of the encoders",
    "storage": "opening, adding, file size and memory of the persistent index",
    "subset": "the multi-index: the paper's finding, queries a second beside the scan and FAISS, growth, size",
    "scan": "queries a second of the scan beside FAISS, threads, growth and gigabytes a second",
    "figure": "measures nothing: draws docs/pictures/recall.svg from docs/results",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    commands = parser.add_subparsers(dest="benchmark", required=True)
    for name, text in BENCHMARKS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == "figure":
            pictures = Path(__file__).parents[1] / "docs" / "pictures"
            command.add_argument("--out", type=Path, default=pictures, help="where the picture goes")
            continue
        command.add_argument("--quick", action="store_true", help="a small data set, under a minute")
        command.add_argument("--section", metavar="A,B", help="only these sections")
        command.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results go")
        command.add_argument("--fresh", action="store_true", help="measure again what an earlier run has measured")
        if name in ("storage", "scan", "subset"):
            command.add_argument("--work", type=Path, help="keep filled indexes here (else: gone after the run)")
    arguments = parser.parse_args()
    # One thread each, for a fair comparison.
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    module = importlib.import_module(f"bench.{arguments.benchmark}")
    try:
        module.run(arguments)
    except UserError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
