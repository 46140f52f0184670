"""Every error that this package raises.

All errors derive from :class:`LsqIndexError`, and from the built-in exception that fits, so code that only knows
``ValueError`` or ``KeyError`` catches them too. A message has the form ``what is wrong: the value; what to do``.
"""

from __future__ import annotations

#: What to do about a damaged file.
REMEDY = "restore the file from a copy (save(path) makes one), or build it anew"

#: How many characters of a value a message shows.
_SHOWN = 200


def shown(value: object) -> str:
    """A value as an error message shows it, shortened if it is long.

    >>> shown("a"), shown(10**5000), len(shown("a" * 1000))
    ("'a'", 'an int', 201)
    """
    try:
        text = repr(value)
    except Exception:  # ints may have too many digits, and other objects a repr that fails
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def add_note(error: BaseException, note: str) -> None:
    """Add a line to an error, shown below its traceback (PEP 678) and stored in ``error.__notes__``."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10 does not show notes
        error.__notes__ = [*getattr(error, "__notes__", ()), note]


class LsqIndexError(Exception):
    """The base class of all errors of this package."""


class VectorError(LsqIndexError, ValueError):
    """Vectors have a wrong shape or dtype, or contain NaN or infinite numbers."""


class ParameterError(LsqIndexError, ValueError):
    """A parameter, or a combination of parameters, is not valid."""


class TooFewVectorsError(VectorError):
    """There are fewer training vectors than the encoder needs."""


class NotFittedError(LsqIndexError, RuntimeError):
    """An encoder was used before ``fit``."""


class CodeError(LsqIndexError, ValueError):
    """Codes have a wrong shape, dtype or value: the encoder cannot have made them."""


class StateError(LsqIndexError, ValueError):
    """A stored encoder is damaged, forged, or of a newer version."""


class NewerEncoderError(StateError):
    """A stored encoder was written by a newer version of its package."""


class UnknownEncoderError(LsqIndexError, KeyError):
    """No encoder of this name is registered or installed."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, but ours is a sentence.
        return str(self.args[0]) if self.args else ""


class DuplicateEncoderError(LsqIndexError, ValueError):
    """Two owners claim the same encoder name."""


class PluginError(LsqIndexError, ImportError):
    """An installed encoder plugin cannot be loaded."""


class IdError(LsqIndexError, ValueError):
    """Ids have a wrong type, number or size."""


class DuplicateIdError(IdError):
    """An id already exists, or occurs twice in one call."""


class UnknownIdError(LsqIndexError, KeyError):
    """The index does not contain this id."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PayloadError(LsqIndexError, ValueError):
    """A payload cannot be stored: it is not a mapping, is too large, or has values that msgpack cannot represent."""


class FilterError(LsqIndexError, ValueError):
    """A filter has an unknown operator or an invalid operand."""


class NoVectorsError(LsqIndexError, ValueError):
    """The operation needs the vectors, and the index keeps only codes."""


class ClosedError(LsqIndexError, ValueError):
    """The index or the batch is closed."""


class ReadOnlyError(LsqIndexError, PermissionError):
    """The index was opened read-only and cannot be changed."""


class BusyError(LsqIndexError, TimeoutError):
    """Another writer has the index, and the time to wait for it is over."""


class ForkedError(LsqIndexError, RuntimeError):
    """An object that does not survive a fork was used in the child process."""


class IndexExistsError(LsqIndexError, FileExistsError):
    """There is already a file where a new index was to be created."""


class IndexMissingError(LsqIndexError, FileNotFoundError):
    """There is no index file at this path, or it has been removed."""


class NotAnIndexError(LsqIndexError, ValueError):
    """The file is not an index: it is empty, garbage, or belongs to another program."""


class NewerFormatError(NotAnIndexError):
    """The file was written by a newer version of this package."""


class DamagedError(LsqIndexError, ValueError):
    """The file is an index, but something in it is not as it was written."""


class DiskFullError(LsqIndexError, OSError):
    """There is no space for what was to be written; the index is unchanged."""


class StorageError(LsqIndexError, OSError):
    """The system could not read or write the file; the index is unchanged."""


class LinkedError(StorageError):
    """The file has a second name (a hard link) or a second lock file, so its users would not know of each other."""


class ThreadsError(LsqIndexError, RuntimeError):
    """The system cannot start as many threads as were requested."""


class ReplacedError(StorageError):
    """Another index has replaced the file; ``Index.open`` opens that one."""


class CodesOnlyWarning(UserWarning):
    """The index is being trained and keeps no vectors, so from now on it stores only approximations."""


class NotHashingWarning(UserWarning):
    """A multi-index is to be built over codes that do not hash: a search by it would miss many neighbours."""


class Committed:
    """A ``with`` block for optional work after a change was committed.

    An :class:`LsqIndexError` in the block is dropped: the change was made, and the next one tries again. Other errors,
    and interrupts, get a note that says so.
    """

    def __init__(self, note: str) -> None:
        self._note = note

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, LsqIndexError):
            return True
        add_note(error, f"{self._note} and stays so; the error came after the commit")
        return False
