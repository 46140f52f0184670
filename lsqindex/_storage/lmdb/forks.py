"""Forks: parent and child must not share an environment of LMDB.

Files that nobody is using are closed before the fork, and parent and child each open them again. Files that are in use
stay with the parent: the child leaves them alone, and opens them anew when it is asked to.
"""

from __future__ import annotations

import os
import threading

from ..._compiled.gate import Gate, Pass, locks
from . import engine, registry
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
            engine.abandon(env.file and env.file.lmdb, env.path)
            env.file = None
            if registry.by_path.get(env.path) is env:
                del registry.by_path[env.path]
    _asleep.clear()
    for fd in locks:
        os.close(fd)
    locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
