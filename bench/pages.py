"""The pages of results that are there, written again: ``python -m bench pages --out DIR`` measures nothing."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from .framework import page
from .framework.benchmark import AnyBenchmark
from .framework.errors import UserError
from .framework.report import Rows

NAMES = ("encoders", "storage", "writes", "cells", "scan", "subset", "peers", "hosts")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", action="store_true", help="each plot also as SVG and PNG")


def run(arguments: argparse.Namespace) -> None:
    """Write the page of each benchmark whose JSON file is in ``arguments.out``."""
    out: Path = arguments.out
    found = 0
    for name in NAMES:
        benchmark: AnyBenchmark = importlib.import_module(f"bench.{name}").BENCHMARK
        for plan in (benchmark.full, benchmark.quick):
            path = out / f"{plan.name}.json"
            if path.exists():
                page.write(benchmark.page(plan, Rows.read(path)), out, arguments.pictures)
                print(path.with_suffix(".html"))
                found += 1
    if not found:
        raise UserError(f"no results in {out}")
