"""Checksums are verified at first touch, once, and by check()."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format import keys
from lsqindex.errors import DamagedError, ParameterError
from tests.damage.files import vectors
from tests.damage.forged_columns import forged_parts
from tests.damage.forged_lists import forged_blocks, forged_listed, forged_postings, forged_subset
from tests.damage.forging import Entries, Forgery, entries, forge
from tests.damage.places import flip_on_disk, payload_of


@pytest.mark.parametrize("forgery", range(3))
def test_a_part_of_fewer_rows_than_its_size_tells_is_noticed_at_first_touch(
    forgery: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """Before check(): nothing may be read beyond a record."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("chunks"), path)
    forge(path, list(forged_parts(entries(path)))[forgery][1])
    with Index.open(path) as index, pytest.raises(DamagedError):
        index.search(vectors(1, 4), k=len(index))


COLUMNS = [
    ("codes", keys.CODES, b"c\0\0\0\1\0\0\0\0"),
    ("ids", keys.IDS, b"i\0\0\0\0"),
    ("vectors", keys.VECTORS, b"v\0\0\0\0"),
    ("payloads", keys.PAYLOADS, b"y\0\0\0\0"),
    ("field 0", keys.PAYLOADS, b"f\0\0\0\0\0\0"),
]


def ask_all(index: Index) -> None:
    """Everything is touched."""
    index.search(vectors(1, 8), k=len(index), rerank=len(index), with_payloads=True)
    index.ids({"lang": "en"})


@pytest.mark.parametrize(("name", "db", "key"), COLUMNS)
def test_the_first_touch_of_a_record_notices_damage(
    name: str, db: bytes, key: bytes, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("payloads" if db == keys.PAYLOADS else "trained"), path)
    at = payload_of(path, db, key)
    with Index.open(path) as index:
        flip_on_disk(path, at)
        with pytest.raises(DamagedError, match=rf"{name}.*checksum"):
            ask_all(index)
        assert any("checksum" in problem for problem in index.check())
        with pytest.raises(DamagedError):
            ask_all(index)


@pytest.mark.parametrize(("name", "db", "key"), COLUMNS)
def test_check_notices_damage_that_came_after_the_first_touch(
    name: str, db: bytes, key: bytes, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("payloads" if db == keys.PAYLOADS else "trained"), path)
    at = payload_of(path, db, key)
    with Index.open(path) as index:
        ask_all(index)
        assert index.check() == []
        ask_all(index)
        flip_on_disk(path, at)
        assert any(name in problem and "checksum" in problem for problem in index.check())
        flip_on_disk(path, at)  # as it was
        assert index.check() == []


def test_a_verified_record_is_not_verified_again(sound: Callable[[str], Path], tmp_path: Path) -> None:
    """What was verified is not paid for by every search: damage that comes later is for check() to find."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("chunks"), path)
    at = payload_of(path, keys.CODES, min(key for db, key in entries(path) if db == keys.CODES and key[:1] == b"c"))
    with Index.open(path) as index:
        index.search(vectors(1, 4), k=5)
        flip_on_disk(path, at)
        index.search(vectors(1, 4), k=5)
        assert any("checksum" in problem for problem in index.check())
        with pytest.raises(DamagedError, match="checksum"):  # check() looks at all anew, and so do those after it
            index.search(vectors(1, 4), k=5)


LISTS = [(0, 0), (0, 1), (16_256, 0), (16_256, 1)]


@pytest.mark.parametrize(("first", "table"), LISTS)
def test_the_first_touch_of_posting_lists_notices_damage(
    first: int, table: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("lists"), path)
    at = payload_of(path, keys.POSTINGS, keys.postings(1, first, table))
    with Index.open(path) as index:
        before = index.search(vectors(2, 4), strategy="scan")
        flip_on_disk(path, at)
        told = rf"posting lists of table {table} from row {first} .*checksum"
        for how in ({"strategy": "subset"}, {"distance": "score"}, {"probes": 1}):
            with pytest.raises(DamagedError, match=told):
                index.search(vectors(2, 4), **how)
        # Codes are as they were, and the index can be read by them.
        again = index.search(vectors(2, 4), strategy="scan")
        assert np.array_equal(again.ids, before.ids)
        assert any("posting lists" in problem and "checksum" in problem for problem in index.check())
        flip_on_disk(path, at)
        index.search(vectors(2, 4), strategy="subset")
        flip_on_disk(path, at)
        assert any("posting lists" in problem and "checksum" in problem for problem in index.check())


FORGED_LISTS: dict[str, Callable[[Entries], Iterator[tuple[str, Forgery]]]] = {
    "postings": forged_postings,
    "blocks": forged_blocks,
    "subset": forged_subset,
    "listed": forged_listed,
}
#: What only check() can tell, for it alone makes lists again from the codes; or what no search looks at.
NOT_AT_FIRST_TOUCH = (
    "another bucket",
    "two rows in each other's buckets",
    "two tables swapped",
    "lower bits zero",
    "an older generation",
    "a key before all",
    "listed: format 1, with lists",
    "a key too short",
    "there are no tables",
    "{'kind': Ellipsis}",  # as older files have it: a multi-index
)


@pytest.mark.parametrize("forger", FORGED_LISTS)
def test_impossible_lists_are_noticed_by_a_search(forger: str, sound: Callable[[str], Path], tmp_path: Path) -> None:
    """Before check(): nothing may be read beyond a list, and no row be missed."""
    path = tmp_path / "index.lsq"
    there, silent = entries(sound("few lists")), []
    for name, forgery in FORGED_LISTS[forger](there):
        shutil.copyfile(sound("few lists"), path)
        forge(path, forgery)
        try:
            with Index.open(path, read_only=True) as index:
                index.search(vectors(2, 6), strategy="subset")
            silent.append(name)
        except DamagedError:
            continue
        except ParameterError:  # there is no structure any more
            silent.append(name)
    assert [name for name in silent if not name.endswith(NOT_AT_FIRST_TOUCH)] == []


def test_opening_touches_no_rows(sound: Callable[[str], Path], tmp_path: Path) -> None:
    """Damage in codes is not noticed by opening, counting or describing: nothing that grows is read."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("chunks"), path)
    first = min(key for db, key in entries(path) if db == keys.CODES and key[:1] == b"c")
    flip_on_disk(path, payload_of(path, keys.CODES, first))
    with Index.open(path) as index:
        assert len(index) == 7_400
        assert index.stats()["vectors"] == 7_400
        with pytest.raises(DamagedError, match="codes"):
            index.search(vectors(1, 4))
