"""``functools.cached_property`` without its lock.

Before Python 3.12 that one holds a lock of its class while it computes. A process that is forked at that moment has the
lock taken for ever in the child, and every other thread would wait. Two threads may compute a value twice here, which
does no harm: values that are cached in this package depend on nothing that changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 - used like its namesake
        """An attribute that is computed when it is first asked for."""

        def __init__(self, function):
            self._function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value
