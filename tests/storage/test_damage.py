"""Flipped bits and cut files: a typed error or the right answer; never a crash, never a wrong answer in silence."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lsqindex import Index
from lsqindex._storage.format import keys, records
from lsqindex.errors import DamagedError
from tests.damage.files import VARIANTS, vectors
from tests.damage.forging import entries
from tests.damage.outcomes import outcomes, wrong
from tests.damage.places import PAGE, Places, flip_on_disk, payload_of
from tests.damage.trial import answers, delete_one
from tests.settings import LONG

# -- (a) a flipped bit ----------------------------------------------------------------------------

#: How many bits are flipped of headers (all, in the long form), the other skeleton, records, and what is unused.
FLIPS = {"headers": 16, "skeleton": 12, "records": 16, "unused": 6}


def flipped(places: Places, kind: str, seed: int) -> list[int]:
    ranges = places.unused() if kind == "unused" else getattr(places, kind)
    count = FLIPS[kind]
    if LONG:
        count = 1 << 60 if kind == "headers" else 125 * count
    return places.bits(ranges, count, random.Random(seed))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_flipped_bit_is_noticed_or_does_no_harm(variant: str, sound: Callable[[str], Path]) -> None:
    path = sound(variant)
    places = Places(path.read_bytes())
    bits = [(kind, bit) for kind in FLIPS for bit in flipped(places, kind, len(variant))]
    changes = [{"flip": [bit]} for _, bit in bits]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    noticed: dict[str, list[bool]] = {kind: [] for kind in FLIPS}
    for (kind, _), what in zip(bits, found, strict=True):
        noticed[kind].append(what != "right")
    assert any(noticed["headers"]) and any(noticed["skeleton"])
    assert all(noticed["records"]), "every bit of a record is under its checksum"
    assert not any(noticed["unused"]), "nobody reads what is not used"


def test_flipped_bits_of_posting_lists_and_tables_are_noticed(sound: Callable[[str], Path]) -> None:
    path = sound("few lists")
    data = path.read_bytes()
    own = [value for (db, key), value in entries(path).items() if db == keys.POSTINGS or key == keys.SUBSET]
    places = [place for place in Places(data).records if data[place[0] : place[1]] in own]
    assert len(places) == len(own) == 3
    rng = random.Random(5)
    bits = [rng.randrange(8 * begin, 8 * end) for begin, end in places for _ in range(400 if LONG else 8)]
    changes = [{"flip": [bit]} for bit in bits]
    found = outcomes(path, changes)
    assert not wrong(changes, found) and "right" not in found


@pytest.mark.parametrize("letter", ["c", "k", "t", "z"])
def test_flipped_bits_of_cells_are_noticed(letter: str, sound: Callable[[str], Path]) -> None:
    path = sound("cells")
    data = path.read_bytes()
    own = [value for (db, key), value in entries(path).items() if db == keys.CELLS and key[:1] == letter.encode()]
    places = [place for place in Places(data).records if data[place[0] : place[1]] in own]
    assert len(places) == len(own) == (1 if letter == "z" else 9)
    rng = random.Random(6)
    bits = [rng.randrange(8 * begin, 8 * end) for begin, end in places for _ in range(400 if LONG else 2)]
    changes = [{"flip": [bit]} for bit in bits]
    found = outcomes(path, changes)
    assert not wrong(changes, found) and "right" not in found


@pytest.mark.parametrize("variant", ["untrained", "trained"])
def test_bits_of_the_meta_pages_are_noticed_or_do_no_harm(variant: str, sound: Callable[[str], Path]) -> None:
    """The number of the last transaction above all: one bit less, and an older state would be the last one."""
    path = sound(variant)
    bits = [8 * PAGE * page + bit for page in (0, 1) for bit in range(8 * 152)]
    low = [8 * PAGE * page + 8 * at + bit for page in (0, 1) for at in (136, 144) for bit in range(12)]
    changes = [{"flip": [bit]} for bit in (bits if LONG else [*bits[::61], *low])]
    assert not wrong(changes, outcomes(path, changes))


@pytest.mark.parametrize("variant", ["untrained", "freed"])
def test_a_large_value_whose_pages_are_miscounted_is_not_freed(variant: str, sound: Callable[[str], Path]) -> None:
    """LMDB frees as many pages as the first one's header says: those of others, if it lies."""
    path = sound(variant)
    data = path.read_bytes()
    large = [begin for begin, _ in Places(data).headers if data[begin + 10] == 4]
    bits = [8 * (at + 10) + bit for at in large[-3:] for bit in (*range(16), *range(16, 48, 1 if LONG else 5), 17, 18)]
    changes = [{"flip": [bit]} for bit in bits]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert "right" not in found


