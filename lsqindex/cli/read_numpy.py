"""NumPy's files: .npy as a memory map (from stdin as a stream), .npz as a stream out of the archive."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from .source import Block, InputError, Source, Wanted, choose, sliced, streamed


def open_npy(name: str, wanted: Wanted, stream: BinaryIO | None) -> Source:
    """An array (n, dim); of shape (dim,) it is one vector."""
    wanted.only(name)
    if stream is not None:
        return _stream(name, stream)
    try:
        array = np.load(name, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{name}: is not a valid .npy file ({error})") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{name}: is an archive of arrays; name it .npz, or say --format npz")
    return sliced(name, array[None] if array.ndim == 1 else array)


def open_npz(name: str, wanted: Wanted, stream: BinaryIO | None) -> Source:
    """An array (n, dim) of the archive: --dataset, or the only one; ids are another array of it."""
    del stream
    wanted.only(name, "dataset", "id_column")
    try:
        archive = zipfile.ZipFile(name)
    except zipfile.BadZipFile as error:
        raise InputError(f"{name}: is not a valid .npz file ({error})") from error
    try:
        members = [member[:-4] for member in archive.namelist() if member.endswith(".npy")]
        fitting = [member for member in members if _fits(archive, member)]
        chosen = choose(name, "array", wanted.dataset, members, fitting)
        ids = _ids(name, wanted.id_column, members)
        return _stream(f"{name}:{chosen}", archive.open(f"{chosen}.npy"), ids, archive.close)
    except BaseException:
        archive.close()
        raise


def _ids(name: str, wanted: str | None, members: list[str]) -> Any:
    if wanted is None:
        return None
    with np.load(name, allow_pickle=False) as arrays:
        return arrays[choose(name, "array", wanted, members, [])]


def _fits(archive: zipfile.ZipFile, member: str) -> bool:
    with archive.open(f"{member}.npy") as stream:
        shape, _, dtype = _header(f"{archive.filename}:{member}", stream)
    return len(shape) == 2 and dtype.kind in "fiub"


def _header(name: str, stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)
    except (ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: is not an array in NumPy's format ({error})") from error


def _stream(name: str, stream: Any, ids: Any = None, close: Callable[[], None] = lambda: None) -> Source:
    """An array whose numbers come one after the other."""
    shape, by_columns, dtype = _header(name, stream)
    if len(shape) != 2 or dtype.kind not in "fiub":
        raise InputError(f"{name}: numbers of shape (n, dim) are needed, got {dtype}{shape}")
    if by_columns:
        raise InputError(f"{name}: is stored by columns and cannot be read in blocks; save np.ascontiguousarray of it")
    count, dim = shape
    if ids is not None and len(ids) != count:
        raise InputError(f"{name}: {count:,} vectors but {len(ids):,} ids; give one id for each vector")
    plain = streamed(name, stream, dim, dtype, count)

    def blocks(size: int) -> Iterator[Block]:
        first = 0
        try:
            for block in plain(size):
                end = first + len(block.vectors)
                yield block if ids is None else block._replace(ids=ids[first:end])
                first = end
        except zipfile.BadZipFile as error:
            raise InputError(f"{name}: is damaged after row {first:,} ({error})") from error

    return Source(name, dim, count, blocks, close=close)
