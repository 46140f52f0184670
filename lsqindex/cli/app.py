"""The commands by name, and what becomes of their errors and warnings: one line each, no traceback."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import LsqIndexError
from . import asking, changing, demo, making, show, tune
from .remedies import for_the_shell

FAILED, INTERRUPTED, NOBODY_READS = 3, 130, 141


class Commands(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; every expected error ends here."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _complain_of
                done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except KeyboardInterrupt:
            show.complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # What is still in the buffer must go somewhere when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOBODY_READS) from None
        except (LsqIndexError, OSError) as error:
            show.complain(_sentence(error))
            raise typer.Exit(FAILED) from None


def _complain_of(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning as people read it, without the line of source it comes from."""
    show.complain(f"warning: {for_the_shell(' '.join(str(message).split()))}")


def _sentence(error: Exception) -> str:
    """An error in one line, in the words of the command line."""
    if isinstance(error, OSError) and not isinstance(error, LsqIndexError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    else:
        text = str(error) or type(error).__name__
    # Notes say what was committed before the error (docs/durability.md).
    return for_the_shell(" ".join("; ".join([text, *getattr(error, "__notes__", ())]).split()))


app = typer.Typer(
    cls=Commands,
    name="lsqindex",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 check found a problem, 2 wrong usage, 3 error, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An embedding index in one file: create it, fill it, search it.

    \b
    Example: lsqindex create news.lsq --like vectors.npy --bits 256
             lsqindex add news.lsq vectors.npy
             lsqindex search news.lsq queries.npy --k 5
    """


_PANELS = {
    "Use an index": (making.create, making.add, asking.search, asking.get, changing.delete, asking.info),
    "Take care of it": (asking.check, changing.train, changing.reencode, changing.compact, changing.copy),
    "Learn": (asking.encoders, tune.tune, demo.demo),
}

for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
