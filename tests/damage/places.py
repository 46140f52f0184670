"""What is where in an LMDB file, read without LMDB: records, the skeleton that holds them, and what is unused."""

from __future__ import annotations

import random
from pathlib import Path

from lsqindex._storage.format import records

from .forging import entries

PAGE = 4096


# -- what is where in a file ----------------------------------------------------------------------


class Places:
    """Every bit of an LMDB file by what it is for: record, skeleton or unused."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.skeleton: list[tuple[int, int]] = []
        self.records: list[tuple[int, int]] = []
        self.headers: list[tuple[int, int]] = []
        newest = max((0, 1), key=lambda page: self._number(page * PAGE + 144))
        for page in (0, 1):
            self._take(self.headers, page * PAGE, 152)
        self._tree(newest * PAGE + 40, free=True)
        self._tree(newest * PAGE + 88)
        self.skeleton += self.headers

    def _number(self, at: int, size: int = 8) -> int:
        return int.from_bytes(self.data[at : at + size], "little")

    def _take(self, kind: list[tuple[int, int]], at: int, size: int) -> None:
        if size:
            kind.append((at, at + size))

    def _tree(self, db: int, *, free: bool = False) -> None:
        if self._number(db + 40) != 2**64 - 1:
            self._page(self._number(db + 40), free)

    def _page(self, page: int, free: bool) -> None:
        at = page * PAGE
        lower, leaf = self._number(at + 12, 2), self._number(at + 10, 2) == 2
        self._take(self.headers, at, 16)
        self._take(self.skeleton, at + 16, lower - 16)
        for pointer in range(at + 16, at + lower, 2):
            node = at + self._number(pointer, 2)
            low, flags, key = self._number(node, 4), self._number(node + 4, 2), self._number(node + 6, 2)
            self._take(self.skeleton, node, 8 + key)
            value = node + 8 + key
            if not leaf:
                self._page(low | flags << 32, free)
            elif flags & 2:
                self._take(self.skeleton, value, 48)
                self._tree(value)
            elif flags & 1:
                self._take(self.skeleton, value, 8)
                first = self._number(value) * PAGE
                self._take(self.headers, first, 16)
                self._take(self.skeleton if free else self.records, first + 16, low)
            else:
                self._take(self.skeleton if free else self.records, value, low)

    def unused(self) -> list[tuple[int, int]]:
        """What nothing above is: free pages, gaps, what lies behind a value's end."""
        found, at = [], 0
        for begin, end in sorted([*self.skeleton, *self.records]):
            if begin > at:
                found.append((at, begin))
            at = max(at, end)
        return [*found, (at, len(self.data))] if at < len(self.data) else found

    def bits(self, ranges: list[tuple[int, int]], count: int, rng: random.Random) -> list[int]:
        """So many bits of these ranges at random, or all."""
        sizes = [8 * (end - begin) for begin, end in ranges]
        if count >= sum(sizes):
            return [bit for begin, end in ranges for bit in range(8 * begin, 8 * end)]
        # Each range equally often: a small record counts as much as a large one.
        chosen = rng.choices(ranges, k=count)
        return [rng.randrange(8 * begin, 8 * end) for begin, end in chosen]


# -- (e) checksums are verified at first touch, once, and by check() -------------------------------


def flip_on_disk(path: Path, at: int, bits: int = 1) -> None:
    """Damage a file, which may be open."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bits]))


def payload_of(path: Path, db: bytes, key: bytes) -> int:
    """Where in the file, which is not open, the payload of a record begins."""
    value, data = entries(path)[db, key], path.read_bytes()
    places = [begin for begin, _ in Places(data).records if data[begin : begin + len(value)] == value]
    assert len(places) == 1
    return places[0] + records.HEADER_SIZE
