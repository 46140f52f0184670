"""Inner products of rows whose lengths vary: ``lsq`` with the row scalar "length"."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from sklearn.datasets import load_digits

from lsqindex import Index, make_encoder
from lsqindex._inputs.vectors import Vectors
from lsqindex.encoders import Encoder, from_bytes, to_bytes
from lsqindex.encoders.lsq import LSQ
from lsqindex.encoders.lsq_length import split_lengths
from lsqindex.errors import ParameterError, StateError
from lsqindex.testing import clustered_vectors
from lsqindex.testing.reference import distances

DIM, QUERIES = 48, 200


@lru_cache(maxsize=16)
def rows_and_queries(data: str, sigma: float) -> tuple[Vectors, Vectors]:
    """Rows whose lengths are lognormal, and queries that are not among them."""
    if data == "digits":
        pixels = load_digits().data.astype(np.float32)
        rows = np.random.default_rng(0).permutation(pixels)
    else:
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((2200, DIM)) * np.linspace(1.0, 0.3, DIM) + 0.3
    rows = np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
    long = np.exp(sigma * np.random.default_rng(2).standard_normal(len(rows) - QUERIES)).astype(np.float32)
    return rows[QUERIES:] * long[:, None], rows[:QUERIES]


def recall(found: np.ndarray, rows: Vectors, queries: Vectors) -> float:
    """Recall10@10 of inner products."""
    true = np.argsort(-queries @ rows.T, axis=1)[:, :10]
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, true, strict=True)]))


def encoder_recall(encoder: Encoder, rows: Vectors, queries: Vectors) -> float:
    """Recall10@10 by codes alone."""
    sums = distances(encoder.encode(rows), encoder.layout, encoder.tables(queries, "ip"))
    return recall(np.argsort(sums, axis=1)[:, :10], rows, queries)


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("sigma", [0.5, 1.0])
@pytest.mark.parametrize("data", ["normal", "digits"])
def test_an_index_ranks_inner_products_at_least_as_well_as_pq(data: str, sigma: float, bits: int) -> None:
    """By codes alone, with default parameters."""
    rows, queries = rows_and_queries(data, sigma)
    found = {}
    for encoder in ("lsq", "pq"):
        with Index(dim=rows.shape[1], metric="ip", encoder=encoder, bits=bits, keep_vectors=None) as index:
            index.train(rows)
            index.add(rows)
            found[encoder] = recall(index.search(queries, k=10, rerank=0).ids, rows, queries)
    assert found["lsq"] >= found["pq"], found


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0])
def test_the_length_scalar_ranks_better_than_the_other_scalars(sigma: float) -> None:
    """Rows of equal length are ranked better, too: their scalar was not used for inner products before."""
    rows, queries = rows_and_queries("normal", sigma)
    scalars = ("length", "learned", None)
    found = [encoder_recall(make_encoder("lsq", bits=64, scalar=s).fit(rows), rows, queries) for s in scalars]
    assert found[0] > max(found[1:]), dict(zip(scalars, found, strict=True))


def test_the_length_of_a_query_does_not_change_its_ranking() -> None:
    """Distances are proportional to it."""
    rows, queries = rows_and_queries("normal", 1.0)
    encoder = make_encoder("lsq", bits=64, scalar="length").fit(rows)
    codes = encoder.encode(rows)
    one, more = (distances(codes, encoder.layout, encoder.tables(queries * f, "ip")) for f in (1, np.float32(1e-3)))
    assert np.allclose(one, more * 1e3, rtol=1e-3, atol=1e-4 * np.abs(one).max())


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_unit_of_length_does_not_matter(scale: float) -> None:
    """Very short and very long rows are ranked alike."""
    rows, queries = rows_and_queries("normal", 1.0)
    plain = encoder_recall(make_encoder("lsq", bits=64, scalar="length").fit(rows), rows, queries)
    rows = rows * np.float32(scale)
    scaled = encoder_recall(make_encoder("lsq", bits=64, scalar="length").fit(rows), rows, queries)
    assert abs(plain - scaled) < 0.02, (plain, scaled)


def test_zero_rows_and_very_short_rows_take_no_places() -> None:
    """Their inner products are nearly zero, whatever the code says of their direction."""
    rows, queries = rows_and_queries("normal", 1.0)
    rows = rows.copy()
    rows[::10], rows[1::10] = 0, rows[1::10] * np.float32(1e-6)
    encoder = make_encoder("lsq", bits=64, scalar="length").fit(rows)
    sums = distances(encoder.encode(rows), encoder.layout, encoder.tables(queries, "ip"))
    found = np.argsort(sums, axis=1)[:, :10]
    assert not np.isin(found % 10, (0, 1)).any()


def test_rows_longer_than_those_of_training_are_found_first() -> None:
    """A row ten times as long as any before has the largest inner product with queries near its direction."""
    rows, queries = rows_and_queries("normal", 0.5)
    encoder = make_encoder("lsq", bits=96, scalar="length").fit(rows)
    long = np.concatenate([rows, 10 * np.linalg.norm(rows, axis=1).max() * queries[:20]])
    sums = distances(encoder.encode(long), encoder.layout, encoder.tables(queries[:20], "ip"))
    among = np.argsort(sums, axis=1)[:, :20]
    assert (among == len(rows) + np.arange(20)[:, None]).any(axis=1).all()


def test_rows_of_a_direction_that_training_has_not_seen_take_no_places() -> None:
    """Their codes do not reach them, and must not look near to all queries."""
    rows, queries = rows_and_queries("normal", 0.5)
    rows, strange = rows.copy(), np.zeros((50, DIM), np.float32)
    rows[:, -1], strange[:, -1] = 0, 1
    encoder = make_encoder("lsq", bits=64, scalar="length").fit(rows)
    everything = np.concatenate([rows, strange])
    sums = distances(
        encoder.encode(everything), encoder.layout, encoder.tables(queries * (np.arange(DIM) < DIM - 1), "ip")
    )
    assert (np.argsort(sums, axis=1)[:, :10] >= len(rows)).mean() < 0.02


def test_decoded_rows_have_their_lengths() -> None:
    """As far as the scalar tells them; what is shorter than any row that is found is only known to be short."""
    rows, _ = rows_and_queries("normal", 0.5)
    encoder = make_encoder("lsq", bits=128, scalar="length").fit(rows)
    decoded = encoder.decode(encoder.encode(rows))
    assert np.square(rows - decoded).sum() < 0.2 * np.square(rows).sum()
    long = np.linalg.norm(rows, axis=1) > np.quantile(np.linalg.norm(rows, axis=1), 0.8)
    true, told = (split_lengths(vectors[long])[0] for vectors in (rows, decoded))
    assert np.corrcoef(true, told)[0, 1] > 0.9


def test_only_the_default_scalar_depends_on_the_metric() -> None:
    """What a user asks for is what is trained."""
    plain = LSQ(bits=64)
    assert plain.for_metric("ip").config == {**plain.config, "scalar": "length"}
    assert plain.for_metric("l2") is plain
    assert plain.for_metric("cosine") is plain
    for kept in (LSQ(bits=64, scalar="learned"), LSQ(bits=64, scalar=None), LSQ(bits=32, refine=0)):
        assert kept.for_metric("ip") is kept
    with Index(dim=24, metric="ip", encoder="lsq", bits=64, keep_vectors=None) as index:
        index.train(clustered_vectors(24))
        assert index.encoder.config["scalar"] == "length"


def test_an_index_with_l2_has_the_scalar_it_had() -> None:
    """The metric changes nothing elsewhere."""
    with Index(dim=24, encoder="lsq", bits=64, keep_vectors=None) as index:
        index.train(clustered_vectors(24))
        assert index.encoder.config["scalar"] == "auto"


def test_lengths_are_refused_where_codes_are_as_published() -> None:
    """The message names the way out."""
    with pytest.raises(ParameterError, match="refine>0"):
        LSQ(bits=16, refine=0, scalar="length")


def test_l2_has_the_symmetric_distance_only() -> None:
    """A length and a direction do not add up to an L2 distance."""
    encoder = LSQ(bits=64, scalar="length").fit(clustered_vectors(24))
    assert encoder.distances("l2") == ("symmetric",)
    assert encoder.distances("ip") == encoder.distances("cosine") == ("asymmetric", "symmetric")


def test_a_forged_length_is_refused() -> None:
    """A typical length of zero would divide by it."""
    encoder = LSQ(bits=64, scalar="length").fit(clustered_vectors(24))
    state = {**encoder.state, "length_known": np.zeros_like(encoder.state["length_known"])}
    with pytest.raises(StateError, match="length_known"):
        LSQ.from_state(encoder.config, state, 24)
    assert isinstance(from_bytes(to_bytes(encoder)), LSQ)


def test_compiled_tables_are_those_of_plain_numpy() -> None:
    """n-ary codes, and codes of bits for cosine, have their tables by NumPy; bits for inner products by a kernel."""
    rows, queries = rows_and_queries("normal", 1.0)
    scalar = LSQ(bits=64, iterations=2, scalar="length").fit(rows)
    compiled = scalar._linear
    told, steps = scalar._scalar.tables()
    inner = queries @ scalar._full_rows.T
    length, z, mean, unit_mean = (getattr(scalar._scalar, name) for name in ("length", "z", "mean", "unit_mean"))
    frontier = queries @ mean + z * length * np.linalg.norm(inner, axis=1)
    weights = frontier[:, None] * told - length * inner
    plain = np.concatenate(
        [frontier[:, None] * steps, np.stack([-weights, weights], axis=2).reshape(len(queries), -1)], axis=1
    )
    tables = compiled.of(queries, "ip")
    assert np.allclose(tables.values, plain, rtol=1e-4, atol=1e-5 * np.abs(plain).max())
    assert np.allclose(tables.bias, -frontier - length * (queries @ unit_mean), rtol=1e-4)
