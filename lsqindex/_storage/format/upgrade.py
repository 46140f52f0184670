"""Files of older formats brought to this one, by the first transaction that writes to them; one function a step.

A file that is only read stays as it is: an older version of this package may have it open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import DamagedError
from . import keys
from .meta import FORMAT, Options, check_format
from .records import REMEDY

if TYPE_CHECKING:
    from ..lmdb.writer import Writer


def upgrade(writer: Writer) -> None:
    """Bring the file to this format, as part of the open transaction; one that has it is left alone."""
    if writer.state.format == FORMAT:
        return
    number = check_format(writer.get(keys.META, keys.OPTIONS))["format"]
    if number != writer.state.format:
        found = f"the state is of format {writer.state.format}, and the file of format {number}"
        raise DamagedError(f"{writer.env.path}: {found}; {REMEDY}")
    if writer.state.format < 2:
        _new_database(writer, keys.POSTINGS)
    if writer.state.format < 3:
        _new_database(writer, keys.PAYLOADS)
    if writer.state.format < 5:
        _new_database(writer, keys.CELLS)
    # The state gets its new fields when it is written.
    options = Options.from_record(writer.get(keys.META, keys.OPTIONS))
    writer.put(keys.META, keys.OPTIONS, options.to_record())
    writer.state.format = FORMAT


def _new_database(writer: Writer, name: bytes) -> None:
    """The database that a format brought, empty."""
    # (A handle made in a transaction is void if that is undone: it is the writer's own until the commit.)
    made = writer.file.lmdb.open_db(name, txn=writer.txn)
    if writer.txn.stat(made)["entries"]:
        raise DamagedError(
            f"{writer.env.path}: has {name.decode()}, which format {writer.state.format} does not have; {REMEDY}"
        )
    writer.dbs = {**writer.dbs, name: made}
