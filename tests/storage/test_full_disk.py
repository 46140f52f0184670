"""Read-only places and full disks: a typed error, and nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import Child
from tests.settings import needs_linux
from tests.subsets.cells.counted import KINDS

from .programs import LISTED, holds

# -- read-only places ---------------------------------------------------------------------------------------


@needs_linux
def test_a_read_only_directory(child: Callable[[], Child], path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        copy = directory / "index.lsq"
        shutil.copy(path, copy)
        copy.chmod(0o444)
        directory.chmod(0o555)
        try:
            # The system's administrator may write anywhere: become somebody else.
            child().run(
                """
                if os.geteuid() == 0:
                    os.setgid(65534)
                    os.setuid(65534)
                with Index.open(path, read_only=True) as index:
                    assert index.search([3, 0], k=1).ids.tolist() == [3] and index.check() == [] and len(index) == 10
                    try:
                        index.add([[1, 1]])
                        raise AssertionError("written")
                    except ReadOnlyError:
                        pass
                try:
                    with Index.open(path) as index:
                        index.add([[1, 1]])
                    raise AssertionError("written")
                except LsqIndexError as error:
                    assert isinstance(error, OSError), repr(error)
                with Index.open(path, read_only=True) as index, Index.open(path, read_only=False) as writable:
                    try:
                        writable.add([[1, 1]])
                        raise AssertionError("written")
                    except LsqIndexError as error:
                        assert isinstance(error, OSError), repr(error)
                    assert index.search([3, 0], k=1).ids.tolist() == [3]
                """,
                path=copy,
            )
        finally:
            directory.chmod(0o755)
        holds(copy, range(10))


def test_read_only_and_writable_share_a_process(child: Callable[[], Child], path: Path) -> None:
    child().run(
        """
        with Index.open(path, read_only=True) as reader, Index.open(path) as writer:
            writer.add([[10, 0]], [10])
            assert reader.search([10, 0], k=1).ids.tolist() == [10]
            try:
                reader.add([[1, 1]])
                raise AssertionError("written")
            except ReadOnlyError:
                pass
        """,
        path=path,
    )
    holds(path, range(11))


# -- a full disk --------------------------------------------------------------------------------------------
FULL = """
def full(change):
    # `change` until there is no room: a typed error, and the index is as before.
    for number in range(10000):
        before = index.ids()
        try:
            change(number)
        except DiskFullError as error:
            assert isinstance(error, OSError) and error.errno, error
            assert (index.ids() == before).all(), "half of a change"
            assert index.check() == []
            assert index.search([3, 0], k=1).ids.tolist() == [3]
            return number
    raise AssertionError("the disk is never full")

def add(number):
    index.add(rng.standard_normal((400, 2)) + 100, upsert=False)

def batch(number):
    with index.batch() as batch:
        for _ in range(5):
            batch.add(rng.standard_normal((200, 2)) + 100)
        batch.delete([number])
"""


@needs_linux
@pytest.mark.parametrize("change", ["add", "batch"])
def test_a_full_disk_by_a_limit_of_file_size(child: Callable[[], Child], path: Path, change: str) -> None:
    ids = child().run(
        FULL
        + f"""
index = Index.open(path)
index.delete([0])  # batches delete from here on
for more in (40_000, 100_000, 300_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + more, resource.RLIM_INFINITY))
    full({change} if {change == "add"} else (lambda number: batch(1000 + number)))
    # Neither does a copy find room, and it harms nothing.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    before = index.ids()
    for use in (index.compact, lambda: index.save(path + ".copy"), lambda: Index.create(path + ".new", 2)):
        try:
            use()
            raise AssertionError("written")
        except DiskFullError:
            pass
    assert sorted(os.listdir(os.path.dirname(path))) == ["index.lsq", "index.lsq-lock"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (index.ids() == before).all()
    index.add([[5, 5]])
    assert index.check() == []
result = index.ids().tolist()
""",
        path=path,
    )
    holds(path, ids)


@needs_linux
def test_a_full_disk_in_a_large_add_and_a_training(child: Callable[[], Child], tmp_path: Path) -> None:
    child().run(
        """
        lsqindex._write.add.COMMIT_BYTES = lsqindex._storage.rewrite.COMMIT_BYTES = 50_000
        index = Index.create(path, 64, encoder="lsh", bits=64, keep_vectors="float32", train_size=1 << 40)
        vectors = rng.standard_normal((30000, 64)).astype(np.float32)
        index.add(vectors[:6000])
        uses = [lambda: index.add(vectors[6000:]), lambda: index.reencode("lsh", bits=2000), lambda: index.compact()]
        for use in uses:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 400_000, resource.RLIM_INFINITY))
            if use is uses[2]:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            try:
                use()
                raise AssertionError("there was room")
            except DiskFullError:
                pass
            assert index.check() == [] and len(index) == 6000 and (index.get(np.arange(6000)) == vectors[:6000]).all()
            assert index.search(vectors[77], k=1, rerank=6000).ids.tolist() == [77]
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for use in uses:
            use()
            assert index.check() == []
        assert len(index) == 30000 and (index.get(np.arange(30000)) == vectors).all()
        """,
        path=tmp_path / "index.lsq",
    )


@needs_linux
def test_a_full_disk_while_rows_are_listed(child: Callable[[], Child], tmp_path: Path) -> None:
    """An add is done, for its lists may come later; what was asked to list says that it could not."""
    child().run(
        LISTED
        + """
