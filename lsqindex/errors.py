"""Every error a user can cause, typed.

All derive from :class:`LsqIndexError`, and from the built-in that fits, so that code which only
knows ``ValueError`` or ``KeyError`` catches them too. A message names the cause and the remedy.
"""

from __future__ import annotations


class LsqIndexError(Exception):
    """The root of all errors of this package."""


class VectorError(LsqIndexError, ValueError):
    """Vectors of a wrong shape or dtype, or with NaN or infinite numbers."""


class ParameterError(LsqIndexError, ValueError):
    """A parameter, or a combination of parameters, that cannot work."""


class TooFewVectorsError(VectorError):
    """Fewer training vectors than the encoder needs."""


class NotFittedError(LsqIndexError, RuntimeError):
    """An encoder was used before ``fit``."""


class CodeError(LsqIndexError, ValueError):
    """Codes that the encoder cannot have made: wrong shape, dtype or value."""


class StateError(LsqIndexError, ValueError):
    """A stored encoder that is damaged, forged or of a newer version."""


class UnknownEncoderError(LsqIndexError, KeyError):
    """No encoder of that name is registered or installed."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; ours is a sentence.
        return str(self.args[0]) if self.args else ""


class DuplicateEncoderError(LsqIndexError, ValueError):
    """Two owners claim one encoder name."""


class PluginError(LsqIndexError, ImportError):
    """An installed encoder plugin that cannot be loaded."""
