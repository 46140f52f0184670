"""One environment per file and process: LMDB does not allow a process to open a file twice."""

from __future__ import annotations

import os
import threading
import weakref

from ..._compiled.gate import Pass
from ...errors import BusyError, IndexMissingError, LinkedError
from .env import Env

#: Environments by the real paths of their files.
by_path: dict[str, Env] = {}
#: Every environment of this process, those without a name included.
alive: weakref.WeakSet[Env] = weakref.WeakSet()
lock = threading.RLock()


class Lease(Pass):
    """One user of an environment, counted until it leaves or is freed."""

    def __init__(self, env: Env) -> None:
        super().__init__(env.users)
        self.env = env
        self.enter()


def open_env(path: str | os.PathLike[str], *, sync: bool = True) -> Lease:
    """A lease of the environment of that file, shared within the process; :func:`close_env` when done."""
    real = os.path.realpath(os.fspath(path))
    while True:
        with lock:
            env = by_path.get(real)
            if env is None:
                _check_other_names(real)
                env = by_path[real] = make_env(real, sync=sync)
                return Lease(env)
            if not env.closed:
                if not os.path.lexists(real):  # it is open, but nobody will ever find it again
                    raise IndexMissingError(f"{path}: the file does not exist; Index.create makes one")
                return Lease(env)
        close_env(env)  # or wait until whoever closes it has done so


def make_env(path: str, *, sync: bool, memory: bool = False, private: bool = False) -> Env:
    """An environment that a fork knows of."""
    with lock:
        env = Env(path, sync=sync, memory=memory, private=private)
        alive.add(env)
        return env


def close_env(env: Env, lease: Lease | None = None) -> None:
    """One user less; the last one closes the file. Closing again, or from several threads at once, is no error.

    Files that an interrupt left open while they were being opened, so that nobody uses them, are closed with it.
    """
    if lease is not None:
        lease.leave()
    for one in (env, *list(by_path.values())):
        # Not under the registry's lock: whoever is inside the gate may need that to get out.
        with Pass(one.gate) as place:
            try:
                if one.users.inside or not place.alone(None if one is env else 0):
                    continue
            except BusyError:  # this thread still reads it
                if lease is not None and one is env:
                    lease.enter()
                raise
            with lock:
                if one.users.inside:  # somebody opened it meanwhile
                    continue
                one.closed = True  # from here on nobody will: see open_env
            one.close_file()
            with lock:
                if by_path.get(one.path) is one:
                    del by_path[one.path]


def _check_other_names(path: str) -> None:
    """LinkedError where the file is open in this process by another name: LMDB would mix up the locks of the two."""
    try:
        status = os.stat(path)
    except OSError:
        return  # opening it tells why
    for env in by_path.values():
        if env.file is not None and env.file.is_file(status):
            raise LinkedError(
                f"{path}: the file is open in this process by another name, {env.path}; use that name, or close it"
            )