from lsqindex._subsets import stored as subsets
from lsqindex import MultiIndex
from lsqindex._subsets.multi_index import structure
structure.COMMIT_BYTES = 1
index = Index.create(path, 4, encoder="lsh", bits=16, subset=MultiIndex(bits=4), keep_vectors=None)
index.train(vectors(50, 0))
index.set_subset(None)
index.add(vectors(85_000, 1))
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 600_000, resource.RLIM_INFINITY))
try:
    index.set_subset(MultiIndex(bits=4))
    raise AssertionError("there was room")
except DiskFullError:
    pass
assert index.check() == [] and index.subset == MultiIndex(bits=4)
assert agree() == [85_000, 65_024, 19_976], agree()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
index.merge()
assert index.check() == [] and agree() == [85_000, 85_000, 0]
""",
        path=tmp_path / "index.lsq",
    )


@needs_linux
def test_a_full_disk_while_cells_are_split_and_dissolved(child: Callable[[], Child], tmp_path: Path) -> None:
    """An add that finds no room for the cells it would change adds nothing; with room it goes on as if nothing was."""
    counts = child().run(
        """
        import pytest
        from tests.crash.acknowledged import small_lumps
        from tests.subsets.cells.counted import count_upkeep
        small_lumps(60)
        counts = count_upkeep(pytest.MonkeyPatch())
        index = Index.create(path, 8, encoder="lsh", bits=64, subset="cells", keep_vectors="float32", train_size=100)
        index.add(rng.standard_normal((1000, 8)))
        index.merge()

        def agree():
            queries = rng.standard_normal((3, 8))
            for options in ({"rerank": 0}, {"rerank": len(index)}):
                near = index.search(queries, 20, probes=1 << 16, **options)
                scanned = index.search(queries, 20, strategy="scan", **options)
                assert (near.ids == scanned.ids).all() and (near.distances == scanned.distances).all()

        refused = 0
        for number in range(50):
            # Vectors near each other, then none of the older ones: cells grow, and become empty.
            vectors, gone = rng.standard_normal((70, 8)) / 10 + number % 7, index.ids()[:60]
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path), resource.RLIM_INFINITY))
            for use in (lambda: index.add(vectors), lambda: index.delete(gone)):
                before = index.ids()
                try:
                    use()
                except DiskFullError:
                    refused += 1
                    assert (index.ids() == before).all() and index.check() == []
                    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                    use()
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if number % 10 == 0:
                agree()
                assert index.check() == []
        assert refused > 5, refused
        result = dict(counts)
        """,
        path=tmp_path / "index.lsq",
    )
    assert all(counts.get(kind) for kind in KINDS), counts


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    mount, directory = shutil.which("mount"), tmp_path / "disk"
    directory.mkdir()
    if mount is None or not sys.platform.startswith("linux"):
        pytest.skip("no tmpfs can be mounted here")
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_full_small_disk(small_disk: Path, child: Callable[[], Child]) -> None:
    one = child()
    one.run(
        FULL
        + """
index = Index.create(path, 2, train_size=1 << 40)
index.add(np.stack([np.arange(10), np.zeros(10)], axis=1))
with open(ballast, "wb") as file:
    file.write(bytes(300_000))
number = full(add)
before = index.ids()
for use in (index.compact, lambda: index.save(path + ".copy"), lambda: full(lambda number: batch(10**6))):
    try:
        use()
    except DiskFullError:
        pass
    assert index.check() == [] and (index.ids() == before[: len(index)]).all()
os.unlink(ballast)
for _ in range(3):
    index.add(rng.standard_normal((400, 2)) + 100)
assert index.check() == []
index.delete(np.arange(10, 10**6))
index.compact()
assert index.check() == [] and index.ids().tolist() == list(range(10))
index.close()
""",
        path=small_disk / "index.lsq",
        ballast=small_disk / "ballast",
    )
    holds(small_disk / "index.lsq", range(10))


def test_what_is_possible_on_a_full_disk(small_disk: Path, child: Callable[[], Child]) -> None:
    """As docs/howto/recover.md says: everything can be read; a few hundred kilobytes are enough to go on deleting."""
    child().run(
        """
        index = Index.create(path, 2, train_size=1 << 40)
        index.add(np.stack([np.arange(9000), np.zeros(9000)], axis=1))
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

        def refused(use):
            try:
                use()
                raise AssertionError("there was room")
            except DiskFullError:
                assert len(index) == 9000

        refused(lambda: index.delete([1]))  # no page of the file is free yet
        refused(lambda: index.add([[1, 1]]))
        refused(index.compact)
        assert index.search([3, 0], k=1).ids.tolist() == [3] and index.get([7]).tolist() == [[7, 0]]
        index.save(elsewhere)
        with Index.open(elsewhere, read_only=True) as copy:
            assert len(copy) == 9000 and copy.check() == []
        os.truncate(ballast, os.path.getsize(ballast) - 256 * 1024)
        for number in range(100):
            assert index.delete([number]) == 1
        assert index.delete(np.arange(100, 8000)) == 7900
        index.add([[1, 1]])  # into pages that deleting has freed
        assert len(index) == 1001 and index.check() == []
        """,
        path=small_disk / "index.lsq",
        ballast=small_disk / "ballast",
        elsewhere=small_disk.parent / "elsewhere.lsq",
    )
