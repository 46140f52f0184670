"""Threads that work on parts of one task."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..errors import ThreadsError


class Pool(ThreadPoolExecutor):
    """A pool of threads; :class:`ThreadsError` when the system does not start another one."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let one of the threads call ``fn``."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise ThreadsError(
                f"a thread could not be started: {error}; use fewer threads (threads=1 needs none), "
                "or raise the limit of processes (ulimit -u)"
            ) from error
