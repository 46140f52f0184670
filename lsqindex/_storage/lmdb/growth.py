"""How large the file and its map are, and how they grow.

The map is the address space that LMDB sees the file through. Nobody may be inside the gate while it moves.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .env import Env
from .opening import OpenFile

if TYPE_CHECKING:
    from .reader import Reader
    from .writer import Writer


def lacks(file: OpenFile, room: int) -> int:
    """How large the map must be for ``room`` more bytes; 0 if it is."""
    info = file.lmdb.info()
    used = (info["last_pgno"] + 1) * file.page_size
    return -(-(used + 2 * room) // file.page_size) * file.page_size if used + room > info["map_size"] else 0


def grow(env: Env, least: int = 0) -> None:
    """Double the map, or more."""
    with env.gate.alone():
        env.moved += 1
        if env.file is not None:
            env.file.lmdb.set_mapsize(max(2 * env.file.lmdb.info()["map_size"], least))


def follow(env: Env) -> None:
    """Take over the map size that another process chose."""
    with env.gate.alone():
        env.moved += 1
        if env.file is not None:
            env.file.lmdb.set_mapsize(0)


def file_size(source: Reader | Writer) -> int:
    """Bytes of the file."""
    return os.fstat(source.file.descriptor.fd).st_size


def free_bytes(source: Reader | Writer) -> int:
    """Bytes of the file that hold nothing now and are used next."""
    environment = source.file.lmdb
    trees = [source.txn.stat(db) for db in source.dbs.values()] + [environment.stat()]
    used = sum(tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"] for tree in trees)
    return int(max(0, environment.info()["last_pgno"] - 1 - used) * trees[0]["psize"])


def database_bytes(source: Reader | Writer, name: bytes) -> int:
    """Bytes of the file that a database takes."""
    if name not in source.dbs:
        return 0
    tree = source.txn.stat(source.dbs[name])
    return int((tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"]) * tree["psize"])
