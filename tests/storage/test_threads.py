"""Threads that search, write, close and copy one index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Child
from tests.settings import LONG

from .programs import holds

THREADS = """
lsqindex._storage.lmdb.opening.INITIAL_MAP = 1 << 16
index = Index.open(path)
stop, failed = threading.Event(), []

def guarded(work):
    def run():
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failed.append(repr(error))
            stop.set()
    return run

def searching():
    hits = index.search([[3, 0], [7, 0]], k=1)
    assert hits.ids.tolist() == [[3], [7]] and (hits.distances == 0).all(), hits
    kept.append((hits, index.get(np.arange(10))))

kept = collections.deque(maxlen=50)
threads = [threading.Thread(target=guarded(searching)) for _ in range(6)]
"""


def test_many_threads_search_while_one_adds_grows_and_compacts(child: Callable[[], Child], path: Path) -> None:
    moved = child().run(
        THREADS
        + """
for thread in threads:
    thread.start()
for round in range(rounds):
    first = 1000 * (round + 1)
    index.add(np.full((300, 2), first), np.arange(first, first + 300))
    if round % 3 == 1:
        index.delete(np.arange(first, first + 300))
        index.compact()
    if round % 5 == 2:
        assert index.check() == []
    if stop.is_set():
        break
stop.set()
for thread in threads:
    thread.join()
assert not failed, failed
result = index._env.moved
# What was found is still there after growth, compactions, and the end.
index.close()
for hits, vectors in kept:
    assert hits.ids.tolist() == [[3], [7]] and (vectors[:, 0] == np.arange(10)).all()
""",
        path=path,
        rounds=100 if LONG else 20,
    )
    assert moved > 4, "the map never moved"


def test_threads_that_write_queue_up(child: Callable[[], Child], path: Path) -> None:
    child().run(
        """
        lsqindex._storage.lmdb.opening.INITIAL_MAP = 1 << 16
        indexes = [Index.open(path) for _ in range(4)]
        failed, taken = [], []

        def work(index, number):
            try:
                for round in range(15):
                    taken.extend(index.add(np.full((7, 2), number)).tolist())
                    with index.batch() as batch:
                        taken.extend(batch.add(np.full((3, 2), number)).tolist())
                    if round == 5 * number:
                        index.compact()
            except BaseException as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=work, args=(index, number)) for number, index in enumerate(indexes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert sorted(taken) == list(range(10, 610)), "ids were given twice, or not at all"
        """,
        path=path,
    )
    holds(path, range(610))


def test_close_while_others_work_is_a_closed_error(child: Callable[[], Child], tmp_path: Path) -> None:
    seen = child().run(
        """
        seen = collections.Counter()
        for round in range(rounds):
            index = Index.create(os.path.join(directory, f"{round}.lsq"), 2)
            index.add(np.ones((100, 2)))
            inside = threading.Barrier(9)

            def work(use):
                inside.wait()
                try:
                    while True:
                        use()
                except BaseException as error:
                    seen[type(error).__name__ + ("" if isinstance(error, ClosedError) else str(error))] += 1

            def batch():
                with index.batch() as batch:
                    batch.add([[1, 1]])

            uses = [lambda: index.search([1, 1]), lambda: index.search([1, 1]), lambda: index.add([[1, 1]]),
                    lambda: index.delete([3]), lambda: index.check(), lambda: index.stats(), lambda: index.save(),
                    batch]
            threads = [threading.Thread(target=work, args=(use,)) for use in uses]
            for thread in threads:
                thread.start()
            inside.wait()
            time.sleep(0.001 * (round % 20))
            index.close()
            for thread in threads:
                thread.join()
            with Index.open(os.path.join(directory, f"{round}.lsq")) as again:
                assert again.check() == []
        result = dict(seen)
        """,
        directory=tmp_path,
        rounds=200 if LONG else 30,
    )
    assert set(seen) == {"ClosedError"}, seen


@pytest.mark.parametrize("use", ["index.save(path + '.copy', progress=progress)", "index.compact(progress=progress)"])
def test_close_while_another_thread_copies(child: Callable[[], Child], path: Path, use: str) -> None:
    child().run(
        f"""
        index = Index.open(path)
        inside, closing = threading.Event(), threading.Event()
        said = []

        def progress(done, total):
            inside.set()
            closing.wait()
            time.sleep(0.05)  # the other one is in close() now, or will be

        def copy():
            try:
                {use}
            except LsqIndexError as error:
                said.append(error)

        thread = threading.Thread(target=copy)
        thread.start()
        inside.wait()
        closing.set()
        index.close()
        thread.join()
        """,
        path=path,
    )
    holds(path, range(10))


def test_two_threads_save_over_each_other(child: Callable[[], Child], path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.lsq"
    child().run(
        """
        one = Index.open(path)
        one.save(other)
        two = Index.open(other)
        failed = []

        def save(index, target):
            try:
                for _ in range(15):
                    index.save(target)
            except BaseException as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=save, args=pair) for pair in ((one, other), (two, path))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        """,
        path=path,
        other=other,
    )
    holds(path, range(10))
    holds(other, range(10))
