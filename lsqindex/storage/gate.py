"""A gate for threads: many may pass at once, or one alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """Many threads may pass at once, or one alone; who is inside may enter again."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside: dict[int, int] = {}
        self._alone = False

    def enter(self) -> None:
        """Pass, once nobody is alone inside."""
        me = threading.get_ident()
        with self._condition:
            while self._alone and me not in self._inside:
                self._condition.wait()
            self._inside[me] = self._inside.get(me, 0) + 1

    def leave(self) -> None:
        """Tell that one who passed is out again."""
        me = threading.get_ident()
        with self._condition:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                if self._alone:  # somebody waits until all are out
                    self._condition.notify_all()

    def try_alone(self) -> bool:
        """Let nobody in, if nobody is inside now; ``leave_alone`` opens the gate again."""
        with self._condition:
            if self._alone or self._inside:
                return False
            self._alone = True
            return True

    def leave_alone(self) -> None:
        """Let the others in again."""
        with self._condition:
            self._alone = False
            self._condition.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until all are out, and let nobody in; a thread that is inside itself would wait for ever."""
        with self._condition:
            assert threading.get_ident() not in self._inside
            while self._alone:
                self._condition.wait()
            self._alone = True
            while self._inside:
                self._condition.wait()
        try:
            yield
        finally:
            self.leave_alone()
