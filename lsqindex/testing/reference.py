"""Every kernel again in plain NumPy: slow, obvious, the oracle of the tests.

The compiled kernels (``cython_src/``) must give the same bits as these functions, on every
instruction set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..encoders.layout import Layout, Tables

#: Bits flipped last that a flip search leaves alone.
TENURE = 5


def pack(fields: NDArray[np.uint16], widths: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Field numbers (n, m) as codes (n, size): field after field, lowest bit first."""
    columns = [fields[:, j] >> k & 1 for j, width in enumerate(widths) for k in range(width)]
    bits = np.array(columns, np.uint8).T.reshape(len(fields), int(widths.sum()))
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little").reshape(len(fields), size))


def unpack(codes: NDArray[np.uint8], widths: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """The field numbers (n, m) of codes."""
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.uint16)
    fields = np.zeros((len(codes), len(widths)), np.uint16)
    at = 0
    for j, width in enumerate(widths):
        for k in range(width):
            fields[:, j] |= bits[:, at + k] << k
        at += int(width)
    return fields


def flips(
    bits: NDArray[np.uint8],
    r: NDArray[np.int32],
    g2: NDArray[np.int32],
    diagonal: NDArray[np.int32],
    steps: int,
) -> None:
    """Improve binary codes in place by a tabu search over bit flips; see cython_src/flips.h."""
    m, stride = bits.shape[1], g2.shape[1]
    low = (1 << max(1, (stride - 1).bit_length())) - 1
    index = np.arange(m)
    G2 = g2[:m, :m].astype(np.int64)
    for row in range(len(bits)):
        h = bits[row].astype(np.int64) * 2 - 1
        gain = h * r[row] + diagonal
        best, error, best_error = h.copy(), 0, 0
        recent: list[int] = []
        for _ in range(steps):
            key = (gain & ~low) | index
            key[recent] = np.iinfo(np.int32).max
            j = int(np.argmin(key))
            if key[j] == np.iinfo(np.int32).max:
                break
            if gain[j] >= 0 and error < best_error:
                best_error, best = error, h.copy()
            recent = [*recent, j][-TENURE:]
            change = int(gain[j])
            error += change
            gain = gain + G2[j] * h * h[j]
            gain[j] = -change
            h[j] = -h[j]
        found = h if error < best_error else best
        bits[row] = (found + 1) // 2