@pytest.mark.parametrize("bit", [0, 2, 5])
def test_a_change_that_would_free_the_pages_of_others_is_refused(
    bit: int, sound: Callable[[str], Path], tmp_path: Path
) -> None:
    """The bits of deleted rows are a large value; what the delete would have replaced is as it was."""
    path = tmp_path / "index.lsq"
    shutil.copyfile(sound("untrained"), path)
    with Index.open(path) as index:
        before = answers(index, 10)
    flip_on_disk(path, payload_of(path, keys.CODES, b"d\0\0\0\0") - records.HEADER_SIZE - 4, 1 << bit)
    with Index.open(path) as index, pytest.raises(DamagedError, match="overflow"):
        delete_one(index)
    with Index.open(path) as index:
        assert answers(index, 10) == before
        assert index.check() != []


@pytest.mark.parametrize("transactions", [0, 1, 2, 3])
def test_a_transaction_number_with_a_flipped_bit_is_noticed(transactions: int, tmp_path: Path) -> None:
    """Whatever the number's lowest bits are."""
    path = tmp_path / "index.lsq"
    with Index.create(path, dim=2, keep_vectors=None) as index:
        for i in range(3 + transactions):
            index.add(vectors(1, 2, i))
    changes = [{"flip": [8 * (PAGE * page + 144) + bit]} for page in (0, 1) for bit in range(5)]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert "right" not in found


@pytest.mark.parametrize("variant", ["trained", "chunks"])
def test_several_flipped_bits_are_noticed_or_do_no_harm(variant: str, sound: Callable[[str], Path]) -> None:
    path = sound(variant)
    places, rng = Places(path.read_bytes()), random.Random(7)
    used = [*places.skeleton, *places.records]
    changes = [{"flip": places.bits(used, rng.randrange(2, 6), rng)} for _ in range(2_000 if LONG else 30)]
    found = outcomes(path, changes)
    assert not wrong(changes, found)


# -- (b) cut, or with something behind -----------------------------------------------------------


@pytest.mark.parametrize("variant", ["untrained", "trained", "freed"])
def test_a_truncated_file_is_noticed_or_whole(variant: str, sound: Callable[[str], Path]) -> None:
    """Whole: only pages that nobody uses were cut off."""
    path = sound(variant)
    size, rng = path.stat().st_size, random.Random(3)
    sizes = [*range(0, size, PAGE), *(rng.randrange(size) for _ in range(300 if LONG else 10)), 1, 16, 151, 152, 153]
    if not LONG:
        sizes = sizes[:: max(1, len(sizes) // 60)]
    changes = [{"size": size} for size in sizes]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert all(what != "right" for change, what in zip(changes, found, strict=True) if change["size"] < 5 * PAGE)


@pytest.mark.parametrize("behind", ["00", "ff" * 100, "5a" * PAGE, "00" * (40 * PAGE)])
def test_what_lies_behind_the_end_does_no_harm(behind: str, sound: Callable[[str], Path]) -> None:
    changes = [{"behind": behind}]
    assert outcomes(sound("trained"), changes) == ["right"]


def test_a_cut_and_mended_file_is_noticed(sound: Callable[[str], Path]) -> None:
    """Its length is right, and zeros or noise are where its end was."""
    path = sound("trained")
    data = path.read_bytes()
    last = max(end for _, end in Places(data).records)
    sizes = range(2 * PAGE, last, max(PAGE, last // 20 // PAGE * PAGE))
    changes = [{"size": size, "behind": behind * (len(data) - size)} for size in sizes for behind in ("00", "a7")]
    found = outcomes(path, changes)
    assert not wrong(changes, found)
    assert "right" not in found[1::2]  # zeros may be what was there
