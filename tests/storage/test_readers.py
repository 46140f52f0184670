"""Readers beside a writer, in processes of their own: each search sees one committed state."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsqindex import Index
from lsqindex._storage.format.meta import FORMAT
from lsqindex._storage.lmdb import reader as readers
from lsqindex.errors import BusyError, DamagedError, ForkedError, ParameterError
from tests.processes import Child
from tests.settings import FIXTURES, LONG

from .programs import FORK, HOLD, LISTED, OPEN, holds

# -- readers beside a writer --------------------------------------------------------------------------


@pytest.mark.parametrize("compacting", [False, True])
def test_each_search_sees_one_committed_state(child: Callable[[], Child], tmp_path: Path, compacting: bool) -> None:
    path, stop = tmp_path / "index.lsq", tmp_path / "stop"
    writer, readers = child(), [child() for _ in range(3)]
    # All vectors are (version, 0), replaced in one transaction: two distances in one answer are a mixed state.
    writer.run(
        """
        index = Index.create(path, 2, train_size=1 << 40)
        index.add(np.zeros((50, 2)), np.arange(50))
        """,
        path=path,
    )
    writer.start(
        """
        version = 0
        while not os.path.exists(stop):
            version += 1
            vectors = np.tile([version, 0.0], (50, 1))
            if version % 2:
                index.add(vectors, np.arange(50), upsert=True)
            else:
                with index.batch() as batch:
                    batch.delete(np.arange(25))
                    batch.add(vectors[25:], np.arange(25, 50), upsert=True)
                    batch.add(vectors[:25], np.arange(25))
            if compacting and version % 7 == 0:
                index.compact()
        result = version
        """,
        stop=stop,
        compacting=compacting,
    )
    for reader in readers:
        reader.start(
            """
            index = Index.open(path, read_only=True)
            seen = [0]
            for number in range(rounds):
                if number % 2:
                    hits = index.search([0.0, 0.0], k=60)
                    found, ids = np.sqrt(hits.distances[:50]), hits.ids
                    assert ids[:50].tolist() == list(range(50)) and (ids[50:] == -1).all(), ids
                else:
                    found = index.get(np.arange(50))[:, 0]
                assert len(set(found.tolist())) == 1, found
                assert found[0] >= seen[-1], (found[0], seen[-1])
                seen.append(float(found[0]))
            result = len(set(seen))
            """,
            path=path,
            rounds=2000 if LONG else 300,
        )
    states = [reader.answer() for reader in readers]
    stop.touch()
    assert writer.answer() > 0
    assert max(states) > 2, "the readers saw no change"
    holds(path, range(50))


class Overtaken:
    """A transaction as LMDB gives it when two commits came while it began: their pages, and the number from before."""

    def __init__(self, txn: Any) -> None:
        self._txn = txn

    def id(self) -> int:
        return int(self._txn.id()) - 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


@pytest.mark.parametrize("times", [1, 5, 10**9])
def test_a_reader_that_two_commits_overtake_takes_another_snapshot(
    times: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    read_state = readers.read_state

    def overtaken(file: Any, txn: Any) -> Any:
        begun.append(1)
        return read_state(file, Overtaken(txn) if len(begun) <= times else txn)

    with Index.open(path) as index:
        index.add([[1.0, 1.0]], [100])
        file = index._env.file
        assert file is not None
        file.last_state = None  # or the snapshot is known, and its state is not read
        monkeypatch.setattr(readers, "read_state", overtaken)
        if times < 10:
            assert 100 in index
            assert len(begun) > times
        else:  # it is damage after all
            with pytest.raises(DamagedError, match="transaction"):
                index.search([1, 1], k=1)


def test_readers_see_the_lists_of_one_committed_state(child: Callable[[], Child], tmp_path: Path) -> None:
    path, writer, reader = tmp_path / "index.lsq", child(), child()
    writer.run(
        LISTED
        + """
