"""A map that is full grows, for every process that has the file open, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lsqindex import Index
from tests.processes import Child
from tests.settings import LONG

from .programs import OPEN, holds


def test_readers_follow_a_map_that_another_process_grows(child: Callable[[], Child], path: Path) -> None:
    reader, writer, third = child(), child(), child()
    small = "lsqindex._storage.lmdb.opening.INITIAL_MAP = 1 << 17\n"
    for one in (reader, writer, third):
        one.run(small + OPEN, path=path)
    for round in range(1, 5):
        first = 1000 * round**2
        writer.run("index.add(np.full((len(ids), 2), 7.0), ids)", ids=list(range(first, first + 2000 * round)))
        assert reader.run("result = len(index), len(index.search([7, 0], k=5).ids), index.check()")[2] == []
        # The third one has the old map as well, and writes into the new one.
        third.run("index.add([[1.0, 1.0]], [one])", one=100 + round)
        assert reader.run("result = one in index, int(index.search([1, 1], k=1).ids[0])", one=100 + round) == [
            True,
            101,
        ]
    with Index.open(path) as index:
        assert index.check() == []
        assert {*range(10), *range(101, 105)} <= set(index.ids().tolist())
        assert path.stat().st_size > 1 << 17


def test_two_processes_grow_the_map_in_turn(child: Callable[[], Child], path: Path) -> None:
    pair = [child(), child()]
    for one in pair:
        one.run("lsqindex._storage.lmdb.opening.INITIAL_MAP = 1 << 17\n" + OPEN, path=path)
    for turn in range(8):
        first = 100 + 1000 * turn
        grown = pair[turn % 2].run(
            """
            index.add(np.full((1000, 2), first), np.arange(first, first + 1000))
            result = index._env.moved
            """,
            first=first,
        )
    assert grown > 1, "the map never moved"
    holds(path, [*range(10), *range(100, 8100)])


GROWTH = """
def watch(frame, event, argument):
    # Who finds the map full: a put (run), or the commit? Or was it grown before (begin)?
    if event == "call" and frame.f_code.co_name in ("_replay", "grow"):
        callers[frame.f_back.f_code.co_name] += 1

callers = collections.Counter()
complaints = []
for pages in range(first, first + sizes):
    lsqindex._storage.lmdb.opening.INITIAL_MAP = 4096 * pages
    path = os.path.join(directory, f"{pages}.lsq")
    index = Index.create(path, 4, train_size=train_size, encoder="lsh", bits=32, keep_vectors="float32")
    model = {}

    def vectors(ids, version):
        model.update((int(id), version) for id in ids)
        return np.stack([np.full(len(ids), version), ids, np.zeros(len(ids)), np.ones(len(ids))], axis=1)

    sys.setprofile(watch)
    try:
        change(index, model, vectors)
    except BaseException as error:
        complaints.append((pages, repr(error)))
        raise
    finally:
        sys.setprofile(None)
    ids = np.array(sorted(model))
    right = index.ids().tolist() == ids.tolist() and (index.get(ids)[:, 0] == [model[int(id)] for id in ids]).all()
    if index.check() or not right:
        complaints.append((pages, index.check(), len(index), len(model)))
    index.close()
    with Index.open(path) as index:
        if index.check() or index.ids().tolist() != ids.tolist():
            complaints.append((pages, index.check(), "after opening it again"))
    os.unlink(path)
result = dict(callers), complaints
"""
CHANGES = {
    "adds": """
def change(index, model, vectors):
    for version in range(12):
        ids = np.arange(300 * version, 300 * version + 400)
        index.add(vectors(ids, version), ids, upsert=True)
""",
    "a batch": """
def change(index, model, vectors):
    index.add(vectors(np.arange(50), 1), np.arange(50))
    with index.batch() as batch:
        for version in range(2, 14):
            ids = np.arange(100 * version, 100 * version + 150)
            batch.add(vectors(ids, version), ids, upsert=True)
            gone = rng.choice(ids, 20, replace=False)
            batch.delete(gone)
            for id in gone.tolist():
                del model[id]
            try:
                batch.add(np.zeros((1, 4)), [int(ids[0]) if int(ids[0]) in model else int(min(model))])
            except DuplicateIdError:
                pass  # the batch goes on without it, in a replay too
""",
    "deletes and compact": """
def change(index, model, vectors):
    index.add(vectors(np.arange(5000), 1), np.arange(5000))
    for first in range(0, 5000, 1000):
        gone = np.arange(first, first + 900)
        index.delete(gone)
        for id in gone.tolist():
            del model[id]
    index.compact()
    index.add(vectors(np.arange(6000, 7000), 2), np.arange(6000, 7000))
""",
    "a large add": """
def change(index, model, vectors):
    lsqindex._write.add.COMMIT_BYTES = lsqindex._storage.rewrite.COMMIT_BYTES = 50_000
    index.add(vectors(np.arange(50), 1), np.arange(50))
    ids = np.arange(40, 9000)
    index.add(vectors(ids, 2), ids, upsert=True)
""",
    "training by a large add": """
def change(index, model, vectors):
    lsqindex._write.add.COMMIT_BYTES = lsqindex._storage.rewrite.COMMIT_BYTES = 20_000
    index.add(vectors(np.arange(500), 1), np.arange(500))
    ids = np.arange(500, 4000)
    index.add(vectors(ids, 2), ids)
    index.reencode("lsh", bits=64)
""",
    "save over itself": """
def change(index, model, vectors):
    index.add(vectors(np.arange(3000), 1), np.arange(3000))
    other = Index.open(index.path)
    memory = Index(4, train_size=1 << 40)
    index.save(index.path + ".copy")
    for _ in range(3):
        index.save(index.path + ".copy")
    with Index.open(index.path + ".copy") as copy:
        assert copy.check() == [] and len(copy) == 3000
    os.unlink(index.path + ".copy")
    other.close()
""",
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_lost_when_the_map_is_full(child: Callable[[], Child], tmp_path: Path, change: str) -> None:
    # One page more each time: the map is full at any put, and at commit.
    training = 600 if change == "training by a large add" else 1 << 40
    values = {"directory": tmp_path, "first": 14, "sizes": 80 if LONG else 7, "train_size": training}
    callers, complaints = child().run(CHANGES[change] + GROWTH, **values)
    assert complaints == []
    assert callers, "the map was never full"


def test_the_map_is_full_at_commit(child: Callable[[], Child], tmp_path: Path) -> None:
    values = {"directory": tmp_path, "first": 14, "sizes": 100 if LONG else 40, "train_size": 1 << 40}
    program = """
def change(index, model, vectors):
    for version in range(6):
        index.add(vectors(np.arange(40), version), np.arange(40), upsert=True)
"""
    callers, complaints = child().run(program + GROWTH, **values)
    assert complaints == []
    assert callers.get("commit"), "no map size made a commit fail: the test has lost its point"
