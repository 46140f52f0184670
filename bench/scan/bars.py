"""What the rows of the scan's benchmark say: each bar with what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..report import Row, Rows
from ..verdicts import Verdict
from .plan import Plan
from .stored import Collection

#: Names of systems, as the tables have them.
WHOLE, PROGRESSIVE = "lsq, whole scan", "lsq, progressive scan"
HAMMING, FLAT, FLAT_CODING = "itq, Hamming", "faiss BinaryFlat", "faiss BinaryFlat, coding the query"
NOT_AGAIN, AGAIN = "lsq", "lsq, rerank"
PLAIN_READ, SEARCH, KERNEL, TABLES = "plain read", "search", "the kernel alone", "the tables alone"
#: Where the codes are when they are read: where the call before has left them, or in memory alone.
CACHES = WARM, FLUSHED = "warm", "flushed"

_MODES = ("single", "batch")


def lsq(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Queries a second and recall against FAISS's scan of as many bytes; what the progressive scan loses."""
    for collection, mode in _cases(plan):
        whole, progressive, theirs = (
            _one(rows, "lsq", collection, system, mode) for system in (WHOLE, PROGRESSIVE, f"faiss {plan.faiss}")
        )
        where = f"{collection.size:,} vectors, {mode}"
        for row, name, least in ((whole, WHOLE, 1.0), (progressive, PROGRESSIVE, 2.0)):
            yield _at_least(f"{name} / FAISS {plan.faiss}, queries/s, {where}", least, _value(row, "ratio"))
            points = _points(row, theirs)
            met = None if points is None else points > 0
            yield Verdict(f"{name} minus FAISS {plan.faiss}, recall10@10, points, {where}", "> 0", points, met)
        yield _at_least(
            f"progressive minus whole scan, recall10@10, points, {where}", -0.5, _points(progressive, whole)
        )


def hamming(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Queries a second against FAISS on the same codes, with coding the query in ours only; and the same answers."""
    for collection, mode in _cases(plan):
        row = _one(rows, "hamming", collection, HAMMING, mode)
        where = f"{collection.size:,} vectors, {mode}"
        yield _at_least(f"Hamming scan / FAISS BinaryFlat, queries/s, {where}", 1.0, _value(row, "ratio"))
        yield _at_most(f"Hamming scan: queries whose distances are not FAISS's, {where}", 0, _value(row, "unequal"))


def rerank(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Recall by kept vectors, and what it costs."""
    for mode in _MODES:
        row = next(iter(rows.of("rerank", system=AGAIN, queries=mode)), None)
        yield _at_least(f"rerank, float16 kept, recall10@10, {mode}", 0.97, _value(row, "recall10@10"))
        yield _at_least(f"rerank / without, queries/s, {mode}", 0.6, _value(row, "ratio"))


def threads(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Several threads against one; single queries have no bar."""
    for mode in _MODES:
        row = next(iter(rows.of("threads", queries=mode, threads=plan.threads)), None)
        what = f"{plan.threads} threads / one, queries/s, {plan.mixed:,} vectors, {mode}"
        measured = _value(row, "ratio")
        yield _at_least(what, 1.8, measured) if mode == "batch" else Verdict(what, "", measured, None)


def growth(rows: Rows, plan: Plan) -> Iterator[Verdict]:
    """Time per query over the number of vectors, the largest index against the smallest; steps have no bar."""
    small, large = plan.growth[0], plan.growth[-1]
    for mode in _MODES:
        row = next(iter(rows.of("growth", queries=mode, vectors=large)), None)
        what = f"time a query / number of vectors, {small:,} to {large:,}, {mode}"
        yield _at_most(what, 1.0, _value(row, "ratio"))
        what = f"time a query / number of vectors, {plan.growth[-2]:,} to {large:,}, {mode}"
        yield Verdict(what, "", _value(row, "step"), None)


def memory(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """Bytes of codes a second against those of a plain read; the kernel alone has no bar."""
    for caches, name in product(CACHES, (SEARCH, KERNEL)):
        row = next(iter(rows.of("memory", system=name, caches=caches)), None)
        what = f"single query, whole scan, GB/s of codes / plain read, caches {caches}: {name}"
        measured = _value(row, "ratio")
        yield _at_least(what, 0.8, measured) if name == SEARCH else Verdict(what, "", measured, None)


def call(rows: Rows, _: Plan) -> Iterator[Verdict]:
    """What a search costs beside its kernel."""
    row = next(iter(rows.of("call", system=SEARCH)), None)
    vectors = f", {row['vectors']:,} vectors" if row else ""
    yield _at_most(f"one search less its kernel, µs{vectors}", 50.0, _value(row, "beside the kernel, µs"))


def _cases(plan: Plan) -> Iterator[tuple[Collection, str]]:
    yield from ((collection, mode) for collection in (plan.real, plan.large) for mode in _MODES)


def _one(rows: Rows, section: str, collection: Collection, system: str, mode: str) -> Row | None:
    return next(iter(rows.of(section, data=collection.name, system=system, queries=mode)), None)


def _value(row: Row | None, column: str) -> float | None:
    return None if row is None else row[column]


def _points(row: Row | None, other: Row | None) -> float | None:
    return None if row is None or other is None else 100 * (row["recall10@10"] - other["recall10@10"])


def _at_least(what: str, limit: float, measured: float | None) -> Verdict:
    return Verdict(what, f">= {limit:g}", measured, None if measured is None else measured >= limit)


def _at_most(what: str, limit: float, measured: float | None) -> Verdict:
    return Verdict(what, f"<= {limit:g}", measured, None if measured is None else measured <= limit)
