"""What the rows of the storage benchmark say: each bar with what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from ..report import Row, Rows
from ..verdicts import Verdict
from .plan import Plan


def opening(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The large index against the small one; raw figures have no bar, for a scan grows."""
    small, large = _pair(rows, "open", "pages in memory")
    yield _below("open the large index alone, ms", 10.0, large["open"] if large else None)
    for what in ("set-up", "set-up again"):
        yield _at_most(f"{what}, large / small", 2.0, _ratio(large, small, what))
    less = [_less_page_ins(row) for row in (large, small)]
    aside = less[0] / less[1] if less[0] is not None and less[1] else None
    yield _at_most("set-up less page-ins, large / small", 2.0, aside)
    yield Verdict(
        "open + first query, the scan included, large / small", "", _ratio(large, small, "open + first"), None
    )
    yield Verdict("a later query, the scan alone, large / small", "", _ratio(large, small, "later"), None)


def adding(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """One add to the large index against one to the small."""
    small, large = _pair(rows, "add", "add one")
    for form in ("median", "mean"):
        yield _at_most(f"add one, {form}, large / small", 1.5, _ratio(large, small, form))
    for system in ("upsert one", "delete one"):
        small, large = _pair(rows, "add", system)
        yield Verdict(f"{system}, median, large / small", "", _ratio(large, small, "median"), None)


def bulk(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The share outside encoding, the worst case of each kind of index."""
    found = rows.of("bulk")
    if not found:
        yield _below("bulk add, share outside encoding", 0.5, None)
    for system in dict.fromkeys(row.system for row in found):
        for threads in sorted({int(row["threads"]) for row in found}):
            of_kind = [row for row in found if row.system == system and row["threads"] == threads]
            worst = max(float(row["outside"]) for row in of_kind)
            what = f"bulk add, share outside encoding, {system}, {threads} thread{'s' * (threads > 1)}, worst"
            yield _below(what, 0.5, worst)


def size(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The file against what it must hold."""
    found = [row for row in rows.of("size") if row["state"] in ("filled", "90 % deleted, compacted")]
    if not found:
        yield _at_most("file / codes, ids and kept vectors", 1.15, None)
    for row in found:
        yield _at_most(f"file / codes, ids and kept vectors, {row.system}, {row['state']}", 1.15, row["ratio"])


def updates(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The file after many updates against a fresh copy of it."""
    found = rows.of("updates")
    if not found:
        yield _at_most("file after updates / live size", 2.0, None)
    for row in found:
        yield _at_most(f"file after {row['cycles']:,} updates / live size, {row.system}", 2.0, row["ratio"])
        yield _at_most(f"largest file on the way / live size, {row.system}", 2.0, row["largest ratio"])


def memory(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """The process with the large index open, before a search."""
    found = max(rows.of("memory"), key=lambda row: int(row["vectors"]), default=None)
    sizes = [found[name] for name in ("opened", "opened, peak")] if found else []
    known = [float(size) for size in sizes if size is not None]
    yield _below("resident memory, large index open, MB", 80.0, max(known, default=None))


def _pair(rows: Rows, section: str, system: str) -> tuple[Row | None, Row | None]:
    """The rows of the small and of the large index."""
    pair = sorted(rows.of(section, system=system), key=lambda row: int(row["vectors"]))
    return (pair[0], pair[1]) if len(pair) == 2 else (None, None)


def _ratio(large: Row | None, small: Row | None, what: str) -> float | None:
    return float(large[what]) / float(small[what]) if large and small else None


def _less_page_ins(row: Row | None) -> float | None:
    return float(row["set-up"]) - float(row["page-ins"]) if row else None


def _at_most(what: str, limit: float, measured: float | None) -> Verdict:
    return Verdict(what, f"<= {limit:g}", measured, None if measured is None else measured <= limit)


def _below(what: str, limit: float, measured: float | None) -> Verdict:
    return Verdict(what, f"< {limit:g}", measured, None if measured is None else measured < limit)
