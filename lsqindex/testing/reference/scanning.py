"""The scan: cython_src/scan.h, quantize.h, nearest.h, progressive.h."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...encoders.layout import Layout, Tables
from .tables import field_distances, nibble_distances, nibble_tables, nibbles


def quantize(exact: NDArray[np.float32], bias: np.float32) -> tuple[NDArray[np.uint8], float, float]:
    """(look-ups as bytes, base, step) of one query: rounded down, so that sums of them bound distances from below.

        distance >= base + step * (sum of look-ups)

    up to what float32 rounds; see :func:`rounding`. No sum leaves 16 bits.

    >>> exact = np.array([np.arange(16), np.zeros(16)], np.float32)
    >>> look_ups, base, step = quantize(exact, np.float32(3))
    >>> look_ups[0, :4], int(look_ups[0, 15]), base, round(step * 127)
    (array([ 0,  8, 16, 25], dtype=uint8), 127, 3.0, 15)
    """
    top = min(127, 65535 // len(exact))
    low, high = exact.min(axis=1).astype(np.float64), exact.max(axis=1).astype(np.float64)
    # One after another, as the kernel adds them.
    base = float(np.cumsum(np.concatenate([[np.float64(bias)], low]))[-1])
    widest = float((high - low).max())
    step = widest / top if widest > 0 else 1.0
    return np.minimum((exact - low[:, None]) / step, top).astype(np.uint8), base, step


def rounding(exact: NDArray[np.float32], bias: np.float32) -> float:
    """By how much a distance of :func:`nibble_distances` may differ from the sum of its look-ups."""
    additions = len(exact) / 2 + 4
    largest = abs(float(bias)) + float(np.abs(exact).max(axis=1).sum(dtype=np.float64))
    return additions * float(np.finfo(np.float32).eps) * largest


def scan(
    codes: NDArray[np.uint8],
    layout: Layout,
    tables: Tables,
    k: int | None,
    *,
    by_nibbles: bool,
    may: NDArray[np.bool_] | None = None,
    limit: float = math.inf,
) -> list[tuple[NDArray[np.intp], NDArray[np.float32]]]:
    """For each query (rows, distances): the :func:`nearest` of the rows that ``may`` be found.

    >>> layout = Layout.uniform(levels=2, m=2)
    >>> tables = Tables(np.array([[0, 1, 0, 10]], np.float32), np.array([5], np.float32))
    >>> codes = layout.pack(np.array([[1, 0], [1, 1], [0, 0], [1, 0]], np.uint16))
    >>> scan(codes, layout, tables, 2, by_nibbles=True)
    [(array([0, 2, 3]), array([6., 5., 6.], dtype=float32))]
    """
    if by_nibbles:
        distances = nibble_distances(codes, *nibble_tables(layout, tables))
    else:
        distances = field_distances(codes, layout, tables)
    near = [nearest(own, k, limit, may) for own in distances]
    return [(rows, own[rows]) for rows, own in zip(near, distances, strict=True)]


def nearest(
    distances: NDArray[np.float32], k: int | None, limit: float = math.inf, may: NDArray[np.bool_] | None = None
) -> NDArray[np.intp]:
    """The rows that are within ``limit`` and no farther than the k-th nearest; see cython_src/nearest.h.

    >>> distances = np.array([3, 1, 2, 2], np.float32)
    >>> nearest(distances, 2), nearest(distances, 2, limit=1), nearest(distances, None, limit=2)
    (array([1, 2, 3]), array([1]), array([1, 2, 3]))
    """
    rows = np.flatnonzero(distances.astype(np.float64) <= limit)
    if may is not None:
        rows = rows[may[rows]]
    if k is not None and len(rows) > k:
        rows = rows[distances[rows] <= np.sort(distances[rows])[k - 1]]
    return rows


def progressive(
    codes: NDArray[np.uint8],
    layout: Layout,
    tables: Tables,
    k: int | None,
    head: int,
    z: float,
    records: list[int],
    limit: float = math.inf,
) -> list[tuple[NDArray[np.intp], NDArray[np.float32], bool]]:
    """For each query (rows, distances, sure) of the scan that reads the first ``head`` bytes of a code first.

    ``records``: how many rows lie together, for the sample. See ``cython_src/progressive.h``.
    """
    farthest = _float_limit(limit)
    at, heads = nibbles(codes), 2 * head
    sample = _sampled(records)
    exact, biases = nibble_tables(layout, tables)
    found = []
    for own, bias in zip(exact, biases, strict=True):
        nothing = np.empty(0, np.intp), np.empty(0, np.float32), False
        look_ups, base, step = quantize(own, bias)
        sums = look_ups[np.arange(len(own)), at[sample]].astype(np.int64)
        widest = float(((own.max(axis=1).astype(np.float64) - own.min(axis=1)) / step).max())
        slack = 1 + rounding(own, bias) / step
        plan = _plan(sums[:, :heads].sum(axis=1), sums.sum(axis=1), heads, len(own), z, widest, slack)
        if plan is None:
            found.append(nothing)
            continue
        low = own.min(axis=1).astype(np.float64)[:, None]
        coarse = np.minimum((own - low) / (step * plan.ratio) + 0.5, 127).astype(np.int64)[np.arange(len(own)), at]
        rows = np.flatnonzero(np.minimum(coarse[:, :heads].sum(axis=1), 255) <= plan.limit)
        whole = np.minimum(coarse[rows].sum(axis=1), 255)
        sum_limit = math.floor(min(65535.0, max(0.0, (farthest - base) / (step * plan.ratio) + plan.margin)))
        if k is not None and len(rows) >= k:
            sum_limit = min(sum_limit, int(np.sort(whole)[k - 1]) + plan.margin)
        rows = rows[whole <= sum_limit]
        distances = nibble_distances(codes[rows], own[None], biases[:1] * 0 + bias)[0]
        near = nearest(distances, k, farthest)
        sure = False
        if sum_limit < 255 and len(rows):
            worst = farthest if k is None or len(near) < k else float(distances[near].max())
            their = nibble_distances(codes[rows, :head], own[None, :heads], np.zeros(1, np.float32))[0]
            head_base = float(np.cumsum(np.concatenate([[0.0], low[:heads, 0]]))[-1])
            sixteenths = ((their.astype(np.float64) - head_base) / step * 16).astype(np.int64)
            sure = plan.sure((worst - base) / step, sixteenths)
        found.append((rows[near], distances[near], bool(sure)))
    return found


def _float_limit(limit: float) -> float:
    """The largest float32 that is not above ``limit``."""
    with np.errstate(over="ignore"):
        nearby = np.float32(limit)
    return float(np.nextafter(nearby, np.float32(-np.inf)) if float(nearby) > limit else nearby)


@dataclass(frozen=True)
class _Plan:
    """What a sample tells of the sums of heads and of whole rows."""

    head: float
    all: float
    slope: float
    around: float
    least: float
    ratio: float
    limit: float
    margin: int

    def sure(self, total: float, found: NDArray[np.int64]) -> bool:
        n = float(len(found))
        mean = int(found.sum()) / n / 16
        deviation = math.sqrt(max(0.0, int((found * found).sum()) / n / 256 - mean * mean))
        line = self.head + self.slope * (total - self.all) + 1.75 * self.around
        return self.least >= line and self.least >= mean + 1.6 * deviation


def _plan(
    heads: NDArray[np.int64],
    all_: NDArray[np.int64],
    own: int,
    count: int,
    z: float,
    widest: float,
    slack: float,
) -> _Plan | None:
    n = float(len(heads))
    if not n:
        return None
    head, whole = int(heads.sum()) / n, int(all_.sum()) / n
    head_head = int((heads * heads).sum()) / n - head * head
    all_all = int((all_ * all_).sum()) / n - whole * whole
    head_all = int((heads * all_).sum()) / n - head * whole
    if not (head_head > 0 and all_all > 0):
        return None
    slope = head_all / all_all
    around = head_head - slope * head_all
    mean, least = head + own / 2, head + own / 2 - z * math.sqrt(head_head)
    ratio = max(1.0, (whole + count / 2 - 2.0 * math.sqrt(all_all)) / 245)
    limit = math.floor(least / ratio + 0.5)
    if not 0 < limit < 255 or widest > 127 * ratio or slack > 1 + ratio:
        return None
    margin = math.ceil(3 * math.sqrt(count / 12)) + 1
    return _Plan(mean, whole + count / 2, slope, math.sqrt(max(around, 0.0)), least, ratio, limit, margin)


def _sampled(records: list[int]) -> NDArray[np.int64]:
    """The rows of 32 blocks of 32 rows, evenly spread over all full ones."""
    firsts = np.cumsum([0, *records])[:-1]
    blocks = [
        first + 32 * block
        for first, count in zip(firsts.tolist(), records, strict=True)
        for block in range(count // 32)
    ]
    chosen = [blocks[i * len(blocks) // 32] for i in range(32)] if blocks else []
    return np.array([first + lane for first in chosen for lane in range(32)], np.int64)
