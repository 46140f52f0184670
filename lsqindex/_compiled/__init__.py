"""The compiled modules; their sources are in ``cython_src``.

They are imported here first, so that a source tree that was not built says what to do.
"""

try:
    from . import encoding, exact, gate, multi_index, records, scan
except ImportError as error:
    if getattr(error, "path", None) is not None:  # a module is there, and cannot be loaded
        raise
    raise ImportError(
        "lsqindex is not built here: its compiled modules are missing. If this is a checkout of the sources, run "
        "'pip install --editable .' in it (a C compiler is needed), or run Python in another directory."
    ) from error

__all__ = ["encoding", "exact", "gate", "multi_index", "records", "scan"]
