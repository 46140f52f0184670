"""Beside others: recall against queries per second, size, opening, and what changing costs.

    benchmark  its sections and how much is measured       systems   who is compared, and with which settings
    adapter    what each library can be asked to do        of_*      one adapter for each library
    worker     the process of one system                   children  that process, from outside
    shelf      arrays, and indexes that are built once

Workers import this package, too, and no other library than their own: so nothing is imported before it is needed.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    from ..framework.benchmark import add_work

    add_work(parser)
    parser.add_argument("--data", nargs="+", metavar="NAME", help="only these data sets")


def run(arguments: argparse.Namespace) -> None:
    """The benchmark: all sections or some, then the page."""
    from .benchmark import BENCHMARK

    benchmark = BENCHMARK
    if arguments.data and not arguments.quick:
        benchmark = replace(benchmark, full=replace(benchmark.full, data=tuple(arguments.data)))
    benchmark.run(arguments)


def __getattr__(name: str) -> Any:
    """``BENCHMARK``, as the other benchmarks have it."""
    if name != "BENCHMARK":
        raise AttributeError(name)
    from .benchmark import BENCHMARK

    return BENCHMARK
