"""What the system refuses (descriptors, threads, permissions) and what LMDB refuses is a typed error with a remedy.

The limits are real ones, in processes of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from tests import processes
from tests.settings import LONG

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

PRELUDE = """
import os, resource, sys
import numpy as np
from lsqindex import Index, MultiIndex
from lsqindex.errors import *

def refused(name, use, kinds, *words):
    # `use` must end in one of these errors, with these words in its message.
    try:
        use()
    except kinds as error:
        assert all(word in str(error) for word in words), (name, str(error))
        return
    except BaseException as error:
        raise AssertionError(f"{name}: {type(error).__module__}.{type(error).__name__}: {error}") from error
    raise AssertionError(f"{name}: not refused")
"""


def run(program: str, *arguments: Any) -> str:
    """What a process prints that runs ``program``; it must end well."""
    return processes.run(PRELUDE + program, *arguments)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index with payloads and many pages."""
    file = tmp_path / "index.lsq"
    rng = np.random.default_rng(0)
    with Index.create(file, 8, ids="str", encoder="lsh", bits=32, keep_vectors="float32") as index:
        vectors = rng.standard_normal((3000, 8))
        index.train(vectors).add(vectors, [f"name {i}" for i in range(3000)], [{"number": i} for i in range(3000)])
        index.set_subset("multi-index")
    return file


def test_no_descriptor_is_left(path: Path) -> None:
    """At every number of descriptors that are free, each use works or names the cause, and nothing is lost."""
    run(
        """
path = sys.argv[1]
query = np.ones(8)
with Index.open(path) as warm:  # imports everything first
    warm.search(query, k=1)
    warm.compact()
memory = Index(8)
index = Index.open(path)
index.add(np.ones((1, 8)), ["first"])
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
taken = []
names, failures = set(), 0

def use(name, work):
    global failures
    try:
        work()
    except StorageError as error:
        failures += 1
        assert error.errno == 24 and "Too many open files" in str(error) and "ulimit -n" in str(error), (name, error)
    except BaseException as error:
        raise AssertionError(f"{name}: {type(error).__module__}.{type(error).__name__}: {error}") from error
    else:
        names.add(name)

last = max(int(name) for name in os.listdir("/proc/self/fd"))
for free in range(12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1 + free, limits[1]))
    other = path + f".{free}"
    use("add", lambda: index.add(np.ones((1, 8)), [f"more {free}"]))
    use("search", lambda: index.search(query, k=1))
    use("compact", index.compact)
    use("search", lambda: index.search(query, k=1))
    use("save", lambda: index.save(other))
    use("create", lambda: Index.create(other + "new", 2).close())
    use("memory", lambda: Index(2).close())
    use("open", lambda: Index.open(other).close() if os.path.exists(other) else None)
    use("check", lambda: index.check() and 1 / 0)
    use("delete", lambda: index.delete([f"more {free}"]) if f"more {free}" in index else None)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
assert failures and names == {"add", "search", "compact", "save", "create", "memory", "open", "check", "delete"}, names
assert index.check() == [] and len(index) == 3001
""",
        path,
    )


def test_no_thread_can_be_started(path: Path) -> None:
    run(
        """
path = sys.argv[1]
rng = np.random.default_rng(0)
vectors = rng.standard_normal((40_000, 64)).astype(np.float32)
index = Index(64, encoder="lsh", bits=256)
index.train(vectors[:2000]).add(vectors)
listed = Index(64, encoder="lsh", bits=64, subset=MultiIndex(bits=8))
listed.train(vectors[:2000]).add(vectors)
queries = vectors[:600]
before = index.search(queries, k=5, threads=1).ids
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
words = "start", "fewer threads", "threads=1"
refused("search", lambda: index.search(queries, k=5, threads=4), ThreadsError, *words)
refused("lists", lambda: listed.search(queries, k=5, threads=4), ThreadsError, *words)
refused("add", lambda: index.add(vectors, threads=4), ThreadsError, *words)
assert issubclass(ThreadsError, RuntimeError) and len(index) == 40_000
assert (index.search(queries, k=5, threads=1).ids == before).all()
assert len(index.add(vectors[:10], threads=1)) == 10 and index.check() == []
""",
        path,
    )


USES = """
uses = {
    "search": lambda: index.search(np.ones((2, 8)), k=5),
    "rerank": lambda: index.search(np.ones((2, 8)), k=5, rerank=100),
    "scan": lambda: index.search(np.ones((2, 8)), k=5, probes=None),
    "filter": lambda: index.search(np.ones((2, 8)), k=5, filter={"number": {"$lt": 20}}),
    "get": lambda: index.get(["name 1", "name 2999"]),
    "payloads": lambda: index.payloads(["name 1", "name 2999"]),
    "ids": lambda: index.ids(),
    "in": lambda: "name 7" in index,
    "len": lambda: len(index),
    "stats": lambda: index.stats(),
    "add": lambda: index.add(np.ones((1, 8)), ["new"]),
    "upsert": lambda: index.add(np.ones((1, 8)), ["name 9"], upsert=True),
    "delete": lambda: index.delete(["name 11"]),
    "set_payloads": lambda: index.set_payloads(["name 12"], [{"number": 1}]),
    "batch": batch,
    "train": lambda: index.train(),
    "merge": lambda: index.merge(),
    "set_subset": lambda: index.set_subset(None),
    "compact": lambda: index.compact(),
    "save": lambda: index.save(path + ".copy"),
    "check": lambda: index.check() and None,
    "open": lambda: Index.open(path).close(),
}
"""


@pytest.mark.parametrize("kind", ["number", "bounds"])
def test_a_page_that_is_damaged_while_the_file_is_open(path: Path, kind: str) -> None:
    """LMDB notices it in the middle of any use: its errors are told as damage.

    (LMDB does not notice everything. Who changes an open file in place may crash its users: docs/durability.md.)
    """
    run(
        """
import random
path, kind, pages_each = sys.argv[1:]

def batch():
    with index.batch() as batch:
        batch.add(np.ones((1, 8)), ["b"])
        batch.delete(["name 13"])
"""
        + USES
        + """
index = Index.open(path)
sound = open(path, "rb").read()
pages = [at for at in range(8192, len(sound), 4096) if sound[at + 10] in (1, 2) and sound[at + 11] == 0
         and int.from_bytes(sound[at : at + 8], "little") == at // 4096]
changes = {
    "number": lambda at: (at, b"\\xff\\xff\\x0f"),
    "bounds": lambda at: (at + 12, b"\\xff\\x7f\\x01\\x00"),
}
index.close()
told = 0
for name, use in uses.items():
    for at in random.Random(name).sample(pages, min(len(pages), int(pages_each))):
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                index = Index.open(path)
                if name in ("add", "upsert", "delete", "set_payloads", "batch"):
                    index.delete(["name 2000"])  # the file is open for writing by now
                    sound = open(path, "rb").read()
                where, data = changes[kind](at)
                with open(path, "r+b") as file:
                    file.seek(where)
                    file.write(data)
                use()
            except LsqIndexError:
                code = 1
            except BaseException as error:
                print(name, at, type(error).__module__, type(error).__name__, error, flush=True)
                code = 2
            os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        told += status == 1
        assert status in (0, 1), (name, at, status)
        with open(path, "wb") as file:
            file.write(sound)
assert told
""",
        path,
        kind,
        20 if LONG else 5,
    )