def feedback(c: NDArray[np.float32], columns: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The first guess of binary codes by decision feedback; ``c`` becomes c − Lh; see cython_src/feedback.h."""
    bits = np.empty(c.shape, np.uint8)
    for j, column in enumerate(columns):
        bits[:, j] = c[:, j] >= 0
        h = np.where(bits[:, j], np.float32(1), np.float32(-1))
        c[:, j:] -= h[:, None] * column[j:]
    return bits


def descend(
    levels: NDArray[np.uint16], r: NDArray[np.float32], g: NDArray[np.float32], count: int, sweeps: int
) -> None:
    """Improve n-ary codes in place by cyclic coordinate descent; see cython_src/descend.h."""
    one = np.float32
    step, per_step, top = one(2) / one(count - 1), one(count - 1) / one(2), one(count - 1)
    for row in range(len(levels)):
        for _ in range(sweeps):
            moves = 0
            for j in range(levels.shape[1]):
                if not g[j, j] > 0:
                    continue
                now = one(levels[row, j])
                wish = np.floor(now + r[row, j] / g[j, j] * per_step + one(0.5))
                wish = min(max(wish, one(0)), top)
                if wish == now:
                    continue
                r[row] -= (wish - now) * step * g[j]
                levels[row, j] = int(wish)
                moves += 1
            if not moves:
                break


def product(rows: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """``rows @ matrixᵀ``, every number the sum of its products in their order; see cython_src/product.h."""
    out = np.zeros((len(rows), len(matrix)), np.float32)
    for at in range(rows.shape[1]):
        out += rows[:, at, None] * matrix[:, at]
    return out


def linear_tables(
    queries: NDArray[np.float32],
    matrix: NDArray[np.float32],
    m: int,
    theta: NDArray[np.float32],
    known: NDArray[np.float32],
    *,
    centre: NDArray[np.float32] | None = None,
    unit: bool = False,
    constant: float = 0,
    frontier: float = 1,
    length: float = 1,
    spread: float = 0,
) -> Tables:
    """The look-up tables of a linear code; see cython_src/tables.h."""
    values, bias, steps = np.empty((len(queries), len(known)), np.float32), [], len(known) - m * len(theta)
    for query, own in zip(queries, values, strict=True):
        apart = query if centre is None else query - centre
        x = product((apart if centre is None else 2 * apart)[None], matrix)[0]
        at = np.float32(frontier)
        if len(matrix) > m + 1:
            at = np.float32(float(x[m + 1]) + float(np.float32(spread)) * math.sqrt(_sum_of_squares(x[:m])))
        size = _sum_of_squares(query) if unit else 1.0
        x = x * np.float32(length) / np.float32(math.sqrt(size) if size > 0 else 1)
        if centre is not None:
            bias.append(np.float32(_sum_of_squares(apart)) + np.float32(constant))
        else:
            bias.append((np.float32(constant) if len(matrix) == m + 1 else -at) - x[m])
        own[:] = at * known
        own[steps:] -= np.multiply.outer(x[:m], theta).ravel()
    return Tables(values, np.array(bias, np.float32))


def _sum_of_squares(numbers: NDArray[np.float32]) -> float:
    """In double, one after another: NumPy's sums have another order."""
    total = 0.0
    for number in numbers.astype(np.float64).tolist():
        total += number * number
    return total


def distances(codes: NDArray[np.uint8], layout: Layout, tables: Tables) -> NDArray[np.float32]:
    """The distance of every query to every row, shape (nq, n): a sum of look-ups in float32.

    >>> layout = Layout.uniform(levels=2, m=2)
    >>> tables = Tables(np.array([[0, 1, 0, 10]], np.float32), np.array([5], np.float32))
    >>> distances(layout.pack(np.array([[1, 0], [1, 1]], np.uint16)), layout, tables)
    array([[ 6., 16.]], dtype=float32)
    """
    if layout.floats:
        raise ValueError("a layout of floats has no tables: compare decoded vectors")
    at = layout.unpack(codes).astype(np.int64) + layout.starts[:-1]
    out = np.empty((len(tables.values), len(codes)), np.float32)
    for query, values in enumerate(tables.values):
        out[query] = values[at].sum(axis=1, dtype=np.float32) + tables.bias[query]
    return out


# -- the scan (cython_src/scan.h) ---------------------------------------------------------------


def nibble_tables(layout: Layout, tables: Tables) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Look-ups by nibble, float32 (nq, nibbles, 16), and what no row changes, from those by field.

    A field inside a nibble gives its own look-ups. One that lies across is affine in its bits (``layout.linear``):
    each bit gives its weight, and the first look-up goes to the bias.

    >>> layout = Layout.uniform(levels=2, m=2)
    >>> tables = Tables(np.array([[0, 1, 0, 10]], np.float32), np.array([5], np.float32))
    >>> exact, bias = nibble_tables(layout, tables)
    >>> exact.shape, exact[0, 0, :5], bias
    ((1, 2, 16), array([ 0.,  1., 10., 11.,  0.], dtype=float32), array([5.], dtype=float32))
    """
    exact = np.zeros((len(tables.values), 2 * layout.code_size, 16), np.float32)
    bias = tables.bias.astype(np.float32)
    numbers = np.arange(16)
    begin = 0
    for j, (width, levels) in enumerate(zip(layout.bits, layout.levels, strict=True)):
        table = tables.values[:, layout.starts[j] : layout.starts[j + 1]]
        if begin // 4 == (begin + width - 1) // 4:
            own = numbers >> begin % 4 & (1 << width) - 1
            exact[:, begin // 4] += table[:, np.minimum(own, levels - 1)]
        else:
            bias += table[:, 0]
            for k in range(width):
                at, bit = divmod(begin + k, 4)
                exact[:, at, numbers >> bit & 1 == 1] += (table[:, 1 << k] - table[:, 0])[:, None]
        begin += width
    return exact, bias


def nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The nibbles of codes, the lower one of a byte first.

    >>> nibbles(np.array([[0x21, 0x43]], np.uint8))
    array([[1, 2, 3, 4]], dtype=uint8)
    """
    return np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), 2 * codes.shape[1])


