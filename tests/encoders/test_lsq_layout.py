"""What the layout of LSQ promises: order of rows, head, tables; and odd sizes."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from lsqindex import make_encoder
from lsqindex._inputs.vectors import Vectors
from lsqindex.encoders import from_bytes, to_bytes
from lsqindex.encoders.lsq import LSQ
from lsqindex.errors import CodeError, ParameterError, StateError
from lsqindex.testing import clustered_vectors, reference

from .digits import DIGITS, relative_error

# -- what the layout promises -------------------------------------------------------------------


def rows_of(lsq: LSQ) -> NDArray[np.float32]:
    """V, read off tables: the weight of dimension j for the query mean + e_i is −2·V_ji."""
    return lsq.state["rows"] @ lsq.state["axes"]


@pytest.mark.parametrize("bits", [32, 64, 256])
def test_rows_come_by_falling_length(bits: int) -> None:
    lsq = LSQ(bits=bits, iterations=4).fit(DIGITS)
    lengths = np.linalg.norm(rows_of(lsq).astype(np.float64), axis=1)
    assert (np.diff(lengths) <= 1e-4 * lengths[0]).all()
    assert lengths[0] > 1.5 * lengths[-1]


def bit_weights(lsq: LSQ, queries: Vectors) -> NDArray[np.float32]:
    """What each bit of a row adds to its asymmetric distance, shape (queries, bits)."""
    tables, layout = lsq.tables(queries, "l2"), lsq.layout
    columns = [
        tables.values[:, start + (1 << k)] - tables.values[:, start]
        for start, bits in zip(layout.starts.tolist(), layout.bits, strict=False)
        for k in range(bits)
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("bits", [200, 256, 512])
def test_the_head_lets_the_nearest_pass_and_keeps_others_out(bits: int) -> None:
    """On queries that training has not seen, by the rule that ``Layout.margins`` tells."""
    # Mixed: digits come writer after writer, and others write otherwise.
    mixed = DIGITS[np.random.default_rng(0).permutation(len(DIGITS))]
    rows, queries = mixed[:1400], mixed[1400:]
    lsq = LSQ(bits=bits, iterations=4).fit(rows)
    head, margins = lsq.layout.head, lsq.layout.margins
    assert head % 2 == 0
    assert lsq.code_size / 4 <= head < lsq.code_size
    assert 8 * head >= lsq.layout.bits[0]
    assert len(margins) == 3
    assert list(margins) == sorted(margins), "the fewer rows are wanted, the more deviations they are away"
    set_bits = np.unpackbits(lsq.encode(rows), axis=1, bitorder="little")[:, : lsq.layout.code_bits].astype(np.float32)
    weights = bit_weights(lsq, queries)
    whole, part = weights @ set_bits.T, weights[:, : 8 * head] @ set_bits[:, : 8 * head].T
    for wanted, margin in ((14, margins[0]), (1, margins[1])):
        passing = part <= (part.mean(axis=1) - margin * part.std(axis=1))[:, None]
        nearest = np.argsort(whole, axis=1, kind="stable")[:, :wanted]
        assert np.take_along_axis(passing, nearest, axis=1).mean() > 0.97
    assert passing.mean() < 0.05


def test_where_no_part_of_a_code_ranks_well_there_is_no_head() -> None:
    """All directions alike, so all bits; too few rows to learn from; codes of a byte or two."""
    alike: Vectors = np.random.default_rng(0).standard_normal((2000, 32)).astype(np.float32)
    for lsq in (LSQ(bits=64).fit(alike), LSQ(bits=256).fit(DIGITS[:300]), LSQ(bits=16).fit(DIGITS)):
        assert (lsq.layout.head, lsq.layout.margins) == (0, ())


def test_published_and_n_ary_codes_have_no_head() -> None:
    other: list[dict[str, Any]] = [{"refine": 0, "bits": 64}, {"levels": 4, "bits": 256}]
    for parameters in other:
        layout = LSQ(**parameters, iterations=2).fit(DIGITS).layout
        assert (layout.head, layout.margins) == (0, ())


@pytest.fixture(scope="module")
def with_head() -> LSQ:
    lsq = LSQ(bits=256, iterations=4).fit(DIGITS)
    assert lsq.layout.head
    return lsq


def test_the_head_is_stored(with_head: LSQ) -> None:
    again = from_bytes(to_bytes(with_head)).layout
    assert (again.head, again.margins) == (with_head.layout.head, with_head.layout.margins)


def test_an_encoder_stored_before_there_were_heads_has_none(with_head: LSQ) -> None:
    record = msgpack.unpackb(to_bytes(with_head))
    del record["state"]["head"]
    dtype, _, content = record["state"]["scalar_range"]
    state = {**record["state"], "scalar_range": [dtype, [2], content[:8]]}
    old = from_bytes(msgpack.packb({**record, "state": state, "version": 1}))
    assert (old.layout.head, old.layout.margins) == (0, ())
    assert old.layout.bits == with_head.layout.bits
    assert np.array_equal(old.encode(DIGITS[:20]), with_head.encode(DIGITS[:20]))
    with pytest.raises(StateError, match="head"):
        from_bytes(msgpack.packb(record))


@pytest.mark.parametrize(
    "head",
    [
        *([value, 1, 2, 3] for value in (-2, 1, 3, 0.5, 12.5, 32, 34, 1e30, np.nan, np.inf)),
        [0, 1, 2, 3],
        [12, 1, np.nan, 3],
        [12, 1, 2, np.inf],
        [12, 1, 2],
        [12, 1, 2, 3, 4],
    ],
)
def test_a_head_that_cannot_be_is_refused(with_head: LSQ, head: list[float]) -> None:
    state = {**with_head.state, "head": np.array(head, np.float32)}
    with pytest.raises(StateError, match="head"):
        LSQ.from_state(with_head.config, state, 64)


def test_a_head_of_published_and_n_ary_codes_is_refused() -> None:
    other: list[dict[str, Any]] = [{"refine": 0, "bits": 64}, {"levels": 4, "bits": 128}]
    for parameters in other:
        lsq = LSQ(**parameters, iterations=1).fit(DIGITS)
        with pytest.raises(StateError, match="head"):
            LSQ.from_state(lsq.config, {**lsq.state, "head": np.array([4, 1, 1, 1], np.float32)}, 64)


@pytest.mark.parametrize("levels", [2, 3, 4, 16])
def test_a_linear_layout_has_tables_affine_in_the_level(levels: int) -> None:
    lsq = LSQ(bits=48, levels=levels, iterations=2).fit(DIGITS)
    assert lsq.layout.linear
    for distance in ("asymmetric",):
        values = lsq.tables(DIGITS[:4], "l2", distance).values
        for start, stop in zip(lsq.layout.starts[:-1].tolist(), lsq.layout.starts[1:].tolist(), strict=True):
            field = values[:, start:stop].astype(np.float64)
            line = field[:, :1] + np.linspace(0, 1, stop - start) * (field[:, -1:] - field[:, :1])
            assert np.allclose(field, line, rtol=1e-4, atol=1e-4 * np.abs(field).max())


def test_without_a_scalar_l2_has_the_symmetric_distance_only() -> None:
    lsq = LSQ(bits=32, scalar=None, iterations=2).fit(DIGITS)
    assert lsq.distances() == lsq.distances("cosine") == ("symmetric",)
    assert "asymmetric" in lsq.distances("ip")
    with pytest.raises(ParameterError, match="symmetric"):
        lsq.tables(DIGITS[:2])


def test_the_symmetric_distance_of_bits_is_hamming() -> None:
    lsq = LSQ(bits=32, scalar=None, iterations=2).fit(DIGITS)
    codes = lsq.encode(DIGITS[:30])
    sums = reference.distances(codes, lsq.layout, lsq.tables(DIGITS[:30], "l2", "symmetric"))
    bits = np.unpackbits(codes, axis=1)
    assert np.array_equal(sums, (bits[:, None] != bits).sum(axis=2))


def test_levels_beyond_the_last_are_refused() -> None:
    lsq = LSQ(bits=24, levels=3, scalar=None, iterations=2).fit(DIGITS)
    codes = lsq.encode(DIGITS[:3])
    codes[1, 0] |= 0b11
    with pytest.raises(CodeError, match="levels"):
        lsq.decode(codes)


# -- odd sizes ----------------------------------------------------------------------------------


def test_more_bits_than_dimensions_reconstruct_nearly_exactly() -> None:
    lsq = LSQ(bits=512, iterations=6).fit(DIGITS)
    assert lsq.layout.m > 64
    assert relative_error(lsq, DIGITS) < 0.002


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("parameters", [{"bits": 16}, {"bits": 24, "levels": 4}, {"m": 1, "refine": 0}])
def test_few_dimensions_work(dim: int, parameters: dict[str, Any]) -> None:
    vectors = clustered_vectors(dim)
    lsq = LSQ(**parameters).fit(vectors)
    assert relative_error(lsq, vectors) < (0.1 if "bits" in parameters else 1.0)
    assert np.isfinite(lsq.tables(vectors[:3]).values).all()


@pytest.mark.parametrize("parameters", [{"bits": 256}, {"levels": 4}, {"refine": 0}, {"scalar": "norm"}])
def test_two_training_vectors_work(parameters: dict[str, Any]) -> None:
    lsq = LSQ(**{"bits": 32, **parameters}).fit(DIGITS[:2])
    decoded = lsq.decode(lsq.encode(DIGITS[:50]))
    assert np.isfinite(decoded).all()
    lost = np.square(DIGITS[:2] - decoded[:2]).sum()
    assert lost < np.square(DIGITS[:2] - DIGITS[:2].mean(axis=0)).sum()


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e15, 1e18, 1e30])
@pytest.mark.parametrize("name", ["lsq", "itq", "pq", "lsh"])
def test_numbers_near_the_ends_of_float32_are_coded_or_refused(name: str, scale: float) -> None:
    """Squares beyond float32 must not turn into NaN codes: a finite result, or a typed error."""
    vectors = clustered_vectors(8) * np.float32(scale)
    encoder = make_encoder(name, bits=8)
    try:
        encoder.fit(vectors)
        decoded = encoder.decode(encoder.encode(vectors))
    except ValueError as error:
        assert type(error).__module__ == "lsqindex.errors", error
        return
    assert np.isfinite(decoded).all()
    assert np.abs(decoded).max() <= 20 * np.abs(vectors).max()


@pytest.mark.parametrize(("bits", "levels"), [(3, 2), (4, 2), (5, 3), (12, 256), (20, 65536), (18, 65536)])
def test_the_scalar_leaves_room_for_a_dimension_in_the_smallest_budgets(bits: int, levels: int) -> None:
    lsq = LSQ(bits=bits, levels=levels).fit(DIGITS)
    assert lsq.layout.m >= 1
    assert lsq.layout.code_bits <= bits
    assert len(lsq.encode(DIGITS[:3])) == 3
