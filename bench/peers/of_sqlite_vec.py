"""sqlite-vec: vectors in a virtual table of SQLite, all of them compared; as they are, or as bits and then again."""

from __future__ import annotations

import ctypes
import ctypes.util
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import sqlite_vec

from .adapter import Ids, Peer, Vectors, padded

_FILE = "index.sqlite"


class SqliteVec(Peer):
    """Rows in a file of SQLite, in WAL mode, every commit synchronous.

    L2; on unit vectors its order is that of cosine. With ``bits`` a sign for each number is compared first, and of so
    many of the best the vectors themselves, as its guide has it.
    """

    package = "sqlite-vec"
    beside = "process"
    durable = True

    def __init__(self, metric: str, dim: int, bits: bool = False) -> None:
        super().__init__(metric, dim)
        self._bits = bits
        self._connection: sqlite3.Connection

    def build(self, folder: Path, vectors: Vectors, learn: Vectors) -> None:
        self.open(folder, change=True)
        signs = f", signs bit[{-(-self.dim // 8) * 8}]" if self._bits else ""
        self._connection.execute(f"create virtual table vectors using vec0(vector float[{self.dim}]{signs})")
        self.add(np.arange(len(vectors)), vectors)
        self.close()

    def open(self, folder: Path, change: bool = False) -> None:
        self._connection = _connect(folder / _FILE)
        if change:
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = full")

    def search(self, queries: Vectors, k: int, **setting: Any) -> Ids:
        ask = self._connection.execute
        found = []
        for query in queries:
            wanted = query.tobytes()
            if self._bits:
                rows = ask(_TWICE, (_signs(query), setting.get("candidates", 8 * k), wanted, k))
            else:
                rows = ask(_ONCE, (wanted, k))
            found.append([row[0] for row in rows])
        return padded(found, k)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        columns, places = (
            ("(rowid, vector, signs)", "(?, ?, vec_bit(?))") if self._bits else ("(rowid, vector)", "(?, ?)")
        )
        with self._connection:
            self._connection.executemany(
                f"insert into vectors{columns} values {places}",
                (
                    (name, vector.tobytes(), *((_signs(vector),) if self._bits else ()))
                    for name, vector in zip(ids.tolist(), vectors, strict=True)
                ),
            )

    def delete(self, ids: Ids) -> None:
        with self._connection:
            self._connection.executemany("delete from vectors where rowid = ?", ((name,) for name in ids.tolist()))

    def give_back(self, folder: Path) -> str:
        self._connection.execute("vacuum")
        self._connection.execute("pragma wal_checkpoint(truncate)")
        return "VACUUM"

    def close(self) -> None:
        self._connection.close()


_ONCE = "select rowid from vectors where vector match ? and k = ?"
_TWICE = """
    with best as (select rowid, vector from vectors where signs match vec_bit(?) and k = ?)
    select rowid from best order by vec_distance_l2(vector, ?) limit ?
"""


def _signs(vector: Vectors) -> bytes:
    return np.packbits(vector > 0, bitorder="little").tobytes()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    if hasattr(connection, "enable_load_extension"):
        connection.enable_load_extension(True)
        sqlite_vec.load(connection)
        return connection
    # A Python that was built without extensions: SQLite itself loads it into every connection that is opened.
    connection.close()
    library = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
    extension = next(Path(sqlite_vec.loadable_path()).parent.glob(Path(sqlite_vec.loadable_path()).name + ".*"))
    entry = ctypes.cast(ctypes.CDLL(str(extension)).sqlite3_vec_init, ctypes.c_void_p)
    library.sqlite3_auto_extension(entry)
    return sqlite3.connect(path, check_same_thread=False)
