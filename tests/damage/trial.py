"""The child: damaged copies of a file, put through everything that an index does.

Files are opened in a process of their own, for a crash would take the tests with it. ``python -m tests.damage.trial``
takes a list of changes to a file, makes each on a fresh copy, uses the copy, and prints what happened, a line each.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lsqindex import Index, LsqIndexError, MultiIndex
from tests.settings import LONG

from .files import payload, vectors
from .forging import forge


def answers(index: Index, dim: int) -> dict[str, Any]:
    """What an index says, in every way it can be asked."""
    ids = index.ids()
    queries = vectors(3, dim, 99)
    said: dict[str, Any] = {"ids": list(ids), "len": len(index), "in": [name in index for name in list(ids)[:5]]}
    said["get"] = index.get(ids).tobytes() if len(ids) else b""
    said["payloads"] = index.payloads(ids)
    for filter in ({"lang": "vi"}, {"tags": {"$in": ["t1", "t2"]}, "n": {"$gte": 30}}, {"lang": {"$exists": False}}):
        said[str(filter)] = list(index.ids(filter))
    requests: dict[str, dict[str, Any]] = {
        "all": {"k": len(ids) + 2},
        "near": {"k": 3},
        "rerank": {"k": 4, "rerank": 20},
        "filter": {"k": 5, "filter": list(ids)[::3]},
    }
    if isinstance(index.subset, MultiIndex):
        requests["subset"] = {"k": 5, "strategy": "subset", "candidates": 50}
        requests["all subset"] = {"k": len(ids) + 2, "strategy": "subset"}
        requests["score"] = {"k": 7, "distance": "score"}
        requests["subset of some"] = {"k": 3, "probes": 9, "filter": list(ids)[::2]}
    for name, options in requests.items():
        found = index.search(queries, **options)
        said[name] = (found.ids.tolist(), found.distances.tobytes())
    stats = index.stats()
    # How far codes are rewritten is no answer: where damage stops that, the old ones stay valid, and check() tells.
    aside = ("path", "file_bytes", "free_bytes", "training")
    said["stats"] = {name: stats[name] for name in stats if name not in aside}
    return said


def add_one(index: Index, dim: int) -> None:
    new: Any = ["zz new"] if index.stats()["ids"] == "str" else [123_456]
    index.add(vectors(1, dim, 77), ids=new, payloads=[payload(77)] if index.stats()["payloads"] else None)


def delete_one(index: Index) -> None:
    index.delete(index.ids()[:1])


class Trial:
    """Changed copies of one sound file, each put through everything."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        self.copy = path.with_name(f"{path.stem}.{os.getpid()}.copy")
        self._write(self.data)
        with Index.open(self.copy) as index:
            self.dim = index.dim
            self.before = answers(index, self.dim)
            add_one(index, self.dim)
            self.between = answers(index, self.dim)
            delete_one(index)
            self.after = answers(index, self.dim)
        self.forget()

    def _write(self, data: bytes) -> None:
        self.forget()
        self.copy.write_bytes(data)

    def forget(self) -> None:
        for name in (self.copy, Path(f"{self.copy}-lock")):
            with contextlib.suppress(FileNotFoundError):
                name.unlink()

    def outcome(self, data: bytes) -> str:
        """ "right", "noticed by …", or "WRONG …" for what must not be."""
        self._write(data)
        noticed: list[str] = []
        try:
            self._read(noticed)
            self._change(noticed)
        except AssertionError as error:
            return f"WRONG {error}"
        except LsqIndexError as error:
            noticed.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            return f"WRONG {type(error).__name__}: {error}"
        finally:
            self.forget()
        return f"noticed by {noticed[0]}" if noticed else "right"

    def _read(self, noticed: list[str]) -> None:
        """Reading alone, and what is found after an error, too."""
        with Index.open(self.copy, read_only=True) as index:
            with self._errors(noticed, "read"):
                assert answers(index, self.dim) == self.before, "answers differ"
            if found := index.check():
                noticed.append(f"check: {found[0]}")

    def _change(self, noticed: list[str]) -> None:
        """Writing, and reading what was written; a change that fails leaves things as they were."""
        there = self.before
        with Index.open(self.copy) as index:
            with self._errors(noticed, "add"):
                add_one(index, self.dim)
                there = self.between
            with self._errors(noticed, "read after the add"):
                assert answers(index, self.dim) == there, "answers after the add differ"
            if there is self.between:
                with self._errors(noticed, "delete"):
                    delete_one(index)
                    there = self.after
        with Index.open(self.copy) as index:
            with self._errors(noticed, "read after the delete"):
                assert answers(index, self.dim) == there, "answers after the delete and reopening differ"
            found = index.check()
            assert noticed or not found, f"the change broke it: {found}"

    @contextlib.contextmanager
    def _errors(self, noticed: list[str], what: str) -> Iterator[None]:
        try:
            yield
        except LsqIndexError as error:
            noticed.append(f"{what}: {type(error).__name__}: {error}")


