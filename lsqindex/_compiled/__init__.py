"""The compiled modules; their sources are in ``cython_src``.

They are imported here first, so that a source tree that was not built says what to do.
"""

try:
    from . import assign, encoding, exact, gate, multi_index, ranking, records, scan, search
except ImportError as error:
    if error.name != __name__:  # the module is there but cannot be loaded, or something that it imports is missing
        raise
    import sys
    from pathlib import Path

    raise ImportError(
        f"the compiled modules of lsqindex are missing in {Path(__file__).parent} (Python {sys.version_info.major}."
        f"{sys.version_info.minor}). To use this source checkout, run 'pip install --editable .' in it; this needs a C "
        "compiler. To use an installed lsqindex, start Python in another directory."
    ) from None

__all__ = ["assign", "encoding", "exact", "gate", "multi_index", "ranking", "records", "scan", "search"]
