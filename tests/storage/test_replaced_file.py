"""A file that is compacted, saved over or moved away while others have it open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.processes import Child
from tests.settings import LONG, needs_linux

from .programs import HOLD, OPEN, holds

COMPACT = """
index = Index.open(path)
def progress(done, total):
    tell()
    hear()
index.compact(progress=progress)
"""


def test_readers_and_waiting_writers_follow_a_compacted_file(child: Callable[[], Child], path: Path) -> None:
    compacting, reader, waiting, timed = child(), child(), child(), child()
    reader.run("index = Index.open(path, read_only=True)", path=path)
    timed.run("index = Index.open(path, wait=600)", path=path)
    before = path.stat().st_ino
    compacting.run(COMPACT, path=path)
    waiting.start(OPEN + "\nindex.add([[20, 0]], [20])", path=path)
    timed.start("index.add([[21, 0]], [21])", path=path)
    assert waiting.is_silent() and timed.is_silent(0.01)
    assert reader.run("result = index.search([3, 0], k=1).ids.tolist()") == [3]
    compacting.go_on()
    compacting.answer()
    waiting.answer()
    timed.answer()
    assert path.stat().st_ino != before
    # Whoever had the old file writes to the new one, and everyone sees it.
    compacting.run("index.add([[22, 0]], [22])")
    reader.run("assert index.ids().tolist() == [*range(10), 20, 21, 22], index.ids()")
    timed.run("index.compact()")
    waiting.run("assert index.delete([20, 21]) == 2; assert len(index) == 11 and index.check() == []")
    assert reader.run("result = index.check(), len(index)") == [[], 11]
    holds(path, [*range(10), 22])


def test_a_waiting_thread_has_the_lock_of_the_new_file(child: Callable[[], Child], path: Path) -> None:
    """Another thread of the waiting process follows to the new file first, and may not take the lock away."""
    for wait in ("True", "600.0"):
        compacting, threads, third = child(), child(), child()
        compacting.run(COMPACT, path=path)
        threads.start(
            f"""
            index = Index.open(path, wait={wait})
            stop, failed = threading.Event(), []
            def search():
                while not stop.is_set():
                    index.search([1, 0], k=1)
            searching = threading.Thread(target=search)
            searching.start()
            tell()
            try:
                with index.batch() as batch:
                    tell()
                    hear()
                    batch.add([[30, 0]], [30], upsert=True)
            finally:
                stop.set()
                searching.join()
            """,
            path=path,
        )
        threads.answer()
        assert threads.is_silent()
        compacting.go_on()
        compacting.answer()
        threads.answer()
        assert third.fails("index = Index.open(path, wait=False)\nindex.delete([1])", path=path) == "BusyError"
        threads.go_on()
        threads.answer()
        holds(path, [*range(10), 30])


def test_writes_and_compactions_of_many_processes_lose_nothing(child: Callable[[], Child], path: Path) -> None:
    workers = [child() for _ in range(3)]
    rounds = 60 if LONG else 12
    for number, worker in enumerate(workers):
        worker.start(
            """
            lsqindex._storage.lmdb.opening.INITIAL_MAP = 1 << 17
            index = Index.open(path)
            for round in range(rounds):
                first = 1000 + 100 * (rounds * number + round)
                index.add(np.full((60, 2), first), np.arange(first, first + 60))
                index.delete(np.arange(first, first + 20))
                if round % 3 == number:
                    index.compact()
                assert first + 30 in index and first not in index
            """,
            path=path,
            number=number,
            rounds=rounds,
        )
    for worker in workers:
        worker.answer()
    starts = range(1000, 1000 + 300 * rounds, 100)
    holds(path, [*range(10), *(start + place for start in starts for place in range(20, 60))])


def test_save_over_a_file_that_others_have_open(child: Callable[[], Child], path: Path, tmp_path: Path) -> None:
    saver, reader, writer, stranger = child(), child(), child(), child()
    target = tmp_path / "copy.lsq"
    saver.run(OPEN + "\nindex.save(target)", path=path, target=target)
    reader.run("index = Index.open(target, read_only=True)\nassert len(index) == 10", target=target)
    writer.run("index = Index.open(target)\nindex.add([[50, 0]], [50])", target=target)
    saver.run("index.add([[60, 0]], [60])\nindex.save(target)", target=target)
    # A copy of itself takes the place: everyone goes on with what is there now.
    assert reader.run("result = index.ids().tolist()") == [*range(10), 60]
    writer.run("index.add([[70, 0]], [70])")
    assert reader.run("result = index.ids().tolist(), index.check()") == [[*range(10), 60, 70], []]
    # Another index takes the place: those who had the old one are told, not misled.
    stranger.run("other = Index(3)\nother.add(np.ones((5, 3)))\nother.save(target)", target=target)
    assert reader.fails("index.search([1, 0])") == "ReplacedError"
    assert writer.fails("index.add([[1, 0]])") == "ReplacedError"
    assert reader.run("with Index.open(target) as new: result = len(new), new.dim, new.check()", target=target) == [
        5,
        3,
        [],
    ]
    holds(path, [*range(10), 60])


def test_save_waits_for_the_writer_of_its_target(child: Callable[[], Child], path: Path, tmp_path: Path) -> None:
    holder, saver, hurried = child(), child(), child()
    target = tmp_path / "copy.lsq"
    shutil.copy(path, target)
    holder.run(HOLD, path=target)
    assert hurried.fails("Index.open(path, wait=False).save(target)", path=path, target=target) == "BusyError"
    saver.start("Index.open(path).save(target)", path=path, target=target)
    assert saver.is_silent()
    holder.go_on()
    holder.answer()
    saver.answer()
    holds(target, range(10))


@needs_linux
def test_a_file_that_is_moved_away_during_a_batch_is_no_trap(
    child: Callable[[], Child], path: Path, tmp_path: Path
) -> None:
    """Someone restores a backup by hand: the batch fails or is in the file that is there, and nothing hangs."""
    one, backup = child(), tmp_path / "backup.lsq"
    shutil.copy(path, backup)
    one.run(
        """
        index = Index.open(path)
        try:
            with index.batch() as batch:
                batch.add([[1, 1]], [100])
                os.replace(backup, path)
                batch.add([[1, 1]], [101])
            committed = True
        except LsqIndexError:
            committed = False
        assert (100 in index, 101 in index) == (committed, committed), index.ids()
        index.add([[1, 1]], [102])
        assert 102 in index and index.check() == []
        """,
        path=path,
        backup=backup,
    )
