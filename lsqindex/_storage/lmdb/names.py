"""Passing names of new files: where a file is made before it gets its place, and what killed processes leave behind."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import secrets


def prefix(path: str) -> str:
    """What the passing names of the new files for ``path`` begin with; they are in the same directory."""
    directory, name = os.path.split(os.path.realpath(path))
    return os.path.join(directory, f".{hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()}-")


def fresh(path: str) -> str:
    """A passing name that nobody uses."""
    return f"{prefix(path)}{secrets.token_hex(8)}.new"


def all_of(path: str) -> list[str]:
    """The passing names that are there now."""
    return glob.glob(glob.escape(prefix(path)) + "*.new")


def remove_dead(path: str, identity: tuple[int, int]) -> None:
    """Remove passing names of the file at ``path`` itself, of which the caller holds the lock.

    A new file has both names for a moment, and its maker holds the lock as long. If the maker was killed in that
    moment, nobody else would remove the passing name.
    """
    for passing in all_of(path):
        with contextlib.suppress(OSError):
            status = os.stat(passing)
            if (status.st_dev, status.st_ino) == identity:
                os.unlink(passing)