from lsqindex import MultiIndex
index = Index.create(path, 4, encoder="lsh", bits=16, subset=MultiIndex(bits=8), keep_vectors=None)
index.train(vectors(50, 0))
index.add(vectors(16_000, 1))
""",
        path=path,
    )
    reader.run(LISTED + "index = Index.open(path, read_only=True)", path=path)
    assert reader.run("result = agree()") == [16_000, 0, 16_000]
    steps = {
        "index.add(vectors(300, 2))": [16_300, 16_256, 44],
        "index.merge()": [16_300, 16_300, 0],
        "index.delete(range(4064))": [12_236, 12_236, 0],
        "index.add(vectors(60_000, 3))": [72_236, 60_960, 11_276],
        "index.set_subset(MultiIndex(bits=16))": [72_236, 72_236, 0],
        "index.compact()": [72_236, 72_236, 0],
        "index.set_subset(None); index.set_subset(MultiIndex(bits=4))": [72_236, 72_236, 0],
    }
    for step, wanted in steps.items():
        writer.run(step)
        assert reader.run("result = agree()") == wanted, step
        assert reader.run("result = index.check()") == []
    # A snapshot that is being read stays as it is, whatever is listed meanwhile.
    reader.start(
        """
        with index._reader() as snapshot:
            from lsqindex._subsets.multi_index import lists
            before = [(key, bytes(value)) for key, value in lists.entries(snapshot)]
            tell(len(before))
            hear()
            result = before == [(key, bytes(value)) for key, value in lists.entries(snapshot)]
        """
    )
    assert reader.answer() > 0
    writer.run(
        "index.add(vectors(20_000, 4)); index.set_subset(MultiIndex(bits=12)); index.delete(range(9000, 20_000))"
    )
    reader.go_on()
    assert reader.answer() is True
    assert reader.run("result = agree()[0], index.check()") == [72_236 + 20_000 - 11_000, []]


@pytest.mark.parametrize("name", ["format1-trained.lsq", "format1-untrained.lsq", "format2-tables.lsq"])
def test_a_file_that_another_process_brings_to_a_newer_format(
    child: Callable[[], Child], tmp_path: Path, name: str
) -> None:
    """Who has it open reads on, a snapshot from before, too; and writes, without a second upgrade."""
    path = tmp_path / name
    shutil.copyfile(FIXTURES / name, path)
    writer, reader, snapshot = child(), child(), child()
    for one in (writer, reader, snapshot):
        one.run("index = Index.open(path)\nvectors = lambda n: np.ones((n, index.dim))", path=path)
    count = reader.run("result = len(index)")
    reader.run("with index.batch(): pass")  # open for writing, and nothing written
    snapshot.start(
        """
        with index._reader() as held:
            tell(held.state.format)
            hear()
            from lsqindex._storage.store import Store
            living = len(Store(held, index._options).living())
            result = held.state.format, sorted(name.decode() for name in held.dbs), living
        """
    )
    number = int(name[len("format")])
    assert snapshot.answer() == number
    assert writer.run("index.delete(index.ids()[:1]); result = index.stats()['format']") == FORMAT
    snapshot.go_on()
    databases = ["codes", "ids", "meta", *["postings"] * (number > 1), "vectors"]
    assert snapshot.answer() == [number, databases, count]
    for one in (snapshot, reader):
        assert one.run("result = index.stats()['format'], len(index), index.check()") == [FORMAT, count - 1, []]
        assert one.run("result = len(index.search(vectors(1), 3).ids[0])") == 3
    # A writer that had it open before, and one after another.
    for one in (reader, snapshot, writer):
        one.run("index.delete(index.ids()[:1])")
    if number == 1:
        reader.run("index.set_subset('multi-index')")
    # Payloads begin in one process, and are there in the others.
    reader.run("index.set_payloads(index.ids()[:2], [{'lang': 'en'}, {}])")
    for one in (snapshot, writer):
        told = one.run("result = index.payloads(index.ids()[:3]), len(index.ids({'lang': 'en'})), index.check()")
        assert told == [[{"lang": "en"}, {}, None], 1, []]
    assert writer.run("result = index.check(), len(index), index.subset is not None") == [[], count - 4, True]


@pytest.mark.parametrize("event", ["the file is replaced", "a fork"])
def test_who_only_reads_never_waits_for_a_writer(child: Callable[[], Child], path: Path, event: str) -> None:
    """Not even one who has written before, and has to open the file again while another is writing."""
    if event == "a fork" and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    reader, writer = child(), child()
    reader.run(OPEN + "\nindex.add([[10, 0]], [10])", path=path)
    writer.run(OPEN, path=path)
    if event == "the file is replaced":
        writer.run("index.compact()")
    writer.run(HOLD.replace("index = Index.open(path)", ""))
    if event == "a fork":
        assert reader.run(FORK + "\nresult = forked(lambda: 0 if len(index) == 11 else 1)") == 0
    look = "result = index.search([10, 0], k=1).ids.tolist(), len(index), index.check()"
    assert reader.run(look) == [[10], 11, []]
    newcomer = child()
    assert newcomer.run(OPEN + "\n" + look, path=path) == [[10], 11, []]
    writer.go_on()
    writer.answer()
    assert reader.run("result = 100 in index") is True


# -- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["int", "str"])
def test_results_outlive_the_index(child: Callable[[], Child], tmp_path: Path, ids: str) -> None:
    child().run(
        """
        lsqindex._storage.lmdb.opening.INITIAL_MAP = 1 << 16
        index = Index.create(path, 4, ids=kind, encoder="lsh", bits=32, keep_vectors="float16", train_size=1 << 40)
        vectors = rng.integers(-100, 100, (500, 4)).astype(np.float32)
        names = np.arange(500) if kind == "int" else [f"name {number:06}" for number in range(500)]
        index.add(vectors, names)
        results = []

        def look():
            results.append((index.search(vectors[:20], k=7, rerank=500), index.get(names), index.ids(), index.stats()))
            copies.append(pickle.loads(pickle.dumps(results[-1])))

        def same(found, copy):
            return ((found[0].ids == copy[0].ids).all() and (found[0].distances == copy[0].distances).all()
                    and (found[1] == copy[1]).all() and list(found[2]) == list(copy[2]) and found[3] == copy[3])

        copies = []
        look()
        for number in range(10):
            more = np.arange(1000 * number + 1000, 1000 * number + 1800)
            index.add(np.full((800, 4), 200), more if kind == "int" else [f"more {one}" for one in more])
            look()
        moved = index._env.moved
        index.train()
        look()
        index.add(vectors[::-1], names, upsert=True)
        index.compact()
        look()
        index.delete(names)
        index.compact()
        index.close()
        gc.collect()
        assert moved, "the map never moved"
        assert all(same(found, copy) for found, copy in zip(results, copies))
        for number, found in enumerate(results):
            assert (found[1] == (vectors if number < 12 else vectors[::-1])).all()
            found[0].ids[0, 0], found[0].distances[0, 0], found[1][0, 0] = (1 if kind == "int" else "x"), 2, 3
        """,
        path=tmp_path / "index.lsq",
        kind=ids,
    )


def test_typed_errors_are_what_they_say() -> None:
    assert issubclass(BusyError, TimeoutError) and issubclass(ForkedError, RuntimeError)
    assert issubclass(ParameterError, ValueError)
