"""Random kernel cases for driver.c on standard output; with ``expect``, what the reference makes of them."""

from __future__ import annotations

import sys

import numpy as np

from lsqindex import _kernels, reference


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


if __name__ == "__main__":
    main()
