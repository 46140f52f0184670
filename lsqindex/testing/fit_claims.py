"""Training an encoder, as tests: part of :class:`lsqindex.testing.EncoderConformance`."""

from __future__ import annotations

import numpy as np

from ..errors import TooFewVectorsError
from .claims import Claims, assert_equal_tables, raises, snapshot


class FitClaims(Claims):
    """Tests of ``fit``."""

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
            assert_equal_tables(
                encoder.tables(other[:2], distance=distance), fresh.tables(other[:2], distance=distance)
            )
        if not fresh.layout.floats:
            assert_equal_tables(encoder.probe_tables(other[:2]), fresh.probe_tables(other[:2]))

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
