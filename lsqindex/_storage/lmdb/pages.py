"""LMDB's own part of the file: its meta pages, its size, its trees. Looked at before LMDB does.

LMDB trusts its file: a truncated file ends in SIGBUS, a flipped bit in a tree in a crash or a wrong answer. So the
meta pages are read first, with plain reads. Once a read transaction holds a snapshot, its trees are walked
(``cython_src/pages.h``) before LMDB looks anything up in them.

    page 0, 1: header:16  magic:4 version:4 address:8 mapsize:8 free tree:48 main tree:48 last page:8 txn:8

The two meta pages take turns: transaction t writes page t % 2.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass

from ..._compiled.records import check_pages, last_freed
from ...errors import DamagedError, NotAnIndexError
from ..format.records import REMEDY
from .errors import system_errors

_MAGIC = 0xBEEFC0DE
_META = struct.Struct("<IIQQIH90xQQ")  # 136 bytes: LSQ_META_SIZE of pages.h
#: P_META; and what LMDB keeps of an environment: MDB_NOSUBDIR, and the free tree's MDB_INTEGERKEY.
_META_PAGE, _FLAGS = 8, 0x4008
_AT = 16
_TXN_AT = _AT + 128
_TRIES = 20
#: Seconds before a finding is looked at again: a meta page takes far less to be written.
_PAUSE = 0.005


@dataclass(frozen=True)
class Meta:
    """One of the two meta pages, and a copy of its bytes behind the page header."""

    page_size: int
    last_page: int
    txn: int
    copy: bytes


def read_metas(fd: int, path: str) -> tuple[Meta, Meta]:
    """Both meta pages of a sound file; NotAnIndexError or DamagedError for any other."""
    problem = ""
    # Another process may commit between two reads: what looks odd is looked at again.
    for _ in range(_TRIES):
        with system_errors(path):
            first = _read(fd, 0)
            page_size = first.page_size if first else 4096
            second = _read(fd, page_size if 512 <= page_size <= 65536 else 4096)
        if first is None and second is None:
            raise NotAnIndexError(f"{path}: not an index: it is not an LMDB file; pass the path of an index")
        if first is None or second is None or first.page_size != second.page_size:
            problem = "a meta page is damaged"
        elif page_size & (page_size - 1) or not 512 <= page_size <= 65536:
            problem = "an impossible page size"
        elif abs(first.txn - second.txn) != 1:
            problem = f"the meta pages are of transactions {first.txn} and {second.txn}, which do not follow each other"
        elif os.fstat(fd).st_size < 2 * page_size:
            problem = "the file is truncated"
        else:
            return first, second
    raise DamagedError(f"{path}: {problem}; {REMEDY}")


def newest_txn(fd: int, path: str) -> int:
    """The number of the last transaction that the file has."""
    first, second = read_metas(fd, path)
    return max(first.txn, second.txn)


def check_snapshot(fd: int, path: str, txn: int, *, deep: bool = False) -> bool:
    """Walk the trees of the snapshot that the read transaction ``txn`` holds, or of a later one; DamagedError if bad.

    False if the file has no such snapshot: it is not the file that LMDB's lock file belongs to.

    Other processes may commit all the time. The walk starts from a copy of the meta page, and the caller's transaction
    protects every page that the copy leads to. Only the copy itself can be half old and half new. So a finding counts
    when the meta pages are still the same after a pause; otherwise the walk is repeated with a new copy.
    """
    problem = ""
    for _ in range(_TRIES):
        metas = read_metas(fd, path)
        if max(metas[0].txn, metas[1].txn) < txn:
            return False
        with system_errors(path):
            problem = _problem(fd, metas, txn % 2, deep)
        if not problem:
            return True
        time.sleep(_PAUSE)
        if read_metas(fd, path) == metas:
            break
    raise DamagedError(f"{path}: {problem}; {REMEDY}")


def _problem(fd: int, metas: tuple[Meta, Meta], page: int, deep: bool) -> str:
    """What is wrong with the snapshot of one of the meta pages, or nothing."""
    meta, other = metas[page], metas[1 - page]
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as file:
        wrong = check_pages(file, meta.page_size, meta.copy, deep)
        freed = last_freed(file, meta.page_size, other.copy)
    if wrong is not None:
        return f"page {wrong[1]}: {wrong[0]}"
    # Every transaction frees pages, under its own number: so the other page cannot be the newer one in truth, with a
    # number that has changed.
    if freed > other.txn:
        return f"a meta page of transaction {freed} says that it is of {other.txn}"
    return ""


def set_txn(path: str, txn: int) -> None:
    """Give a closed, settled file the transaction number ``txn``, of the same parity as its own.

    A file that takes another's place (env.replace) shares its lock file, where LMDB keeps the number of the
    last transaction: the newcomer must go on counting from there.
    """
    with open(path, "r+b") as file:
        metas = read_metas(file.fileno(), path)
        newest = max((0, 1), key=lambda page: metas[page].txn)
        assert newest == txn % 2 and metas[newest].txn <= txn
        for page, number in ((newest, txn), (1 - newest, txn - 1)):
            file.seek(page * metas[0].page_size + _TXN_AT)
            file.write(struct.pack("<Q", number))
        file.flush()
        os.fsync(file.fileno())


if hasattr(os, "pread"):
    _pread = os.pread
else:  # Windows

    def _pread(fd: int, size: int, at: int) -> bytes:
        if not os.fstat(fd).st_size:  # an empty file cannot be mapped
            return b""
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as file:
            return file[at : at + size]


def _read(fd: int, at: int) -> Meta | None:
    data = _pread(fd, _AT + _META.size, at)
    if len(data) < _AT + _META.size:
        return None
    magic, version, _, _, page_size, flags, last_page, txn = _META.unpack_from(data, _AT)
    kind = struct.unpack_from("<H", data, 10)[0]
    sound = magic == _MAGIC and version == 1 and kind == _META_PAGE and flags == _FLAGS
    return Meta(page_size, last_page, txn, data[_AT:]) if sound else None