def nibble_distances(
    codes: NDArray[np.uint8], exact: NDArray[np.float32], bias: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The distance of every query to every row, shape (nq, n), by look-ups of :func:`nibble_tables`.

    Nibble i goes to sum i modulo 4; the four come together at the end. All in float32.
    """
    at = nibbles(codes)
    sums = np.zeros((4, len(exact), len(codes)), np.float32)
    for i in range(at.shape[1]):
        sums[i % 4] += exact[:, i, at[:, i]]
    out: NDArray[np.float32] = bias[:, None] + ((sums[0] + sums[1]) + (sums[2] + sums[3]))
    return out


def field_distances(codes: NDArray[np.uint8], layout: Layout, tables: Tables) -> NDArray[np.float32]:
    """The same by look-ups of fields, one after another; a number beyond its levels counts as the last one."""
    fields = np.minimum(unpack(codes, np.array(layout.bits, np.uint8)), np.array(layout.levels) - 1)
    out = np.repeat(tables.bias.astype(np.float32)[:, None], len(codes), axis=1)
    for j in range(fields.shape[1]):
        out += tables.values[:, layout.starts[j] + fields[:, j]]
    return out


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


# -- exact distances of kept vectors (cython_src/exact.h) ------------------------------------------

#: A sum of squares below the first may have lost numbers. A query so short is multiplied by the second, for cosine.
SMALL, LIFT = 2.0**-80, np.float32(2.0**100)


def exact_distances(vectors: NDArray[np.float32], metric: str, query: NDArray[np.float32]) -> NDArray[np.float32]:
    """The distance of each of ``vectors`` from one query; those kept in int8 or float16 as float32.

    >>> exact_distances(np.eye(2, dtype=np.float32), "cosine", np.array([0, 3], np.float32))
    array([1., 0.], dtype=float32)
    """
    wide = query.astype(np.float64)
    if metric == "l2":
        sums = lane_sums((query - vectors) ** 2)
        return np.where(sums < SMALL, _wide_sums((wide - vectors) ** 2), sums).astype(np.float32)
    own = lane_sums((query * query)[None])
    if metric == "ip":
        products = _wide_sums(wide * vectors) if own < SMALL else lane_sums(query * vectors)
        return (-products).astype(np.float32)
    if own < SMALL:
        query = query * LIFT
        wide, own = query.astype(np.float64), lane_sums((query * query)[None])
    products, squares = lane_sums(query * vectors), lane_sums(vectors * vectors)
    small = squares < SMALL
    products = np.where(small, _wide_sums(wide * vectors), products)
    squares = np.where(small, _wide_sums(vectors.astype(np.float64) ** 2), squares)
    norms = np.sqrt(squares * own)
    return (1 - np.divide(products, norms, out=np.zeros(len(norms)), where=norms > 0)).astype(np.float32)


def expected_misses(estimates: NDArray[np.float32], exact: NDArray[np.float32], kth: float, total: int) -> float:
    """How many rows that were not compared are expected to be nearer than ``kth``; see cython_src/misses.h."""
    x, y, n = estimates.astype(np.float64).tolist(), exact.astype(np.float64).tolist(), len(estimates)
    mean_x, mean_y, xx, xy, rest, misses = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for own_x, own_y in zip(x, y, strict=True):  # one after another: NumPy's sums have another order
        mean_x, mean_y = mean_x + own_x, mean_y + own_y
    mean_x, mean_y = mean_x / n, mean_y / n
    for own_x, own_y in zip(x, y, strict=True):
        xx, xy = xx + (own_x - mean_x) * (own_x - mean_x), xy + (own_x - mean_x) * (own_y - mean_y)
    slope = xy / xx if xx > 0 else 0.0
    for own_x, own_y in zip(x, y, strict=True):
        error = own_y - mean_y - slope * (own_x - mean_x)
        rest += error * error
    s = math.sqrt(rest / (n - 2))
    slope = max(0.0, slope - s / math.sqrt(xx)) if xx > 0 else 0.0
    octave, rows, left = x[-1] - x[n // 2 - 1], float(n), float(total - n)
    ahead = x[-1] + octave / 2
    while left > 0:
        z = kth - mean_y - slope * (ahead - mean_x)
        share = min(rows, left)
        misses += share * (0.5 * math.erfc(-z / (s * 1.4142135623730951)) if s > 0 else float(z > 0))
        rows, left, ahead = 2 * rows, left - share, ahead + octave
    return misses


def lane_sums(terms: NDArray[np.float32]) -> NDArray[np.float64]:
    """The sum of each row: 32 sums in float32 side by side, added in halves after 512 terms and at the end."""
    out = np.zeros(len(terms))
    for first in range(0, terms.shape[1], 512):
        lanes = np.zeros((len(terms), 32), np.float32)
        for at in range(first, min(first + 512, terms.shape[1]), 32):
            part = terms[:, at : at + 32]
            lanes[:, : part.shape[1]] += part
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        out += lanes[:, 0]
    return out


def _wide_sums(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each row in float64, term after term."""
    return 0.0 + np.cumsum(terms, axis=1)[:, -1]  # as a sum that begins with 0: never −0


# -- posting lists and scores (cython_src/lists.h, probes.h, scores.h) -----------------------------

#: What the costliest value of a query's probe tables costs; upper bits of a bucket that have a start each.
COST, DIRECTORY_BITS = 1 << 20, 14


def list_payload(buckets: NDArray[np.int64], rows: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """The lists of one table: ``rows``, rising, less the block's first, and the bucket each is in.

    >>> list_payload(np.array([1, 0, 1]), np.array([0, 1, 2]), 1).view(np.uint16)
    array([0, 1, 3, 1, 0, 2], dtype=uint16)
    """
    upper = min(bits, DIRECTORY_BITS)
    order = np.argsort(buckets, kind="stable")
    bins = buckets[order] >> (bits - upper)
    starts = np.searchsorted(bins, np.arange((1 << upper) + 1)).astype("<u2")
    parts = [starts.view(np.uint8), rows[order].astype("<u2").view(np.uint8)]
    if bits > upper:
        parts.append((buckets[order] & ((1 << (bits - upper)) - 1)).astype(np.uint8))
    return np.concatenate(parts)


def costs(layout: Layout, values: NDArray[np.float32]) -> NDArray[np.int64]:
    """What each value of each field costs more than its field's nearest, in whole numbers, for one query."""
    out = np.zeros(len(values), np.int64)
    fields = [slice(*layout.starts[f : f + 2]) for f in range(layout.scalars, len(layout.bits))]
    wide = values.astype(np.float64)
    largest = max(wide[field].max() - wide[field].min() for field in fields)
    for field in fields:
        own = wide[field] - wide[field].min()
        # Only the first nearest value costs nothing.
        out[field] = np.maximum(np.floor(own * (COST / largest if largest > 0 else 0) + 0.5), 1)
        out[field.start + int(np.argmin(own))] = 0
    return out


def probes(
    layout: Layout, table_fields: NDArray[np.int64], values: NDArray[np.float32], wanted: int
) -> list[tuple[int, int, int]]:
    """(cost, table, bucket) of the ``wanted`` cheapest buckets of all tables together, in order, for one query.

    Table t has the fields from ``table_fields[t]`` up to the next table's: several of two values, or one.
    """
    own, found = costs(layout, values), []
    for t, (first, end) in enumerate(zip(table_fields[:-1].tolist(), table_fields[1:].tolist(), strict=True)):
        sums = np.zeros(1, np.int64)
        for f in range(first, end):
            # The later field has the higher bits.
            sums = (own[layout.starts[f] : layout.starts[f + 1], None] + sums).ravel()
        found += [(cost, t, bucket) for bucket, cost in enumerate(sums.tolist())]
    return sorted(found)[:wanted]


def scores(buckets: NDArray[np.int64], probes: list[tuple[int, int, int]], *, weigh: bool) -> NDArray[np.int64]:
    """The score of every row, whose ``buckets`` (n, tables) are: the sum of what its hits count."""
    tables = buckets.shape[1]
    most = 255 // tables if weigh and tables <= 127 else 1
    limit = max((cost for cost, _, _ in probes), default=0)
    out = np.zeros(len(buckets), np.int64)
    for cost, table, bucket in probes:
        out[buckets[:, table] == bucket] += most - (most // 2 * cost // limit if limit else 0)
    return out


def best_rows(scores: NDArray[np.int64], wanted: int) -> NDArray[np.intp]:
    """The rows of the ``wanted`` best scores, ties included, and none without a score.

    >>> best_rows(np.array([0, 3, 1, 3, 2]), 1)
    array([1, 3])
    """
    least = np.sort(scores)[::-1][min(wanted, len(scores)) - 1] if len(scores) else 0
    return np.flatnonzero((scores >= least) & (scores > 0))
