"""Forks: parent and child must not share an environment of LMDB.

Files that nobody is using are closed before the fork, and parent and child each open them again. Files that are in use
stay with the parent: the child leaves them alone, and opens them anew when it is asked to.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from typing import Any

from ..._compiled.gate import Gate, Pass, locks
from . import registry
from .env import Env

#: Environments that were closed for a fork, and what keeps everybody out of them.
_asleep: list[tuple[Env, Pass]] = []


def _before_fork() -> None:
    registry.lock.acquire()
    for env in registry.by_path.values():
        if not (env.memory or env.gate.inside):
            place = Pass(env.gate)
            if place.alone(0):
                _asleep.append((env, place))
                env.close_file()


def _after_in_parent() -> None:
    _asleep.clear()
    registry.lock.release()


def _after_in_child() -> None:
    registry.lock = threading.RLock()
    asleep = [env for env, _ in _asleep]
    for env in list(registry.alive):
        if env in asleep:
            env.pid = os.getpid()
            env.gate, env.turn = Gate(), Gate()
        else:
            # What is open stays with the parent.
            _abandon(env.file and env.file.lmdb, env.path)
            env.file = None
            if registry.by_path.get(env.path) is env:
                del registry.by_path[env.path]
    _asleep.clear()
    for fd in locks:
        os.close(fd)
    locks.clear()


#: Files that were open in the parent when this process was forked, as py-lmdb knows them.
_inherited: set[Any] = set()


def _abandon(env: Any, path: str) -> None:
    """Never touch an LMDB environment of the parent again, and let this process open the file by itself.

    LMDB does not allow a child to use an environment of its parent. Closing it is no way out: py-lmdb would free the
    parent's places in the shared table of readers, and wait for threads that do not exist here. So the object stays
    in memory until the process ends, even if nothing refers to it any more.
    """
    if env is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(env))
    # py-lmdb refuses to open a file twice in one process. It knows its files by device and inode, and still takes those
    # of the parent for open. Their keys get the number of this process, so that the rule holds within this process.
    try:
        envid: Any = importlib.import_module("lmdb._envid")
        if not _inherited:
            known = envid.env_keys

            def env_keys(path: Any, subdir: Any) -> tuple[Any, ...]:
                return tuple((key, os.getpid()) if key in _inherited else key for key in known(path, subdir))

            envid.env_keys = env_keys
        _inherited.update(envid._file_key(name) for name in (path, path + "-lock"))
    except (ImportError, AttributeError):
        pass  # another py-lmdb, which may not have that rule; if it has, opening the file says so


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
