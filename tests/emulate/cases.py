"""Random kernel cases for driver.c on standard output; with ``expect``, what the reference makes of them."""

from __future__ import annotations

import sys
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsqindex._compiled import assign as _assign
from lsqindex._compiled import encoding as _kernels
from lsqindex._storage.format import kept, records
from lsqindex._storage.format.columns import Column, to_blocks
from lsqindex.encoders import Layout
from lsqindex.encoders.layout import Tables
from lsqindex.testing import reference

EXPECT = "expect" in sys.argv


def case(kind: int, n: int, m: int, a: int, b: int, *arrays: NDArray[Any] | bytes) -> None:
    if not EXPECT:
        write(np.array([kind, n, m, a, b], "<i4"), *arrays)


def write(*arrays: NDArray[Any] | bytes) -> None:
    sys.stdout.buffer.write(b"".join(bytes(array) for array in arrays))


def encoders(rng: np.random.Generator) -> None:
    for m in (1, 2, 15, 16, 17, 31, 33, 64, 100, 257):
        n = 20
        rows = rng.standard_normal((m, m)).astype(np.float32)
        gram = rows @ rows.T
        c = rng.standard_normal((n, m)).astype(np.float32)
        case(0, n, m, 0, 0, c, gram)
        bits = reference.feedback(c.copy(), gram)
        if EXPECT:
            write(bits)
        stride = -(-m // _kernels.LANES) * _kernels.LANES
        fixed = np.rint(gram * (2.0**28 / np.abs(gram).sum(axis=1).max())).astype(np.int32)
        twice = np.zeros((m + 1, stride), np.int32)
        twice[:m, :m] = 2 * fixed
        r = rng.integers(-(2**28), 2**28, (n, m)).astype(np.int32)
        diagonal = np.ascontiguousarray(np.diag(fixed))
        for steps in (0, 1, 50):
            case(1, n, m, stride, steps, bits, r, twice, diagonal)
            if EXPECT:
                better = bits.copy()
                reference.flips(better, r, twice, diagonal, steps)
                write(better)
        for levels in (2, 3, 16, 256):
            start = rng.integers(0, levels, (n, m)).astype(np.uint16)
            left = rng.standard_normal((n, m)).astype(np.float32)
            case(2, n, m, levels, 4, start, left, gram)
            if EXPECT:
                reference.descend(start, left, gram, levels, 4)
                write(start, left)


def sums(rng: np.random.Generator) -> None:
    for columns, queries, bits in product((2, 3, 8, 33, 100, 258, 259, 300), (1, 2, 3, 4), (8, 16)):
        codes = rng.integers(0, 256, (96, columns)).astype(np.uint8)
        top = 127 if bits == 8 else min(127, 65535 // (2 * columns))
        look_ups = rng.integers(0, top + 1, (queries, 2 * columns, 16)).astype(np.uint8)
        look_ups[3:] = top
        places = np.arange(2 * columns), reference.nibbles(codes)
        own = np.stack([table[places].astype(np.int64).sum(axis=1) for table in look_ups])
        own = np.minimum(own, (1 << bits) - 1).astype("<u2")
        limits = np.sort(own, axis=1)[np.arange(queries), [40, 0, 95, 20][:queries]]  # which some rows just reach
        head = int(rng.integers(1, columns))
        case(3, queries, columns, head, bits, to_blocks(codes, head), look_ups, limits)
        if EXPECT:
            # By blocks, in each the queries side by side; masks come in the order in which blocks are asked for.
            near = (own <= limits[:, None]).reshape(queries, 3, 32).transpose(1, 0, 2)[::-1]
            write(np.ascontiguousarray(own.reshape(queries, 3, 32).transpose(1, 0, 2)))
            write(np.packbits(near, axis=2, bitorder="little"))


def searches(rng: np.random.Generator) -> None:
    """Whole and progressive scans by nibbles, and scans by fields."""
    counts, n = [1, 33, 0, 800, 266], 1100
    firsts = np.cumsum([0, *counts])[:-1]
    certain = []
    for width, queries, (bits, z) in product((2, 3, 16, 33, 64, 259), range(1, 10), ((1, None), (1, 1.5), (8, None))):
        layout = Layout.uniform(1 << bits, 8 * width - 1 if bits == 1 else width, linear=bits == 1)
        values = rng.standard_normal((queries, int(layout.starts[-1]))).astype(np.float32)
        tables = Tables(values, rng.standard_normal(queries).astype(np.float32))
        codes = rng.integers(0, 256, (n, width)).astype(np.uint8)
        if bits == 1:  # some rows are near: at least seven of eight bits are those that a query likes best
            best = layout.pack((values[:, 1::2] < values[:, ::2]).astype(np.uint16))
            flips = 1 << rng.integers(0, 8, (120, width))
            codes[rng.permutation(n)[:120]] = best[rng.integers(0, queries, 120)] ^ flips.astype(np.uint8)
        head = width if z is None and queries % 2 else max(1, width // 3)
        k, parts = int(rng.choice([1, 5, 40])), 1 + queries % 3
        limit = (np.inf, np.inf, -2.0 * width, 0.0)[queries % 4]
        wanted = None if limit == 0 and z is None else k
        column = Column(b"codes", b"c", records.CODES, width, head=head)
        payloads = [column.encode(first, codes[first : first + own]) for first, own in zip(firsts, counts, strict=True)]
        numbers = np.array(
            [len(counts), n, wanted or 2**63 - 1, layout.m, values.shape[1], bits == 1, z is not None], "<i8"
        )
        fields = np.concatenate([layout.starts[:-1], layout.bit_starts, layout.level_counts])
        lying = np.array([z or 0, limit]), np.array([firsts, counts], "<u4"), fields
        case(4, queries, width, head, parts, numbers, *lying, values, tables.bias, *payloads)
        if not EXPECT:
            continue
        if z is None:
            near = reference.scan(codes, layout, tables, wanted, by_nibbles=bits == 1, limit=limit)
            found = [(*own, True) for own in near]
        else:
            found = reference.progressive(codes, layout, tables, wanted, head, z, counts, limit)
            certain += [sure for _, _, sure in found]
        for rows, distances, sure in found:
            all_rows = np.full(n, -1, "<i4").view("<f4")
            if sure:  # else what was found is of no use
                all_rows[rows] = distances
            write(bytes([sure]), all_rows)
    assert not EXPECT or 50 < sum(certain) < len(certain)


def kept_vectors(rng: np.random.Generator) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = halves[np.isfinite(halves)].astype(np.float32)[:, None]
    samples = [rng.standard_normal((20, dim)).astype(np.float32) for dim in (1, 3, 17, 31, 32, 384, 512, 1000)]
    for vectors in (*samples, samples[3] * np.float32(1e-30), samples[3] * np.float32(1e3), every):
        for a, kind in enumerate(("float32", "float16", "int8", "scaled-float16")):
            stored = kept.to_bytes(vectors, kind)
            query = rng.standard_normal(vectors.shape[1]).astype(np.float32)
            for b, metric in enumerate(("l2", "ip", "cosine")):
                case(5, len(vectors), vectors.shape[1], a, b, stored, query)
                if EXPECT:
                    write(reference.exact_distances(kept.from_bytes(stored, kind)[::-1], metric, query))


def all_vectors(rng: np.random.Generator) -> None:
    """Vectors that lie as codes do, those within a limit."""
    for n, dim in ((1, 1), (70, 3), (64, 31), (33, 32), (95, 100), (40, 513), (40, 1100)):
        for scale, (b, metric) in product((1.0, 1e-30), enumerate(("l2", "ip", "cosine"))):
            vectors = (scale * rng.standard_normal((n, dim))).astype(np.float32)
            vectors[n // 2] = 0
            queries = rng.standard_normal((5, dim)).astype(np.float32)
            queries[3] *= np.float32(1e-25)
            limit, head = (np.inf, 2.0 * dim, 0.0, 1.0)[int(rng.integers(4))], int(rng.integers(1, 4 * dim + 1))
            record = Column(b"codes", b"c", records.CODES, 4 * dim, head=head).encode(0, vectors.view(np.uint8))
            case(7, n, dim, head, b, np.array([limit]), queries, record)
            for query in queries if EXPECT else ():
                distances = reference.exact_distances(vectors, metric, query)
                near = np.full(n, -1, "<i4").view("<f4")
                rows = reference.nearest(distances, None, limit)
                near[rows] = distances[rows]
                write(near)


def posting_lists(rng: np.random.Generator) -> None:
    """Lists of two blocks as they are made; and the rows of the best scores, but for those that are deleted."""
    n, blocks, queries = 1301, [0, 640, 1301], 3
    # Buckets with a start each and without, n-ary ones, more tables than a byte can count.
    shapes = ((2, 40, 4), (2, 35, 13), (2, 28, 14), (2, 30, 15), (2, 18, 18), (2, 300, 1), (16, 9, 4), (3, 20, 2))
    for (levels, m, bits), weigh in product(shapes, (False, True)):
        layout = Layout.uniform(levels, m)
        tables = np.array([*range(0, m, bits if levels == 2 else 1), m])
        first_bits = layout.bit_starts[tables]
        values = rng.standard_normal((queries, int(layout.starts[-1]))).astype(np.float32)
        near = values.reshape(queries, m, levels).argmin(axis=2)[rng.integers(0, queries, n)]
        share = rng.random((n, 1)) ** 2
        fields = np.where(rng.random((n, m)) < share, rng.integers(0, levels, (n, m)), near).astype(np.uint16)
        codes, deleted = layout.pack(fields), rng.integers(0, 256, 2048 // 8).astype(np.uint8)
        head, probes, wanted = int(rng.integers(1, codes.shape[1] + 1)), 3 * len(tables), int(rng.choice([1, 20, 300]))
        numbers = np.array([queries, len(tables) - 1, probes, wanted, weigh, m, values.shape[1]], "<i8")
        places = np.concatenate([layout.starts[:-1], layout.bit_starts, layout.level_counts])
        record = Column(b"codes", b"c", records.CODES, codes.shape[1], head=head).encode(0, codes)
        lying = numbers, places, tables.astype("<i8"), np.array(blocks, "<u4"), values, deleted, record
        case(6, n, codes.shape[1], head, len(blocks) - 1, *lying)
        if not EXPECT:
            continue
        every = np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64)
        buckets = np.stack([every[:, a:b] @ (1 << np.arange(b - a)) for a, b in pairwise(first_bits.tolist())], axis=1)
        for (begin, end), t in product(pairwise(blocks), range(len(tables) - 1)):
            width = int(first_bits[t + 1] - first_bits[t])
            write(reference.list_payload(buckets[begin:end, t], np.arange(end - begin), width))
        for own in values:
            scores = reference.scores(buckets, reference.probes(layout, tables, own, probes), weigh=weigh)
            scores[np.unpackbits(deleted, bitorder="little")[:n] == 1] = 0
            found = np.zeros(n, "<u2")
            best = reference.best_rows(scores, wanted)
            found[best] = scores[best]
            write(found)


def linear_tables(rng: np.random.Generator) -> None:
    """Tables of linear codes, by all formulas."""
    for (dim, m), (kind, extra) in product(((1, 1), (7, 20), (37, 33), (96, 64)), enumerate((0, 1, 1, 2))):
        n, steps, levels = 19, 5, 3
        queries, matrix = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, dim), (m + extra, dim)))
        known, theta = (
            rng.standard_normal(steps + m * levels).astype(np.float32),
            np.linspace(-1, 1, levels, dtype=np.float32),
        )
        constant, frontier, length, spread = np.array([0.3, 1.25, 1.7 if extra == 2 else 1, 0.9], np.float32)
        centre = None if extra else rng.standard_normal(dim).astype(np.float32)
        numbers, four = np.array([levels, steps, m + extra], "<i8"), np.array([constant, frontier, length, spread])
        given = numbers, matrix, theta, four, known, b"" if centre is None else centre, queries
        case(8, n, dim, m, kind == 2, *given)
        if EXPECT:
            told: dict[str, Any] = {"centre": centre, "unit": kind == 2, "constant": constant, "frontier": frontier}
            made = reference.linear_tables(queries, matrix, m, theta, known, **told, length=length, spread=spread)
            write(made.values + np.float32(0), made.bias)


def centres(rng: np.random.Generator) -> None:
    """The nearest centres of rows, some of which are equal, and second cells."""
    for n, dim, count, k in ((1, 1, 2, 2), (70, 3, 9, 9), (65, 37, 50, 24), (40, 384, 90, 3)):
        rows, points = (rng.standard_normal((size, dim)).astype(np.float32) for size in (n, count))
        points[count // 2 :: 7] = points[0]
        rows[::5] = points[np.arange(0, n, 5) % count]
        case(9, n, dim, count, k, rows, points)
        if EXPECT:
            labels, squares = reference.nearest_centres(rows, points, k)
            write(labels.astype("<u4"), squares, reference.second_cells(rows, points, labels, squares).astype("<i4"))


def cells(rng: np.random.Generator) -> None:
    """Cells with tails, rows that may not be found, and rows that are in no cell."""
    n, dim, count, fresh = 700, 20, 40, 660
    for bits, (b, metric), kept_too in product((1, 8), enumerate(("l2", "ip", "cosine")), (True, False)):
        width, head = 12, 4
        layout = Layout.uniform(1 << bits, 8 * width // bits, linear=bits == 1)
        values = rng.standard_normal((1, int(layout.starts[-1]))).astype(np.float32)
        tables = Tables(values, rng.standard_normal(1).astype(np.float32))
        vectors, query = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, dim), dim))
        codes, centre_codes = (rng.integers(0, 256, (size, width)).astype(np.uint8) for size in (n, count))
        points = rng.standard_normal((count, dim)).astype(np.float32)
        points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float16)
        near, spreads = (rng.random(count).astype(np.float32) for _ in range(2))
        homes = rng.integers(0, count, (2, fresh))
        rows = [np.flatnonzero((homes == cell).any(axis=0)).astype(np.uint32) for cell in range(count)]
        entries = [(own[: len(own) * 3 // 4], own[len(own) * 3 // 4 :]) for own in rows]
        may = rng.random(n) < 0.8
        sizes = np.array([[len(part) for part in both] for both in entries])
        parts = [part for both in entries for part in both]
        every_row = np.concatenate(parts)
        made = _assign.pack(
            b"k", np.arange(len(parts), dtype=np.uint32), sizes.ravel(), every_row, codes[every_row], head, 1
        )
        column = Column(b"codes", b"c", records.CODES, width, head=head)
        for k, rule, probes, depth in (
            (1, (0.1, 0.01, 0.2, 0.05, 0.1), 0, 0),
            (10, (1.0, 0.1, 0.2, 0.5, 0.1), 0, 0),
            (10, (0.0, 0.0, 0.1, 5.0, 0.01), 25, 0),
            (40, (0.5, 0.1, 0.2, 0.5, 0.1), 0, 60),
            (n, (0.5, 0.1, 0.2, 0.5, 0.1), 0, 0),
        ):
            numbers = np.array(
                [width, head, layout.m, values.shape[1], bits == 1, fresh, kept_too, k, probes, depth], "<i8"
            )
            fields = np.concatenate([layout.starts[:-1], layout.bit_starts, layout.level_counts])
            given = (
                numbers,
                np.array(rule, "<f4"),
                fields,
                sizes.astype("<u4"),
                points,
                to_blocks(centre_codes, head),
                near,
                spreads,
            )
            own = column.encode(0, codes), vectors, np.packbits(may, bitorder="little"), query, values, tables.bias
            case(10, n, dim, count, b, *given, *own, *made)
            if not EXPECT:
                continue
            plain = reference.Cells(
                entries, points.astype(np.float32), centre_codes, near, spreads, codes, [(0, n)], fresh, may
            )
            kept_vectors_of = vectors if kept_too else None
            asked = reference.Asked(
                query, metric, layout, tables, bits == 1, head, kept_vectors_of, k, reference.Rule(*rule), probes, depth
            )
            visits = reference.search_cells(plain, asked)
            distances = np.array([visits.compared[row] for row in sorted(visits.compared)], np.float32)
            every = np.full(n, -1, "<i4").view("<f4")
            found = reference.nearest(distances, k)
            every[np.array(sorted(visits.compared))[found]] = distances[found]
            write(every, np.array([visits.cells, visits.rows, len(visits.compared)], "<i8"))


if __name__ == "__main__":
    for kernels in (encoders, sums, searches, kept_vectors, all_vectors, posting_lists, linear_tables, centres, cells):
        kernels(np.random.default_rng(0))
