"""Files of older formats brought to this one, by the first transaction that writes to them; one function a step.

A file that is only read stays as it is: an older version of this package may have it open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DamagedError
from . import keys
from .meta import FORMAT, Options
from .records import REMEDY

if TYPE_CHECKING:
    from .writer import Writer


def upgrade(writer: Writer) -> None:
    """Bring the file to this format, as part of the open transaction."""
    if writer.state.format < 2:
        _to_format_2(writer)
    writer.state.format = FORMAT


def _to_format_2(writer: Writer) -> None:
    """A database of posting lists, empty; the state gets its new fields when it is written."""
    # (A handle made in a transaction is void if that is undone: it is the writer's own until the commit.)
    postings = writer.env.lmdb.open_db(keys.POSTINGS, txn=writer.txn)
    if writer.txn.stat(postings)["entries"]:
        raise DamagedError(f"{writer.env.path}: a file of format 1 with posting lists; {REMEDY}")
    writer.dbs = {**writer.dbs, keys.POSTINGS: postings}
    options = Options.from_record(writer.get(keys.META, keys.OPTIONS))
    writer.put(keys.META, keys.OPTIONS, options.to_record())
