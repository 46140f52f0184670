"""What the rows of the multi-index's benchmark say: each bar with what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..report import Row, Rows
from ..verdicts import Verdict
from .plan import RECALL, Plan

#: Names of systems, as the tables have them.
SUBSET, SCAN, LSQ_SCAN = "multi-index", "scan, same codes", "scan, lsq codes"
SUBSET_HAMMING = "multi-index, Hamming"
KERNEL, BARE_LOOP = "accumulation", "bare loop"

_MODES = ("batch", "single")


def text(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Scores and order as the paper's text has them."""
    found = rows.of("text")
    wrong = sum(row["unequal"] for row in found) if found else None
    yield _at_most("scores or order unlike the paper's text, queries", 0, wrong)


def paper(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """The paper's finding: binary codes are ahead of n-ary ones. No bar: what is true is told."""
    for bits in plan.paper_bits:
        ours = next(iter(rows.of("paper", system="LSQ(B)", **{"table bits": bits})), None)
        for other in ("CK-means", "LSQ(N)"):
            theirs = next(iter(rows.of("paper", system=other, **{"table bits": bits})), None)
            points = None if ours is None or theirs is None else 100 * (ours["area"] - theirs["area"])
            yield Verdict(f"LSQ(B) minus {other}, b = {bits}, area under recall@R, points", "", points, None)


def speed(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Recall, and queries a second against the scan of the same codes; against that of lsq codes there is no bar."""
    for collection, least in ((plan.real, 1.0), (plan.large, 3.0)):
        for mode in _MODES:
            of = {"data": collection.name, "queries": mode}
            ours, lsq = (next(iter(rows.of("speed", system=name, **of)), None) for name in (SUBSET, LSQ_SCAN))
            where = f"{collection.size:,} vectors, {mode}"
            yield _at_least(f"multi-index, recall10@10, {where}", RECALL, _value(ours, "recall10@10"))
            yield _at_least(f"multi-index / scan of the same codes, queries/s, {where}", least, _value(ours, "ratio"))
            other = None if ours is None or lsq is None else ours["queries/s"] / lsq["queries/s"]
            yield Verdict(f"multi-index / scan of lsq codes, queries/s, {where}", "", other, None)


def growth(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Time per query, the larger index against the smaller."""
    for mode in _MODES:
        row = next(iter(rows.of("growth", queries=mode, vectors=plan.mixed)), None)
        what = f"time a query, {plan.few:,} to {plan.mixed:,} vectors, {mode}"
        measured = _value(row, "ratio")
        yield Verdict(what, "< 5", measured, None if measured is None else measured < 5)


def hashes(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Queries a second against FAISS's hash tables, at no less recall."""
    for row in rows.of("hashes", system=SUBSET_HAMMING):
        theirs = next(iter(rows.of("hashes", system=row["rival"], rival=row["rival"], flips=row["flips"])), None)
        fair = theirs is not None and row["recall10@10"] >= theirs["recall10@10"]
        what = f"multi-index / FAISS {row['rival']}, {row['flips']} flips, queries/s"
        verdict = _at_least(what if fair else f"{what} (at less recall)", 2.0, row["ratio"])
        yield verdict if fair else replace(verdict, met=False)


def accumulate(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Postings a second against the bare loop."""
    row = next(iter(rows.of("accumulate", system=KERNEL)), None)
    yield _at_least("accumulation / bare loop, postings/s", 0.7, _value(row, "ratio"))


def size(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Bytes of posting lists, bucket starts included."""
    row = next(iter(rows.of("size")), None)
    yield _at_most("posting lists, bytes a row and table", 2.2, _value(row, "bytes a row and table"))


def _value(row: Row | None, column: str) -> float | None:
    return None if row is None else row[column]


def _at_least(what: str, limit: float, measured: float | None) -> Verdict:
    return Verdict(what, f">= {limit:g}", measured, None if measured is None else measured >= limit)


def _at_most(what: str, limit: float, measured: float | None) -> Verdict:
    return Verdict(what, f"<= {limit:g}", measured, None if measured is None else measured <= limit)
