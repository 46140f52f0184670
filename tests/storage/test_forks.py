"""Fork, spawn and pickle: an index in a child is the child's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Child, environment
from tests.settings import LONG, needs_fork

from .programs import FORK, holds


@needs_fork
def test_a_forked_child_searches_and_writes_by_itself(child: Callable[[], Child], path: Path) -> None:
    child().run(
        FORK
        + """
index = Index.open(path)
index.add([[10, 0]], [10])
opened = index._env.file.lmdb

def work():
    assert index.search([10, 0], k=1).ids.tolist() == [10]
    assert index._env.file.lmdb is not opened
    index.add([[11, 0]], [11])
    with index.batch() as batch:
        batch.add([[12, 0]], [12])
        batch.delete([0])
    index.compact()
    index.add([[13, 0]], [13])
    assert len(index) == 13 and index.check() == []

for round in range(5):
    assert forked(work) == 0
    # The parent is unharmed, follows to the compacted file, and writes on.
    assert index.ids().tolist() == [*range(1, 14)], index.ids()
    index.delete([11, 12, 13])
    index.add([[0, 0]], [0])
    assert index.check() == []
""",
        path=path,
    )
    holds(path, range(11))


@needs_fork
@pytest.mark.parametrize("how", ["ends at once", "leaves the batch by an exception"])
def test_a_fork_inside_a_batch_leaves_the_batch_to_the_parent(child: Callable[[], Child], path: Path, how: str) -> None:
    child().run(
        """
        index = Index.open(path, wait=0.1)
        parent = os.getpid()

        def work(batch):
            for use in (lambda: batch.add([[1, 1]]), lambda: batch.delete([1])):
                try:
                    use()
                    return 1
                except (ForkedError, ClosedError):
                    pass
            try:
                assert index.ids().tolist() == list(range(10))  # the committed state
            except ForkedError:
                pass  # the parent is in the index, and the child cannot be
            try:
                index.delete([1])  # the parent is writing: the child may not
                return 2
            except (BusyError, ForkedError):
                return 0

        try:
            with index.batch() as batch:
                batch.add([[10, 0]], [10])
                pid = os.fork()
                if pid == 0:
                    if how == "ends at once":
                        os._exit(work(batch))
                    raise KeyboardInterrupt
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                batch.add([[11, 0]], [11])
        except BaseException:
            if os.getpid() == parent:
                raise
            code = 9
            try:
                gc.collect()
                code = work(batch)
            finally:
                os._exit(code)
        assert index.check() == [] and index.ids().tolist() == list(range(12))
        """,
        path=path,
        how=how,
    )
    holds(path, range(12))


@needs_fork
def test_a_fork_during_other_threads_work(child: Callable[[], Child], path: Path) -> None:
    child().run(
        FORK
        + """
index = Index.open(path)
stop, failed = threading.Event(), []

def searching():
    while not stop.is_set():
        if not {3, 4} <= set(index.search([3, 0], k=3).ids.tolist()):
            failed.append("search")

def adding():
    number = 100
    while not stop.is_set():
        number += 1
        index.add([[number, 0]], [number])
        index.delete([number])

threads = [threading.Thread(target=target) for target in (searching, searching, adding)]
for thread in threads:
    thread.start()

def work():
    try:
        assert index.search([5, 0], k=1).ids.tolist() == [5]
        index.add([[50, 0]], [50])
        assert index.delete([50]) == 1
        assert index.check() == []
    except ForkedError:
        return 1  # a thread of the parent was in the index at that moment

codes = [forked(work) for _ in range(rounds)]
stop.set()
for thread in threads:
    thread.join()
assert not failed and set(codes) <= {0, 1}, (failed, codes)
assert index.check() == []
# And when nobody is in it, the child can.
assert forked(work) == 0
""",
        path=path,
        rounds=100 if LONG else 20,
    )
    holds(path, range(10))


@needs_fork
def test_an_index_in_memory_stays_with_its_process(child: Callable[[], Child]) -> None:
    child().run(
        FORK
        + """
index = Index(2)
index.add(np.arange(20).reshape(10, 2))

def work():
    uses = (lambda: index.search([0, 1]), lambda: index.add([[1, 1]]), lambda: index.delete([1]), lambda: len(index),
            lambda: index.get([1]), lambda: index.ids(), lambda: index.check(), lambda: index.batch().__enter__())
    for number, use in enumerate(uses):
        try:
            use()
            return 10 + number
        except ForkedError:
            pass
    index.close()
    return 0

code = forked(work)
assert code == 0, code
assert index.search([0, 1], k=1).ids.tolist() == [0] and index.check() == [] and len(index) == 10
index.add([[5, 5]])
"""
    )


@needs_fork
def test_a_forked_child_does_not_take_another_index_for_its_own(child: Callable[[], Child], path: Path) -> None:
    assert (
        child().run(
            FORK
            + """
index = Index.open(path)
os.unlink(path)
Index.create(path, 3).close()

def work():
    try:
        index.search([1, 0])
        return 1
    except StorageError:
        return 0

result = forked(work)
""",
            path=path,
        )
        == 0
    )


@pytest.mark.parametrize("method", ["spawn", *(["fork"] if hasattr(os, "fork") else [])])
def test_an_index_may_be_passed_to_workers(path: Path, method: str, tmp_path: Path) -> None:
    program = f"""
import multiprocessing, sys
import numpy as np
from lsqindex import Index

def work(index, number):
    assert index.search([number, 0], k=1).ids.tolist() == [number]
    index.add([[number, 5]], [100 + number])
    return len(index)

if __name__ == "__main__":
    index = Index.open(sys.argv[1])
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        pool.starmap(work, [(index, number) for number in range(10)])
    assert index.ids().tolist() == [*range(10), *range(100, 110)] and index.check() == []
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    holds(path, [*range(10), *range(100, 110)])


def test_pickling_keeps_path_and_mode_and_refuses_memory(child: Callable[[], Child], path: Path) -> None:
    child().run(
        """
        with Index.open(path, read_only=True, wait=0.5) as index, pickle.loads(pickle.dumps(index)) as again:
            assert again.ids().tolist() == list(range(10))
            try:
                again.add([[1, 1]])
                raise AssertionError("read-only was forgotten")
            except ReadOnlyError:
                pass
        for made, expected in ((Index(2), ParameterError), (index, ClosedError)):
            try:
                pickle.dumps(made)
                raise AssertionError("pickled")
            except expected:
                pass
        """,
        path=path,
    )


def test_a_relative_path_keeps_its_meaning(child: Callable[[], Child], tmp_path: Path) -> None:
    one = child()
    one.run(
        """
        os.chdir(directory)
        index = Index.create("index.lsq", 2)
        index.add([[1, 0]])
        os.mkdir("below")
        os.chdir("below")
        index.save("index.lsq")
        with Index.open("index.lsq") as copy:
            copy.add([[2, 0]])
            assert len(copy) == 2 and len(index) == 1
        os.unlink("index.lsq")
        with pickle.loads(pickle.dumps(index)) as again:
            assert len(again) == 1
        """,
        directory=tmp_path,
    )
    if hasattr(os, "fork"):
        assert one.run(FORK + "\nresult = forked(lambda: 0 if len(index) == 1 else 1)") == 0
