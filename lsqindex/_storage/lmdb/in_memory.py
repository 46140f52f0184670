"""An index in memory: an environment without a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable

from .env import Env
from .errors import lmdb_errors, system_errors
from .files import create
from .registry import Lease, close_env, make_env


def memory_env(build: Callable[[Env], None]) -> Lease:
    """A lease of an environment without a file: pages of anonymous memory, gone when it is closed."""
    with system_errors(tempfile.gettempdir()):
        directory = tempfile.mkdtemp(prefix="lsqindex-")
    path = os.path.join(directory, "index")
    fd = -1
    try:
        with lmdb_errors(path), system_errors(path):
            if hasattr(os, "memfd_create"):
                fd = os.memfd_create("lsqindex")
                os.symlink(f"/proc/self/fd/{fd}", path)
            create(path)
            lease = Lease(make_env(path, sync=False, memory=True))
    finally:
        if fd >= 0:
            os.close(fd)
        for name in (path, path + "-lock"):
            with contextlib.suppress(OSError):
                os.unlink(name)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    try:
        build(lease.env)
    except BaseException:
        close_env(lease.env, lease)
        raise
    return lease
