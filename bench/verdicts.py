"""What the rows say: each bar with what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .report import Rows, show, table

BAR_COLUMNS = ("what", "bar", "measured", "met")


@dataclass(frozen=True)
class Verdict:
    """A bar, and whether it is met; without a measurement, ``measured`` is None, without a bar, only ``met``."""

    what: str
    bar: str
    measured: float | None
    met: bool | None

    def cells(self) -> dict[str, str]:
        """As a line of a table."""
        met = "not measured" if self.measured is None else show(self.met)
        return {"what": self.what, "bar": self.bar, "measured": show(self.measured), "met": met}


def bar_table(bars: Iterable[Verdict]) -> str:
    """The bars as a table."""
    return table(BAR_COLUMNS, [bar.cells() for bar in bars])


def recall_verdict(rows: Rows, data: str, bits: int, main_bits: int) -> Verdict:
    """How far the recall of lsq is above the best of FAISS, in points, at the same bytes a row."""
    ours = rows.of("recall", data=data, bits=bits, system="lsq")
    theirs = [row for row in rows.of("recall", data=data, bits=bits) if row.system.startswith("faiss ")]
    needed = 3.0 if bits == main_bits else 0.0
    bar = f">= +{needed}" if needed else "> 0"
    what = f"recall10@10, {data}, {bits} bits: lsq minus best of FAISS, points"
    if not (ours and theirs):
        return Verdict(what, bar, None, None)
    best = max(theirs, key=lambda row: float(row["recall10@10"]))
    points = 100 * (ours[-1]["recall10@10"] - best["recall10@10"])
    return Verdict(f"{what} ({best.system[6:]})", bar, points, points >= needed if needed else points > 0)


def parity_verdict(rows: Rows, data: str, system: str, rival: str, bits: int) -> Verdict | None:
    """Whether our version of a method is within a point of recall of FAISS's; None if either is not measured."""
    ours = rows.of("recall", data=data, bits=bits, system=system)
    theirs = rows.of("recall", data=data, bits=bits, system=f"faiss {rival}")
    if not (ours and theirs):
        return None
    points = 100 * (ours[-1]["recall10@10"] - theirs[-1]["recall10@10"])
    return Verdict(f"recall10@10, {data}, {bits} bits: {system} minus {rival}, points", ">= -1", points, points >= -1)


def distortion_verdicts(rows: Rows, data: str) -> Iterator[Verdict]:
    """How close the reconstruction error of lsq is to the Gaussian bound."""
    found = rows.of("distortion", data=data, system="lsq")
    what = f"distortion / bound, {data}, lsq"
    for row in found:
        yield Verdict(f"{what} refine={row['refine']}", "<= 1.2", row["ratio"], row["ratio"] <= 1.2)
    if not found:
        yield Verdict(what, "<= 1.2", None, None)


def speed_verdicts(rows: Rows) -> Iterator[Verdict]:
    """Training and encoding time against FAISS OPQ."""
    for what, bar, limit in (("train", "<= 0.1", 0.1), ("encode", ">= 2", 2.0)):
        found = [row for row in rows.of("speed", what=what) if row["ratio"] is not None]
        if not found:
            yield Verdict(f"{what}: lsq / FAISS OPQ", bar, None, None)
        for row in found:
            met = row["ratio"] <= limit if what == "train" else row["ratio"] >= limit
            unit = "seconds" if what == "train" else "vectors a second"
            yield Verdict(f"{what} {unit}, {row.data}: {row.system}", bar, row["ratio"], met)


def kernel_verdict(rows: Rows) -> Verdict:
    """Whether every kernel equals its reference on every SIMD level."""
    found = rows.of("kernels")
    wrong = sum(int(row["unequal"]) for row in found)
    what = "kernels: cases that differ from the reference"
    return Verdict(what, "0", wrong, wrong == 0) if found else Verdict(what, "0", None, None)
