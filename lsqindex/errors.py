"""Every error a user can cause, typed.

All derive from :class:`LsqIndexError`, and from the built-in that fits, so that code which only
knows ``ValueError`` or ``KeyError`` catches them too. A message names the cause and the remedy.
"""

from __future__ import annotations

#: Characters of a value that a message shows.
_SHOWN = 200


def shown(value: object) -> str:
    """A value as a message shows it: never too long, whatever it is.

    >>> shown("a"), shown(10**5000), len(shown("a" * 1000))
    ("'a'", 'an int', 201)
    """
    try:
        text = repr(value)
    except Exception:  # whole numbers have too many digits, others a repr of their own that fails
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def add_note(error: BaseException, note: str) -> None:
    """Tell something more about an error: a line below it in a traceback (PEP 678), and in ``error.__notes__``."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10, which does not show it
        error.__notes__ = [*getattr(error, "__notes__", ()), note]


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


class NewerEncoderError(StateError):
    """A stored encoder that a newer version of its package has written."""


class UnknownEncoderError(LsqIndexError, KeyError):
    """No encoder of that name is registered or installed."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; ours is a sentence.
        return str(self.args[0]) if self.args else ""


class DuplicateEncoderError(LsqIndexError, ValueError):
    """Two owners claim one encoder name."""


class PluginError(LsqIndexError, ImportError):
    """An installed encoder plugin that cannot be loaded."""


class IdError(LsqIndexError, ValueError):
    """Ids of a wrong kind, number or size."""


class DuplicateIdError(IdError):
    """An id that exists already, or comes twice in one call."""


class UnknownIdError(LsqIndexError, KeyError):
    """An id that the index does not hold."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PayloadError(LsqIndexError, ValueError):
    """A payload that cannot be stored: not a mapping, too large, or with values that msgpack does not have."""


class FilterError(LsqIndexError, ValueError):
    """A filter over payloads with an unknown operator, or an operand that it cannot have."""


class NoVectorsError(LsqIndexError, ValueError):
    """What was asked needs the vectors, and the index keeps only codes."""


class ClosedError(LsqIndexError, ValueError):
    """The index, or the batch, was closed."""


class ReadOnlyError(LsqIndexError, PermissionError):
    """A change was asked of an index opened read-only."""


class BusyError(LsqIndexError, TimeoutError):
    """Another writer has the index, and waiting was not wanted or took too long."""


class ForkedError(LsqIndexError, RuntimeError):
    """Something that cannot cross a fork was used in the child."""


class IndexExistsError(LsqIndexError, FileExistsError):
    """There is a file where a new index was to be made."""


class IndexMissingError(LsqIndexError, FileNotFoundError):
    """There is no file where an index was to be opened, or no longer."""


class NotAnIndexError(LsqIndexError, ValueError):
    """The file is not an index: garbage, empty, or of another program."""


class NewerFormatError(NotAnIndexError):
    """The file was written by a newer version of this package."""


class DamagedError(LsqIndexError, ValueError):
    """The file is an index, and something in it is not as it was written."""


class DiskFullError(LsqIndexError, OSError):
    """The system has no room for what was to be written; the index is as it was."""


class StorageError(LsqIndexError, OSError):
    """The system could not read or write the file; the index is as it was."""


class LinkedError(StorageError):
    """The file has a second name, a hard link, or a second lock file: its users would not know of each other."""


class ThreadsError(LsqIndexError, RuntimeError):
    """The system does not start as many threads as were asked for."""


class ReplacedError(StorageError):
    """Another index was put into the place of the file; ``Index.open`` opens that one."""


class CodesOnlyWarning(UserWarning):
    """The index is being trained and keeps no vectors: from now on it has approximations only."""


class Committed:
    """A ``with`` block for what is done, if possible, after a change was committed.

    An error of ours in it is dropped: the change was made, and the next one tries again. Other errors, and interrupts,
    get a note that says so.
    """

    def __init__(self, note: str) -> None:
        self._note = note

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, LsqIndexError):
            return True
        add_note(error, f"{self._note}, and that stays so; what failed came after it")
        return False
