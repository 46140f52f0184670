"""Pieces of the programs that children run, and what must be true after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsqindex import Index

OPEN = "index = Index.open(path)"


def holds(path: Path, ids: Any) -> None:
    """The index holds these ids, and nothing is wrong with it."""
    with Index.open(path, read_only=True) as index:
        assert index.check() == []
        assert index.ids().tolist() == sorted(ids)


LISTED = """
def vectors(n, seed):
    return np.random.default_rng(seed).standard_normal((n, 4)).astype(np.float32)

def agree():
    # Where all buckets are looked into, a subset search is a scan.
    near = index.search(vectors(2, 9), 20, probes=1 << 17, candidates=10**6)
    scanned = index.search(vectors(2, 9), 20, strategy="scan")
    assert (near.ids == scanned.ids).all() and (near.distances == scanned.distances).all()
    return [index.stats()[name] for name in ("vectors", "listed", "fresh")]
"""

HOLD = """
index = Index.open(path)
with index.batch() as batch:
    batch.add([[1.0, 1.0]], [100])
    tell()
    hear()
"""

FORK = """
def forked(work):
    # How `work` ended in a forked child: what it returned, 9 after an exception.
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
