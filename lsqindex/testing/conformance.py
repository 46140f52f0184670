"""The contract of an encoder as a test suite: encoders inherit the tests.

Use it in a test file of the package that has the encoder::

    from lsqindex.testing import EncoderConformance
    from my_package import MyEncoder

    class TestMyEncoder(EncoderConformance):
        def make_encoder(self):
            return MyEncoder(bits=64)

``pytest`` then runs every ``test_*`` method of this class. The tests use plain asserts and need only NumPy and
lsqindex.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import numpy as np
from numpy.typing import NDArray

from .._inputs.vectors import BLOCK_ROWS, Vectors
from ..encoders import Encoder, Tables, from_bytes, to_bytes
from ..encoders.base import Metric, constructor_names
from ..errors import CodeError, LsqIndexError, NotFittedError, ParameterError, TooFewVectorsError, VectorError
from ..metrics import METRICS, NAMES
from . import reference
from .layout_claims import LayoutClaims

__all__ = ["EncoderConformance", "clustered_vectors"]


@lru_cache(maxsize=8)
def clustered_vectors(dim: int, n: int = 1000) -> Vectors:
    """Make reproducible vectors with clusters, strong and weak directions, and a mean that is not zero.

    Parameters
    ----------
    dim
        Dimensions.
    n
        The number of vectors.

    Returns
    -------
    numpy.ndarray
        float32, shape (n, dim), read-only.

    Examples
    --------
    >>> clustered_vectors(8).shape
    (1000, 8)
    """
    rng = np.random.default_rng(dim)
    centres = rng.standard_normal((12, dim))
    spread = np.linspace(1.0, 0.2, dim)
    rows = centres[rng.integers(0, 12, n)] + 0.5 * rng.standard_normal((n, dim))
    out: Vectors = ((rows * spread) @ np.linalg.qr(rng.standard_normal((dim, dim)))[0] + 0.3).astype(np.float32)
    out.flags.writeable = False
    return out


def raises(kind: type[BaseException], act: Callable[[], object], *words: str) -> str:
    """Assert that ``act`` raises ``kind`` with a message that has all ``words``; the message.

    >>> raises(ZeroDivisionError, lambda: 1 / 0, "division")
    'division by zero'
    """
    try:
        act()
    except kind as error:
        message = str(error)
        missing = [word for word in words if word not in message]
        assert not missing, f"{message!r} does not say {missing}"
        return message
    except BaseException as error:
        raise AssertionError(f"{kind.__name__} was due, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{kind.__name__} was due, nothing was raised")


class EncoderConformance(LayoutClaims):
    """Tests of the contract of an encoder: inherit from this class and override :meth:`make_encoder`.

    You can also override ``dim`` and ``vectors``. ``vectors`` must be at least a few hundred float32 rows on which the
    encoder can be expected to do better than the mean.

    Examples
    --------
    >>> from lsqindex import make_encoder
    >>> class TestLSH(EncoderConformance):
    ...     dim = 8
    ...     def make_encoder(self):
    ...         return make_encoder("lsh", bits=32)
    >>> TestLSH().test_fit_returns_the_encoder_itself()
    """

    #: Dimensions of the default ``vectors``.
    dim: int = 24
    #: The least correlation between estimated and true distances.
    min_correlation: float = 0.5
    #: The same for symmetric distances.
    min_symmetric_correlation: float = 0.3

    _fitted: ClassVar[dict[type, Encoder]] = {}

    def make_encoder(self) -> Encoder:
        """Return a new, unfitted encoder, always with the same parameters."""
        raise NotImplementedError("override make_encoder")

    @property
    def vectors(self) -> Vectors:
        """The vectors that the encoder is trained on and encodes."""
        return clustered_vectors(self.dim)

    def fitted(self) -> Encoder:
        """Return the encoder, fitted once per class; tests do not change it."""
        kind = type(self)
        if kind not in self._fitted:
            self._fitted[kind] = self.make_encoder().fit(self.vectors)
        return self._fitted[kind]

    def _small_integers(self) -> Vectors:
        """Rows that int8, uint8, float16 and float64 hold exactly."""
        rows = self.vectors[:64]
        low, high = float(rows.min()), float(rows.max())
        whole: Vectors = np.rint((rows - low) / max(high - low, 1e-9) * 100).astype(np.float32)
        return whole

    # -- fit ----------------------------------------------------------------------------------

    def test_fit_returns_the_encoder_itself(self) -> None:
        """Calls can be chained."""
        encoder = self.make_encoder()
        assert not encoder.is_fitted
        assert encoder.fit(self.vectors) is encoder
        assert encoder.is_fitted
        assert encoder.dim == self.vectors.shape[1]

    def test_fit_is_deterministic(self) -> None:
        """The same vectors, parameters and seed give the same encoder, to the bit."""
        assert snapshot(self.make_encoder().fit(self.vectors)) == snapshot(self.fitted())

    def test_fit_does_not_depend_on_the_global_random_state(self) -> None:
        """Randomness comes from the seed alone, and the global generator is left alone."""
        np.random.seed(1)  # noqa: NPY002
        before = repr(np.random.get_state())  # noqa: NPY002
        data = snapshot(self.make_encoder().fit(self.vectors))
        assert repr(np.random.get_state()) == before  # noqa: NPY002
        assert data == snapshot(self.fitted())

    def test_fitting_again_on_other_vectors_equals_a_fresh_fit(self) -> None:
        """Nothing of the first training is left, nor of what its use has cached."""
        other = np.ascontiguousarray(self.vectors[::-1] * np.float32(1.5) + np.float32(0.25))
        encoder = self.make_encoder().fit(self.vectors)
        encoder.decode(encoder.encode(self.vectors[:4]))
        for distance in encoder.distances():
            encoder.tables(self.vectors[:2], distance=distance)
        if not encoder.layout.floats:
            encoder.probe_tables(self.vectors[:2])
        encoder.fit(other)
        fresh = self.make_encoder().fit(other)
        assert snapshot(encoder) == snapshot(fresh)
        codes = fresh.encode(other[:64])
        assert np.array_equal(encoder.encode(other[:64]), codes)
        assert np.array_equal(encoder.decode(codes), fresh.decode(codes))
        for distance in fresh.distances():
            _assert_equal_tables(
                encoder.tables(other[:2], distance=distance), fresh.tables(other[:2], distance=distance)
            )
        if not fresh.layout.floats:
            _assert_equal_tables(encoder.probe_tables(other[:2]), fresh.probe_tables(other[:2]))

    def test_fit_leaves_the_vectors_alone(self) -> None:
        """Training does not write to its input."""
        vectors = np.array(self.vectors)
        self.make_encoder().fit(vectors)
        assert np.array_equal(vectors, self.vectors)

    def test_progress_steps_rise_up_to_the_total(self) -> None:
        """A progress bar fills; training that ends early jumps to the end."""
        seen: list[tuple[int, int, float]] = []
        self.make_encoder().fit(self.vectors, progress=lambda step, steps, error: seen.append((step, steps, error)))
        assert seen, "progress was never called"
        numbers = [step for step, _, _ in seen]
        assert numbers[:-1] == list(range(1, len(seen)))
        assert numbers[-1] >= len(seen)
        assert len({steps for _, steps, _ in seen}) == 1
        assert seen[-1][0] == seen[-1][1], f"the last step was {seen[-1][0]} of {seen[-1][1]}"
        assert all(type(step) is int and type(steps) is int for step, steps, _ in seen)
        assert all(np.isnan(error) or 0 <= error <= 1.5 for _, _, error in seen)

    def test_the_least_number_of_vectors_is_enough_and_one_less_is_refused(self) -> None:
        """TooFewVectorsError says how many are needed."""
        need, _ = self.make_encoder()._min_vectors()
        encoder = self.make_encoder().fit(self.vectors[:need])
        assert np.isfinite(encoder.decode(encoder.encode(self.vectors[:5]))).all()
        if need > 0:
            raises(TooFewVectorsError, lambda: self.make_encoder().fit(self.vectors[: need - 1]), str(need))

    def test_degenerate_training_data_give_finite_codes(self) -> None:
        """Constant, duplicated and rank-1 vectors; very small and very large ones."""
        n, dim = self.vectors.shape
        line = np.linspace(-1, 1, n, dtype=np.float32)[:, None]
        cases = {
            "zeros": np.zeros((n, dim), np.float32),
            "constant": np.full((n, dim), 0.1, np.float32),
            "two vectors, duplicated": self.vectors[np.arange(n) % 2],
            "rank 1": line * self.vectors[:1],
            "rank 1 away from zero": line * self.vectors[:1] + self.vectors[1:2],
            "tiny": self.vectors * np.float32(1e-12),
            "large": self.vectors * np.float32(1e12),
        }
        for what, rows in cases.items():
            encoder = self.make_encoder().fit(rows)
            decoded = encoder.decode(encoder.encode(rows[:50]))
            assert np.isfinite(decoded).all(), what
            reach = float(np.abs(rows).max())
            assert float(np.abs(decoded).max()) <= 20 * reach + 1e-30, what
            for distance in encoder.distances():
                tables = encoder.tables(rows[:3], distance=distance)
                assert np.isfinite(tables.values).all(), what
                assert np.isfinite(tables.bias).all(), what
            if not encoder.layout.floats:
                assert np.isfinite(encoder.probe_tables(rows[:3]).values).all(), what
            again = type(encoder).from_state(encoder.config, encoder.state, dim)
            assert np.array_equal(again.encode(rows[:50]), encoder.encode(rows[:50])), what

    # -- encode -------------------------------------------------------------------------------

    def test_codes_are_uint8_rows_of_code_size(self) -> None:
        """Shape and dtype of codes."""
        encoder = self.fitted()
        codes = encoder.encode(self.vectors)
        assert codes.dtype == np.uint8
        assert codes.shape == (len(self.vectors), encoder.code_size)
        assert encoder.code_size == encoder.layout.code_size == -(-sum(encoder.layout.bits) // 8)
        assert len(encoder.layout.bits) == len(encoder.layout.levels)
        assert all(2 <= n <= 1 << bits for n, bits in zip(encoder.layout.levels, encoder.layout.bits, strict=True))

    def test_encoding_again_gives_the_same_codes(self) -> None:
        """Deterministic, and the input is not written to."""
        vectors = np.array(self.vectors)
        codes = self.fitted().encode(vectors)
        differ = (codes != self.fitted().encode(vectors)).any(axis=1)
        assert not differ.any(), (
            f"encode is not deterministic: {int(differ.sum())} rows get other codes when asked again"
        )
        assert np.array_equal(vectors, self.vectors), "encode writes to its input"

    def test_different_vectors_get_different_codes(self) -> None:
        """An encoder that says the same of everything says nothing."""
        assert len(np.unique(self.fitted().encode(self.vectors), axis=0)) > 1

    def test_a_row_has_one_code_alone_and_in_any_batch(self) -> None:
        """Exactly equal: batching is not part of a code."""
        rows = self.vectors[:231]
        codes = self.fitted().encode(self.vectors)[:231]
        for size in (1, 2, 7, 33):
            parts = [self.fitted().encode(rows[i : i + size]) for i in range(0, len(rows), size)]
            differ = (np.concatenate(parts) != codes).any(axis=1)
            assert not differ.any(), f"in batches of {size} rows {np.flatnonzero(differ)[:5]} get other codes"

    def test_a_row_on_the_edge_of_its_code_has_one_code_alone_and_in_any_batch(self) -> None:
        """Where the last bit of a sum decides, that bit must not depend on the batch."""
        rows = edge_rows(self.fitted(), self.vectors)
        codes = self.fitted().encode(rows)
        for size in (1, 2, 7, 33):
            parts = [self.fitted().encode(rows[i : i + size]) for i in range(0, len(rows), size)]
            differ = (np.concatenate(parts) != codes).any(axis=1)
            assert not differ.any(), f"in batches of {size}, {int(differ.sum())} of {len(rows)} rows get other codes"

    def test_a_row_has_one_code_at_any_place_in_a_batch(self) -> None:
        """Reversed input gives reversed codes."""
        rows = edge_rows(self.fitted(), self.vectors)
        assert np.array_equal(self.fitted().encode(rows[::-1])[::-1], self.fitted().encode(rows))

    def test_codes_are_equal_for_any_number_of_threads(self) -> None:
        """Threads make it faster, not different; an odd last block included."""
        rows = np.resize(self.vectors, (2 * BLOCK_ROWS + 37, self.vectors.shape[1]))
        codes = self.fitted().encode(rows)
        for threads in (2, 3):
            assert np.array_equal(self.fitted().encode(rows, threads=threads), codes)
        wrong: list[Any] = [0, -1, 1.5, True, "2"]
        for bad in wrong:
            raises(ParameterError, lambda bad=bad: self.fitted().encode(rows[:1], threads=bad), "threads")  # type: ignore[misc]

    def test_no_rows_are_encoded_to_no_codes(self) -> None:
        """Zero rows are no error anywhere."""
        encoder = self.fitted()
        none = np.empty((0, self.vectors.shape[1]), np.float32)
        codes = encoder.encode(none)
        assert codes.shape == (0, encoder.code_size)
        assert codes.dtype == np.uint8
        assert encoder.decode(codes).shape == none.shape
        assert encoder.embed(none).shape == (0, encoder.embed_dim)
        for distance in encoder.distances():
            tables = encoder.tables(none, distance=distance)
            assert len(tables.values) == 0
            assert tables.bias.shape == (0,)
        if not encoder.layout.floats:
            assert encoder.probe_tables(none).values.shape == (0, encoder.layout.starts[-1])

    def test_equal_numbers_of_any_dtype_get_equal_codes(self) -> None:
        """Float16, float64, integers, big-endian numbers and lists."""
        rows = self._small_integers()
        codes = self.fitted().encode(rows)
        for dtype in (np.float16, np.float64, np.int8, np.uint8, np.int32, np.int64, np.longdouble, ">f4", ">i2"):
            assert np.array_equal(self.fitted().encode(rows.astype(dtype)), codes), dtype
        assert np.array_equal(self.fitted().encode(rows.tolist()), codes)

    def test_fit_sees_equal_numbers_of_any_dtype_alike(self) -> None:
        """Training on float64 or integers equals training on the same float32."""
        whole = np.rint(self.vectors * 20).astype(np.float32)
        data = snapshot(self.make_encoder().fit(whole))
        for dtype in (np.float64, np.int16):
            assert snapshot(self.make_encoder().fit(np.asfortranarray(whole.astype(dtype)))) == data, dtype

    def test_equal_numbers_in_any_memory_get_equal_codes(self) -> None:
        """Fortran order, strides, read-only and memory-mapped arrays."""
        rows = np.array(self.vectors[:100])
        codes = self.fitted().encode(rows)
        n, dim = rows.shape
        wide = np.zeros((2 * n, 3 * dim), np.float32)
        wide[::2, ::3] = rows
        read_only = rows.copy()
        read_only.flags.writeable = False
        odd = np.frombuffer(b"\0" + rows.tobytes(), np.uint8)[1:].view(np.float32).reshape(rows.shape)
        cases = {
            "Fortran": np.asfortranarray(rows),
            "strided": wide[::2, ::3],
            "backwards": np.ascontiguousarray(rows[::-1])[::-1],
            "read-only": read_only,
            "unaligned": odd,
        }
        for what, same in cases.items():
            assert np.array_equal(self.fitted().encode(same), codes), what
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "rows.npy"), rows)
            mapped = np.load(Path(folder, "rows.npy"), mmap_mode="r")
            assert np.array_equal(self.fitted().encode(mapped), codes)
            del mapped

    # -- decode and embed ---------------------------------------------------------------------

    def test_decode_gives_finite_float32_vectors(self) -> None:
        """Shape and dtype of reconstructions."""
        encoder = self.fitted()
        decoded = encoder.decode(encoder.encode(self.vectors))
        assert decoded.shape == self.vectors.shape
        assert decoded.dtype == np.float32
        assert np.isfinite(decoded).all()

    def test_decode_is_nearer_than_the_mean(self) -> None:
        """A code tells something of its vector."""
        encoder = self.fitted()
        error = np.square(self.vectors - encoder.decode(encoder.encode(self.vectors)), dtype=np.float64).sum()
        spread = np.square(self.vectors - self.vectors.mean(axis=0), dtype=np.float64).sum()
        assert error < spread, f"relative error {error / spread:.3f}"

    def test_decode_refuses_what_is_no_code(self) -> None:
        """CodeError for a wrong width, dtype or number of axes."""
        encoder = self.fitted()
        codes = encoder.encode(self.vectors[:3])
        wrong: list[Any] = [codes[:, :-1], np.concatenate([codes, codes], axis=1), codes[0], codes.astype(np.int16)]
        for bad in wrong:
            raises(CodeError, lambda bad=bad: encoder.decode(bad), str(encoder.code_size))  # type: ignore[misc]

    def test_decode_takes_codes_of_any_memory(self) -> None:
        """Strided, Fortran-ordered and read-only codes."""
        encoder = self.fitted()
        codes = encoder.encode(self.vectors[:40])
        decoded = encoder.decode(codes)
        codes.flags.writeable = False
        assert np.array_equal(encoder.decode(codes), decoded)
        assert np.array_equal(encoder.decode(np.asfortranarray(codes)), decoded)
        assert np.array_equal(encoder.decode(np.repeat(codes, 2, axis=0)[::2]), decoded)

    def test_embed_gives_embed_dim_numbers(self) -> None:
        """Feature vectors: finite float32, equal for equal codes."""
        encoder = self.fitted()
        features = encoder.embed(self.vectors[:50])
        assert features.shape == (50, encoder.embed_dim)
        assert features.dtype == np.float32
        assert np.isfinite(features).all()
        assert np.array_equal(features, encoder.embed(self.vectors)[:50])

    # -- tables -------------------------------------------------------------------------------

    def test_tables_have_the_shape_of_the_layout(self) -> None:
        """Finite float32, one entry per level of every field, one bias per query."""
        encoder = self.fitted()
        queries = self.vectors[:6]
        width = encoder.dim if encoder.layout.floats else int(encoder.layout.starts[-1])
        for metric in NAMES:
            assert encoder.distances(metric)
            assert set(encoder.distances(metric)) <= {"asymmetric", "symmetric"}
            for distance in encoder.distances(metric):
                tables = encoder.tables(queries, metric, distance)
                assert tables.values.shape == (6, width)
                assert tables.bias.shape == (6,)
                assert tables.values.dtype == tables.bias.dtype == np.float32
                assert np.isfinite(tables.values).all()
                assert np.isfinite(tables.bias).all()

    def test_sums_of_look_ups_follow_the_true_distances(self) -> None:
        """For l2, ip, and (on unit vectors) cosine: nearer vectors have smaller sums."""
        for metric in NAMES:
            encoder, rows = self.fitted(), self.vectors
            if METRICS[metric].unit:
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                encoder = self.make_encoder().fit(rows)
            codes = encoder.encode(rows[50:450])
            # For cosine the door normalizes queries: any length gives the same.
            queries = rows[:50] * np.float32(3 if METRICS[metric].unit else 1)
            exact = true_distances(rows[:50], rows[50:450], metric)
            for distance in encoder.distances(metric):
                tables = encoder.tables(queries, metric, distance)
                if encoder.layout.floats:
                    assert np.allclose(tables.values, rows[:50], rtol=1e-5, atol=1e-6), (metric, "queries themselves")
                    continue
                sums = reference.distances(codes, encoder.layout, tables)
                fit = np.corrcoef(exact.ravel(), sums.ravel())[0, 1]
                least = self.min_correlation if distance == "asymmetric" else self.min_symmetric_correlation
                assert fit > least, f"{metric}, {distance}: correlation {fit:.3f}"

    def test_the_symmetric_distance_to_the_own_code_is_the_least(self) -> None:
        """No code is nearer to a query than its own, in squared L2."""
        encoder = self.fitted()
        if encoder.layout.floats or "symmetric" not in encoder.distances():
            raises(ParameterError, lambda: encoder.tables(self.vectors[:1], "l2", "nearest"), "distance")  # type: ignore[arg-type]
            return
        queries = self.vectors[:20]
        tables = encoder.tables(queries, "l2", "symmetric")
        own = np.diag(reference.distances(encoder.encode(queries), encoder.layout, tables))
        starts = encoder.layout.starts
        fields = [tables.values[:, a:b] for a, b in pairwise(starts)]
        least = tables.bias + np.sum([field.min(axis=1) for field in fields], axis=0)
        most = tables.bias + np.sum([field.max(axis=1) for field in fields], axis=0)
        assert (most > least).all()
        assert (own <= least + 1e-4 * (most - least)).all()

    def test_tables_of_one_query_are_those_of_the_batch(self) -> None:
        """Up to rounding: queries do not know each other."""
        encoder = self.fitted()
        for distance in encoder.distances():
            many = encoder.tables(self.vectors[:9], distance=distance)
            one = encoder.tables(self.vectors[4:5], distance=distance)
            scale = float(np.abs(many.values).max())
            assert np.allclose(one.values[0], many.values[4], rtol=1e-4, atol=1e-5 * scale)

    def test_tables_refuse_unknown_metrics_and_distances(self) -> None:
        """ParameterError, naming what there is."""
        encoder = self.fitted()
        raises(ParameterError, lambda: encoder.tables(self.vectors[:1], "manhattan"), "l2")  # type: ignore[arg-type]
        raises(ParameterError, lambda: encoder.tables(self.vectors[:1], "l2", "near"), encoder.distances()[0])  # type: ignore[arg-type]

    # -- probe tables -------------------------------------------------------------------------

    def test_probe_tables_have_the_shape_of_the_layout(self) -> None:
        """Finite float32; nothing for row scalars, no bias; the same when asked again, and no query written to."""
        encoder = self.fitted()
        queries = np.array(self.vectors[:6])
        if encoder.layout.floats:
            raises(ParameterError, lambda: encoder.probe_tables(queries), "no probe tables")
            return
        for metric in NAMES:
            tables = encoder.probe_tables(queries, metric)
            assert tables.values.shape == (6, int(encoder.layout.starts[-1]))
            assert tables.bias.shape == (6,)
            assert tables.values.dtype == tables.bias.dtype == np.float32
            assert np.isfinite(tables.values).all()
            assert not tables.bias.any()
            assert not tables.values[:, : encoder.layout.starts[encoder.layout.scalars]].any()
            _assert_equal_tables(tables, encoder.probe_tables(queries.tolist(), metric))
            assert np.array_equal(queries, self.vectors[:6])

    def test_probe_tables_of_one_query_are_those_of_the_batch(self) -> None:
        """Up to rounding: queries do not know each other."""
        encoder = self.fitted()
        if encoder.layout.floats:
            return
        for metric in NAMES:
            many, one = (encoder.probe_tables(rows, metric).values for rows in (self.vectors[:40], self.vectors[33:34]))
            scale = float(np.abs(many).max())
            assert np.allclose(one[0], many[33], rtol=1e-4, atol=1e-5 * scale)

    def test_probe_tables_are_smaller_for_a_query_s_own_code_than_for_others(self) -> None:
        """For l2 and, on unit vectors, cosine: what is looked under first is where the query would have been put."""
        for metric in (name for name in NAMES if METRICS[name].base == "l2"):
            encoder, rows = self.fitted(), self.vectors
            if encoder.layout.floats:
                return
            if METRICS[metric].unit:
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                encoder = self.make_encoder().fit(rows)
            queries = rows[:50] * np.float32(3 if METRICS[metric].unit else 1)
            sums = reference.distances(encoder.encode(rows[:50]), encoder.layout, encoder.probe_tables(queries, metric))
            share = float((np.diag(sums)[:, None] <= sums).mean())
            assert share > 0.9, f"{metric}: only {share:.2f} of other codes cost as much as a query's own"

    def test_probe_tables_refuse_unknown_metrics(self) -> None:
        """ParameterError, naming what there is."""
        raises(ParameterError, lambda: self.fitted().probe_tables(self.vectors[:1], "manhattan"), "l2")  # type: ignore[arg-type]

    # -- parameters and state -----------------------------------------------------------------

    def test_config_is_plain_and_makes_the_same_encoder(self) -> None:
        """Constructor arguments, storable by msgpack, the same before and after fit."""
        encoder = self.make_encoder()
        config = encoder.config
        assert set(config) <= set(constructor_names(type(encoder)))
        assert msgpack.unpackb(msgpack.packb(config)) == config
        again = type(encoder)(**config)
        assert again.config == config
        assert repr(again) == repr(encoder)
        assert self.fitted().config == config
        assert snapshot(again.fit(self.vectors)) == snapshot(self.fitted())

    def test_bytes_and_back_give_the_same_encoder(self) -> None:
        """Codes, tables, reconstructions and features; and the bytes again."""
        encoder = self.fitted()
        data = to_bytes(encoder)
        _assert_same(from_bytes(data), encoder, self.vectors[:100])
        assert to_bytes(from_bytes(data)) == data

    def test_state_makes_the_same_encoder_and_refuses_other_arrays(self) -> None:
        """``from_state`` takes what ``state`` gave, no more and no less."""
        encoder = self.fitted()
        dim = int(self.vectors.shape[1])
        _assert_same(type(encoder).from_state(encoder.config, encoder.state, dim), encoder, self.vectors[:20])
        extra = {**encoder.state, "surplus": np.zeros(1, np.float32)}
        raises(LsqIndexError, lambda: type(encoder).from_state(encoder.config, extra, dim), "surplus")
        for name, array in encoder.state.items():
            less = {key: value for key, value in encoder.state.items() if key != name}
            raises(LsqIndexError, lambda less=less: type(encoder).from_state(encoder.config, less, dim), name)  # type: ignore[misc]
            if array.dtype.kind == "f" and array.size:
                broken = {**encoder.state, name: np.full_like(array, np.nan)}
                raises(LsqIndexError, lambda bad=broken: type(encoder).from_state(encoder.config, bad, dim), name)  # type: ignore[misc]

    def test_pickle_gives_the_same_encoder(self) -> None:
        """Fitted and unfitted."""
        _assert_same(pickle.loads(pickle.dumps(self.fitted())), self.fitted(), self.vectors[:50])
        assert not pickle.loads(pickle.dumps(self.make_encoder())).is_fitted

    # -- errors -------------------------------------------------------------------------------

    def test_use_before_fit_is_refused(self) -> None:
        """NotFittedError, from everything that needs training."""
        encoder = self.make_encoder()
        uses: list[Callable[[], object]] = [
            lambda: encoder.encode(self.vectors),
            lambda: encoder.decode(np.zeros((1, 1), np.uint8)),
            lambda: encoder.embed(self.vectors),
            lambda: encoder.tables(self.vectors, distance=encoder.distances()[0]),
            lambda: encoder.probe_tables(self.vectors),
            lambda: encoder.state,
            lambda: encoder.layout,
            lambda: encoder.code_size,
            lambda: to_bytes(encoder),
        ]
        for use in uses:
            raises(NotFittedError, use, "fit")

    def test_bad_vectors_are_refused_and_nothing_changes(self) -> None:
        """VectorError; a failed fit leaves a fitted encoder as it was and an unfitted one unfitted."""
        n, dim = self.vectors.shape
        bad: dict[str, Any] = {
            "NaN": np.full((n, dim), np.nan, np.float32),
            "inf": np.full((n, dim), np.inf, np.float32),
            "float64 beyond float32": np.full((n, dim), 1e300),
            "1-D": self.vectors[0],
            "3-D": self.vectors[None],
            "no dimensions": np.empty((n, 0), np.float32),
            "strings": np.full((n, dim), "1"),
            "objects": np.full((n, dim), None),
            "complex": np.full((n, dim), 1j),
            "ragged": [[1.0, 2.0], [1.0]],
            "a number": 3.0,
            "None": None,
        }
        fitted = self.make_encoder().fit(self.vectors)
        before = snapshot(fitted)
        for what, vectors in bad.items():
            try:
                raises(VectorError, lambda v=vectors: fitted.fit(v))  # type: ignore[misc]
                raises(VectorError, lambda v=vectors: fitted.encode(v))  # type: ignore[misc]
                raises(VectorError, lambda v=vectors: fitted.embed(v))  # type: ignore[misc]
                raises(VectorError, lambda v=vectors: fitted.tables(v, distance=fitted.distances()[0]), "queries")  # type: ignore[misc]
                raises(VectorError, lambda v=vectors: fitted.probe_tables(v), "queries")  # type: ignore[misc]
                unfitted = self.make_encoder()
                raises(VectorError, lambda v=vectors, e=unfitted: e.fit(v))  # type: ignore[misc]
            except AssertionError as error:
                raise AssertionError(f"{what}: {error}") from error
            assert not unfitted.is_fitted
            assert snapshot(fitted) == before, what
        raises(VectorError, lambda: fitted.encode(self.vectors[:, :-1]), str(dim), str(dim - 1))

    def test_a_bad_row_is_named(self) -> None:
        """Also past the first block of an encoding."""
        rows = np.resize(self.vectors, (BLOCK_ROWS + 50, self.vectors.shape[1]))
        rows[BLOCK_ROWS + 17, 0] = np.nan
        raises(VectorError, lambda: self.fitted().encode(rows), f"row {BLOCK_ROWS + 17}")
        raises(VectorError, lambda: self.fitted().encode(rows, threads=2), f"row {BLOCK_ROWS + 17}")
        raises(VectorError, lambda: self.fitted().embed(rows), f"row {BLOCK_ROWS + 17}")

    def test_an_error_during_training_leaves_the_encoder_as_it_was(self) -> None:
        """What ``progress`` raises comes through, and nothing else has happened."""

        class StopTrainingError(Exception):
            pass

        def stop(step: int, steps: int, error: float) -> None:
            raise StopTrainingError

        encoder = self.make_encoder().fit(self.vectors)
        before, codes = snapshot(encoder), encoder.encode(self.vectors[:50])
        raises(StopTrainingError, lambda: encoder.fit(self.vectors[::-1] + np.float32(1), progress=stop))
        assert snapshot(encoder) == before
        assert np.array_equal(encoder.encode(self.vectors[:50]), codes)


def snapshot(encoder: Encoder) -> tuple[Any, ...]:
    """All that makes a fitted encoder, to compare."""
    arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in encoder.state.items()}
    return type(encoder), encoder.dim, encoder.config, arrays


def edge_rows(encoder: Encoder, vectors: Vectors, pairs: int = 150) -> Vectors:
    """Vectors as near as float32 goes to where one code becomes another: both sides of each edge."""
    left, right = (np.array(part, np.float64) for part in (vectors[:pairs], vectors[pairs : 2 * pairs]))
    codes = encoder.encode(left)
    for _ in range(40):
        middle = (left + right) / 2
        stays = (encoder.encode(middle) == codes).all(axis=1)[:, None]
        left, right = np.where(stays, middle, left), np.where(stays, right, middle)
    return np.concatenate([left, right]).astype(np.float32)


def true_distances(queries: Vectors, rows: Vectors, metric: Metric) -> NDArray[np.float64]:
    """The distances that tables estimate, exactly.

    >>> true_distances(np.eye(2, dtype=np.float32)[:1], np.eye(2, dtype=np.float32), "l2")
    array([[0., 2.]])
    """
    return METRICS[metric].pairs(queries.astype(np.float64), rows.astype(np.float64))


def _assert_equal_tables(one: Tables, other: Tables) -> None:
    assert np.array_equal(one.values, other.values)
    assert np.array_equal(one.bias, other.bias)


def _assert_same(one: Encoder, other: Encoder, rows: Vectors) -> None:
    """Two encoders that nobody can tell apart."""
    assert type(one) is type(other)
    assert one.config == other.config
    assert one.dim == other.dim
    assert one.layout == other.layout
    codes = other.encode(rows)
    assert np.array_equal(one.encode(rows), codes)
    assert np.array_equal(one.decode(codes), other.decode(codes))
    assert np.array_equal(one.embed(rows), other.embed(rows))
    for metric in NAMES:
        assert one.distances(metric) == other.distances(metric)
        for distance in other.distances(metric):
            _assert_equal_tables(one.tables(rows[:5], metric, distance), other.tables(rows[:5], metric, distance))
        if not other.layout.floats:
            _assert_equal_tables(one.probe_tables(rows[:5], metric), other.probe_tables(rows[:5], metric))
