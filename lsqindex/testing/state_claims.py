"""Parameters, state and errors, as tests: part of :class:`lsqindex.testing.EncoderConformance`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack
import numpy as np

from .._inputs.vectors import BLOCK_ROWS, Vectors
from ..encoders import Encoder, from_bytes, to_bytes
from ..encoders.base import constructor_names
from ..errors import LsqIndexError, NotFittedError, VectorError
from ..metrics import NAMES
from .claims import Claims, assert_equal_tables, raises, snapshot


class StateClaims(Claims):
    """Tests of what an encoder is made of, and of what it refuses."""

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

        def made(state: dict[str, Any]) -> Encoder:
            return type(encoder).from_state(encoder.config, state, dim)

        _assert_same(made(encoder.state), encoder, self.vectors[:20])
        raises(LsqIndexError, partial(made, {**encoder.state, "surplus": np.zeros(1, np.float32)}), "surplus")
        for name, array in encoder.state.items():
            less = {key: value for key, value in encoder.state.items() if key != name}
            raises(LsqIndexError, partial(made, less), name)
            if array.dtype.kind == "f" and array.size:
                broken = {**encoder.state, name: np.full_like(array, np.nan)}
                raises(LsqIndexError, partial(made, broken), name)

    def test_pickle_gives_the_same_encoder(self) -> None:
        """Fitted and unfitted."""
        _assert_same(pickle.loads(pickle.dumps(self.fitted())), self.fitted(), self.vectors[:50])
        assert not pickle.loads(pickle.dumps(self.make_encoder())).is_fitted

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
                unfitted = self.make_encoder()
                for use in (fitted.fit, fitted.encode, fitted.embed, unfitted.fit):
                    raises(VectorError, partial(use, vectors))
                raises(VectorError, partial(fitted.tables, vectors, distance=fitted.distances()[0]), "queries")
                raises(VectorError, partial(fitted.probe_tables, vectors), "queries")
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
            assert_equal_tables(one.tables(rows[:5], metric, distance), other.tables(rows[:5], metric, distance))
        if not other.layout.floats:
            assert_equal_tables(one.probe_tables(rows[:5], metric), other.probe_tables(rows[:5], metric))