def child(path: str, changes: str) -> None:
    """Make each change on a copy of the file at ``path`` and print what happened."""
    limit_memory()
    trial = Trial(Path(path))
    for number, change in enumerate(json.loads(Path(changes).read_text())):
        print(f"{number} …", flush=True)
        faulthandler.dump_traceback_later(120, exit=True)  # a hang
        print(f"{number} {trial.outcome(changed(trial.data, change))}".replace("\n", " "), flush=True)
        faulthandler.cancel_dump_traceback_later()


def limit_memory() -> None:
    """Two GiB: a claim of a forged size must not be believed."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))


def changed(data: bytes, change: dict[str, Any]) -> bytes:
    """``data`` with bits flipped, cut to a size, or with something behind its end."""
    new = bytearray(data)
    for bit in change.get("flip", []):
        new[bit // 8] ^= 1 << bit % 8
    return bytes(new[: change.get("size", len(new))]) + bytes.fromhex(change.get("behind", ""))


def refuse(path: str) -> None:
    """In a child: the file must be refused, and soon."""
    faulthandler.dump_traceback_later(30, exit=True)
    try:
        Index.open(path)
    except LsqIndexError:
        return
    raise AssertionError("it was opened")


#: What is tried with a forged file. Where check() has noticed the forgery, the short form tries a fifth, in turn.
USES = ("ask", "get", "add", "delete", "check", "train", "compact", "ask", "check")


def survive(path: str, to_do: str) -> None:
    """In a child: make each forgery on a copy, use it in every way, print whether opening or check() noticed it."""
    limit_memory()
    copy = Path(path).with_suffix(".copy")
    dim = 0
    with Index.open(path, read_only=True) as index:
        dim = index.dim
    for number, forgery in enumerate(json.loads(Path(to_do).read_text())):
        print(f"{number} …", flush=True)
        faulthandler.dump_traceback_later(120, exit=True)
        for name in (copy, Path(f"{copy}-lock")):
            name.unlink(missing_ok=True)
        shutil.copyfile(path, copy)
        forge(
            copy,
            {
                (db.encode(), bytes.fromhex(key)): None if value is None else bytes.fromhex(value)
                for db, key, value in forgery
            },
        )
        print(f"{number} {used(copy, dim, number)}".replace("\n", " "), flush=True)
        faulthandler.cancel_dump_traceback_later()


def use(index: Index, dim: int, what: str) -> list[str]:
    """One thing an index does; what it finds wrong."""
    if what == "check":
        return index.check()
    if what == "ask":
        answers(index, dim)
    elif what == "get":
        index.get(index.ids())
    elif what == "add":
        add_one(index, dim)
    elif what == "delete":
        delete_one(index)
    else:
        getattr(index, what)()
    return []


def used(path: Path, dim: int, number: int) -> str:
    """Everything an index does with a forged file; typed errors are fine, one after another."""
    noticed: list[str] = []

    def attempt(what: str) -> None:
        try:
            with Index.open(path) as index:
                noticed.extend(f"check: {problem}" for problem in use(index, dim, what))
        except LsqIndexError as error:
            noticed.append(f"{type(error).__name__}: {error}"[:200])

    try:
        attempt("check")
        early = bool(noticed)
        if early and not noticed[0].startswith("check"):
            return f"noticed by {noticed[0]}"  # it cannot even be opened
        for what in USES[number % 5 :: 5] if early and not LONG else USES:
            attempt(what)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        at = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
        return f"WRONG {type(error).__name__}: {error} ({at}), after {noticed}"
    return f"noticed {'' if early else 'LATE '}by {noticed[0]}" if noticed else "right"


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"trial": child, "survive": survive, "refuse": refuse}
    programs[sys.argv[1]](*sys.argv[2:])
