"""One measurement in a fresh process, printed as JSON: ``python -m bench.material.probe (open|read|memory) index …``.

open     open the index and search; then close it and do so again, for what a process pays only once
read     map as many bytes of the file as there are codes and add them up, twice: page-ins, and then none
memory   resident memory after each step
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any

_LATER = 3


def opening(index_file: str, query_file: str) -> dict[str, float]:
    """Milliseconds of opening, of the first query and of later ones; the same again in the same process."""
    import numpy as np

    from lsqindex import Index

    query = np.load(query_file)
    found: dict[str, float] = {}
    for suffix in ("", " again"):
        start = time.perf_counter()
        index = Index.open(index_file, read_only=True)
        found[f"open{suffix}"] = _since(start)
        times = []
        for _ in range(1 + _LATER):
            start = time.perf_counter()
            index.search(query, k=10)
            times.append(_since(start))
        index.close()
        found[f"first{suffix}"], found[f"later{suffix}"] = times[0], sorted(times[1:])[_LATER // 2]
    return found


def reading(index_file: str, size: str) -> dict[str, float]:
    """Milliseconds to add up that many bytes of the mapped file, as its pages come in and once they are there."""
    import numpy as np

    with Path(index_file).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        found = {}
        for what in ("read", "read again"):
            start = time.perf_counter()
            np.frombuffer(view, np.uint64, count=min(int(size), len(view)) // 8).sum()
            found[what] = _since(start)
    return found


def memory(index_file: str) -> dict[str, float | None]:
    """Megabytes: the interpreter, with NumPy, with lsqindex, with the index open, after a search."""
    found = {"interpreter": _status("VmRSS")}
    import numpy as np

    found["numpy"] = _status("VmRSS")
    from lsqindex import Index

    found["lsqindex"] = _status("VmRSS")
    index = Index.open(index_file, read_only=True)
    found["opened"], found["opened, peak"] = _status("VmRSS"), _status("VmHWM")
    index.search(np.ones(index.dim, np.float32), k=10)
    found["searched"] = _status("VmRSS")
    return found


def forget_pages(path: Path) -> bool:
    """Ask the system to drop the file's pages from its cache; False where it has no such call."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def _since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


def _status(field: str) -> float | None:
    """A field of /proc/self/status, in megabytes (of 1,000,000 bytes); None on other systems."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field + ":")), None)


PROBES: dict[str, Any] = {"open": opening, "read": reading, "memory": memory}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))
