"""A remedy is written once, so that every message gives the same advice."""

from __future__ import annotations

from pathlib import Path

import lsqindex
from lsqindex.errors import REMEDY


def test_the_remedy_for_a_damaged_file_is_written_once() -> None:
    root = Path(lsqindex.__file__).parent
    places = [path.name for path in root.rglob("*.py") if REMEDY.split(" (")[0] in path.read_text(encoding="utf-8")]
    assert places == ["errors.py"]
