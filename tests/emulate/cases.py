"""Random kernel cases for driver.c on standard output; with ``expect``, what the reference makes of them."""

from __future__ import annotations

import sys

import numpy as np

from lsqindex import _kernels, reference
from lsqindex.storage import kept


def main() -> None:
    expect = "expect" in sys.argv
    rng = np.random.default_rng(0)
    out = sys.stdout.buffer

    def case(kind: int, n: int, m: int, a: int, b: int, *arrays: np.ndarray) -> None:
        if not expect:
            out.write(np.array([kind, n, m, a, b], "<i4").tobytes() + b"".join(array.tobytes() for array in arrays))

    for m in (1, 2, 15, 16, 17, 31, 33, 64, 100, 257):
        n = 20
        rows = rng.standard_normal((m, m)).astype(np.float32)
        gram = rows @ rows.T
        c = rng.standard_normal((n, m)).astype(np.float32)
        case(0, n, m, 0, 0, c, gram)
        bits = reference.feedback(c.copy(), gram)
        if expect:
            out.write(bits.tobytes())
        stride = -(-m // _kernels.LANES) * _kernels.LANES
        fixed = np.rint(gram * (2.0**28 / np.abs(gram).sum(axis=1).max())).astype(np.int32)
        twice = np.zeros((m + 1, stride), np.int32)
        twice[:m, :m] = 2 * fixed
        r = rng.integers(-(2**28), 2**28, (n, m)).astype(np.int32)
        diagonal = np.ascontiguousarray(np.diag(fixed))
        for steps in (0, 1, 50):
            case(1, n, m, stride, steps, bits, r, twice, diagonal)
            if expect:
                better = bits.copy()
                reference.flips(better, r, twice, diagonal, steps)
                out.write(better.tobytes())
        for levels in (2, 3, 16, 256):
            start = rng.integers(0, levels, (n, m)).astype(np.uint16)
            left = rng.standard_normal((n, m)).astype(np.float32)
            case(2, n, m, levels, 4, start, left, gram)
            if expect:
                reference.descend(start, left, gram, levels, 4)
                out.write(start.tobytes() + left.tobytes())
    for columns in (1, 2, 3, 8, 33, 100, 258, 259, 300):
        for queries in (1, 2, 3, 4):
            codes = rng.integers(0, 256, (32, columns)).astype(np.uint8)
            blocks = np.ascontiguousarray(codes.T)
            exact = rng.standard_normal((queries, 2 * columns, 16)).astype(np.float32)
            bias = rng.standard_normal(queries).astype(np.float32)
            exact[0, 0] *= 50  # so that most look-ups are small, and one is not
            case(4, queries, columns, 0, 0, blocks, exact, bias)
            quantized = [reference.quantize(*one) for one in zip(exact, bias, strict=True)]
            distances = reference.nibble_distances(codes, exact, bias)
            # Column by column, in each the queries side by side.
            tables = np.stack([bytes_.reshape(columns, 32) for bytes_, _, _ in quantized], axis=1)
            if expect:
                for (_, base, step), own in zip(quantized, distances, strict=True):
                    out.write(np.array([base, step], "<f8").tobytes() + own.tobytes())
                out.write(tables.tobytes())
            # The largest look-ups there are, and random ones; limits that some rows just reach.
            full = np.full((columns, queries, 32), min(127, 65535 // (2 * columns)), np.uint8)
            for look_ups in (tables, full):
                at = reference.nibbles(codes).reshape(32, columns, 2).astype(np.int64)
                places = np.arange(columns)[:, None]
                sums = look_ups.reshape(columns, queries, 2, 16).astype(np.int64)
                own_sums = np.stack([sums[:, q][places, np.arange(2), at].sum(axis=(1, 2)) for q in range(queries)])
                for rank in (0, 15, 31):
                    limits = np.sort(own_sums, axis=1)[:, rank].astype("<u2")
                    for lower in (0, 1):
                        limits = np.maximum(limits.astype(np.int64) - lower, 0).astype("<u2")
                        for head in sorted({1, columns}):
                            case(3, queries, columns, head, 0, blocks, look_ups, limits)
                            if expect:
                                near = own_sums <= limits[:, None]
                                out.write(np.packbits(near, axis=1, bitorder="little").tobytes())
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = halves[np.isfinite(halves)].astype(np.float32)[:, None]
    samples = [rng.standard_normal((20, dim)).astype(np.float32) for dim in (1, 3, 17, 31, 32, 384, 512, 1000)]
    for vectors in (*samples, samples[3] * np.float32(1e-30), every):
        for a, kind in enumerate(("float32", "float16", "int8")):
            stored = kept.to_bytes(vectors, kind)
            query = rng.standard_normal(vectors.shape[1]).astype(np.float32)
            for b, metric in enumerate(("l2", "ip", "cosine")):
                case(5, len(vectors), vectors.shape[1], a, b, stored, query)
                if expect:
                    out.write(reference.exact_distances(kept.from_bytes(stored, kind)[::-1], metric, query).tobytes())


if __name__ == "__main__":
    main()
