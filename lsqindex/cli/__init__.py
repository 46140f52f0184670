"""The command line: ``lsqindex``, or ``python -m lsqindex``.

    app.py                       the commands, and what becomes of their errors
    making.py changing.py asking.py tune.py demo.py       the commands themselves
    options.py values.py         what they share: options; ids and parameters as they are typed
    sources.py source.py         vectors from files, in blocks
      read_numpy read_vecs read_arrow read_hdf5 read_text read_raw      one format each
    trials.py plot.py picture.py show.py       measuring; and what people see
    remedies.py                  messages of the library in the words of the command line

Exit codes: 0 done; 1 ``check`` found something wrong; 2 the command was not understood; 3 an error of the index,
of a file, or of the installation; 130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

NEEDED = "lsqindex: the command line needs Typer and Rich: pip install 'lsqindex[cli]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with ``arguments`` (those of the process); the exit code."""
    try:
        from .app import app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        print(NEEDED, file=sys.stderr)
        return 3
    try:
        app(args=None if arguments is None else list(arguments), prog_name="lsqindex")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
