"""What a user of the benchmarks can put right: shown as a message, without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """A missing data set, an unknown section, results of another machine."""
